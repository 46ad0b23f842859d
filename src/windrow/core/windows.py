"""Which windows a time falls in."""

from __future__ import annotations

from typing import Final, NamedTuple, assert_never

import numpy as np

from windrow.core.calendar import calendar_bounds
from windrow.core.micros import Micros
from windrow.model import Calendar, Global, Hopping, Session, Tumbling

GLOBAL_START: Final = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z, where the global window starts."""

GLOBAL_END: Final = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z, which is written as the global window's end; no time is outside of it."""


class Bounds(NamedTuple):
    """Windows by their start and end."""

    starts: Micros
    ends: Micros


class Hops(NamedTuple):
    """Each time's windows by the starts of the first and the last; a time in a gap has its last before its first."""

    first: Micros
    last: Micros


def windows_of(window: Tumbling | Calendar | Global | Session, times: Micros) -> Bounds:
    """Return each time's window (of a session, what it is without other records); times round down, also negative."""
    match window:
        case Tumbling(size, offset):
            starts = (times - offset) // size * size + offset
            return Bounds(starts, starts + size)
        case Calendar():
            return Bounds(*calendar_bounds(window, times))
        case Session(gap):
            return Bounds(times, times + gap)
        case Global():
            return Bounds(np.full_like(times, GLOBAL_START), np.full_like(times, GLOBAL_END))
        case _:
            assert_never(window)


def window_ends(window: Tumbling | Hopping | Calendar | Global, starts: Micros) -> Micros:
    """Return the ends of windows that are known by their start."""
    match window:
        case Tumbling(size) | Hopping(size):
            return starts + size
        case Calendar() | Global():
            return windows_of(window, starts).ends
        case _:
            assert_never(window)


def slice_starts(window: Hopping, times: Micros) -> Micros:
    """Return the start of each time's slice: all times of a slice have the same windows."""
    return (times - window.offset) // window.slice * window.slice + window.offset


def hops_of(window: Hopping, times: Micros) -> Hops:
    """Return each time's windows; they are `window.slide` apart."""
    since = times - window.offset
    first = ((since - window.size) // window.slide + 1) * window.slide + window.offset
    return Hops(first, since // window.slide * window.slide + window.offset)


def expand(window: Hopping, hops: Hops) -> tuple[Micros, Micros]:
    """Return a row for each time and window of it: the time's place, and the window's start."""
    counts = np.maximum((hops.last - hops.first) // window.slide + 1, 0)
    places = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places, hops.first[places] + number * window.slide
