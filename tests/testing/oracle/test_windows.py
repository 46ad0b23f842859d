"""Which windows hold a time, worked out by hand."""

from __future__ import annotations

from datetime import date

import pytest

from windrow.model import Calendar, Cumulate, Hopping, Session, Tumbling, Window
from windrow.testing.oracle.clock import BOUNDS, bucket_bound
from windrow.testing.oracle.windows import windows_of
from windrow.testing.transcript.times import parse_story_time


@pytest.mark.parametrize(
    ("window", "time", "expected"),
    [
        (Tumbling(5, 2), -4, [(-8, -3)]),
        (Hopping(10, 5), 0, [(-5, 5), (0, 10)]),
        (Hopping(7, 3), 6, [(0, 7), (3, 10), (6, 13)]),
        (Hopping(7, 3), 7, [(3, 10), (6, 13)]),
        (Hopping(2, 5, 1), 2, [(1, 3)]),
        (Hopping(2, 5, 1), 3, []),
        (Cumulate(9, 3), 5, [(0, 6), (0, 9)]),
        (Cumulate(9, 3), 6, [(0, 9)]),
        (Cumulate(6, 2, 1), 0, [(-5, 1)]),
        (Session(5), -1, [(-1, 4)]),
    ],
)
def test_windows_of_fixed_lengths(window: Window, time: int, expected: list[tuple[int, int]]) -> None:
    assert windows_of(window, time) == expected


@pytest.mark.parametrize(
    ("window", "time", "start", "end"),
    [
        (Calendar(1, "day", "Europe/Berlin"), "2026-03-29 01:00", "2026-03-28 23:00", "2026-03-29 22:00"),
        (Calendar(1, "day", "Europe/Berlin"), "2026-10-25 22:59", "2026-10-24 22:00", "2026-10-25 23:00"),
        (Calendar(1, "week"), "1970-01-04 23:59", "1969-12-29", "1970-01-05"),
        (Calendar(2, "week"), "1969-12-28", "1969-12-15", "1969-12-29"),
        (Calendar(1, "month"), "1900-02-28 12:00", "1900-02-01", "1900-03-01"),
        (Calendar(5, "month"), "1969-12-31", "1969-08-01", "1970-01-01"),
        (Calendar(1, "hour", "Europe/Berlin"), "2026-10-25 01:30", "2026-10-25 00:00", "2026-10-25 02:00"),
        (Calendar(1, "day", "America/St_Johns"), "2006-10-29 03:00", "2006-10-29 02:30", "2006-10-30 03:30"),
        (Calendar(3, "month", origin=date(2026, 4, 15)), "2026-04-14 23:59", "2026-01-15", "2026-04-15"),
        # Samoa left out 2011-12-30: its clocks went from the end of the 29th to the 31st, at 10:00 UTC
        (Calendar(1, "day", "Pacific/Apia"), "2011-12-30 09:59", "2011-12-29 10:00", "2011-12-30 10:00"),
        (Calendar(1, "day", "Pacific/Apia"), "2011-12-30 10:00", "2011-12-30 10:00", "2011-12-31 10:00"),
    ],
)
def test_windows_of_the_calendar(window: Calendar, time: str, start: str, end: str) -> None:
    assert windows_of(window, parse_story_time(time)) == [(parse_story_time(start), parse_story_time(end))]


def test_bounds_of_lateness() -> None:
    assert BOUNDS[:10] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [bucket_bound(lateness) for lateness in (0, 1, 9, 10, 1_000_000)] == [0, 1, 9, 10, 2**20]
