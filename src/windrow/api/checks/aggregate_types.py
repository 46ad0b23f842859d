"""Aggregates over what they can be computed of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.named import arguments, is_misspelt, no_field
from windrow.api.checks.typed import type_of
from windrow.model import (
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    BooleanType,
    BoolOr,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    Custom,
    DataType,
    DecimalType,
    DoubleType,
    First,
    Formula,
    Function,
    Last,
    LongType,
    Max,
    Min,
    Pipeline,
    Quantile,
    Stddev,
    Sum,
    TopK,
    Variance,
)

_WIDEST = 28
_DEEPEST = 12


def aggregate_types(pipeline: Pipeline) -> Iterator[Finding]:
    """There are aggregates, each over fields or expressions of types that it can be computed of exactly."""
    if not pipeline.aggregates:
        yield error("aggregate", "is empty; name a result, such as {events: count()}")
    for aggregate in pipeline.aggregates:
        where = f"aggregate.{aggregate.name}"
        for of in arguments(aggregate.function):
            type_ = type_of(pipeline, of)
            if is_misspelt(pipeline, of):
                yield error(where, no_field(pipeline, of))
            elif type_ is not None:
                yield from _fits(where, of, type_, aggregate.function)


def _fits(where: str, of: str, type_: DataType, function: Function) -> Iterator[Finding]:
    match function:
        case Sum() | Avg() | Variance() | Stddev():
            yield from _number(where, of, type_)
            yield from _narrow(where, of, type_, function)
        case Quantile() | ApproxQuantile():
            yield from _number(where, of, type_)
        case BoolAnd() | BoolOr():
            if not isinstance(type_, BooleanType):
                yield error(where, f"{of!r} is a {type_}, not a boolean; give a condition, such as {of} is not null")
        case (
            Count()
            | Min()
            | Max()
            | CountDistinct()
            | ApproxCountDistinct()
            | TopK()
            | First()
            | Last()
            | CollectList()
            | CollectSet()
            | Custom()
            | Formula()
        ):
            return
        case _:
            assert_never(function)


def _number(where: str, of: str, type_: DataType) -> Iterator[Finding]:
    if not isinstance(type_, LongType | DoubleType | DecimalType):
        yield error(where, f"{of!r} is a {type_}, not a number; declare it as long, decimal(p,s) or double")


def _narrow(where: str, of: str, type_: DataType, function: Function) -> Iterator[Finding]:
    if not isinstance(type_, DecimalType):
        return
    if type_.precision > _WIDEST:
        yield error(where, f"{of!r} is a {type_}; a decimal has at most {_WIDEST} digits to be summed exactly")
    elif isinstance(function, Avg) and type_.scale > _DEEPEST:
        yield error(where, f"{of!r} is a {type_}; a decimal has at most {_DEEPEST} digits behind the point for a mean")
