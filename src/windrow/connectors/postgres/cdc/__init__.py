"""The changes of a table of a PostgreSQL database, by logical replication."""

from windrow.connectors.postgres.cdc.follow import FollowedTable

__all__ = ["FollowedTable"]
