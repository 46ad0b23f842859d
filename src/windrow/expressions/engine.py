"""DuckDB as the engine of expressions: an in-memory database, and the SQL types of fields."""

from __future__ import annotations

import atexit
import re
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, assert_never

from windrow import model as m
from windrow.expressions.macros import MACROS

if TYPE_CHECKING:
    import duckdb


class Engine:
    """An in-memory DuckDB database, opened on first use, with one thread because Spark's tasks run in parallel.

    An internal error of DuckDB invalidates the database, which then rejects every query. In that case, a new database
    is opened.
    """

    def __init__(self, *statements: str) -> None:
        """Run `statements` in each database that is opened."""
        self._statements = statements
        self._root: duckdb.DuckDBPyConnection | None = None
        """The first connection to the database, which holds the registered Python functions."""
        self._opened: duckdb.DuckDBPyConnection | None = None
        self._opening = threading.Lock()
        self._set_up: list[Callable[[duckdb.DuckDBPyConnection], object]] = []

    def database(self) -> duckdb.DuckDBPyConnection:
        """Return a valid database; the connection is shared, so callers must create a cursor."""
        with self._opening:  # only one thread opens it: functions are registered there, and all threads find them
            if self._opened is not None and not _is_valid(self._opened):
                self._close()
            if self._opened is None:
                self._opened = self._root = self._open()
            return self._opened

    def renew(self) -> None:
        """Replace the connection by a new one to the same database, in which all queries are prepared again."""
        with self._opening:
            if self._root is not None:
                self._opened = self._root.cursor()

    def is_current(self, opened: duckdb.DuckDBPyConnection | None) -> bool:
        """Return True if this is the connection that was opened last."""
        return opened is not None and opened is self._opened

    def set_up(self, function: Callable[[duckdb.DuckDBPyConnection], object]) -> None:
        """Call a function with the current database, and with each database that is opened later."""
        opened = self.database()
        with self._opening:
            function(self._root or opened)
            self._set_up.append(function)

    def _open(self) -> duckdb.DuckDBPyConnection:
        import duckdb  # noqa: PLC0415 - it is heavy, and a pipeline without expressions is checked without it

        opened = duckdb.connect(
            config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
        )
        for statement in self._statements:
            opened.execute(statement)
        for function in self._set_up:
            function(opened)
        # Python functions are unregistered while the interpreter still exists
        atexit.unregister(self._close)
        atexit.register(self._close)
        return opened

    def _close(self) -> None:
        for connection in (self._opened, self._root):
            if connection is not None:
                connection.close()
        self._opened = self._root = None


def _is_valid(opened: duckdb.DuckDBPyConnection) -> bool:
    import duckdb  # noqa: PLC0415 - it is open already

    try:
        opened.cursor().execute("SELECT 1").fetchall()
    except duckdb.FatalException:
        return False
    return True


EXPRESSIONS: Final = Engine(
    *MACROS,
    "SET GLOBAL TimeZone = 'UTC'",
    "SET GLOBAL Calendar = 'gregorian'",
    "SET GLOBAL disabled_optimizers = 'common_subexpressions'",
    "SET GLOBAL allow_community_extensions = false",
    "SET GLOBAL enable_external_access = false",
    "SET GLOBAL lock_configuration = true",
)
"""The engine of users' expressions.

Its time zone is UTC and not the machine's, because the text of a time must be the same everywhere. It has no file
system, no network and no extensions, its settings are locked, and it cannot read Python variables as tables. Common
subexpressions are not shared, because DuckDB would move them out of TRY.
"""


def database() -> duckdb.DuckDBPyConnection:
    """Return the database of expressions."""
    return EXPRESSIONS.database()


@lru_cache(maxsize=1)
def release() -> str:
    """Return the version of the installed DuckDB."""
    import duckdb  # noqa: PLC0415 - as above

    return duckdb.__version__


WIDEST = 28
"""Maximum number of digits of an expression's decimals; the sum of ten billion of them is still exact."""

_TYPES: dict[str, m.DataType] = {
    "VARCHAR": m.StringType(),
    "BOOLEAN": m.BooleanType(),
    "FLOAT": m.DoubleType(),
    "DOUBLE": m.DoubleType(),
    "TIMESTAMP": m.TimestampType("iso"),
    "TIMESTAMP WITH TIME ZONE": m.TimestampType("iso"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"), m.LongType()),
}
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_REMEDIES = {
    "DATE": "cast it to timestamp or varchar",
    "TIME": "cast it to varchar",
    "JSON": "cast it to varchar",
    "INTERVAL": "extract a number from it, such as its epoch",
    '"NULL"': "it is null for every record",
    "HUGEINT": "cast it to bigint or decimal",
    "UHUGEINT": "cast it to bigint or decimal",
    "UBIGINT": "cast it to bigint or decimal",
}


def quote(name: str) -> str:
    """Return a name in double quotes for SQL."""
    return '"' + name.replace('"', '""') + '"'


def sql_type(type_: m.DataType | m.StructType) -> str:  # noqa: PLR0911 - a case for each type
    """Return the name of the DuckDB type that holds a type's values."""
    match type_:
        case m.StringType():
            return "VARCHAR"
        case m.BooleanType():
            return "BOOLEAN"
        case m.LongType():
            return "BIGINT"
        case m.DoubleType():
            return "DOUBLE"
        case m.DecimalType(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case m.TimestampType():
            return "TIMESTAMPTZ"
        case m.StructType(fields):
            return f"STRUCT({', '.join(f'{quote(field.name)} {sql_type(field.type)}' for field in fields)})"
        case m.ArrayType(element):
            return f"{sql_type(element)}[]"
        case _:
            assert_never(type_)


def type_of_sql(name: str) -> m.DataType | None:
    """Return the type that holds all values of a DuckDB type, or None.

    A wide decimal is narrowed to `WIDEST` digits.
    """
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal[1]), int(decimal[2])
        return m.DecimalType(min(precision, WIDEST), scale) if scale <= WIDEST else None
    return _TYPES.get(name)


def remedy(name: str) -> str:
    """Return advice for an expression whose DuckDB type no field can have."""
    if name.endswith("]") or name.startswith(("MAP(", "STRUCT(")):
        return "take a part of it, or make it JSON text: to_json(...)::VARCHAR"
    return _REMEDIES.get(name, "make it text, a number, a boolean or a timestamp")
