"""Queries of DuckDB over Arrow tables, and quoting of names and texts in them.

DuckDB is used as a library of vectorised operators: each step's tables are its input, and it stores nothing. There are
two databases a process: one for windrow's own queries, and that of `expressions.engine` for users' expressions, which a
`Projection` evaluates and which has no access to files, settings or the variables of Python.
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
"""The number of rows that fit into memory if each value is as large as possible."""

_FEW_ROWS = 10_000
"""Up to this number of rows a query is planned once for all tables of its schemas: planning costs more than running."""


QUERIES: Final = Engine("SET GLOBAL TimeZone = 'UTC'")
"""The engine of windrow's own queries."""


class Connection:
    """A connection to this process's DuckDB, with a namespace of its own; `query` keeps plans in it.

    An error of the user's code in a query names the first `key` whose rows alone make the query fail.
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


def query(connection: Connection, sql: str, **tables: pa.Table) -> pa.Table:
    """Run a query over the named tables; raise RunError if it fails.

    DuckDB plans a query for the numbers of rows of its tables. For few rows this takes longer than the query itself, so
    the second time that a query runs over few rows, it is planned for all tables of these schemas.
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
    """Return the first key for whose rows alone the user's code in a query fails; empty if there is none.

    The keys are tried by halves, so a query that has failed is run again over fewer and fewer rows.
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
    if fails(keys.slice(0, 0)):  # by a table that has no keys
        return ""
    while keys.num_rows > 1:
        half = keys.num_rows // 2
        first = keys.slice(0, half)
        keys = first if fails(first) else keys.slice(half)
    return key_text(connection.key, keys.to_pylist()[0].values()) if keys.num_rows and fails(keys) else ""


def _on_valid(engine: Engine, run: Callable[[], T]) -> T:
    """Run a query; run it again if DuckDB has invalidated the database, perhaps by an error of another query."""
    try:
        return run()
    except (duckdb.FatalException, duckdb.InternalException):
        engine.database()
    return run()


class EvaluationError(RunError):
    """An expression fails for at least one row."""


class Projection:
    """Users' expressions over the rows of a table, as a query over `rows` that returns a row for each.

    It is planned once for all tables of a schema, and reads only `columns`, as each has a cost. If it `grows`, the
    values of a row can be much larger than the row, so they are computed for a few rows at a time. Raise
    EvaluationError if an expression fails, and RunError if the machine does.
    """

    def __init__(self, sql: str, columns: Iterable[str], *, grows: bool = False) -> None:
        self._columns = list(dict.fromkeys(columns))
        self._sql = sql
        self._plan: _Plan | None = None
        self._most = _ROWS_THAT_GROW if grows else None

    @staticmethod
    def of(expressions: Iterable[str], columns: Iterable[str], *, grows: bool = False) -> Projection:
        """Return the projection of expressions to columns `c0`, `c1` ..."""
        values = (f"{sql} AS c{number}" for number, sql in enumerate(expressions))
        return Projection(f"SELECT {', '.join(values)} FROM rows", columns, grows=grows)

    def table(self, rows: pa.Table) -> pa.Table:
        """Return the values for each row."""
        values: pa.Table = self._run(rows, duckdb.DuckDBPyConnection.to_arrow_table)
        _check_rows(values.num_rows, rows)
        return values

    def masks(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return the values of conditions, which are never null, by row and number."""
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
        except _MACHINE as exc:
            raise _failure(exc) from exc
        except (duckdb.Error, UnicodeDecodeError) as exc:
            raise EvaluationError(duckdb_message(exc)) from exc


_MACHINE = (
    duckdb.OutOfMemoryException,
    duckdb.IOException,
    duckdb.InterruptException,
    duckdb.ConnectionException,
)
"""Errors of the machine, not of the rows."""


def _check_rows(found: int, rows: pa.Table) -> None:
    if found != rows.num_rows:
        msg = f"an expression gave {found} values for {rows.num_rows} records; this is a defect of windrow"
        raise RunError(msg)


def evaluate_in_halves(evaluate: Callable[[pa.Table], T], rows: pa.Table) -> tuple[list[T], dict[int, str]]:
    """Return the values of the rows for which an evaluation does not fail, in parts, and the other rows' errors.

    Rows that fail together are tried by halves, so whether a row fails does not depend on the others.
    """
    parts: list[T] = []
    failed: dict[int, str] = {}
    stack = [(0, rows)]
    while stack:
        first, some = stack.pop()
        try:
            parts.append(evaluate(some))
        except EvaluationError as exc:
            if some.num_rows == 1:
                failed[first] = str(exc)
            else:
                half = some.num_rows // 2
                stack += [(first + half, some.slice(half)), (first, some.slice(0, half))]
    return parts, failed


class _Plan:
    """A query that is planned once for all tables of the same schemas, when it first runs.

    It reads the tables by views of objects that return another stream in each run. These and the prepared statement are
    in a namespace of their own. DuckDB computes at most `most` rows at a time, if given.
    """

    def __init__(self, engine: Engine, sql: str, tables: Mapping[str, pa.Table], most: int | None = None) -> None:
        self._engine, self._sql = engine, sql
        self._streams = {name: _Streams(table.schema, most) for name, table in tables.items()}
        self._database: duckdb.DuckDBPyConnection | None = None
        self._cursor: duckdb.DuckDBPyConnection

    def is_for(self, tables: Mapping[str, pa.Table]) -> bool:
        """Whether the tables have the schemas that it is planned for."""
        # metadata of a field can change its type
        return all(
            stream.schema.equals(tables[name].schema, check_metadata=True) for name, stream in self._streams.items()
        )

    def run(self, tables: Mapping[str, pa.Table], fetch: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Run the query, and fetch its result; raise DuckDB's error if it fails."""
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
    """Returns a stream of its table for each run; between runs it has no table."""

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
    """Translate DuckDB's error: the message of a RunError that Python code in the query raised, or DuckDB's own."""
    message = _message_of_code(error)
    if not message:
        return RunError(f"a step cannot be computed: {duckdb_message(error)}; what was committed stays")
    return RunError(f"{key}: {message}" if key else message)


def _message_of_code(error: duckdb.Error) -> str:
    """Return the message of a RunError that Python code in a query raised; empty for an error of DuckDB's own."""
    return str(error).partition(f"{RunError.__name__}: ")[2]


def identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
