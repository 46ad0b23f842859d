"""The changes of a table of a PostgreSQL database, by logical replication."""
