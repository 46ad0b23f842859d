"""SQL expressions, evaluated by DuckDB for one row of values at a time, and the arguments of aggregates."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple, assert_never

import duckdb

from windrow import model as m
from windrow.testing.oracle.answer import Value, WindowedSource

DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
TIMES = {"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}


class Named(NamedTuple):
    """A value in an expression, with its name and type."""

    name: str
    type: m.DataType
    value: Value


class FailedError(Exception):
    """Raised if an expression fails for the given values."""


class NotFiniteError(FailedError):
    """Raised if the value of an expression is not a finite number."""


@lru_cache(maxsize=1 << 16)
def evaluate(sql: str, row: tuple[Named, ...]) -> Value:
    """Return the value of an expression for a row; raise FailedError if it fails."""
    columns = ", ".join(f"{_cast(each.type)} AS {_quote(each.name)}" for each in row)
    shown = f"epoch_us({sql})" if _type_text(sql, row) in TIMES else f"({sql})"
    values = [
        str(each.value) if isinstance(each.type, m.DecimalType) and each.value is not None else each.value
        for each in row
    ]
    try:
        found = _engine().execute(f"SELECT {shown} FROM (SELECT {columns})", values).fetchone()
    except (duckdb.Error, UnicodeDecodeError) as exc:
        raise FailedError(str(exc)) from exc
    value: Value = None if found is None else found[0]
    if isinstance(value, float) and not math.isfinite(value):
        msg = "not a finite number"
        raise NotFiniteError(msg)
    return value


def type_of(sql: str, fields: Mapping[str, m.DataType]) -> m.DataType:
    """Return the type of an expression over the given fields."""
    return _type(_type_text(sql, tuple(Named(name, type_, None) for name, type_ in fields.items())))


def _type_text(sql: str, row: tuple[Named, ...]) -> str:
    return _describe(sql, tuple((each.name, each.type) for each in row))


@lru_cache(maxsize=1 << 12)
def _describe(sql: str, fields: tuple[tuple[str, m.DataType], ...]) -> str:
    columns = ", ".join(f"NULL::{_name(type_)} AS {_quote(name)}" for name, type_ in fields)
    (column,) = _engine().execute(f"DESCRIBE SELECT ({sql}) FROM (SELECT {columns})").fetchall()
    return str(column[1])


def _type(text: str) -> m.DataType:
    decimal = DECIMAL.fullmatch(text)
    if decimal:
        return m.DecimalType(int(decimal[1]), int(decimal[2]))
    if text in TIMES:
        return m.TimestampType("micros")
    if text in {"FLOAT", "DOUBLE"}:
        return m.DoubleType()
    if text in {"VARCHAR", "BOOLEAN"}:
        return m.StringType() if text == "VARCHAR" else m.BooleanType()
    if text.endswith(("INT", "INTEGER")):
        return m.LongType()
    msg = f"the oracle does not know values of type {text}"
    raise TypeError(msg)


def _name(type_: m.DataType) -> str:
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
        case m.ArrayType():
            raise TypeError(type_)
        case _:
            assert_never(type_)


def _cast(type_: m.DataType) -> str:
    """Return the SQL expression that casts a parameter to a type."""
    return "make_timestamptz(?::BIGINT)" if isinstance(type_, m.TimestampType) else f"?::{_name(type_)}"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=1)
def _engine() -> duckdb.DuckDBPyConnection:
    engine = duckdb.connect(config={"threads": 1})
    engine.execute("SET TimeZone = 'UTC'")
    return engine


def fields_of(pipeline: WindowedSource) -> dict[str, m.DataType]:
    """Map all fields, decoded and derived, to their types."""
    decoded = {field.name: field.type for field in pipeline.source.decode.fields}
    return decoded | {derive.name: type_of(derive.sql, decoded) for derive in pipeline.source.derive}


def derived(pipeline: WindowedSource, fields: dict[str, Value]) -> dict[str, Value]:
    """Return the values of the derived fields; raise FailedError if an expression fails."""
    row = _row({field.name: field.type for field in pipeline.source.decode.fields}, fields)
    return {derive.name: evaluate(derive.sql, row) for derive in pipeline.source.derive}


def inputs(pipeline: WindowedSource, fields: dict[str, Value]) -> tuple[Value, ...]:
    """Return each aggregate's input from a record, or None if it ignores the record.

    Raise FailedError if an expression fails.
    """
    row = _row(fields_of(pipeline), fields)
    return tuple(_input(aggregate, fields, row) for aggregate in pipeline.node.aggregates)


def own_gap(pipeline: WindowedSource, fields: dict[str, Value]) -> int:
    """Return the session gap of a record in microseconds, or 0 without sessions; raise FailedError if it is invalid."""
    window = pipeline.node.window
    if not isinstance(window, m.Session):
        return 0
    if window.by is None:
        return window.gap
    seconds = _value(window.by, fields, _row(fields_of(pipeline), fields))
    if not isinstance(seconds, int | float | Decimal):
        msg = f"{seconds!r} is not a gap"
        raise FailedError(msg)
    gap = int(Decimal(str(seconds)) * 1_000_000 + Decimal("0.5"))
    if not 0 < gap <= window.gap:
        msg = f"a gap of {seconds} seconds"
        raise FailedError(msg)
    return gap


def _row(types: dict[str, m.DataType], fields: dict[str, Value]) -> tuple[Named, ...]:
    return tuple(Named(name, type_, fields.get(name)) for name, type_ in types.items())


def _input(aggregate: m.Aggregate, fields: dict[str, Value], row: tuple[Named, ...]) -> Value:
    # if the condition does not hold the argument is not evaluated, so it cannot fail
    if aggregate.where is not None and not evaluate(aggregate.where, row):
        return None
    of = argument(aggregate)
    if of is None:
        return True
    value = _value(of, fields, row)
    function = aggregate.function
    if (
        isinstance(function, m.MaxBy | m.MinBy | m.TopKBy | m.BottomKBy)
        and _value(function.measure, fields, row) is None
    ):
        return None
    return value


def _value(of: str, fields: Mapping[str, Value], row: tuple[Named, ...]) -> Value:
    return fields[of] if of in fields else evaluate(of, row)


def measured(
    pipeline: WindowedSource, function: m.MaxBy | m.MinBy | m.TopKBy | m.BottomKBy, fields: Mapping[str, Value]
) -> Value:
    """Return the value by which an aggregate ranks a record."""
    return _value(function.measure, fields, _row(fields_of(pipeline), dict(fields)))


def argument(aggregate: m.Aggregate) -> str | None:
    """Return the argument of an aggregate, or None if it has none."""
    match aggregate.function:
        case m.Count() | m.Formula() | m.Custom():
            return None
        case _:
            return aggregate.function.of


def argument_type(pipeline: WindowedSource, of: str) -> m.DataType:
    """Return the type of an argument, which is the name of a field or an expression."""
    types = fields_of(pipeline)
    return types[of] if of in types else type_of(of, types)


def result_type(pipeline: WindowedSource, aggregate: m.Aggregate) -> m.DataType:
    """Return the type that the result of an aggregate has in formulas."""
    function = aggregate.function
    match function:
        case m.Count() | m.CountDistinct() | m.ApproxCountDistinct():
            return m.LongType()
        case m.Sum(of) | m.Avg(of):
            return _exact(argument_type(pipeline, of), digits=6 if isinstance(function, m.Avg) else 0)
        case m.Min(of) | m.Max(of) | m.Quantile(of) | m.First(of) | m.Last(of) | m.MaxBy(of) | m.MinBy(of):
            return argument_type(pipeline, of)
        case m.ApproxQuantile() | m.Variance() | m.Stddev():
            return m.DoubleType()
        case m.BoolAnd() | m.BoolOr():
            return m.BooleanType()
        case m.TopK() | m.TopKBy() | m.BottomKBy() | m.CollectList() | m.CollectSet():
            return m.StringType()
        case m.Custom() | m.Formula():
            msg = "the oracle does not know aggregates in Python, and a formula has no part in another"
            raise TypeError(msg)
        case _:
            assert_never(function)


def _exact(type_: m.DataType, digits: int) -> m.DataType:
    match type_:
        case m.DoubleType():
            return type_
        case m.DecimalType(_, scale):
            return m.DecimalType(38, scale + digits)
        case _:
            return m.DecimalType(38, digits)
