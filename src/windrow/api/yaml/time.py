"""The `time` section."""

from __future__ import annotations

from typing import Literal

from windrow.api.yaml.fields import Fields, Read, read_one_of
from windrow.api.yaml.spot import Spot
from windrow.model import Adaptive, Delay, EventTime, Punctuated, Watermark

_ALL_IDLE: tuple[Literal["hold", "advance"], ...] = ("hold", "advance")


def read_time(spot: Spot) -> EventTime:
    """Read ``{field: t, delay: 10m, future: 1h}``; `punctuated` in place of `delay`, `sent`, `idle` and `all_idle`."""
    fields = Fields(spot, ("field", "delay", "punctuated", "future", "sent", "idle", "all_idle"))
    field = fields.required("field", Spot.text)
    watermark = _watermark(fields)
    future = fields.optional("future", Spot.duration, None)
    sent = fields.optional("sent", Spot.text, None)
    idle = fields.optional("idle", Spot.duration, None)
    all_idle = fields.optional("all_idle", lambda entry: entry.choice(_ALL_IDLE), EventTime.all_idle)
    fields.check()
    return EventTime(field.value, watermark.value, future.value, sent.value, idle.value, all_idle.value)


def _watermark(fields: Fields) -> Read[Watermark]:
    if "punctuated" not in fields:
        return fields.required("delay", _delay, "(how far out of order records come), or 'punctuated'")
    if "delay" in fields:
        spot = fields.spot
        msg = f"{spot.called} has both 'delay' and 'punctuated'; a punctuated source carries its watermark itself"
        fields.problem(spot.error(msg))
    return fields.required("punctuated", lambda entry: Punctuated(entry.text()))


def _delay(spot: Spot) -> Delay | Adaptive:
    """Read ``10m`` or ``{adaptive: {target: 0.999, min: 10s, max: 10m}}``."""
    return Delay(spot.duration()) if spot.is_scalar else read_one_of(spot, "delay", {"adaptive": _adaptive})


def _adaptive(spot: Spot) -> Adaptive:
    fields = Fields(spot, ("target", "min", "max"))
    target = fields.required("target", Spot.fraction)
    least = fields.required("min", Spot.duration)
    most = fields.required("max", Spot.duration)
    fields.check()
    return Adaptive(target.value, least.value, most.value)
