"""Servers for development and tests. They stop when the process that started them ends."""
