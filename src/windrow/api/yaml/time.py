"""The `time` section."""

from __future__ import annotations

from windrow.api.yaml.fields import Fields
from windrow.api.yaml.spot import Spot
from windrow.model import Delay, EventTime, Punctuated


def read_time(spot: Spot) -> EventTime:
    """Read ``{field: t, delay: 10m, future: 1h}`` or ``{field: t, punctuated: w}``."""
    fields = Fields(spot, ("field", "delay", "punctuated", "future"))
    field = fields.required("field", Spot.text)
    if "punctuated" in fields:
        if "delay" in fields:
            msg = f"{spot.called} has both 'delay' and 'punctuated'; a punctuated source carries its watermark itself"
            fields.problem(spot.error(msg))
        mark = fields.required("punctuated", Spot.text)
        future = fields.optional("future", Spot.duration, None)
        fields.check()
        return EventTime(field.value, Punctuated(mark.value), future.value)
    delay = fields.required("delay", Spot.duration, "(how far out of order records come), or 'punctuated'")
    future = fields.optional("future", Spot.duration, None)
    fields.check()
    return EventTime(field.value, Delay(delay.value), future.value)
