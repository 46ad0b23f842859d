"""The changes of a table of a PostgreSQL database, by logical replication."""

from windrow.sources.postgres_cdc.follow import FollowedTable

__all__ = ["FollowedTable"]
