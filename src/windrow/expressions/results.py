"""Result columns of a pipeline: the type of each, and whether it can be null."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from windrow.expressions.analyse import Expression, analyse
from windrow.expressions.inputs import Argument, arguments
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
    Field,
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
    StringType,
    Sum,
    TopK,
    Variance,
)

MEAN_DIGITS = 6
"""A mean is exact to so many digits more than its field has."""


@dataclass(frozen=True)
class Result:
    """A result column; where no record counts for it, it is null if it can be."""

    name: str
    type: DataType
    nullable: bool


def results(pipeline: Pipeline) -> tuple[Result, ...]:
    """Return the results in their order; raise PipelineError for an expression that is wrong."""
    made = tuple(
        Result(aggregate.name, *_result(aggregate.function, given))
        for aggregate, given in zip(pipeline.aggregates, arguments(pipeline), strict=True)
    )
    formulas_of = formulas(pipeline, made)
    return tuple(
        Result(one.name, formulas_of[one.name].type, nullable=True) if one.name in formulas_of else one for one in made
    )


def formulas(pipeline: Pipeline, made: tuple[Result, ...]) -> dict[str, Expression]:
    """Return the formulas by name, analysed over the results that are none."""
    texts = {one.name: one.function.sql for one in pipeline.aggregates if isinstance(one.function, Formula)}
    plain = tuple(one for one in made if one.name not in texts)
    fields = tuple(Field(one.name, one.type) for one in plain)
    nullable = frozenset(one.name for one in plain if one.nullable)
    return {name: analyse(text, fields, nullable) for name, text in texts.items()}


def _result(function: Function, given: tuple[Argument, ...]) -> tuple[DataType, bool]:
    """Return the type of a result, and whether it can be null; those of a formula are not known yet."""
    match function:
        case Count() | CountDistinct() | ApproxCountDistinct():
            return LongType(), False
        case Custom(aggregate):
            return aggregate.returns, True
        case Formula():
            return DoubleType(), True
        case _:
            return _type_of_one(function, given[0]), given[0].nullable or isinstance(function, Variance | Stddev)


def _type_of_one(
    function: Sum
    | Avg
    | Min
    | Max
    | Quantile
    | ApproxQuantile
    | First
    | Last
    | TopK
    | CollectList
    | CollectSet
    | Variance
    | Stddev
    | BoolAnd
    | BoolOr,
    given: Argument,
) -> DataType:
    match function:
        case Sum():
            return _sum_type(given.type, extra=0)
        case Avg():
            return _sum_type(given.type, extra=MEAN_DIGITS)
        case Min() | Max() | Quantile() | First() | Last():
            return given.type
        case ApproxQuantile() | Variance() | Stddev():
            return DoubleType()
        case TopK() | CollectList() | CollectSet():
            return StringType()
        case BoolAnd() | BoolOr():
            return BooleanType()
        case _:
            assert_never(function)


def _sum_type(type_: DataType, *, extra: int) -> DataType:
    """Return the type of a sum: as wide as decimals get, so that it stays exact."""
    match type_:
        case LongType():
            return DecimalType(38, extra)
        case DecimalType(_, scale):
            return DecimalType(38, scale + extra)
        case _:
            return type_
