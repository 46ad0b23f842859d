"""Event time: which field holds it, and what moves the watermark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Delay:
    """The watermark at a record is its partition's clock less `micros`."""

    micros: int


@dataclass(frozen=True)
class Adaptive:
    """The watermark is behind the clock by a quantile of the lateness that the partition has seen so far.

    The delay is such that the fraction `target` of the records so far was no later than it, but at least `least` and
    at most `most` microseconds.
    """

    target: float
    least: int
    most: int


@dataclass(frozen=True)
class Punctuated:
    """The source carries the watermark itself, in `field` (a time of the same type as the event time)."""

    field: str


Watermark = Delay | Adaptive | Punctuated


@dataclass(frozen=True)
class EventTime:
    """The event time is in `field`; one more than `future` microseconds ahead of the log's timestamp is bad.

    With `sent`, the device's own time of sending, event times are corrected by (log timestamp - sent). A partition
    without a record for `idle` microseconds of processing time no longer holds the others back; when all are silent,
    time stands still (hold) or goes on with processing time (advance).
    """

    field: str
    watermark: Watermark
    future: int | None = None
    sent: str | None = None
    idle: int | None = None
    all_idle: Literal["hold", "advance"] = "hold"
