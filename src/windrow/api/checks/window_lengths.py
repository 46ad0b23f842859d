"""The lengths of windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from windrow.api.checks.durations import too_long
from windrow.api.checks.finding import Finding, error
from windrow.model import Calendar, Global, Hopping, Pipeline, Session, Tumbling, format_duration

_DAY = 86_400_000_000
_LEAST_UNIT = {"day": _DAY, "week": 7 * _DAY, "month": 28 * _DAY}
_MOST_UNITS = {"day": 36_500, "week": 5_214, "month": 1_200}


def window_lengths(pipeline: Pipeline) -> Iterator[Finding]:
    """A window has a length of at most a hundred years, and its offset lies within one turn of it."""
    match pipeline.window:
        case Tumbling(size, offset):
            yield from _length("window.tumbling.size", size)
            yield from _offset("window.tumbling.offset", offset, size, "the window")
        case Calendar() as window:
            yield from _calendar(window)
        case Hopping(size, slide, offset):
            yield from _length("window.hopping.size", size)
            yield from _length("window.hopping.slide", slide)
            yield from _offset("window.hopping.offset", offset, slide, "the slide")
        case Session(gap):
            yield from _length("window.session", gap)
        case Global():
            return
        case _:
            assert_never(pipeline.window)


def _length(where: str, micros: int) -> Iterator[Finding]:
    if micros <= 0:
        yield error(where, "must be longer than nothing, such as 5m")
    yield from too_long(where, micros)


def _offset(where: str, offset: int, turn: int, what: str) -> Iterator[Finding]:
    if turn > 0 and not 0 <= offset < turn:
        yield error(where, f"must be shorter than {what} ({format_duration(turn)}) and not negative")


def _calendar(window: Calendar) -> Iterator[Finding]:
    where = "window.tumbling.size"
    if window.count < 1:
        yield error(where, f"must be 1 {window.unit} or more")
    elif window.count > _MOST_UNITS[window.unit]:
        yield error(where, f"is longer than a hundred years ({_MOST_UNITS[window.unit]} {window.unit}s)")
    yield from _offset("window.tumbling.offset", window.offset, window.count * _LEAST_UNIT[window.unit], "the window")
