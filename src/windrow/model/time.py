"""Event time and durations: the event time field, the watermark, and the text of a duration.

A duration is written as text such as ``10m`` or ``1h30m``, and kept as whole microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from windrow.errors import PipelineError


@dataclass(frozen=True)
class Delay:
    """The watermark at a record is its partition's clock minus `micros`."""

    micros: int


@dataclass(frozen=True)
class DelayByPartition:
    """The watermark at a record is its partition's clock minus the delay of that partition, in microseconds.

    `delays` are the partitions with their own delay, in order; all others have `default`.
    """

    default: int
    delays: tuple[tuple[int, int], ...]

    @property
    def longest(self) -> int:
        """The longest of the delays."""
        return max([self.default, *(micros for _, micros in self.delays)])

    def of(self, partition: int) -> Delay:
        """Return the delay of a partition, by its number in the source."""
        return Delay(dict(self.delays).get(partition, self.default))


@dataclass(frozen=True)
class Adaptive:
    """The watermark is behind the clock by a quantile of the lateness of the partition's records so far.

    The delay is the quantile `target` of that lateness, at least `least` and at most `most` microseconds.
    """

    target: float
    least: int
    most: int


@dataclass(frozen=True)
class Punctuated:
    """The records carry the watermark, in `field` (a time of the same type as the event time)."""

    field: str


@dataclass(frozen=True)
class Readings:
    """The watermark at a record is the clock before its reading minus `micros`; a reading has one event time."""

    micros: int


PartitionWatermark = Delay | Adaptive | Punctuated | Readings
"""The watermark strategy of one partition."""

Watermark = Delay | DelayByPartition | Adaptive | Punctuated


@dataclass(frozen=True)
class EventTime:
    """The event time is in `field`; a time more than `future` microseconds ahead of the log timestamp is invalid.

    With `sent`, the sending time by the device's clock, event times are corrected by (log timestamp - sent). A
    partition without records for `idle` microseconds of processing time becomes idle and no longer holds back the low
    watermark; when all are idle, watermarks stop (hold) or advance with processing time (advance).
    """

    field: str
    watermark: Watermark
    future: int | None = None
    sent: str | None = None
    idle: int | None = None
    all_idle: Literal["hold", "advance"] = "hold"


UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
MAX_DURATION = 36_500 * UNITS["d"]
"""A hundred years: the maximum of delays, windows and spans."""
_DURATION_PART = re.compile(r"([0-9]{1,18})(us|ms|s|m|h|d)")
DURATION_PATTERN = f"({_DURATION_PART.pattern})+"
_DURATION = re.compile(DURATION_PATTERN)


def parse_duration(text: str) -> int:
    """Read ``90s``, ``1h30m`` or ``250ms`` as microseconds; raise PipelineError for anything else."""
    if not _DURATION.fullmatch(text):
        msg = f"{text!r} is not a duration; write a number and a unit (us, ms, s, m, h, d), such as 10m or 1h30m"
        raise PipelineError(msg)
    return sum(int(number) * UNITS[unit] for number, unit in _DURATION_PART.findall(text))


def parse_time(text: str) -> int | None:
    """Read an ISO 8601 time, in UTC if it names no zone, as microseconds; None for anything else."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_duration(micros: int) -> str:
    """Write microseconds in the shortest form that `parse_duration` reads back."""
    if micros == 0:
        return "0s"
    parts = []
    for unit, size in reversed(UNITS.items()):
        number, micros = divmod(micros, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)
