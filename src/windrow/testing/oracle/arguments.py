"""What aggregates take of a record, and the types of that and of their results."""

from __future__ import annotations

from typing import assert_never

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
    DecimalType,
    DoubleType,
    First,
    Formula,
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
from windrow.testing.oracle.answer import Value
from windrow.testing.oracle.expressions import Named, evaluate, type_of


def fields_of(pipeline: Pipeline) -> dict[str, DataType]:
    """Return the types of all fields, decoded and derived."""
    decoded = {field.name: field.type for field in pipeline.decode.fields}
    return decoded | {derive.name: type_of(derive.sql, decoded) for derive in pipeline.derive}


def derived(pipeline: Pipeline, fields: dict[str, Value]) -> dict[str, Value]:
    """Return the fields that are made of the decoded ones; raise FailedError if one cannot be."""
    row = _row({field.name: field.type for field in pipeline.decode.fields}, fields)
    return {derive.name: evaluate(derive.sql, row) for derive in pipeline.derive}


def inputs(pipeline: Pipeline, fields: dict[str, Value]) -> tuple[Value, ...]:
    """Return what each aggregate takes of a record, None for nothing; raise FailedError if an expression fails."""
    row = _row(fields_of(pipeline), fields)
    return tuple(_input(aggregate, fields, row) for aggregate in pipeline.aggregates)


def _row(types: dict[str, DataType], fields: dict[str, Value]) -> tuple[Named, ...]:
    return tuple(Named(name, type_, fields.get(name)) for name, type_ in types.items())


def _input(aggregate: Aggregate, fields: dict[str, Value], row: tuple[Named, ...]) -> Value:
    # where the condition does not hold the argument is not looked at, so it cannot fail either
    if aggregate.where is not None and not evaluate(aggregate.where, row):
        return None
    of = argument(aggregate)
    if of is None:
        return True
    return fields[of] if of in fields else evaluate(of, row)


def argument(aggregate: Aggregate) -> str | None:
    """Return the argument of an aggregate; None if it has none."""
    match aggregate.function:
        case Count() | Formula() | Custom():
            return None
        case _:
            return aggregate.function.of


def argument_type(pipeline: Pipeline, of: str) -> DataType:
    """Return the type of an argument, a field's name or an expression."""
    types = fields_of(pipeline)
    return types[of] if of in types else type_of(of, types)


def result_type(pipeline: Pipeline, aggregate: Aggregate) -> DataType:
    """Return the type of a result, which formulas go by."""
    function = aggregate.function
    match function:
        case Count() | CountDistinct() | ApproxCountDistinct():
            return LongType()
        case Sum(of) | Avg(of):
            return _exact(argument_type(pipeline, of), digits=6 if isinstance(function, Avg) else 0)
        case Min(of) | Max(of) | Quantile(of) | First(of) | Last(of):
            return argument_type(pipeline, of)
        case ApproxQuantile() | Variance() | Stddev():
            return DoubleType()
        case BoolAnd() | BoolOr():
            return BooleanType()
        case TopK() | CollectList() | CollectSet():
            return StringType()
        case Custom() | Formula():
            msg = "the oracle does not know aggregates in Python, and a formula has no part in another"
            raise TypeError(msg)
        case _:
            assert_never(function)


def _exact(type_: DataType, digits: int) -> DataType:
    match type_:
        case DoubleType():
            return type_
        case DecimalType(_, scale):
            return DecimalType(38, scale + digits)
        case _:
            return DecimalType(38, digits)
