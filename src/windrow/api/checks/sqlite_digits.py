"""Decimals with more digits than SQLite's NUMERIC keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from windrow.api.checks.finding import Finding, warning
from windrow.api.checks.named import field_of, type_of
from windrow.model import Avg, Count, DecimalType, Function, Max, Min, Pipeline, SqliteSink, Sum

_KEPT = 15


def sqlite_digits(pipeline: Pipeline) -> Iterator[Finding]:
    """SQLite keeps 15 digits of a NUMERIC; a sum is taken to be some hundred times its terms."""
    if not isinstance(pipeline.sink, SqliteSink) or pipeline.sink.decimals == "text":
        return
    for aggregate in pipeline.aggregates:
        field = field_of(aggregate)
        type_ = None if field is None else type_of(pipeline, field)
        if isinstance(type_, DecimalType) and type_.precision + _more_digits(aggregate.function) > _KEPT:
            message = f"over a {type_} can need more than {_KEPT} digits, which NUMERIC rounds; set `decimals: text`"
            yield warning(f"aggregate.{aggregate.name}", message)


def _more_digits(function: Function) -> int:
    match function:
        case Sum():
            return 2
        case Avg():
            return 6
        case Count() | Min() | Max():
            return 0
        case _:
            assert_never(function)
