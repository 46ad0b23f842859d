"""The types of fields in DuckDB's words, and back."""

from __future__ import annotations

import re
from typing import assert_never

from windrow.model import BooleanType, DataType, DecimalType, DoubleType, LongType, StringType, TimestampType

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
_INSTEAD = {
    "DATE": "cast it to timestamp or varchar",
    "TIME": "cast it to varchar",
    "JSON": "cast it to varchar",
    "INTERVAL": "take a part of it, such as its epoch",
    '"NULL"': "it is null for every record",
    "HUGEINT": "cast it to bigint or decimal",
    "UHUGEINT": "cast it to bigint or decimal",
    "UBIGINT": "cast it to bigint or decimal",
}


def sql_type(type_: DataType) -> str:
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
        case _:
            assert_never(type_)


def type_of_sql(name: str) -> DataType | None:
    """Return the type that holds all values of a DuckDB type, or None; a wide decimal is narrowed to `WIDEST`."""
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        return DecimalType(min(precision, WIDEST), scale) if scale <= WIDEST else None
    return _TYPES.get(name)


def instead_of(name: str) -> str:
    """Say what to do about a DuckDB type that no field has."""
    return _INSTEAD.get(name, "make it text, a number, a boolean or a timestamp")
