"""DuckDB as the engine of expressions: one connection a process, its functions, and its names of the field types."""

from __future__ import annotations

import atexit
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, assert_never

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
    """Open DuckDB in memory with one thread: Spark's tasks are the parallelism, and one thread keeps the order.

    Its time zone is UTC and not the machine's, as a time's text must be the same everywhere.
    """
    with _OPENING:  # of several threads one opens it: functions are registered in one, and found by all
        return _opened()


_OPENING = threading.Lock()


@lru_cache(maxsize=1)
def _opened() -> duckdb.DuckDBPyConnection:
    import duckdb  # noqa: PLC0415 - it is heavy, and a pipeline without expressions is checked without it

    opened = duckdb.connect(
        config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    opened.execute("SET GLOBAL TimeZone = 'UTC'")
    for macro in _MACROS:
        opened.execute(macro)
    atexit.register(_close_database)
    return opened


# the haversine formula on a sphere of 6,371 km; for opposite places the sum may be above 1 by its last digits
_SUM = """
    sin(radians(lat1 - lat2) / 2) ** 2 + cos(radians(lat1)) * cos(radians(lat2)) * sin(radians(lon1 - lon2) / 2) ** 2
"""
_KM = f"12742 * asin(sqrt(({_SUM}) * 0.999999999999998::DOUBLE))"
_MACROS = (
    f"CREATE MACRO km(lat1, lon1, lat2, lon2) AS {_KM}",
    "CREATE MACRO hours(since, until) AS (epoch_us(until) - epoch_us(since)) / 3600000000",
)
"""Functions of windrow's own: the distance of two places in kilometres, and the hours from one time to another."""


def _close_database() -> None:
    """Unregister the Python functions while the interpreter still exists."""
    database().close()
    _opened.cache_clear()


@dataclass(frozen=True)
class SqlFunction:
    """All that goes by a function's name: kinds (scalar, macro ...), stabilities, and the definitions of macros."""

    kinds: frozenset[str]
    stabilities: frozenset[str]
    definitions: tuple[str, ...]


@lru_cache(maxsize=1)
def sql_functions() -> dict[str, SqlFunction]:
    """Return every function by its name in lower case."""
    rows = (
        database()
        .cursor()
        .execute("""
        SELECT lower(function_name), list(DISTINCT function_type), coalesce(list(DISTINCT stability), []),
            coalesce(list(DISTINCT macro_definition ORDER BY macro_definition), [])
        FROM duckdb_functions() GROUP BY ALL
    """)
    )
    return {
        name: SqlFunction(
            frozenset(kinds), frozenset(stabilities) - {None}, tuple(text for text in definitions if text)
        )
        for name, kinds, stabilities, definitions in rows.fetchall()
    }


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
