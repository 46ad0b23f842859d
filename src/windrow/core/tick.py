"""Processing time as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """It is `micros` now: processing time in microseconds since the epoch, UTC."""

    micros: int


PlayStep = Sequence[tuple[int, bytes]] | Tick
"""A step of a log that is played: records as (partition, value), or a tick and no records."""
