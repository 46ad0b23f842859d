"""Tables in a DuckDB file."""
