"""Which window a time falls in."""

from __future__ import annotations

from typing import NamedTuple

from windrow.core.micros import Micros
from windrow.model import Tumbling, Window


class Bounds(NamedTuple):
    """Windows by their start and end."""

    starts: Micros
    ends: Micros


def windows_of(window: Window, times: Micros) -> Bounds:
    """Return each time's window; times before the epoch round down too."""
    match window:
        case Tumbling(size, offset):
            starts = (times - offset) // size * size + offset
            return Bounds(starts, starts + size)
        case _:
            raise NotImplementedError(window)


def window_ends(window: Window, starts: Micros) -> Micros:
    """Return the ends of windows that are known by their start."""
    match window:
        case Tumbling(size):
            return starts + size
        case _:
            raise NotImplementedError(window)
