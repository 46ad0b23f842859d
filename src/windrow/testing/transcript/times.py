"""Times as stories write them: ``HH:MM[:SS[.ffffff]]`` on 2026-01-01, UTC, to microseconds and back."""

from __future__ import annotations

import datetime as dt
import re

from windrow.errors import PipelineError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_MIDNIGHT = (dt.datetime(2026, 1, 1, tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
_DAY = 86_400_000_000
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,6}))?)?")


def parse_time(text: str) -> int:
    """Read a time of the story's day as microseconds since the epoch; raise PipelineError for anything else."""
    match = _TIME.fullmatch(text)
    if match is None:
        msg = f'{text!r} is not a time of day; write "HH:MM", "HH:MM:SS" or "HH:MM:SS.fff"'
        raise PipelineError(msg)
    hours, minutes, seconds, fraction = match.groups(default="0")
    return _MIDNIGHT + (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000 + int(fraction.ljust(6, "0"))


def format_time(micros: int) -> str:
    """Write a time in the shortest form that `parse_time` reads; one of another day has its date before it."""
    point = _EPOCH + dt.timedelta(microseconds=micros)
    text = point.strftime("%H:%M")
    if point.second or point.microsecond:
        text += point.strftime(":%S")
    if point.microsecond:
        text += f".{point.microsecond:06}".rstrip("0")
    return text if 0 <= micros - _MIDNIGHT < _DAY else f"{point.date()} {text}"
