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
    """A fixed delay: the watermark at a record is its partition's clock minus `micros` microseconds."""

    micros: int


@dataclass(frozen=True)
class DelayByPartition:
    """A delay for each partition: the watermark at a record is its partition's clock minus the partition's delay.

    `delays` are pairs of a partition and its delay, in order; all other partitions have the delay `default`. Delays are
    in microseconds.
    """

    default: int
    delays: tuple[tuple[int, int], ...]

    @property
    def longest(self) -> int:
        """The longest delay of any partition."""
        return max([self.default, *(micros for _, micros in self.delays)])

    def of(self, partition: int) -> Delay:
        """Return the delay of a partition, given its number in the source."""
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
    """Records carry the watermark in `field`, which has the same type as the event time."""

    field: str


@dataclass(frozen=True)
class Readings:
    """A fixed delay for a file that is read repeatedly; all records of one reading have the same event time.

    The watermark at a record is the clock before the reading of that record, minus `micros` microseconds.
    """

    micros: int


PartitionWatermark = Delay | Adaptive | Punctuated | Readings
"""The watermark strategy of one partition."""

Watermark = Delay | DelayByPartition | Adaptive | Punctuated


@dataclass(frozen=True)
class EventTime:
    """How the event time of records is determined, and what advances the watermark.

    The event time is in `field`; a time more than `future` microseconds ahead of the log timestamp is invalid. If
    `sent` is the field with the time at which the device sent the record, by the device's clock, event times are
    corrected by (log timestamp - sent). A partition without records for `idle` microseconds of processing time becomes
    idle and no longer holds back the low watermark. When all partitions are idle, watermarks stop (hold) or advance
    with processing time (advance). A time more than `jump` microseconds ahead of its partition's clock advances the
    clock only if the next records agree (`windrow.engine.watermarks.guard`); with `future`, this applies to records
    without a log timestamp.
    """

    field: str
    watermark: Watermark
    future: int | None = None
    sent: str | None = None
    idle: int | None = None
    all_idle: Literal["hold", "advance"] = "hold"
    jump: int | None = None


UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
MAX_DURATION = 36_500 * UNITS["d"]
"""The maximum length of delays, windows and spans: a hundred years."""
_DURATION_PART = re.compile(r"([0-9]{1,18})(us|ms|s|m|h|d)")
DURATION_PATTERN = f"({_DURATION_PART.pattern})+"
_DURATION = re.compile(DURATION_PATTERN)


def parse_duration(text: str) -> int:
    """Parse ``90s``, ``1h30m`` or ``250ms`` as microseconds; raise PipelineError for other text."""
    if not _DURATION.fullmatch(text):
        msg = f"{text!r} is not a duration; write a number and a unit (us, ms, s, m, h, d), such as 10m or 1h30m"
        raise PipelineError(msg)
    return sum(int(number) * UNITS[unit] for number, unit in _DURATION_PART.findall(text))


def parse_time(text: str) -> int | None:
    """Parse an ISO 8601 time as microseconds, in UTC unless it has a zone; return None for other text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_duration(micros: int) -> str:
    """Format microseconds as the shortest text that `parse_duration` can read."""
    if micros == 0:
        return "0s"
    parts = []
    for unit, size in reversed(UNITS.items()):
        number, micros = divmod(micros, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)
