"""Changes of a PostgreSQL table, captured by logical replication."""
