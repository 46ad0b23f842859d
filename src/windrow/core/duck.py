"""DuckDB as a library of vectorised operators over Arrow tables."""

from __future__ import annotations

from types import FunctionType

import duckdb
import pyarrow as pa

from windrow.errors import RunError
from windrow.expressions import said_by
from windrow.expressions.engine import database


def connect() -> duckdb.DuckDBPyConnection:
    """Open a connection with names of its own to this process's DuckDB."""
    return database().cursor()


def query(connection: duckdb.DuckDBPyConnection, sql: str, **tables: pa.Table) -> pa.Table:
    """Run a query over the named tables; raise RunError if it fails."""
    # DuckDB looks names up where it is called, the globals too: a view of each table would cost what a small query does
    called = FunctionType(_run.__code__, {"__builtins__": {}, **tables})
    try:
        return called(connection, sql)
    except duckdb.Error as exc:
        raise _failure(exc) from exc


def _run(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    return connection.sql(sql).to_arrow_table()


def _failure(error: duckdb.Error) -> RunError:
    """Return what a query's failure is: what Python code that it called raised on purpose, or what DuckDB says."""
    _, raised, message = str(error).partition(f"{RunError.__name__}: ")
    return RunError(message if raised else f"a step cannot be computed: {said_by(error)}; what was committed stays")


def identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
