"""Tables in the file of an embedded database: what SQLite and DuckDB share."""
