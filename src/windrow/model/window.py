"""How event time is cut; all windows are half-open, and all lengths are microseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tumbling:
    """Windows [k * size + offset, (k + 1) * size + offset) for every whole k."""

    size: int
    offset: int = 0


Window = Tumbling
