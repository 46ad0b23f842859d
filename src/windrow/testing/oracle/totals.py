"""Results of aggregates over the records of a window."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import assert_never

from windrow import model as m
from windrow.testing.oracle import expressions as e
from windrow.testing.oracle.answer import Failed, JudgedRecord, Near, Value, WindowedSource

MEAN_DIGITS = 6
"""The number of additional digits after the decimal point in an exact mean."""
ROUNDING = 1e-9
"""Relative tolerance for doubles that are computed in a different order."""
SKETCH = 0.02


def results(pipeline: WindowedSource, records: list[JudgedRecord]) -> tuple[Value, ...]:
    """Return the results of a pipeline's aggregates over one or more records."""
    found: dict[str, Value] = {}
    for number, aggregate in enumerate(pipeline.node.aggregates):
        if isinstance(aggregate.function, m.Formula):
            continue
        taken = [record for record in records if record.inputs[number] is not None]
        found[aggregate.name] = _result(pipeline, aggregate, taken, [record.inputs[number] for record in taken])
    for aggregate in pipeline.node.aggregates:
        if isinstance(aggregate.function, m.Formula):
            found[aggregate.name] = _formula(pipeline, aggregate.function.sql, found)
    return tuple(found[aggregate.name] for aggregate in pipeline.node.aggregates)


def _formula(pipeline: WindowedSource, sql: str, found: dict[str, Value]) -> Value:
    """Return the value of a formula, or None if it is not a finite number."""
    row = tuple(
        e.Named(aggregate.name, e.result_type(pipeline, aggregate), found[aggregate.name])
        for aggregate in pipeline.node.aggregates
        if not isinstance(aggregate.function, m.Formula)
    )
    try:
        value = e.evaluate(sql, row)
    except e.NotFiniteError:
        return None
    except e.FailedError as exc:
        return Failed(exc)
    return Near(value, ROUNDING) if isinstance(value, float) else value


def _result(
    pipeline: WindowedSource, aggregate: m.Aggregate, records: list[JudgedRecord], values: list[Value]
) -> Value:
    """Return the result of an aggregate for some records and its inputs from them."""
    match aggregate.function:
        case m.Count():
            return len(values)
        case m.CountDistinct() | m.ApproxCountDistinct():
            # the sketch is exact for less than a thousand
            return len(set(values))
        case _ if not values:
            return None
        case m.Sum() | m.Avg() | m.Quantile() | m.ApproxQuantile() | m.Variance() | m.Stddev():
            return _number_result(pipeline, aggregate.function, values)
        case m.Min() | m.Max() | m.BoolAnd() | m.BoolOr():
            return _choose(aggregate.function, values)
        case (
            m.First()
            | m.Last()
            | m.MaxBy()
            | m.MinBy()
            | m.TopK()
            | m.TopKBy()
            | m.BottomKBy()
            | m.CollectList()
            | m.CollectSet()
        ):
            number = pipeline.node.aggregates.index(aggregate)
            return _list_result(pipeline, aggregate.function, number, records)
        case m.Custom() | m.Formula():
            msg = "the oracle does not know aggregates in Python, and formulas come last"
            raise TypeError(msg)
        case _:
            assert_never(aggregate.function)


def _number_result(
    pipeline: WindowedSource,
    function: m.Sum | m.Avg | m.Quantile | m.ApproxQuantile | m.Variance | m.Stddev,
    values: list[Value],
) -> Value:
    match function:
        case m.Sum(of):
            return _sum(values, e.argument_type(pipeline, of))
        case m.Avg(of):
            return _mean(values, e.argument_type(pipeline, of))
        case m.Quantile(_, at):
            return _quantile(values, at)
        case m.ApproxQuantile(_, at):
            return Near(_number(_quantile(values, at)), SKETCH)
        case m.Variance():
            return _variance(values)
        case m.Stddev():
            variance = _variance(values)
            return None if variance is None else Near(math.sqrt(variance), ROUNDING)
        case _:
            assert_never(function)


def _choose(function: m.Min | m.Max | m.BoolAnd | m.BoolOr, values: list[Value]) -> Value:
    match function:
        case m.Min():
            return sorted_values(values)[0]
        case m.Max():
            return sorted_values(values)[-1]
        case m.BoolAnd():
            return all(values)
        case m.BoolOr():
            return any(values)
        case _:
            assert_never(function)


def _list_result(
    pipeline: WindowedSource,
    function: m.First | m.Last | m.MaxBy | m.MinBy | m.TopK | m.TopKBy | m.BottomKBy | m.CollectList | m.CollectSet,
    number: int,
    records: list[JudgedRecord],
) -> Value:
    """Return a result that depends on the order of records or values; `number` is the number of the aggregate."""
    by_log = isinstance(function, m.First | m.Last | m.CollectList) and function.by == "log"
    values = [record.inputs[number] for record in sorted(records, key=_by_log if by_log else _by_time)]
    distinct = sorted_values(set(values))
    type_ = e.argument_type(pipeline, function.of)
    match function:
        case m.First() | m.Last():
            return values[0 if isinstance(function, m.First) else -1]
        case m.MaxBy() | m.MinBy():
            return _rank(pipeline, function, records)[0][1].inputs[number]
        case m.TopKBy() | m.BottomKBy():
            best = _rank(pipeline, function, records)[: function.k]
            measure_type = e.argument_type(pipeline, function.measure)
            pairs = [f"[{_text(record.inputs[number], type_)},{_text(own, measure_type)}]" for own, record in best]
            return f"[{','.join(pairs)}]"
        case m.TopK(_, k):
            # sorting keeps the order of equal counts
            most = sorted(distinct, key=values.count, reverse=True)[:k]
            return counted_text([(value, values.count(value)) for value in most], type_)
        case m.CollectList(_, most_values):
            return list_text(values[:most_values], type_)
        case m.CollectSet(_, most_values):
            return list_text(distinct[:most_values], type_)
        case _:
            assert_never(function)


def _rank(
    pipeline: WindowedSource, function: m.MaxBy | m.MinBy | m.TopKBy | m.BottomKBy, records: list[JudgedRecord]
) -> list[tuple[Value, JudgedRecord]]:
    """Return (measure, record) pairs, ordered by measure, then by time."""
    found = [(e.measured(pipeline, function, record.fields), record) for record in sorted(records, key=_by_time)]
    in_order = sorted_values({measure for measure, _ in found})
    if isinstance(function, m.MaxBy | m.TopKBy):
        in_order.reverse()
    return [(own, record) for measure in in_order for own, record in found if own == measure]


def _by_time(record: JudgedRecord) -> tuple[int, int, int]:
    return record.time, record.partition, record.offset


def _by_log(record: JudgedRecord) -> tuple[int, int]:
    return record.partition, record.offset


def _sum(values: list[Value], type_: m.DataType) -> Value:
    match type_:
        case m.DoubleType():
            return math.fsum(map(_number, values))
        case m.DecimalType(_, scale):
            return _decimal(_exact_sum(values), scale)
        case _:
            return _decimal(_exact_sum(values), 0)


def _mean(values: list[Value], type_: m.DataType) -> Value:
    match type_:
        case m.DoubleType():
            return math.fsum(map(_number, values)) / len(values)
        case m.DecimalType(_, scale):
            return _decimal(_exact_sum(values) / len(values), scale + MEAN_DIGITS)
        case _:
            return _decimal(_exact_sum(values) / len(values), MEAN_DIGITS)


def _quantile(values: list[Value], at: float) -> Value:
    """Return the lowest value that at least the fraction `at` of the values do not exceed.

    The fraction is taken exactly as written in decimal.
    """
    in_order = sorted_values(values)
    enough = Fraction(str(at)) * len(in_order)
    return next(value for number, value in enumerate(in_order, start=1) if number >= enough)


def _variance(values: list[Value]) -> Near | None:
    count = len(values)
    if count < 2:  # noqa: PLR2004 - one value has no variance
        return None
    exact = [Fraction(_number(value)) for value in values]
    mean = sum(exact, start=Fraction(0)) / count
    return Near(float(sum(((each - mean) ** 2 for each in exact), start=Fraction(0)) / (count - 1)), ROUNDING)


def _number(value: Value) -> int | float | Decimal:
    if value is None or isinstance(value, str):
        msg = f"{value!r} is not a number"
        raise TypeError(msg)
    return value


def sorted_values(values: Iterable[Value]) -> list[Value]:
    """Return values of one type in order. Strings are ordered by code points, which is also the order of UTF-8."""
    return sorted(values, key=lambda value: value)  # type: ignore[arg-type, return-value] # they have one type


def _exact_sum(values: list[Value]) -> Fraction:
    return sum((Fraction(_number(value)) for value in values), start=Fraction(0))


def _decimal(number: Fraction, scale: int) -> Decimal:
    """Round to `scale` digits after the decimal point, with halves rounded away from zero."""
    units = math.floor(abs(number) * 10**scale + Fraction(1, 2))
    return Decimal(f"{'-' if number < 0 else ''}{units}E-{scale}")


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def list_text(values: Sequence[Value], type_: m.DataType) -> str:
    """Format values as a JSON array."""
    return f"[{','.join(_text(value, type_) for value in values)}]"


def counted_text(values: Sequence[tuple[Value, int]], type_: m.DataType) -> str:
    """Format (value, count) pairs as a JSON array."""
    return f"[{','.join(f'[{_text(value, type_)},{count}]' for value, count in values)}]"


def _text(value: Value, type_: m.DataType) -> str:
    """Format a value as JSON without loss: decimals as strings, times in ISO 8601."""
    if isinstance(type_, m.TimestampType) and isinstance(value, int):
        moment = EPOCH + dt.timedelta(microseconds=value)
        return json.dumps(f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z")
    if isinstance(type_, m.DecimalType) and isinstance(value, Decimal):
        return json.dumps(f"{value:.{type_.scale}f}")
    return json.dumps(value, ensure_ascii=False)
