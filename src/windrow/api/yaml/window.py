"""The `window` section."""

from __future__ import annotations

from collections.abc import Callable

from windrow.api.yaml.fields import Fields, read_one_of
from windrow.api.yaml.spot import Spot
from windrow.model import Tumbling, Window


def read_window(spot: Spot) -> Window:
    """Read ``{tumbling: 5m}`` or ``{tumbling: {size: 5m, offset: 1m}}``."""
    return read_one_of(spot, "kind of window", _KINDS)


def _tumbling(spot: Spot) -> Tumbling:
    if spot.is_scalar:
        return Tumbling(spot.duration())
    fields = Fields(spot, ("size", "offset"))
    size = fields.required("size", Spot.duration)
    offset = fields.optional("offset", Spot.duration, 0)
    fields.check()
    return Tumbling(size.value, offset.value)


_KINDS: dict[str, Callable[[Spot], Window]] = {"tumbling": _tumbling}
