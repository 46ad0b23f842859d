"""Decimals with more digits than SQLite's NUMERIC keeps."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, warning
from windrow.api.checks.typed import type_of
from windrow.model import (
    Avg,
    DataType,
    DecimalType,
    First,
    Function,
    Last,
    Max,
    Min,
    Pipeline,
    Quantile,
    SqliteSink,
    Sum,
)

_KEPT = 15


def sqlite_digits(pipeline: Pipeline) -> Iterator[Finding]:
    """SQLite keeps 15 digits of a NUMERIC; a sum is taken to be some hundred times its terms."""
    if not isinstance(pipeline.sink, SqliteSink) or pipeline.sink.decimals == "text":
        return
    for aggregate in pipeline.aggregates:
        type_, more = _needs(pipeline, aggregate.function)
        if isinstance(type_, DecimalType) and type_.precision + more > _KEPT:
            message = f"over a {type_} can need more than {_KEPT} digits, which NUMERIC rounds; set `decimals: text`"
            yield warning(f"aggregate.{aggregate.name}", message)


def _needs(pipeline: Pipeline, function: Function) -> tuple[DataType | None, int]:
    """Return the type of what an aggregate is over, and how many digits more than that its result may have."""
    match function:
        case Sum(of):
            return type_of(pipeline, of), 2
        case Avg(of):
            return type_of(pipeline, of), 6
        case Min(of) | Max(of) | Quantile(of) | First(of) | Last(of):
            return type_of(pipeline, of), 0
        case _:
            return None, 0  # no decimal
