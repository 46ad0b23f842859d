"""Durations: text like ``10m`` to whole microseconds, and back."""

from __future__ import annotations

import re

from windrow.errors import PipelineError

UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_PART = re.compile(r"([0-9]{1,18})(us|ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration(text: str) -> int:
    """Read ``90s``, ``1h30m`` or ``250ms`` as microseconds; raise PipelineError for anything else."""
    if not _WHOLE.fullmatch(text):
        msg = f"{text!r} is not a duration; write a number and a unit (us, ms, s, m, h, d), such as 10m or 1h30m"
        raise PipelineError(msg)
    return sum(int(number) * UNITS[unit] for number, unit in _PART.findall(text))


def format_duration(micros: int) -> str:
    """Write microseconds in the shortest form that `parse_duration` reads back."""
    if micros == 0:
        return "0s"
    parts = []
    for unit, size in reversed(UNITS.items()):
        number, micros = divmod(micros, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)
