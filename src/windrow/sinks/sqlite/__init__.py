"""Tables in an SQLite file."""

from windrow.sinks.sqlite.sink import SqliteTable

__all__ = ["SqliteTable"]
