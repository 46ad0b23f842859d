"""The relay of an outbox to a topic or a log."""
