"""Tables in an SQLite file."""

from windrow.sinks.sqlite.sink import SqliteTables

__all__ = ["SqliteTables"]
