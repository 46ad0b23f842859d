"""DuckDB as the engine of expressions: one database a process, its functions, and its names of the field types."""

from __future__ import annotations

import atexit
import re
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, assert_never

from windrow.expressions.macros import MACROS
from windrow.model import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import duckdb


def database() -> duckdb.DuckDBPyConnection:
    """Open DuckDB in memory for expressions, with one thread: Spark's tasks are the parallelism, and order is kept.

    Its time zone is UTC and not the machine's, as a time's text must be the same everywhere. It has no file system, no
    network and no extensions, its settings are locked, and it finds no variables of Python as tables. Equal parts of
    expressions are computed where they stand: DuckDB would move them out of TRY.
    """
    with _OPENING:  # of several threads one opens it
        return _opened()


_OPENING = threading.Lock()


@lru_cache(maxsize=1)
def _opened() -> duckdb.DuckDBPyConnection:
    import duckdb  # noqa: PLC0415 - it is heavy, and a pipeline without expressions is checked without it

    opened = duckdb.connect(
        config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    for statement in (*MACROS, *_SETTINGS):
        opened.execute(statement)
    atexit.register(opened.close)
    return opened


_SETTINGS = (
    "SET GLOBAL TimeZone = 'UTC'",
    "SET GLOBAL Calendar = 'gregorian'",
    "SET GLOBAL disabled_optimizers = 'common_subexpressions'",
    "SET GLOBAL allow_community_extensions = false",
    "SET GLOBAL enable_external_access = false",
    "SET GLOBAL lock_configuration = true",
)


def discard(used: duckdb.DuckDBPyConnection) -> None:
    """Open another database next time, as DuckDB has invalidated `used` after an error of its own."""
    with _OPENING:
        if _opened.cache_info().currsize and _opened() is used:
            _opened.cache_clear()


@lru_cache(maxsize=1)
def release() -> str:
    """Return the release of DuckDB that runs."""
    import duckdb  # noqa: PLC0415 - as above

    return duckdb.__version__


WIDEST = 28
"""An expression's decimals have so many digits at the most: ten thousand million of them still have an exact sum."""

_TYPES: dict[str, DataType] = {
    "VARCHAR": StringType(),
    "BOOLEAN": BooleanType(),
    "FLOAT": DoubleType(),
    "DOUBLE": DoubleType(),
    "TIMESTAMP": TimestampType("iso"),
    "TIMESTAMP WITH TIME ZONE": TimestampType("iso"),
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"),
        LongType(),
    ),
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


def sql_type(type_: DataType | StructType) -> str:  # noqa: PLR0911 - a case for each type
    """Return the DuckDB type that holds a type's values."""
    match type_:
        case StringType():
            return "VARCHAR"
        case BooleanType():
            return "BOOLEAN"
        case LongType():
            return "BIGINT"
        case DoubleType():
            return "DOUBLE"
        case DecimalType(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case TimestampType():
            return "TIMESTAMPTZ"
        case StructType(fields):
            members = (f'"{one.name.replace(chr(34), chr(34) * 2)}" {sql_type(one.type)}' for one in fields)
            return f"STRUCT({', '.join(members)})"
        case ArrayType(element):
            return f"{sql_type(element)}[]"
        case _:
            assert_never(type_)


def type_of_sql(name: str) -> DataType | None:
    """Return the type that holds all values of a DuckDB type, or None; a wide decimal is narrowed to `WIDEST`."""
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        return DecimalType(min(precision, WIDEST), scale) if scale <= WIDEST else None
    return _TYPES.get(name)


def remedy(name: str) -> str:
    """Return advice about a DuckDB type that no field has."""
    return _REMEDIES.get(name, "make it text, a number, a boolean or a timestamp")
