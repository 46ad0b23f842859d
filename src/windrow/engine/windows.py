"""Window assignment: the windows of an event time, by vectorised arithmetic on microseconds.

A window is identified by a number: its start. Cumulate windows share their starts, so they are identified by their
ends.

Calendar windows (hours to months in a time zone) are computed once for each distinct local day, and all other windows
by arithmetic.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, assert_never
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from windrow import model as m
from windrow.engine.columns import Micros
from windrow.engine.value_codec import EPOCH, micros_of, time_of

GLOBAL_START: Final = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z, the start of the global window."""

GLOBAL_END: Final = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z, shown as the end of the global window; no time is after it."""


class WindowBounds(NamedTuple):
    """The starts and ends of windows."""

    starts: Micros
    ends: Micros


class Hops(NamedTuple):
    """The first and last of the overlapping windows of each time; for a time in a gap, the last is before the first."""

    first: Micros
    last: Micros


def times_with_windows(window: m.Window) -> tuple[int, int]:
    """Return the least and greatest time whose windows all begin and end in the years 1 to 9999.

    Every time between the two has such windows as well, because the windows of a later time begin and end no earlier.
    """
    match window:
        case m.Tumbling(size, offset) | m.Hopping(size, offset=offset) | m.Cumulate(size, offset=offset):
            slide = window.slide if isinstance(window, m.Hopping) else size
            # the last window that begins too early, and the first that ends too late
            early = (GLOBAL_START - 1 - offset) // slide * slide + offset
            late = ((GLOBAL_END - size - offset) // slide + 1) * slide + offset
            return max(GLOBAL_START, early + size), min(GLOBAL_END, late - 1)
        case m.Calendar():
            starts, ends = calendar_bounds(window, np.array([GLOBAL_START, GLOBAL_END]))
            least = GLOBAL_START if starts[0] == GLOBAL_START else int(ends[0])
            return least, int(starts[1]) - 1
        case m.Session(gap):
            return GLOBAL_START, GLOBAL_END - gap
        case m.Global():
            return GLOBAL_START, GLOBAL_END
        case _:
            assert_never(window)


def windows_of(window: m.Tumbling | m.Calendar | m.Global | m.Session, times: Micros) -> WindowBounds:
    """Return the window of each time; for a session, the window of a single record.

    Negative times are rounded down, too.
    """
    match window:
        case m.Tumbling(size, offset):
            starts = (times - offset) // size * size + offset
            return WindowBounds(starts, starts + size)
        case m.Calendar():
            return WindowBounds(*calendar_bounds(window, times))
        case m.Session(gap):
            return WindowBounds(times, times + gap)
        case m.Global():
            return WindowBounds(np.full_like(times, GLOBAL_START), np.full_like(times, GLOBAL_END))
        case _:
            assert_never(window)


def window_bounds(window: m.Tumbling | m.Sliced | m.Calendar | m.Global, windows: Micros) -> WindowBounds:
    """Return the starts and ends of windows, given their numbers."""
    match window:
        case m.Tumbling(size) | m.Hopping(size):
            return WindowBounds(windows, windows + size)
        case m.Cumulate(size, _, offset):
            return WindowBounds((windows - 1 - offset) // size * size + offset, windows)
        case m.Calendar() | m.Global():
            return windows_of(window, windows)
        case _:
            assert_never(window)


def slice_starts(window: m.Sliced, times: Micros) -> Micros:
    """Return the start of each time's slice, which is the longest span in which all times have the same windows."""
    return (times - window.offset) // window.slice * window.slice + window.offset


def hops_of(window: m.Sliced, times: Micros) -> Hops:
    """Return the numbers of each time's first and last window; consecutive windows are `distance` apart."""
    since = times - window.offset
    match window:
        case m.Hopping(size, slide, offset):
            return Hops(((since - size) // slide + 1) * slide + offset, since // slide * slide + offset)
        case m.Cumulate(size, step, offset):
            return Hops((since // step + 1) * step + offset, (since // size + 1) * size + offset)
        case _:
            assert_never(window)


def distance(window: m.Sliced) -> int:
    """Return the difference between the numbers of consecutive windows of a time, in microseconds."""
    return window.slide if isinstance(window, m.Hopping) else window.step


def expand(window: m.Sliced, hops: Hops) -> tuple[Micros, Micros]:
    """Return, for each pair of a time and one of its windows, the index of the time and the number of the window."""
    apart = distance(window)
    counts = np.maximum((hops.last - hops.first) // apart + 1, 0)
    places = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places, hops.first[places] + number * apart


_SECOND: Final = 1_000_000
_HOUR: Final = 3_600 * _SECOND
_DAY: Final = 24 * _HOUR
_FIRST: Final = micros_of(datetime(1, 1, 2, tzinfo=UTC))
_LAST: Final = micros_of(datetime(9999, 12, 30, tzinfo=UTC))
_NEAR: Final = np.arange(-2, 3)
"""Days by which a local date may differ from the date in UTC, with one more on each side."""


def calendar_bounds(window: m.Calendar, times: Micros) -> tuple[Micros, Micros]:
    """Return the start and end of each time's window. The loop runs over distinct days instead of times."""
    if len(times) == 0:
        return times, times
    days = np.unique(np.unique((times - window.offset) // _DAY)[:, np.newaxis] + _NEAR)
    numbers = np.unique(_numbers(window, days))
    # also the next window, because its start is the end of the last one
    numbers = np.unique(np.concatenate([numbers, numbers + 1]))
    # two boundaries are equal where a zone has skipped a whole day
    boundaries = np.unique(np.array([_boundary(window, number) for number in numbers.tolist()], dtype=np.int64))
    places = np.searchsorted(boundaries, times, side="right")
    return boundaries[places - 1], boundaries[places]


def _numbers(window: m.Calendar, days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers, counted from the origin, of the windows of local days (days since 1970-01-01)."""
    first = _day_number(window.begins_at)
    match window.unit:
        case "hour":
            units = ((days[:, np.newaxis] - first) * 24 + np.arange(24)).ravel()
        case "day":
            units = days - first
        case "week":
            units = (days - first) // 7
        case "month":
            # months begin on the origin's day, which every month has
            units = _month_numbers(days - (window.begins_at.day - 1)) - _month_numbers(np.array([first]))
        case _:
            assert_never(window.unit)
    return units // window.count


@lru_cache(maxsize=1 << 16)
def _boundary(window: m.Calendar, number: int) -> int:
    """Return the start of a window in microseconds UTC, which is the first moment at which local clocks show it."""
    unit, origin = number * window.count, window.begins_at
    first = _day_number(origin)
    match window.unit:
        case "hour":
            local = first * _DAY + unit * _HOUR
        case "day":
            local = (first + unit) * _DAY
        case "week":
            local = (first + unit * 7) * _DAY
        case "month":
            month = int(_month_numbers(np.array([first]))[0]) + unit
            start = int(np.datetime64(month, "M").astype("datetime64[D]").astype(np.int64))
            local = (start + origin.day - 1) * _DAY
        case _:
            assert_never(window.unit)
    return _instant(local + window.offset, ZoneInfo(window.zone))


def _day_number(day: date) -> int:
    """Return the days since 1970-01-01."""
    return (day - EPOCH.date()).days


def _month_numbers(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Convert days since 1970-01-01 to months since January 1970."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _instant(local: int, zone: ZoneInfo) -> int:
    """Return the first moment at which clocks in the zone show this local time or, if they skip it, a later time.

    Outside the years 1 to 9999, the zone's offset in the nearest of these years is used.
    """
    shown = _datetime(local).replace(tzinfo=zone)
    first, second = (local - _difference(shown.replace(fold=fold)) for fold in (0, 1))
    if first <= second:
        return first
    # clocks skip this time: with the offset before the gap it is after the gap, and vice versa
    before, after = second // _SECOND, -(-first // _SECOND)
    difference = _difference(_datetime(second).astimezone(zone))
    while after - before > 1:
        middle = (before + after) // 2
        if _difference(_datetime(middle * _SECOND).astimezone(zone)) == difference:
            before = middle
        else:
            after = middle
    return after * _SECOND


def _datetime(micros: int) -> datetime:
    return time_of(min(max(micros, _FIRST), _LAST))


def _difference(moment: datetime) -> int:
    difference = moment.utcoffset()
    if difference is None:
        msg = f"{moment.tzinfo} has no UTC offset"
        raise ValueError(msg)
    return difference // timedelta(microseconds=1)
