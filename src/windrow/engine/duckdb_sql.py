"""DuckDB queries over Arrow tables, and quoting of names and texts in SQL.

DuckDB is used as a library of vectorised operators: it reads each step's tables and stores nothing. Each process has
two databases: one for windrow's own queries, and one for users' expressions (`expressions.engine`). Users' expressions
are queried through a `Projection`; their database has no access to files, settings or Python variables.
"""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import FunctionType
from typing import Final, TypeVar

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.engine.user_code import key_text
from windrow.errors import RunError
from windrow.expressions import duckdb_message
from windrow.expressions.engine import EXPRESSIONS, Engine

# the alternative, a relation, binds each query twice, which costs more than a copy of a step's usual results
warnings.filterwarnings("ignore", "Arrow output on a DB-API result makes an extra copy", UserWarning)

T = TypeVar("T")

_ROWS_THAT_GROW = 8
"""Number of rows that fit into memory even if each value is as large as possible."""

_FEW_ROWS = 10_000
"""Up to this number of rows, planning costs more than running, so a plan is used for all tables of the same schemas."""


QUERIES: Final = Engine("SET GLOBAL TimeZone = 'UTC'")
"""The engine of windrow's own queries."""


class Connection:
    """A connection to this process's DuckDB, with its own namespace and a cache of query plans.

    If the user's code fails in a query, the error shows the first key (of the columns `key`) whose rows alone make the
    query fail.
    """

    def __init__(self, key: Iterable[str] = ()) -> None:
        self.key = tuple(key)
        self._database: duckdb.DuckDBPyConnection | None = None
        self._cursor: duckdb.DuckDBPyConnection
        self.plans: dict[str, _Plan] = {}

    @property
    def cursor(self) -> duckdb.DuckDBPyConnection:
        """The connection, reopened if an internal error has invalidated the database."""
        if not QUERIES.is_current(self._database):
            self._database = QUERIES.database()
            self._cursor = self._database.cursor()
        return self._cursor


def renew_connections() -> None:
    """Have all queries of this process prepared again in new connections when they next run."""
    for engine in (QUERIES, EXPRESSIONS):
        engine.renew()


def query(connection: Connection, sql: str, **tables: pa.Table) -> pa.Table:
    """Run a query over the named tables.

    Raise QueryError if it fails, and RunError if the machine or the user's Python code fails.

    DuckDB plans a query for the sizes of its tables. With few rows, planning takes longer than the query itself, so
    when a query runs over few rows for the second time, a plan is prepared that is used for all tables with the same
    schemas.
    """
    plan = None
    if sum(table.num_rows for table in tables.values()) <= _FEW_ROWS:
        plan = connection.plans.get(sql)
        if plan is None or not plan.is_for(tables):
            connection.plans[sql], plan = _Plan(QUERIES, sql, tables), None
    try:
        if plan is not None:
            return _on_valid(QUERIES, lambda: plan.run(tables, duckdb.DuckDBPyConnection.to_arrow_table))
        return _on_valid(QUERIES, lambda: _run_over(tables, connection.cursor, sql))
    except duckdb.Error as exc:
        if connection.key and _message_of_code(exc):
            raise _failure(exc, _failing_key(connection, sql, tables)) from exc
        raise _failure(exc) from exc


def _failing_key(connection: Connection, sql: str, tables: Mapping[str, pa.Table]) -> str:
    """Return the first key whose rows alone make the user's code in a query fail, or an empty string.

    The key is found by halving the set of keys, which runs the failed query again over fewer and fewer rows.
    """
    cursor, by = connection.cursor, ", ".join(map(identifier, connection.key))
    keyed = {name: table for name, table in tables.items() if set(connection.key) <= set(table.column_names)}

    def fails(keys: pa.Table) -> bool:
        some = dict(tables)
        for name, table in keyed.items():
            found = _run_over({"rows": table, "keys": keys}, cursor, f"FROM rows SEMI JOIN keys USING ({by})")
            some[name] = found.cast(table.schema)
        try:
            _run_over(some, cursor, sql)
        except duckdb.Error as exc:
            return bool(_message_of_code(exc))
        return False

    if not keyed:
        return ""
    rows = " UNION ALL ".join(f"SELECT {by} FROM {name}" for name in keyed)
    keys = _run_over(keyed, cursor, f"SELECT DISTINCT {by} FROM ({rows}) ORDER BY ALL")
    if fails(keys.slice(0, 0)):  # because of a table that has no keys
        return ""
    while keys.num_rows > 1:
        half = keys.num_rows // 2
        first = keys.slice(0, half)
        keys = first if fails(first) else keys.slice(half)
    return key_text(connection.key, keys.to_pylist()[0].values()) if keys.num_rows and fails(keys) else ""


def _on_valid(engine: Engine, run: Callable[[], T]) -> T:
    """Run a query; if DuckDB has invalidated the database, perhaps after an error in another query, run it again."""
    try:
        return run()
    except (duckdb.FatalException, duckdb.InternalException):
        engine.database()
    return run()


class QueryError(RunError):
    """A query failed for at least one row; the cause is neither the machine nor the user's Python code."""


class EvaluationError(QueryError):
    """An expression failed for at least one row."""


class Projection:
    """A query that evaluates users' expressions for each row of a table; it reads the table as `rows`.

    It is planned once for all tables with the same schema. It reads only `columns`, because each column has a cost. If
    it `grows`, the values of a row can be much larger than the row, so they are computed for a few rows at a time.
    Raise EvaluationError if an expression fails, and RunError if the machine fails, for example because it runs out of
    memory.
    """

    def __init__(self, sql: str, columns: Iterable[str], *, grows: bool = False) -> None:
        self._columns = list(dict.fromkeys(columns))
        self._sql = sql
        self._plan: _Plan | None = None
        self._most = _ROWS_THAT_GROW if grows else None

    @staticmethod
    def of(expressions: Iterable[str], columns: Iterable[str], *, grows: bool = False) -> Projection:
        """Create a projection that computes the expressions as columns `c0`, `c1` and so on."""
        values = (f"{sql} AS c{number}" for number, sql in enumerate(expressions))
        return Projection(f"SELECT {', '.join(values)} FROM rows", columns, grows=grows)

    def table(self, rows: pa.Table) -> pa.Table:
        """Return the values of the expressions for each row."""
        values: pa.Table = self._run(rows, duckdb.DuckDBPyConnection.to_arrow_table)
        _check_rows(values.num_rows, rows)
        return values

    def masks(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return the values of conditions that are never null as a matrix with a column for each condition."""
        found = self._run(rows, duckdb.DuckDBPyConnection.fetchnumpy)
        masks = np.column_stack([np.asarray(column, dtype=np.bool_) for column in found.values()])
        _check_rows(len(masks), rows)
        return masks

    def _run(self, rows: pa.Table, fetch: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        # always a column, for the number of rows
        tables = {"rows": rows.select(self._columns or rows.column_names[:1])}
        if self._plan is None or not self._plan.is_for(tables):
            self._plan = _Plan(EXPRESSIONS, self._sql, tables, self._most)
        plan = self._plan
        try:
            return _on_valid(EXPRESSIONS, lambda: plan.run(tables, fetch))
        except MACHINE_ERRORS as exc:
            raise _failure(exc) from exc
        except (duckdb.Error, UnicodeDecodeError) as exc:
            raise EvaluationError(duckdb_message(exc)) from exc


MACHINE_ERRORS: Final = (duckdb.OperationalError, duckdb.InterruptException, duckdb.PermissionException)
"""Errors that the machine causes, and not the rows: lack of memory or disk, a lost connection, an interrupt."""


def _check_rows(found: int, rows: pa.Table) -> None:
    if found != rows.num_rows:
        msg = f"an expression returned {found} values for {rows.num_rows} records; this is a defect of windrow"
        raise RunError(msg)


class _Plan:
    """A query that is planned once, when it first runs, for all tables with the same schemas.

    It reads each table through a view of an object that returns a new stream in each run. The views and the prepared
    statement have their own namespace. If `most` is given, DuckDB computes at most that many rows at a time.
    """

    def __init__(self, engine: Engine, sql: str, tables: Mapping[str, pa.Table], most: int | None = None) -> None:
        self._engine, self._sql = engine, sql
        self._streams = {name: _Streams(table.schema, most) for name, table in tables.items()}
        self._database: duckdb.DuckDBPyConnection | None = None
        self._cursor: duckdb.DuckDBPyConnection

    def is_for(self, tables: Mapping[str, pa.Table]) -> bool:
        """Return True if the tables have the schemas that the query was planned for."""
        # metadata of a field can change its type
        return all(
            stream.schema.equals(tables[name].schema, check_metadata=True) for name, stream in self._streams.items()
        )

    def run(self, tables: Mapping[str, pa.Table], fetch: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Run the query and fetch its result; raise DuckDB's error if it fails."""
        for name, stream in self._streams.items():
            stream.table = tables[name]
        try:
            if not self._engine.is_current(self._database):
                database = self._engine.database()
                cursor = database.cursor()
                for name, stream in self._streams.items():
                    cursor.register(name, stream)
                cursor.execute(f"PREPARE planned AS {self._sql}")
                # last, so that after a failure it is prepared again
                self._cursor, self._database = cursor, database
            return fetch(self._cursor.execute(_parse("EXECUTE planned")))
        finally:
            for stream in self._streams.values():
                stream.table = None


class _Streams:
    """Returns a new Arrow stream of its table for each run; between runs it has no table."""

    def __init__(self, schema: pa.Schema, most: int | None) -> None:
        self.schema = schema
        self.table: pa.Table | None = None
        self._most = most

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        table = self.schema.empty_table() if self.table is None else self.table
        if self._most is None:
            return table.__arrow_c_stream__(requested_schema)
        reader = pa.RecordBatchReader.from_batches(self.schema, table.to_batches(max_chunksize=self._most))
        return reader.__arrow_c_stream__(requested_schema)


def _run_over(tables: Mapping[str, pa.Table], cursor: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Run a query once over the named tables; raise DuckDB's error if it fails."""
    # DuckDB looks tables up in the globals of its caller; registering a view of each costs as much as a small query
    found: pa.Table = FunctionType(_run.__code__, {"__builtins__": builtins, **tables})(cursor, _parse(sql))
    return found


def _run(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> pa.Table:
    return connection.execute(statement).to_arrow_table()


@lru_cache(maxsize=256)
def _parse(sql: str) -> duckdb.Statement:
    (statement,) = QUERIES.database().extract_statements(sql)
    return statement


def _failure(error: duckdb.Error, key: str = "") -> RunError:
    """Convert DuckDB's error to a RunError.

    The message comes from a RunError that Python code in the query raised or, failing that, from DuckDB.
    """
    message = _message_of_code(error)
    if not message:
        kind = RunError if isinstance(error, MACHINE_ERRORS) else QueryError
        return kind(f"a step cannot be computed: {duckdb_message(error)}; what was committed stays")
    return RunError(f"{key}: {message}" if key else message)


def _message_of_code(error: duckdb.Error) -> str:
    """Return the message of a RunError that Python code in a query raised, or an empty string for other errors."""
    return str(error).partition(f"{RunError.__name__}: ")[2]


def identifier(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
