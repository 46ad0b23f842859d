"""Tables in a PostgreSQL database."""

from windrow.sinks.postgres.table import PostgresTable

__all__ = ["PostgresTable"]
