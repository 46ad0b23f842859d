"""Relay from an outbox to a topic or a log."""
