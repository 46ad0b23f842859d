"""The `aggregate` section."""

from __future__ import annotations

from windrow.api.aggregate_text import parse_aggregate
from windrow.api.yaml.spot import Spot
from windrow.api.yaml.texts import read_texts
from windrow.model import Aggregate


def read_aggregates(spot: Spot) -> tuple[Aggregate, ...]:
    """Read ``{total: sum(amount), buys: "count() where kind = 'buy'", mean: total / events}``."""
    return tuple(
        Aggregate(name, measure.function, measure.where) for name, measure in read_texts(spot, parse_aggregate)
    )
