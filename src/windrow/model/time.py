"""Event time: which field holds it, and what moves the watermark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Delay:
    """The watermark at a record is its partition's clock less `micros`."""

    micros: int


@dataclass(frozen=True)
class Punctuated:
    """The source carries the watermark itself, in `field` (a time of the same type as the event time)."""

    field: str


Watermark = Delay | Punctuated


@dataclass(frozen=True)
class EventTime:
    """The event time is in `field`; one more than `future` microseconds ahead of the log's timestamp is bad."""

    field: str
    watermark: Watermark
    future: int | None = None
