"""What type a key's field or a result has, as far as a story must know it to read a row."""

from __future__ import annotations

from windrow.api.checks.base import type_of
from windrow.model import (
    Aggregate,
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
    DoubleType,
    Formula,
    LongType,
    Pipeline,
    Stddev,
    StringType,
    Sum,
    TopK,
    Variance,
)


def key_types(pipeline: Pipeline) -> list[DataType | None]:
    """Return the types of the key's fields."""
    return [type_of(pipeline, name) for name in pipeline.key]


def result_types(pipeline: Pipeline) -> list[DataType | None]:
    """Return the types of the results: any number's for a number, None for what may be anything."""
    return [_result_type(pipeline, aggregate) for aggregate in pipeline.aggregates]


def _result_type(pipeline: Pipeline, aggregate: Aggregate) -> DataType | None:
    found: DataType | None
    match aggregate.function:
        case Count() | CountDistinct() | ApproxCountDistinct():
            found = LongType()
        case Sum() | Avg() | ApproxQuantile() | Variance() | Stddev():
            found = DoubleType()
        case BoolAnd() | BoolOr():
            found = BooleanType()
        case TopK() | CollectList() | CollectSet():
            found = StringType()
        case Custom(function):
            found = function.returns
        case Formula():
            found = None
        case function:
            found = type_of(pipeline, function.of)
    return found
