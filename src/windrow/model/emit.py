"""When a window's result is written, and what becomes of late records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Emit:
    """A window fires at the watermark; records up to `lateness` microseconds late revise it.

    `late` is one revision for each late record, or one a step; `at_end` says what a bounded run does with windows
    that are still open when the input ends.
    """

    lateness: int = 0
    late: Literal["each", "batch"] = "each"
    mode: Literal["retract"] = "retract"
    at_end: Literal["fire", "hold"] = "fire"
