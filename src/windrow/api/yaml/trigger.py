"""Triggers of early panes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from windrow.api.yaml.fields import Fields, read_one_of
from windrow.api.yaml.spot import Spot
from windrow.model import AllOf, AnyOf, Every, Records, Repeat, Trigger

_DEEPEST = 20


def read_trigger(spot: Spot, depth: int = 0) -> Trigger:
    """Read ``{every: 30s}``, ``{count: 100}``, ``{any_of: [...]}``, ``{all_of: [...]}`` or ``{repeat: {...}}``."""
    if depth > _DEEPEST:
        msg = f"{spot.called} is nested too deeply"
        raise spot.error(msg)
    kinds: dict[str, Callable[[Spot], Trigger]] = {
        "every": lambda entry: Every(entry.duration()),
        "count": lambda entry: Records(entry.number()),
        "any_of": lambda entry: AnyOf(_several(entry, depth)),
        "all_of": lambda entry: AllOf(_several(entry, depth)),
        "repeat": partial(_repeat, depth=depth),
    }
    return read_one_of(spot, "trigger", kinds)


def _several(spot: Spot, depth: int) -> tuple[Trigger, ...]:
    return spot.each(partial(read_trigger, depth=depth + 1))


def _repeat(spot: Spot, depth: int) -> Repeat:
    fields = Fields(spot, ("trigger", "times"))
    trigger = fields.required("trigger", partial(read_trigger, depth=depth + 1))
    times = fields.required("times", Spot.number)
    fields.check()
    return Repeat(trigger.value, times.value)
