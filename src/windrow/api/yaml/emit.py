"""The `emit` section."""

from __future__ import annotations

from typing import Literal

from windrow.api.yaml.fields import Fields
from windrow.api.yaml.spot import Spot
from windrow.model import Emit

_LATE: tuple[Literal["each", "batch"], ...] = ("each", "batch")
_MODE: tuple[Literal["retract"], ...] = ("retract",)
_AT_END: tuple[Literal["fire", "hold"], ...] = ("fire", "hold")


def read_emit(spot: Spot) -> Emit:
    """Read ``{lateness: 1h, late: each, mode: retract, at_end: fire}``; each key has a default."""
    fields = Fields(spot, ("lateness", "late", "mode", "at_end"))
    default = Emit()
    lateness = fields.optional("lateness", Spot.duration, default.lateness)
    late = fields.optional("late", lambda entry: entry.choice(_LATE), default.late)
    mode = fields.optional("mode", lambda entry: entry.choice(_MODE), default.mode)
    at_end = fields.optional("at_end", lambda entry: entry.choice(_AT_END), default.at_end)
    fields.check()
    return Emit(lateness.value, late.value, mode.value, at_end.value)
