"""The `aggregate` section."""

from __future__ import annotations

from windrow.api.aggregate_text import parse_aggregate
from windrow.api.yaml.fields import Fields
from windrow.api.yaml.spot import Spot
from windrow.model import Aggregate


def read_aggregates(spot: Spot) -> tuple[Aggregate, ...]:
    """Read ``{total: sum(amount), buys: "count() where kind = 'buy'", mean: total / events}``."""
    fields = Fields(spot)
    measures = [(name, fields.attempt(lambda entry: entry.parsed(parse_aggregate), entry)) for name, entry in fields]
    fields.check()
    return tuple(Aggregate(name, measure.value.function, measure.value.where) for name, measure in measures)
