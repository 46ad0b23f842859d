"""Aggregates over fields that they can be computed of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.named import field_of, no_field, type_of
from windrow.model import Avg, Count, DataType, DecimalType, DoubleType, Function, LongType, Max, Min, Pipeline, Sum

_WIDEST = 28
_DEEPEST = 12


def aggregate_types(pipeline: Pipeline) -> Iterator[Finding]:
    """Sums and means are over numbers narrow enough to stay exact, and so are the least and the greatest value."""
    if not pipeline.aggregates:
        yield error("aggregate", "is empty; name a result, such as {events: count()}")
    for aggregate in pipeline.aggregates:
        name = field_of(aggregate)
        if name is None:
            continue
        type_ = type_of(pipeline, name)
        where = f"aggregate.{aggregate.name}"
        if type_ is None:
            yield error(where, no_field(pipeline, name))
        elif not isinstance(type_, LongType | DoubleType | DecimalType):
            yield error(where, f"{name!r} is a {type_}, not a number; declare it as long, decimal(p,s) or double")
        else:
            yield from _too_wide(where, name, type_, aggregate.function)


def _too_wide(where: str, name: str, type_: DataType, function: Function) -> Iterator[Finding]:
    if not isinstance(type_, DecimalType):
        return
    match function:
        case Sum() | Avg() if type_.precision > _WIDEST:
            yield error(where, f"{name!r} is a {type_}; a decimal has at most {_WIDEST} digits to be summed exactly")
        case Avg() if type_.scale > _DEEPEST:
            message = f"{name!r} is a {type_}; a decimal has at most {_DEEPEST} digits behind the point for a mean"
            yield error(where, message)
        case Count() | Sum() | Avg() | Min() | Max():
            return
        case _:
            assert_never(function)
