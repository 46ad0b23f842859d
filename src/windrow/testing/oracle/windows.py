"""Which windows hold a time."""

from __future__ import annotations

from typing import assert_never

from windrow.model import Calendar, Global, Hopping, Session, Tumbling, Window
from windrow.testing.oracle.calendar import boundary

ALL_TIME = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""0001-01-01 00:00 and 9999-12-31 23:59:59.999999."""


def windows_of(window: Window, time: int) -> list[tuple[int, int]]:
    """Return the windows [start, end) that hold the time, earlier ones first; of a session a record's own."""
    match window:
        case Tumbling(size, offset):
            start = time - (time - offset) % size
            return [(start, start + size)]
        case Hopping(size, slide, offset):
            last = (time - offset) // slide
            first = (time - size - offset) // slide + 1
            return [(k * slide + offset, k * slide + offset + size) for k in range(first, last + 1)]
        case Calendar():
            return [_calendar(window, time)]
        case Session(gap):
            return [(time, time + gap)]
        case Global():
            return [ALL_TIME]
        case _:
            assert_never(window)


def _calendar(window: Calendar, time: int) -> tuple[int, int]:
    k = time // 86_400_000_000 // (window.count * {"day": 1, "week": 7, "month": 30}[window.unit])
    while boundary(window, k) > time:
        k -= 1
    while boundary(window, k + 1) <= time:
        k += 1
    return boundary(window, k), boundary(window, k + 1)
