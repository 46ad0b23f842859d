"""Tables in a PostgreSQL database."""

from windrow.sinks.postgres.sink import PostgresTable

__all__ = ["PostgresTable"]
