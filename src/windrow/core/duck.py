"""DuckDB as a library of vectorised operators over Arrow tables."""

from __future__ import annotations

from functools import lru_cache

import duckdb
import pyarrow as pa


def connect() -> duckdb.DuckDBPyConnection:
    """Open a connection with names of its own to this process's DuckDB."""
    return _database().cursor()


@lru_cache(maxsize=1)
def _database() -> duckdb.DuckDBPyConnection:
    """Open DuckDB in memory with one thread: Spark's tasks are the parallelism, and one thread keeps the order.

    Its time zone is UTC and not the machine's, as a key's text, and with it its key group, must be the same everywhere.
    """
    database = duckdb.connect(
        config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    return database


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
