"""DuckDB as a library of vectorised operators over Arrow tables."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from windrow.expressions.engine import database


def connect() -> duckdb.DuckDBPyConnection:
    """Open a connection with names of its own to this process's DuckDB."""
    return database().cursor()


def query(connection: duckdb.DuckDBPyConnection, sql: str, **tables: pa.Table) -> pa.Table:
    """Run a query over the named tables."""
    for name, table in tables.items():
        connection.register(name, table)
    try:
        return connection.sql(sql).to_arrow_table()
    finally:
        for name in tables:
            connection.unregister(name)


def identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
