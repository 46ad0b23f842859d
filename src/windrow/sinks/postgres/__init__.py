"""Tables in a PostgreSQL database."""

from windrow.sinks.postgres.sink import PostgresTables

__all__ = ["PostgresTables"]
