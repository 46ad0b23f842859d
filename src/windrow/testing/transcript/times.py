"""Times and windows as written in stories, converted to and from microseconds.

A time is ``[YYYY-MM-DD ]HH:MM[:SS[.ffffff]]`` or ``YYYY-MM-DD``, in UTC. A window is written as its start, as
``start/end`` (sessions and cumulate windows), or as ``global``.
"""

from __future__ import annotations

import datetime as dt
import re

from windrow import model as m
from windrow.declare.yaml_node import YamlNode
from windrow.errors import PipelineError
from windrow.testing.transcript.story import Tabled

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_MIDNIGHT = (dt.datetime(2026, 1, 1, tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
_DAY = 86_400_000_000
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,6}))?)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def parse_story_time(text: str) -> int:
    """Parse a time to microseconds since the epoch; raise PipelineError if the text is not a time."""
    date, blank, time = text.rpartition(" ")
    if not blank and _DATE.fullmatch(text):
        date, time = text, "00:00"
    match = _TIME.fullmatch(time)
    midnight = _midnight(date) if date or blank else _MIDNIGHT
    if match is None or midnight is None:
        msg = (
            f'{text!r} is not a time of day; write "HH:MM", "HH:MM:SS" or "HH:MM:SS.fff", '
            'with a date before it ("2026-03-29 02:30") if it is not on 2026-01-01'
        )
        raise PipelineError(msg)
    hours, minutes, seconds, fraction = match.groups(default="0")
    return midnight + (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000 + int(fraction.ljust(6, "0"))


def _midnight(date: str) -> int | None:
    """Return the beginning of a day, or None if there is no such date."""
    if not _DATE.fullmatch(date):
        return None
    try:
        return (dt.datetime.fromisoformat(f"{date}T00:00+00:00") - _EPOCH) // _MICROSECOND
    except ValueError:
        return None


def format_time(micros: int) -> str:
    """Format a time in the shortest form that `parse_story_time` reads, without the date if it is 2026-01-01."""
    try:
        point = _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} us"  # a window may begin before the year 1
    text = point.strftime("%H:%M")
    if point.second or point.microsecond:
        text += point.strftime(":%S")
    if point.microsecond:
        text += f".{point.microsecond:06}".rstrip("0")
    return text if 0 <= micros - _MIDNIGHT < _DAY else f"{point.date().isoformat()} {text}"


GLOBAL = "global"


def read_window_bounds(node: YamlNode, pipeline: Tabled) -> tuple[int, int]:
    """Parse a window of the pipeline, or the time of an alert; raise PipelineError if there is no such window."""
    if isinstance(pipeline.node, m.RulesNode):
        at = node.parsed(parse_story_time)
        return at, at + 1
    first, slash, second = node.text().partition("/")
    if isinstance(pipeline.node.window, m.Global):
        if node.text() != GLOBAL:
            msg = f"{node.called} must be {GLOBAL!r}, as there is only one window, not {node.text()!r}"
            raise node.error(msg)
        from windrow.engine.windows import GLOBAL_END, GLOBAL_START  # noqa: PLC0415 - numpy, which reading does without

        return GLOBAL_START, GLOBAL_END
    start = node.parsed(lambda _: parse_story_time(first))
    end = node.parsed(lambda _: parse_story_time(second)) if slash else None
    if isinstance(pipeline.node.window, m.Session):
        return _session(node, pipeline.node.window, start, end)
    if isinstance(pipeline.node.window, m.Cumulate):
        return _cumulate(node, pipeline.node.window, start, end)
    found = _window_from(pipeline.node.window, start)
    if found is None:
        msg = f"{node.called}: no window starts at {first!r}"
        raise node.error(msg)
    if end is not None and end != found:
        msg = f"{node.called}: the window from {first!r} ends at {format_time(found)!r}, not at {second!r}"
        raise node.error(msg)
    return start, found


def window_text(pipeline: Tabled, window: tuple[int, int]) -> str:
    """Format a window in the form that `read_window_bounds` reads."""
    match pipeline.node.window if isinstance(pipeline.node, m.WindowNode) else None:
        case m.Global():
            return GLOBAL
        case m.Session() | m.Cumulate():
            return f'"{format_time(window[0])}/{format_time(window[1])}"'
        case _:
            return f'"{format_time(window[0])}"'


def _session(node: YamlNode, window: m.Session, start: int, end: int | None) -> tuple[int, int]:
    if end is None:
        msg = f'{node.called}: a session is written "start/end", as its start does not determine its end'
        raise node.error(msg)
    if end - start < (window.gap if window.by is None else 1):
        msg = f"{node.called}: a session lasts at least as long as its gap"
        raise node.error(msg)
    return start, end


def _cumulate(node: YamlNode, window: m.Cumulate, start: int, end: int | None) -> tuple[int, int]:
    if end is None:
        msg = f'{node.called}: a cumulate window is written "start/end", as several windows have the same start'
        raise node.error(msg)
    if (start - window.offset) % window.size or (end - start) % window.step or not 0 < end - start <= window.size:
        msg = f"{node.called}: there is no window {node.text()!r}"
        raise node.error(msg)
    return start, end


def _window_from(window: m.Window, start: int) -> int | None:
    """Return the end of the window that starts at `start`, or None if there is no such window."""
    import numpy as np  # noqa: PLC0415 - only for stories that have rows

    from windrow.engine.windows import hops_of, window_bounds, windows_of  # noqa: PLC0415 - as above

    at = np.array([start])
    if isinstance(window, m.Global | m.Session | m.Cumulate):
        return None
    starts = hops_of(window, at).last if isinstance(window, m.Hopping) else windows_of(window, at).starts
    return int(window_bounds(window, at).ends[0]) if starts[0] == start else None
