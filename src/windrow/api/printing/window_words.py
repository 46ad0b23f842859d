"""Windows and triggers, said in words."""

from __future__ import annotations

from typing import assert_never

from windrow.api.calendar_size import format_calendar_size
from windrow.api.code_name import code_name
from windrow.model import (
    AllOf,
    AnyOf,
    Calendar,
    Every,
    Global,
    Hopping,
    Records,
    Repeat,
    Session,
    Trigger,
    Tumbling,
    When,
    Window,
    format_duration,
)


def window_words(window: Window) -> str:
    """Say how event time is cut."""
    match window:
        case Tumbling(size, offset):
            return f"tumbling, {format_duration(size)} long{_shifted(offset)}"
        case Calendar(_, _, zone, offset):
            return f"tumbling, {format_calendar_size(window)} long in {zone}{_shifted(offset)}"
        case Hopping(size, slide, offset):
            return f"hopping, {format_duration(size)} long, one every {format_duration(slide)}{_shifted(offset)}"
        case Session(gap):
            return f"sessions of records less than {format_duration(gap)} apart"
        case Global():
            return "one window of all time"
        case _:
            assert_never(window)


def trigger_words(trigger: Trigger) -> str:
    """Say when an early pane is written."""
    match trigger:
        case Every(micros):
            return f"{format_duration(micros)} of processing time after a record"
        case Records(number):
            return "after every record" if number == 1 else f"after every {number} records"
        case AnyOf(parts):
            return f"({' or '.join(trigger_words(part) for part in parts)})"
        case AllOf(parts):
            return f"({' and '.join(trigger_words(part) for part in parts)})"
        case Repeat(part, times):
            return f"{trigger_words(part)}, at most {times} time{'' if times == 1 else 's'}"
        case When(predicate):
            return f"when {code_name(predicate)} says so"
        case _:
            assert_never(trigger)


def _shifted(offset: int) -> str:
    return f", shifted by {format_duration(offset)}" if offset else ""
