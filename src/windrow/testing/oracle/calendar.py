"""Where calendar windows begin."""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from zoneinfo import ZoneInfo

from windrow.model import Calendar

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - on the local clock
DAY = 86_400_000_000
SECOND = 1_000_000
CYCLE_YEARS = 400
CYCLE = 146_097 * DAY
"""The Gregorian calendar repeats after 400 years, which is a whole number of weeks."""


@lru_cache(maxsize=1 << 16)
def boundary(window: Calendar, k: int) -> int:
    """Return where the k-th window begins, in microseconds, UTC."""
    match window.unit:
        case "day":
            local = k * window.count * DAY
        case "week":
            local = (k * window.count * 7 - 3) * DAY
        case "month":
            years, month = divmod(k * window.count, 12)
            cycles, years = divmod(years, CYCLE_YEARS)
            first = dt.datetime(1970 + years, month + 1, 1)  # noqa: DTZ001 - on the local clock
            local = cycles * CYCLE + (first - EPOCH) // dt.timedelta(microseconds=1)
    return to_utc(local + window.offset, ZoneInfo(window.zone))


def to_utc(local: int, zone: ZoneInfo) -> int:
    """Return the first moment with that local time; if the clock skips it, the first after the gap."""
    wall = _datetime(local)
    first, second = (local - _difference(wall.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if first <= second:
        return first
    # skipped: `first` is as the clock went before the gap, `second` as it went after it
    before, after = second, first
    while after - before > 1:
        middle = (before + after) // 2
        if _at(middle, zone) == _at(second, zone):
            before = middle
        else:
            after = middle
    return after


def _at(utc: int, zone: ZoneInfo) -> int:
    """Return how far the zone's clock is ahead of UTC at a moment."""
    return _difference(_datetime(utc).replace(tzinfo=dt.UTC).astimezone(zone))


def _difference(moment: dt.datetime) -> int:
    return (moment.utcoffset() or dt.timedelta()) // dt.timedelta(microseconds=1)


def _datetime(micros: int) -> dt.datetime:
    """Return the date and time; beyond the years that Python knows, of the nearest ones that have the same days."""
    earliest, latest = (dt.datetime(year, 1, 2) for year in (1, 9999))  # noqa: DTZ001 - either clock
    least, most = ((end - EPOCH) // dt.timedelta(microseconds=1) for end in (earliest, latest))
    while micros < least:
        micros += CYCLE
    while micros > most:
        micros -= CYCLE
    return EPOCH + dt.timedelta(microseconds=micros)
