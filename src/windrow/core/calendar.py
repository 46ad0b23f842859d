"""Windows of days, weeks and months in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, assert_never
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from windrow.core.micros import Micros
from windrow.model import Calendar

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEAR: Final = np.arange(-2, 3)
"""A local day is at most so many days from the day of the same time in UTC, with room on both sides."""


def calendar_bounds(window: Calendar, times: Micros) -> tuple[Micros, Micros]:
    """Return the start and end of each time's window; a loop runs over the days that the times fall on, once a day."""
    if len(times) == 0:
        return times, times
    days = np.unique(np.unique((times - window.offset) // _DAY)[:, np.newaxis] + _NEAR)
    numbers = np.unique(_numbers(window, days))
    # one more than is needed at the end, as the last window has an end too
    numbers = np.unique(np.concatenate([numbers, numbers + 1]))
    # a boundary may fall on the next one, where a zone has left out a whole day
    boundaries = np.unique(np.array([_boundary(window, number) for number in numbers.tolist()], dtype=np.int64))
    places = np.searchsorted(boundaries, times, side="right")
    return boundaries[places - 1], boundaries[places]


def _numbers(window: Calendar, days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of the window that holds each local day (counted from 1970-01-01)."""
    match window.unit:
        case "day":
            units = days
        case "week":
            # Monday 1969-12-29 is day -3
            units = (days + 3) // 7
        case "month":
            units = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        case _:
            assert_never(window.unit)
    return units // window.count


@lru_cache(maxsize=1 << 16)
def _boundary(window: Calendar, number: int) -> int:
    """Return where a window starts, in microseconds UTC: the first moment at which a clock in the zone shows it."""
    unit = number * window.count
    match window.unit:
        case "day":
            day = unit
        case "week":
            day = unit * 7 - 3
        case "month":
            day = int(np.datetime64(unit, "M").astype("datetime64[D]").astype(np.int64))
        case _:
            assert_never(window.unit)
    return _instant(day * _DAY + window.offset, ZoneInfo(window.zone))


def _instant(local: int, zone: ZoneInfo) -> int:
    """Return the first moment at which a clock in the zone shows that local time or, where it leaves it out, a later.

    A time beyond the years 1 to 9999 has the difference to UTC that the nearest of them has.
    """
    shown = _datetime(local).replace(tzinfo=zone)
    one, other = (local - _difference(shown.replace(fold=fold)) for fold in (0, 1))
    if one <= other:
        return one
    # the clock leaves it out: what it is by the clock before the gap is after the gap, and the other way round
    before, after = other // _SECOND, -(-one // _SECOND)
    difference = _difference(_datetime(other).astimezone(zone))
    while after - before > 1:
        middle = (before + after) // 2
        if _difference(_datetime(middle * _SECOND).astimezone(zone)) == difference:
            before = middle
        else:
            after = middle
    return after * _SECOND


def _datetime(micros: int) -> datetime:
    least, most = ((at - _EPOCH) // timedelta(microseconds=1) for at in (_FIRST, _LAST))
    return _EPOCH + timedelta(microseconds=min(max(micros, least), most))


def _difference(moment: datetime) -> int:
    difference = moment.utcoffset()
    if difference is None:
        msg = f"{moment.tzinfo} does not say how far it is from UTC"
        raise ValueError(msg)
    return difference // timedelta(microseconds=1)
