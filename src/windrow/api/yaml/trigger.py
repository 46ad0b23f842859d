"""Triggers of early panes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import yaml

from windrow.api.yaml.fields import Fields, read_one_of
from windrow.api.yaml.spot import Spot
from windrow.model import AllOf, AnyOf, Every, Records, Repeat, Trigger

_DEEPEST = 20


def read_trigger(spot: Spot, above: tuple[yaml.Node, ...] = ()) -> Trigger:
    """Read ``{every: 30s}``, ``{count: 100}``, ``{any_of: [...]}``, ``{all_of: [...]}`` or ``{repeat: {...}}``.

    `above` are the triggers that it is a part of: by a YAML alias, it can be one of them.
    """
    if any(spot.node is node for node in above) or len(above) > _DEEPEST:
        msg = f"{spot.called} is nested too deeply"
        raise spot.error(msg)
    inner = partial(read_trigger, above=(*above, spot.node))
    kinds: dict[str, Callable[[Spot], Trigger]] = {
        "every": lambda entry: Every(entry.duration()),
        "count": lambda entry: Records(entry.number()),
        "any_of": lambda entry: AnyOf(entry.each(inner)),
        "all_of": lambda entry: AllOf(entry.each(inner)),
        "repeat": partial(_repeat, inner=inner),
    }
    return read_one_of(spot, "trigger", kinds)


def _repeat(spot: Spot, inner: Callable[[Spot], Trigger]) -> Repeat:
    fields = Fields(spot, ("trigger", "times"))
    trigger = fields.required("trigger", inner)
    times = fields.required("times", Spot.number)
    fields.check()
    return Repeat(trigger.value, times.value)
