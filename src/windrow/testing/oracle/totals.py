"""What an aggregate makes of a window's records."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import assert_never

from windrow.model import Aggregate, Avg, Count, DecimalType, DoubleType, Max, Min, Pipeline, Sum
from windrow.testing.oracle.answer import Value

MEAN_DIGITS = 6
"""How many digits more than its field an exact mean has."""


def results(pipeline: Pipeline, records: list[dict[str, Value]]) -> tuple[Value, ...]:
    """Return the pipeline's aggregates of some records; there is at least one."""
    return tuple(_result(pipeline, aggregate, records) for aggregate in pipeline.aggregates)


def _result(pipeline: Pipeline, aggregate: Aggregate, records: list[dict[str, Value]]) -> Value:
    match aggregate.function:
        case Count():
            return len(records)
        case Min(field):
            return min(_numbers(field, records))
        case Max(field):
            return max(_numbers(field, records))
        case Sum(field):
            return _sum(pipeline, field, records)
        case Avg(field):
            return _mean(pipeline, field, records)
        case _:
            assert_never(aggregate.function)


def _sum(pipeline: Pipeline, field: str, records: list[dict[str, Value]]) -> Value:
    match pipeline.decode.field(field).type:
        case DoubleType():
            return math.fsum(_numbers(field, records))
        case DecimalType(_, scale):
            return _decimal(_exact_sum(field, records), scale)
        case _:
            return _decimal(_exact_sum(field, records), 0)


def _mean(pipeline: Pipeline, field: str, records: list[dict[str, Value]]) -> Value:
    match pipeline.decode.field(field).type:
        case DoubleType():
            return math.fsum(_numbers(field, records)) / len(records)
        case DecimalType(_, scale):
            return _decimal(_exact_sum(field, records) / len(records), scale + MEAN_DIGITS)
        case _:
            return _decimal(_exact_sum(field, records) / len(records), MEAN_DIGITS)


def _numbers(field: str, records: list[dict[str, Value]]) -> list[int | float | Decimal]:
    numbers = []
    for record in records:
        value = record[field]
        if isinstance(value, str):
            msg = f"{field} is not a number"
            raise TypeError(msg)
        numbers.append(value)
    return numbers


def _exact_sum(field: str, records: list[dict[str, Value]]) -> Fraction:
    return sum((Fraction(number) for number in _numbers(field, records)), start=Fraction(0))


def _decimal(number: Fraction, scale: int) -> Decimal:
    """Round to so many digits behind the point; what is just between two goes away from zero."""
    units = math.floor(abs(number) * 10**scale + Fraction(1, 2))
    return Decimal(f"{'-' if number < 0 else ''}{units}E-{scale}")
