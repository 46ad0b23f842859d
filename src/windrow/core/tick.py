"""Processing time as data: no operator reads a clock, a tick in the input says what time it is.

It stands apart from the other messages because transcripts are read without numpy and Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """The processing time: microseconds since the epoch, UTC."""

    micros: int


PlayStep = Sequence[tuple[int, bytes]] | Tick
"""A step of a transcript or test: records as (partition, value), or a tick without records."""
