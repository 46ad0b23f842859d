"""Result columns of a pipeline: the type of each, and whether it can be null."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windrow import model as m
from windrow.expressions.analyse import Expression, analyse
from windrow.expressions.inputs import Argument, WindowSpec, arguments

MEAN_DIGITS = 6
"""A mean is exact to so many digits more than its field has."""


@dataclass(frozen=True)
class Result:
    """A result column; where no record counts for it, it is null if it can be."""

    name: str
    type: m.DataType
    nullable: bool


def results(spec: WindowSpec) -> tuple[Result, ...]:
    """Return the results in their order; raise PipelineError for an expression that is wrong."""
    made = tuple(
        Result(aggregate.name, *_result(aggregate.function, given))
        for aggregate, given in zip(spec.node.aggregates, arguments(spec), strict=True)
    )
    formulas_of = formulas(spec, made)
    return tuple(
        Result(one.name, formulas_of[one.name].type, nullable=True) if one.name in formulas_of else one for one in made
    )


def needs_rows(spec: WindowSpec, *, is_changelog: bool) -> bool:
    """Return whether results over all time need all rows at once, and not what those before have come to.

    Only counts and exact sums can take back a row of a changelog. Sums of doubles, and what Python code makes, can
    depend on what is merged.
    """
    for aggregate, given in zip(spec.node.aggregates, arguments(spec), strict=True):
        match aggregate.function:
            case m.Custom():
                return True
            case m.Sum() | m.Avg() if isinstance(given[0].type, m.DoubleType):
                return True
            case m.Variance() | m.Stddev() if is_changelog or isinstance(given[0].type, m.DoubleType):
                return True
            case m.Count() | m.Sum() | m.Avg() | m.Variance() | m.Stddev() | m.Formula():
                pass
            case _ if is_changelog:
                return True
    return False


def formulas(spec: WindowSpec, made: tuple[Result, ...]) -> dict[str, Expression]:
    """Return the formulas by name, analysed over the results that are none."""
    texts = {
        aggregate.name: aggregate.function.sql
        for aggregate in spec.node.aggregates
        if isinstance(aggregate.function, m.Formula)
    }
    plain = tuple(one for one in made if one.name not in texts)
    fields = tuple(m.Field(one.name, one.type) for one in plain)
    nullable = frozenset(one.name for one in plain if one.nullable)
    return {name: analyse(text, fields, nullable) for name, text in texts.items()}


def _result(function: m.Function, given: tuple[Argument, ...]) -> tuple[m.DataType, bool]:
    """Return the type of a result, and whether it can be null; those of a formula are not known yet."""
    match function:
        case m.Count() | m.CountDistinct() | m.ApproxCountDistinct():
            return m.LongType(), False
        case m.Custom(aggregate):
            return aggregate.returns, True
        case m.Formula():
            return m.DoubleType(), True
        case _:
            is_nullable = any(one.nullable for one in given) or isinstance(function, m.Variance | m.Stddev)
            return _type_of_one(function, given[0]), is_nullable


_FIXED_TYPES: dict[Literal["count", "double", "text", "boolean"], m.DataType] = {
    "count": m.LongType(),
    "double": m.DoubleType(),
    "text": m.StringType(),
    "boolean": m.BooleanType(),
}


def _type_of_one(function: m.UnaryFunction, given: Argument) -> m.DataType:
    match m.function_spec(function).result:
        case "argument":
            return given.type
        case "sum":
            return _sum_type(given.type, extra=0)
        case "mean":
            return _sum_type(given.type, extra=MEAN_DIGITS)
        case fixed:
            return _FIXED_TYPES[fixed]


def _sum_type(type_: m.DataType, *, extra: int) -> m.DataType:
    """Return the type of a sum: as wide as decimals get, so that it stays exact."""
    match type_:
        case m.LongType():
            return m.DecimalType(38, extra)
        case m.DecimalType(_, scale):
            return m.DecimalType(38, scale + extra)
        case _:
            return type_
