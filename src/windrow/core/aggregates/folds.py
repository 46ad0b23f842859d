"""The aggregates of a pipeline as SQL over columns.

A decimal is its unscaled whole number here (12.34 is 1234, as decimal(p,0)): that keeps every division exact, and the
scale returns when the result leaves (`rescale`).
"""

from __future__ import annotations

from typing import assert_never

from windrow.core.aggregates import counted, distinct, places, spread
from windrow.core.aggregates.custom import custom
from windrow.core.aggregates.extremes import extreme
from windrow.core.aggregates.fold import Fold, Input
from windrow.core.aggregates.numbers import count, mean, total
from windrow.core.duck import identifier
from windrow.expressions import Argument, arguments, results
from windrow.expressions.types import sql_type
from windrow.model import (
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    BoolOr,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    Custom,
    DataType,
    DecimalType,
    First,
    Formula,
    Function,
    Last,
    Max,
    Min,
    Pipeline,
    Quantile,
    Stddev,
    Sum,
    TopK,
    Variance,
)


def folds(pipeline: Pipeline) -> tuple[Fold, ...]:
    """Return the pipeline's aggregates in their order."""
    made = zip(pipeline.aggregates, arguments(pipeline), results(pipeline), strict=True)
    return tuple(
        _fold(f"__a{number}", aggregate.name, aggregate.function, given, result.type)
        for number, (aggregate, given, result) in enumerate(made)
    )


def _fold(column: str, name: str, function: Function, given: tuple[Argument, ...], result: DataType) -> Fold:
    inputs = tuple(map(_input, given))
    match function:
        case Count():
            return count(name, column, inputs[0].sql if inputs else None)
        case Custom(aggregate, of):
            return custom(name, column, aggregate, of, inputs)
        case Formula():
            # it is over finished results: `Results` puts it in this place
            return Fold(name, (), f"CAST(NULL AS {sql_type(result)})")
        case _:
            return _of_one(column, name, function, inputs[0])


def _of_one(  # noqa: C901, PLR0911, PLR0912 - a case for each of them
    column: str,
    name: str,
    function: Sum
    | Min
    | Max
    | Avg
    | CountDistinct
    | ApproxCountDistinct
    | Quantile
    | ApproxQuantile
    | TopK
    | First
    | Last
    | CollectList
    | CollectSet
    | Variance
    | Stddev
    | BoolAnd
    | BoolOr,
    of: Input,
) -> Fold:
    match function:
        case Sum():
            return total(name, column, of)
        case Avg():
            return mean(name, column, of)
        case Min():
            return extreme(name, column, of, "min")
        case Max():
            return extreme(name, column, of, "max")
        case BoolAnd():
            return extreme(name, column, of, "bool_and")
        case BoolOr():
            return extreme(name, column, of, "bool_or")
        case CountDistinct():
            return distinct.count_distinct(name, column, of)
        case ApproxCountDistinct():
            return distinct.approx_count_distinct(name, column, of)
        case CollectSet(_, most):
            return distinct.collect_set(name, column, of, most)
        case Quantile(_, at):
            return counted.quantile(name, column, of, at)
        case ApproxQuantile(_, at):
            return counted.approx_quantile(name, column, of, at)
        case TopK(_, k):
            return counted.top_k(name, column, of, k)
        case First(_, by):
            return places.at_an_end(name, column, of, by=by, call="min")
        case Last(_, by):
            return places.at_an_end(name, column, of, by=by, call="max")
        case CollectList(_, most):
            return places.collect_list(name, column, of, most)
        case Variance():
            return spread.variance(name, column, of)
        case Stddev():
            return spread.stddev(name, column, of)
        case _:
            assert_never(function)


def _input(argument: Argument) -> Input:
    type_ = argument.type
    scale = type_.scale if isinstance(type_, DecimalType) else None
    return Input(
        sql=identifier(argument.column),
        type=sql_type(DecimalType(type_.precision, 0) if isinstance(type_, DecimalType) else type_),
        scale=scale,
        nullable=argument.nullable,
    )
