"""The rows of an outbox, sent to a topic or a log."""
