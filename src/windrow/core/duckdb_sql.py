"""Queries of DuckDB over Arrow tables, and quoting of names and texts in them.

DuckDB is used as a library of vectorised operators: each step's tables are its input, and nothing is kept in it.
"""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import FunctionType
from typing import TypeVar

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.errors import RunError
from windrow.expressions import duckdb_message
from windrow.expressions.engine import database

# the alternative, a relation, binds each query twice, which costs more than a copy of a step's usual results
warnings.filterwarnings("ignore", "Arrow output on a DB-API result makes an extra copy", UserWarning)

T = TypeVar("T")


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


class Projection:
    """Expressions over the rows of a table, planned once for all tables of one schema: columns `c0`, `c1` ...

    A query over a table that is found by its name is planned each time, which is most of the time that a small one
    takes. A view of an object that gives another stream in each run is planned once. `name` is that of the view and of
    the prepared statement, and no other one's of the connection. Of the tables it reads `columns`, as each costs.
    Raise RunError if an expression fails.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, name: str, expressions: Iterable[str], columns: Iterable[str]
    ) -> None:
        self._connection = connection
        self._columns = list(dict.fromkeys(columns))
        self._name = identifier(name)
        selected = ", ".join(f"{sql} AS c{number}" for number, sql in enumerate(expressions))
        self._sql = f"PREPARE {self._name} AS SELECT {selected} FROM {self._name}"
        self._streams = _Streams()
        self._view = name

    def table(self, rows: pa.Table) -> pa.Table:
        """Return the values for each row."""
        return self._executed(rows, duckdb.DuckDBPyConnection.to_arrow_table)

    def masks(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return the values of conditions, which are never null, by row and number."""
        found = self._executed(rows, duckdb.DuckDBPyConnection.fetchnumpy)
        return np.column_stack([np.asarray(column, dtype=np.bool_) for column in found.values()])

    def _executed(self, rows: pa.Table, fetch: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        # for the number of rows there is always a column
        rows = rows.select(self._columns or rows.column_names[:1])
        is_planned, self._streams.table = self._streams.table is not None, rows
        try:
            if not is_planned:
                self._connection.register(self._view, self._streams)
                self._connection.execute(self._sql)
            return fetch(self._connection.execute(_parsed(f"EXECUTE {self._name}")))
        except duckdb.Error as exc:
            raise _failure(exc) from exc
        finally:
            self._streams.table = rows.slice(0, 0)


class _Streams:
    """Gives a stream of its table whenever DuckDB asks."""

    table: pa.Table | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema) if self.table is not None else None


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
