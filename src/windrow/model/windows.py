"""Windows: how event time is divided, and the text of a calendar window's size.

All windows are half-open, and all lengths are in microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from math import gcd
from typing import Final, Literal, get_args

from windrow.errors import PipelineError

WINDOW_BOUNDS: Final = ("window_start", "window_end")
"""The columns of a row with the bounds of its window."""
CalendarUnit = Literal["hour", "day", "week", "month"]


@dataclass(frozen=True)
class Tumbling:
    """Windows [k * size + offset, (k + 1) * size + offset) for every whole k."""

    size: int
    offset: int = 0


@dataclass(frozen=True)
class Hopping:
    """Windows [k * slide + offset, k * slide + offset + size) for every whole k; a record can be in several windows."""

    size: int
    slide: int
    offset: int = 0

    @property
    def slice(self) -> int:
        """The length of the slices that windows share: the greatest that divides every window."""
        return gcd(self.size, self.slide)


@dataclass(frozen=True)
class Cumulate:
    """Windows [k * size + offset, k * size + offset + i * step) for every whole k and i from 1 to size / step.

    The windows of one k have the same start, and each contains the previous one; the size is a multiple of the step.
    """

    size: int
    step: int
    offset: int = 0

    @property
    def slice(self) -> int:
        """The length of the slices that windows share: the greatest that divides every window."""
        return self.step


@dataclass(frozen=True)
class Calendar:
    """Windows of `count` hours, days, weeks or months in a time zone, where a day may have 23 or 25 hours.

    They are counted from midnight of the day `origin`: by default 1970-01-01, for weeks Monday 1969-12-29. `offset`
    shifts each boundary on the local clock, for example for business days that begin at 6 in the morning.
    """

    count: int
    unit: CalendarUnit
    zone: str = "UTC"
    offset: int = 0
    origin: date | None = None

    @property
    def begins_at(self) -> date:
        """The day from which windows are counted."""
        return self.origin or (date(1969, 12, 29) if self.unit == "week" else date(1970, 1, 1))


@dataclass(frozen=True)
class Session:
    """Windows of records of one key that are less than `gap` apart: [first, last + gap).

    If `by` is set, each record has its own gap: this SQL expression returns it in seconds, more than 0 and at most
    `gap`. Records are then in one window if their own windows [t, t + gap) overlap.
    """

    gap: int
    by: str | None = None


@dataclass(frozen=True)
class Global:
    """One window for all time."""


Window = Tumbling | Hopping | Cumulate | Calendar | Session | Global

Sliced = Hopping | Cumulate
"""Overlapping windows, which are made of slices."""


CALENDAR_SIZE_PATTERN = r"([0-9]{1,9})\s+(hour|day|week|month)s?"
_CALENDAR_SIZE = re.compile(CALENDAR_SIZE_PATTERN)
_CALENDAR_UNITS: dict[str, CalendarUnit] = {unit: unit for unit in get_args(CalendarUnit)}


def parse_calendar_size(text: str) -> tuple[int, CalendarUnit] | None:
    """Parse ``1 day`` (a number, a space and a unit); return None for other text, such as the duration ``1d``."""
    size = _CALENDAR_SIZE.fullmatch(text.strip())
    return (int(size[1]), _CALENDAR_UNITS[size[2]]) if size else None


def parse_day(text: str) -> date:
    """Parse a day such as ``2026-04-01``; raise PipelineError for other text."""
    try:
        return date.fromisoformat(text)
    except ValueError as exc:
        msg = f"{text!r} is not a day; write one such as 2026-04-01"
        raise PipelineError(msg) from exc


def format_calendar_size(count: int, unit: CalendarUnit) -> str:
    """Format the size of a calendar window as text that `parse_calendar_size` can read."""
    return f"{count} {unit}{'' if count == 1 else 's'}"
