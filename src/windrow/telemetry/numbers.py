"""Human-readable formats of numbers, durations, points in time and record texts."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from windrow import model as m

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE_YEARS = 400
_CALENDAR_CYCLE = (datetime(1970 + _CYCLE_YEARS, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
"""Microseconds in 400 years, after which the Gregorian calendar repeats."""
_THOUSAND = 1_000
_UNITS = (("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))
_SECOND = 1_000_000
_MINUTE = 60
_DAY = 86_400


def short_number(number: float) -> str:
    """Format a non-negative number in at most 5 characters, up to 999T: 9,999, 12.3k, 456k, 7.8M."""
    if round(number) < 10 * _THOUSAND:
        return f"{number:,.0f}"
    scaled = [(number / size, unit) for unit, size in _UNITS]
    value, unit = next(((value, unit) for value, unit in scaled if round(value) < _THOUSAND), scaled[-1])
    return f"{value:.0f}{unit}" if round(value, 1) >= _THOUSAND / 10 else f"{value:.1f}{unit}"


def short_bytes(number: float) -> str:
    """Format a non-negative number of bytes: 5 bytes, 388 kB, 1.2 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if round(number) < _THOUSAND:
            is_whole = unit == "bytes" or round(number, 1) >= _THOUSAND / 10
            return f"{number:.0f} {unit}" if is_whole else f"{number:.1f} {unit}"
        number /= _THOUSAND
    return f"{number:,.1f} TB"


def percent(share: float) -> str:
    """Format a share as a percentage with two significant digits: 12 %, 0.34 %, 0.0012 %."""
    if not share:
        return "0 %"
    number = float(f"{share * 100:.1e}")
    return f"{number:.{max(0, 1 - math.floor(math.log10(number)))}f} %"


def short_duration(seconds: float) -> str:
    """Format a non-negative duration with two or three digits: 15ms, 2.5s, 9s, 3m20s, 4h5m, 12d3h."""
    if round(seconds, 3) < 1:
        return f"{round(seconds * _THOUSAND)}ms"
    if round(seconds, 1) < _MINUTE:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    unit = 1 if seconds < _MINUTE * _MINUTE else _MINUTE if seconds < _DAY else _MINUTE * _MINUTE
    return m.format_duration(max(int(seconds), _MINUTE) // unit * unit * _SECOND)


def duration(micros: float) -> str:
    """Format a duration in microseconds as `short_duration` does."""
    return short_duration(micros / _SECOND)


def format_time(micros: int) -> str:
    """Format a point in time in UTC to the second, as in SQLite tables. Any year is allowed: 0000 is before 0001."""
    # a watermark may be before the year 1, outside of Python's dates
    cycles, since = divmod(micros, _CALENDAR_CYCLE)
    point = _EPOCH + timedelta(microseconds=since)
    year = point.year + cycles * _CYCLE_YEARS
    return f"{'-' if year < 0 else ''}{abs(year):04}-{point:%m-%d %H:%M:%S}"


def first_line(text: str | None) -> str:
    """Return the first line of a text, or an empty string for None."""
    return (text or "").partition("\n")[0]


def printable(text: str) -> str:
    r"""Escape the characters that a terminal would act on, as Python does: a line break becomes ``\n``."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
