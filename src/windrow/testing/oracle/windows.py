"""Windows that contain a given time, of fixed and of calendar sizes."""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from typing import assert_never
from zoneinfo import ZoneInfo

from windrow import model as m

ALL_TIME = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""0001-01-01 00:00 and 9999-12-31 23:59:59.999999."""


def windows_of(window: m.Window, time: int) -> list[tuple[int, int]]:
    """Return the windows [start, end) that contain a time, earliest first; for sessions, the record's own window."""
    match window:
        case m.Tumbling(size, offset):
            start = time - (time - offset) % size
            return [(start, start + size)]
        case m.Hopping(size, slide, offset):
            last = (time - offset) // slide
            first = (time - size - offset) // slide + 1
            return [(k * slide + offset, k * slide + offset + size) for k in range(first, last + 1)]
        case m.Cumulate(size, step, offset):
            start = time - (time - offset) % size
            return [(start, end) for end in range(start + step, start + size + 1, step) if time < end]
        case m.Calendar():
            return [_calendar(window, time)]
        case m.Session(gap):
            return [(time, time + gap)]
        case m.Global():
            return [ALL_TIME]
        case _:
            assert_never(window)


def _calendar(window: m.Calendar, time: int) -> tuple[int, int]:
    since = time - (window.begins_at - EPOCH.date()).days * DAY
    k = since // (window.count * {"hour": HOUR, "day": DAY, "week": 7 * DAY, "month": 30 * DAY}[window.unit])
    while boundary(window, k) > time:
        k -= 1
    while boundary(window, k + 1) <= time:
        k += 1
    return boundary(window, k), boundary(window, k + 1)


EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - on the local clock
HOUR = 3_600_000_000
DAY = 24 * HOUR
CYCLE_YEARS = 400
CYCLE = 146_097 * DAY
"""The Gregorian calendar repeats after 400 years, which is a whole number of weeks."""


@lru_cache(maxsize=1 << 16)
def boundary(window: m.Calendar, k: int) -> int:
    """Return the start of the k-th window in microseconds, UTC."""
    origin = dt.datetime(*window.begins_at.timetuple()[:3])  # noqa: DTZ001 - on the local clock
    begin, number = (origin - EPOCH) // dt.timedelta(microseconds=1), k * window.count
    match window.unit:
        case "hour":
            local = begin + number * HOUR
        case "day":
            local = begin + number * DAY
        case "week":
            local = begin + number * 7 * DAY
        case "month":
            years, month = divmod(origin.month - 1 + number, 12)
            cycles, years = divmod(origin.year - 1970 + years, CYCLE_YEARS)
            first = dt.datetime(1970 + years, month + 1, origin.day)  # noqa: DTZ001 - on the local clock
            local = cycles * CYCLE + (first - EPOCH) // dt.timedelta(microseconds=1)
    return to_utc(local + window.offset, ZoneInfo(window.zone))


def to_utc(local: int, zone: ZoneInfo) -> int:
    """Return the first moment with a given local time, or the first one after the gap if the clock skips it."""
    wall = _datetime(local)
    first, second = (local - _difference(wall.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if first <= second:
        return first
    # skipped: `first` is by the clock before the gap, `second` by the clock after it
    before, after = second, first
    while after - before > 1:
        middle = (before + after) // 2
        if _at(middle, zone) == _at(second, zone):
            before = middle
        else:
            after = middle
    return after


def _at(utc: int, zone: ZoneInfo) -> int:
    """Return the offset of the zone's local time from UTC at a moment, in microseconds."""
    return _difference(_datetime(utc).replace(tzinfo=dt.UTC).astimezone(zone))


def _difference(moment: dt.datetime) -> int:
    return (moment.utcoffset() or dt.timedelta()) // dt.timedelta(microseconds=1)


def _datetime(micros: int) -> dt.datetime:
    """Return the date and time, moved by whole calendar cycles if the year is out of range for Python."""
    earliest, latest = (dt.datetime(year, 1, 2) for year in (1, 9999))  # noqa: DTZ001 - either clock
    least, most = ((end - EPOCH) // dt.timedelta(microseconds=1) for end in (earliest, latest))
    while micros < least:
        micros += CYCLE
    while micros > most:
        micros -= CYCLE
    return EPOCH + dt.timedelta(microseconds=micros)
