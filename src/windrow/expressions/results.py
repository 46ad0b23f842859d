"""Result columns of a pipeline: their types, and whether they can be null."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windrow import model as m
from windrow.expressions.analyse import Expression, analyse
from windrow.expressions.inputs import Argument, WindowSpec, arguments

MEAN_DIGITS = 6
"""Number of digits after the decimal point that a mean has in addition to those of its field."""


@dataclass(frozen=True)
class Result:
    """A result column; if it is `nullable`, it is null when no record counts for it."""

    name: str
    type: m.DataType
    nullable: bool


def results(spec: WindowSpec) -> tuple[Result, ...]:
    """Return the result columns in order; raise PipelineError for an invalid expression."""
    columns = tuple(
        Result(aggregate.name, *_type_and_nullable(aggregate.function, given))
        for aggregate, given in zip(spec.node.aggregates, arguments(spec), strict=True)
    )
    types = {name: expression.type for name, expression in formulas(spec, columns).items()}
    return tuple(
        Result(column.name, types[column.name], nullable=True) if column.name in types else column for column in columns
    )


def needs_rows(spec: WindowSpec, *, is_changelog: bool) -> bool:
    """Return True if results over all time must be computed from all rows at once, not from intermediate results.

    For a changelog, only counts and exact sums can retract a row. Sums of doubles and results of Python code can depend
    on the order in which parts are merged.
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


def formulas(spec: WindowSpec, columns: tuple[Result, ...]) -> dict[str, Expression]:
    """Map the name of each formula to its expression over the other results."""
    texts = {
        aggregate.name: aggregate.function.sql
        for aggregate in spec.node.aggregates
        if isinstance(aggregate.function, m.Formula)
    }
    plain = tuple(column for column in columns if column.name not in texts)
    fields = tuple(m.Field(column.name, column.type) for column in plain)
    nullable = frozenset(column.name for column in plain if column.nullable)
    return {name: analyse(text, fields, nullable) for name, text in texts.items()}


def _type_and_nullable(function: m.Function, given: tuple[Argument, ...]) -> tuple[m.DataType, bool]:
    """Return the type of a result, and whether it can be null; both are preliminary for a formula."""
    match function:
        case m.Count() | m.CountDistinct() | m.ApproxCountDistinct():
            return m.LongType(), False
        case m.Custom(aggregate):
            return aggregate.returns, True
        case m.Formula():
            return m.DoubleType(), True
        case _:
            is_nullable = any(argument.nullable for argument in given) or isinstance(function, m.Variance | m.Stddev)
            return _unary_type(function, given[0]), is_nullable


_FIXED_TYPES: dict[Literal["count", "double", "text", "boolean"], m.DataType] = {
    "count": m.LongType(),
    "double": m.DoubleType(),
    "text": m.StringType(),
    "boolean": m.BooleanType(),
}


def _unary_type(function: m.UnaryFunction, given: Argument) -> m.DataType:
    match m.function_spec(function).result:
        case "argument":
            return given.type
        case "sum":
            return _sum_type(given.type, extra=0)
        case "mean":
            return _sum_type(given.type, extra=MEAN_DIGITS)
        case "list":
            return _list_type(given.type)
        case fixed:
            return _FIXED_TYPES[fixed]


def _list_type(type_: m.DataType) -> m.DataType:
    return m.StringType() if isinstance(type_, m.ArrayType) else m.JsonListType(type_)


def _sum_type(type_: m.DataType, *, extra: int) -> m.DataType:
    """Return the type of a sum.

    For integers and decimals, it is the widest decimal, so that sums stay exact.
    """
    match type_:
        case m.LongType():
            return m.DecimalType(38, extra)
        case m.DecimalType(_, scale):
            return m.DecimalType(38, scale + extra)
        case _:
            return type_
