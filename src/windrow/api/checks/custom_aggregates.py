"""Aggregates in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.plain_functions import not_plain
from windrow.model import Custom, DataType, Pipeline

_METHODS = ("zero", "step", "merge", "finish")


def custom_aggregates(pipeline: Pipeline) -> Iterator[Finding]:
    """An aggregate of one's own has what `windrow.CustomAggregate` says, and is over something."""
    for aggregate in pipeline.aggregates:
        if not isinstance(aggregate.function, Custom):
            continue
        where, own = f"aggregate.{aggregate.name}", aggregate.function.aggregate
        missing = [name for name in _METHODS if not callable(getattr(own, name, None))]
        if missing or isinstance(own, type):
            lacks = f"lacks {', '.join(missing)}" if missing else "is a class; give an object of it"
            yield error(where, f"{own!r} {lacks} (see windrow.CustomAggregate)")
        for name in _METHODS:
            if why := not_plain(getattr(own, name, None)):
                yield error(where, f"{name} of {own!r} {why}")
        if not isinstance(getattr(own, "returns", None), get_args(DataType)):
            yield error(where, f"{own!r} needs `returns`, the type of its result, such as windrow.model.LongType()")
        if not aggregate.function.of:
            yield error(where, "is over nothing; name the fields or expressions that it takes")
