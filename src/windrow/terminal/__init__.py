"""Shared parts of commands: options, errors, interrupts, progress and tables."""
