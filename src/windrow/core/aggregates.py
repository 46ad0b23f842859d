"""Aggregates as SQL over columns: how an accumulator begins, merges and ends.

A decimal is its unscaled whole number here (12.34 is 1234, as decimal(p,0)): that keeps every division exact, and the
scale returns when the result leaves (`rescale`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa

from windrow.core.duck import identifier
from windrow.model import Avg, Count, DataType, DoubleType, Function, Max, Min, Pipeline, Sum

_WHOLE = "DECIMAL(38,0)"
_AVG_DIGITS = 6


@dataclass(frozen=True)
class Accumulator:
    """One column of state: `begin` makes it of records, the function `merge` of accumulators, cast to `type` if set."""

    column: str
    begin: str
    merge: str
    type: str | None = None

    def merged(self, over: str = "") -> str:
        """Return the SQL that merges the column, over a window of rows if one is named."""
        call = f"{self.merge}({identifier(self.column)}){over}"
        return call if self.type is None else f"CAST({call} AS {self.type})"


@dataclass(frozen=True)
class Fold:
    """An aggregate: its accumulators, and the SQL that makes the result of them."""

    name: str
    accumulators: tuple[Accumulator, ...]
    finish: str


def folds(pipeline: Pipeline) -> tuple[Fold, ...]:
    """Return the pipeline's aggregates in their order."""
    return tuple(
        _fold(f"__a{number}", aggregate.name, aggregate.function, pipeline)
        for number, aggregate in enumerate(pipeline.aggregates)
    )


def _fold(prefix: str, name: str, function: Function, pipeline: Pipeline) -> Fold:
    match function:
        case Count():
            return Fold(name, (_count(prefix),), identifier(prefix))
        case Min(field) | Max(field):
            call = "min" if isinstance(function, Min) else "max"
            return Fold(name, (Accumulator(prefix, f"{call}({identifier(field)})", call),), identifier(prefix))
        case Sum(field):
            return Fold(name, (_sum(prefix, field, pipeline.decode.field(field).type),), identifier(prefix))
        case Avg(field):
            type_ = pipeline.decode.field(field).type
            total, number = _sum(f"{prefix}_sum", field, type_), _count(f"{prefix}_count")
            return Fold(name, (total, number), _mean(identifier(total.column), identifier(number.column), type_))
        case _:
            assert_never(function)


def _sum(column: str, field: str, type_: DataType) -> Accumulator:
    if isinstance(type_, DoubleType):
        return Accumulator(column, f"sum({identifier(field)})", "sum")
    return Accumulator(column, f"CAST(sum({identifier(field)}) AS {_WHOLE})", "sum", _WHOLE)


def _count(column: str) -> Accumulator:
    return Accumulator(column, "count(*)", "sum", "BIGINT")


def _mean(total: str, number: str, type_: DataType) -> str:
    """Divide with `_AVG_DIGITS` more digits, rounding half away from zero."""
    if isinstance(type_, DoubleType):
        return f"{total} / {number}"
    whole, count = f"abs({total}::HUGEINT)", f"{number}::HUGEINT"
    tail = f"(({whole} % {count}) * {2 * 10**_AVG_DIGITS} + {count}) // (2 * {count})"
    return f"(sign({total}::HUGEINT) * (({whole} // {count}) * {10**_AVG_DIGITS} + {tail}))::{_WHOLE}"


def unscale(table: pa.Table) -> pa.Table:
    """View every decimal column as its unscaled whole numbers."""
    fields = [
        field.with_type(pa.decimal128(field.type.precision, 0)) if pa.types.is_decimal(field.type) else field
        for field in table.schema
    ]
    return _view(table, pa.schema(fields))


def rescale(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """View unscaled decimals with the scales of `schema` and cast what else differs; the columns are in its order."""
    fields = [
        target if pa.types.is_decimal(target.type) and target.type.precision == field.type.precision else field
        for field, target in zip(table.schema, schema, strict=True)
    ]
    return _view(table, pa.schema(fields)).cast(schema)


def _view(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give the columns other decimal types without touching their bytes."""
    columns = [
        column
        if column.type == field.type
        else pa.chunked_array(
            [_reinterpret(chunk, field.type) for chunk in column.chunks],
            type=field.type,
        )
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _reinterpret(chunk: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, len(chunk), chunk.buffers(), offset=chunk.offset)
