"""Sums of floating-point numbers."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, warning
from windrow.api.checks.typed import type_of
from windrow.model import Avg, DoubleType, Pipeline, Stddev, Sum, Variance


def float_sums(pipeline: Pipeline) -> Iterator[Finding]:
    """The last digits of a sum of doubles depend on the order in which they are added."""
    for aggregate in pipeline.aggregates:
        match aggregate.function:
            case Sum(of) | Avg(of) | Variance(of) | Stddev(of) if isinstance(type_of(pipeline, of), DoubleType):
                message = (
                    f"{of!r} is a double, and sums of doubles depend on their order; use decimal(p,s) to repeat them"
                )
                yield warning(f"aggregate.{aggregate.name}", message)
            case _:
                continue
