"""The numbers that aggregates are given."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.model import ApproxQuantile, CollectList, CollectSet, Pipeline, Quantile, TopK

_MOST = 100_000


def aggregate_arguments(pipeline: Pipeline) -> Iterator[Finding]:
    """A quantile is from 0 to 1, and what is kept of the values has a bound."""
    for aggregate in pipeline.aggregates:
        where = f"aggregate.{aggregate.name}"
        match aggregate.function:
            case Quantile(_, at) | ApproxQuantile(_, at) if not 0 <= at <= 1:
                yield error(where, f"{at} is no fraction; give one from 0 to 1, such as 0.99")
            case TopK(_, k) if not 1 <= k <= _MOST:
                yield error(where, f"keeps {k} values; give 1 to {_MOST}")
            case CollectList(_, most) | CollectSet(_, most) if not 1 <= most <= _MOST:
                yield error(where, f"keeps {most} values; give 1 to {_MOST}")
            case _:
                continue
