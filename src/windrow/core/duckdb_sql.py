"""Queries of DuckDB over Arrow tables, and quoting of names and texts in them.

DuckDB is used as a library of vectorised operators: each step's tables are its input, and nothing is kept in it.
"""

from __future__ import annotations

import builtins
import warnings
from functools import lru_cache
from types import FunctionType

import duckdb
import pyarrow as pa

from windrow.errors import RunError
from windrow.expressions import duckdb_message
from windrow.expressions.engine import database

# the alternative, a relation, binds each query twice, which costs more than a copy of a step's usual results
warnings.filterwarnings("ignore", "Arrow output on a DB-API result makes an extra copy", UserWarning)


def connect() -> duckdb.DuckDBPyConnection:
    """Open a connection to this process's DuckDB, with a namespace of its own."""
    return database().cursor()


def query(connection: duckdb.DuckDBPyConnection, sql: str, **tables: pa.Table) -> pa.Table:
    """Run a query over the named tables; raise RunError if it fails."""
    # DuckDB looks tables up in the globals of its caller; registering a view of each costs as much as a small query
    called = FunctionType(_run.__code__, {"__builtins__": builtins, **tables})
    try:
        return called(connection, _parsed(sql))
    except duckdb.Error as exc:
        raise _failure(exc) from exc


def _run(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> pa.Table:
    return connection.execute(statement).to_arrow_table()


@lru_cache(maxsize=256)
def _parsed(sql: str) -> duckdb.Statement:
    (statement,) = database().extract_statements(sql)
    return statement


def _failure(error: duckdb.Error) -> RunError:
    """Translate DuckDB's error: the message of a RunError that Python code in the query raised, or DuckDB's own."""
    _, raised, message = str(error).partition(f"{RunError.__name__}: ")
    return RunError(
        message if raised else f"a step cannot be computed: {duckdb_message(error)}; what was committed stays"
    )


def identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
