"""Times as stories write them, to microseconds and back: ``[YYYY-MM-DD ]HH:MM[:SS[.ffffff]]`` or ``YYYY-MM-DD``, UTC.

Without a date it is 2026-01-01, the story's day.
"""

from __future__ import annotations

import datetime as dt
import re

from windrow.errors import PipelineError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_MIDNIGHT = (dt.datetime(2026, 1, 1, tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
_DAY = 86_400_000_000
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:\.([0-9]{1,6}))?)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def parse_time(text: str) -> int:
    """Read a time as microseconds since the epoch; raise PipelineError for anything else."""
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
    """Return when a day begins; None if there is no such day."""
    if not _DATE.fullmatch(date):
        return None
    try:
        return (dt.datetime.fromisoformat(f"{date}T00:00+00:00") - _EPOCH) // _MICROSECOND
    except ValueError:
        return None


def format_time(micros: int) -> str:
    """Write a time in the shortest form that `parse_time` reads; one of another day has its date before it."""
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
