"""When a window's result is written, and what becomes of late records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windrow.model.trigger import Trigger

Mode = Literal["retract", "accumulate", "discard"]


@dataclass(frozen=True)
class Emit:
    """A window fires at the watermark; records up to `lateness` microseconds late revise it.

    `early` writes panes before that. `late` is one revision for each late record, or one a step. `mode` says what a
    pane holds: all records of its window, with the row it replaces taken back (retract) or not (accumulate), or only
    what is new since the last pane (discard). `at_end` says what a bounded run does with windows that are still open
    when the input ends.
    """

    lateness: int = 0
    late: Literal["each", "batch"] = "each"
    mode: Mode = "retract"
    at_end: Literal["fire", "hold"] = "fire"
    early: Trigger | None = None
