"""Event-time analytics on Spark whose answers do not change when the log is replayed."""
