"""SQL expressions, evaluated by an existing engine (DuckDB) for one row of values at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, assert_never

import duckdb

from windrow.model import BooleanType, DataType, DecimalType, DoubleType, LongType, StringType, TimestampType
from windrow.testing.oracle.answer import Value

DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
TIMES = {"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}


class Named(NamedTuple):
    """A value with the name and the type that an expression knows it by."""

    name: str
    type: DataType
    value: Value


class FailedError(Exception):
    """An expression has no value, as what it does cannot be done with these values."""


@lru_cache(maxsize=1 << 16)
def evaluate(sql: str, row: tuple[Named, ...]) -> Value:
    """Return the value of an expression; raise FailedError if it has none."""
    columns = ", ".join(f"{_made(each.type)} AS {_quoted(each.name)}" for each in row)
    shown = f"epoch_us({sql})" if _type_text(sql, row) in TIMES else f"({sql})"
    values = [
        str(each.value) if isinstance(each.type, DecimalType) and each.value is not None else each.value for each in row
    ]
    try:
        found = _engine().execute(f"SELECT {shown} FROM (SELECT {columns})", values).fetchone()
    except duckdb.Error as exc:
        raise FailedError(str(exc)) from exc
    value: Value = None if found is None else found[0]
    if isinstance(value, float) and not math.isfinite(value):
        msg = "it is no finite number"
        raise FailedError(msg)
    return value


def type_of(sql: str, fields: Mapping[str, DataType]) -> DataType:
    """Return the type that an expression over such fields has."""
    return _type(_type_text(sql, tuple(Named(name, type_, None) for name, type_ in fields.items())))


def _type_text(sql: str, row: tuple[Named, ...]) -> str:
    return _described(sql, tuple((each.name, each.type) for each in row))


@lru_cache(maxsize=1 << 12)
def _described(sql: str, fields: tuple[tuple[str, DataType], ...]) -> str:
    columns = ", ".join(f"NULL::{_name(type_)} AS {_quoted(name)}" for name, type_ in fields)
    (column,) = _engine().execute(f"DESCRIBE SELECT ({sql}) FROM (SELECT {columns})").fetchall()
    return str(column[1])


def _type(text: str) -> DataType:
    decimal = DECIMAL.fullmatch(text)
    if decimal:
        return DecimalType(int(decimal[1]), int(decimal[2]))
    if text in TIMES:
        return TimestampType("micros")
    if text in {"FLOAT", "DOUBLE"}:
        return DoubleType()
    if text in {"VARCHAR", "BOOLEAN"}:
        return StringType() if text == "VARCHAR" else BooleanType()
    if text.endswith(("INT", "INTEGER")):
        return LongType()
    msg = f"the oracle does not know values of type {text}"
    raise TypeError(msg)


def _name(type_: DataType) -> str:
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


def _made(type_: DataType) -> str:
    """Return the SQL that makes a parameter a value of that type."""
    return "make_timestamptz(?::BIGINT)" if isinstance(type_, TimestampType) else f"?::{_name(type_)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=1)
def _engine() -> duckdb.DuckDBPyConnection:
    engine = duckdb.connect(config={"threads": 1})
    engine.execute("SET TimeZone = 'UTC'")
    return engine
