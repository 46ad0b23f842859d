"""Sizes of calendar windows: ``1 day``, ``2 weeks``, ``1 month``."""

from __future__ import annotations

import re

from windrow.model import Calendar, CalendarUnit

_SIZE = re.compile(r"([0-9]{1,9})\s+(day|week|month)s?")
_UNITS: dict[str, CalendarUnit] = {"day": "day", "week": "week", "month": "month"}


def parse_calendar_size(text: str) -> tuple[int, CalendarUnit] | None:
    """Read ``1 day`` (a number, a blank and a unit); None for anything else, such as the duration ``1d``."""
    size = _SIZE.fullmatch(text.strip())
    return (int(size[1]), _UNITS[size[2]]) if size else None


def format_calendar_size(window: Calendar) -> str:
    """Write a calendar window's size so that it reads back."""
    return f"{window.count} {window.unit}{'' if window.count == 1 else 's'}"
