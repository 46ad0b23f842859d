"""Tables in an SQLite file."""

from windrow.sinks.sqlite.table import SqliteTable

__all__ = ["SqliteTable"]
