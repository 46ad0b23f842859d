"""The `emit` section."""

from __future__ import annotations

from typing import Literal

from windrow.api.yaml.fields import Fields
from windrow.api.yaml.spot import Spot
from windrow.api.yaml.trigger import read_trigger
from windrow.model import Emit, Mode

_LATE: tuple[Literal["each", "batch"], ...] = ("each", "batch")
_MODE: tuple[Mode, ...] = ("retract", "accumulate", "discard")
_AT_END: tuple[Literal["fire", "hold"], ...] = ("fire", "hold")


def read_emit(spot: Spot) -> Emit:
    """Read ``{lateness: 1h, late: each, mode: retract, at_end: fire, early: {every: 30s}}``; each has a default."""
    fields = Fields(spot, ("lateness", "late", "mode", "at_end", "early"))
    default = Emit()
    lateness = fields.optional("lateness", Spot.duration, default.lateness)
    late = fields.optional("late", lambda entry: entry.choice(_LATE), default.late)
    mode = fields.optional("mode", lambda entry: entry.choice(_MODE), default.mode)
    at_end = fields.optional("at_end", lambda entry: entry.choice(_AT_END), default.at_end)
    early = fields.optional("early", read_trigger, default.early)
    fields.check()
    return Emit(lateness.value, late.value, mode.value, at_end.value, early.value)
