"""Tables in a PostgreSQL database."""

from windrow.connectors.postgres.sink import PostgresTables

__all__ = ["PostgresTables"]
