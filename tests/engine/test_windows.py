from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.engine.windows import (
    GLOBAL_END,
    GLOBAL_START,
    expand,
    hops_of,
    slice_starts,
    times_with_windows,
    window_bounds,
    windows_of,
)
from windrow.model import Calendar, Cumulate, Global, Hopping, Session, Tumbling, Window
from windrow.testing.oracle.windows import windows_of as oracle_windows_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000
DAY = 24 * HOUR
TIMES = st.integers(GLOBAL_START, GLOBAL_END)


def micros(*parts: int, zone: str = "UTC", fold: int = 0) -> int:
    """The moment at which a clock in the zone shows that time."""
    moment = datetime(*parts, tzinfo=ZoneInfo(zone), fold=fold)  # type: ignore[arg-type, misc]
    return (moment - EPOCH) // timedelta(microseconds=1)


def window(kind: Tumbling | Calendar | Global | Session, time: int) -> tuple[int, int]:
    starts, ends = windows_of(kind, np.array([time]))
    return int(starts[0]), int(ends[0])


@pytest.mark.parametrize(
    ("kind", "starts"),
    [
        # each list holds boundaries that follow one another
        (Tumbling(HOUR, 1), [1 - HOUR, 1, 1 + HOUR]),
        (Calendar(1, "day"), [-DAY, 0, DAY]),
        (Calendar(2, "day"), [-2 * DAY, 0, 2 * DAY]),
        (Calendar(1, "week"), [-10 * DAY, -3 * DAY, 4 * DAY]),
        (Calendar(2, "week"), [-17 * DAY, -3 * DAY, 11 * DAY]),
        (Calendar(1, "month"), [micros(2024, 1, 1), micros(2024, 2, 1), micros(2024, 3, 1)]),
        (Calendar(3, "month"), [micros(1969, 10, 1), micros(1970, 1, 1), micros(1970, 4, 1)]),
        (Calendar(1, "month", "UTC", 36 * HOUR), [micros(2024, 2, 2, 12), micros(2024, 3, 2, 12)]),
        # days of 23 and 25 hours
        (
            Calendar(1, "day", "Europe/Berlin"),
            [micros(2026, 3, day, zone="Europe/Berlin") for day in (28, 29, 30)],
        ),
        (
            Calendar(1, "day", "Europe/Berlin"),
            [micros(2026, 10, day, zone="Europe/Berlin") for day in (24, 25, 26)],
        ),
        (
            Calendar(1, "month", "America/New_York"),
            [micros(2026, month, 1, zone="America/New_York") for month in (2, 3, 4, 5)],
        ),
        # half past two is left out on 29 March: the first moment after the gap is 03:00, 01:00 UTC
        (
            Calendar(1, "day", "Europe/Berlin", 5 * HOUR // 2),
            [micros(2026, 3, 28, 1, 30), micros(2026, 3, 29, 1), micros(2026, 3, 30, 0, 30)],
        ),
        # half past two comes twice on 25 October: the first is at 00:30 UTC
        (
            Calendar(1, "day", "Europe/Berlin", 5 * HOUR // 2),
            [micros(2026, 10, 24, 0, 30), micros(2026, 10, 25, 0, 30), micros(2026, 10, 26, 1, 30)],
        ),
        # the hour that comes twice is one window of two hours, the one that is left out none
        (
            Calendar(1, "hour", "Europe/Berlin"),
            [micros(2026, 10, 24, 23), micros(2026, 10, 25, 0), micros(2026, 10, 25, 2), micros(2026, 10, 25, 3)],
        ),
        (Calendar(1, "hour", "Europe/Berlin"), [micros(2026, 3, 29, hour) for hour in (0, 1, 2)]),
        (
            Calendar(6, "hour", "Europe/Berlin"),
            [micros(2026, 3, 28, 23), micros(2026, 3, 29, 4), micros(2026, 3, 29, 10)],
        ),
        # clocks in St John's went from 00:01 on the 29th back to 23:01 on the 28th, at 02:31 UTC
        (
            Calendar(1, "day", "America/St_Johns"),
            [micros(2006, 10, 28, 2, 30), micros(2006, 10, 29, 2, 30), micros(2006, 10, 30, 3, 30)],
        ),
        (
            Calendar(5, "hour", origin=date(2026, 1, 2)),
            [micros(2026, 1, 1, 19), micros(2026, 1, 2), micros(2026, 1, 2, 5)],
        ),
        (Calendar(2, "day", origin=date(2026, 1, 2)), [micros(2025, 12, 31), micros(2026, 1, 2), micros(2026, 1, 4)]),
        # weeks from Sunday
        (Calendar(1, "week", origin=date(2026, 1, 4)), [micros(2026, 1, 4), micros(2026, 1, 11)]),
        (
            Calendar(3, "month", origin=date(2026, 4, 15)),
            [micros(2025, 10, 15), micros(2026, 1, 15), micros(2026, 4, 15), micros(2026, 7, 15)],
        ),
        # Samoa had no 30 December 2011
        (
            Calendar(1, "day", "Pacific/Apia"),
            [micros(2011, 12, day, zone="Pacific/Apia") for day in (28, 29, 31)] + [micros(2011, 12, 31, 10)],
        ),
    ],
)
def test_boundaries_are_exact_to_the_microsecond(kind: Tumbling | Calendar, starts: list[int]) -> None:
    for start, end in pairwise(starts):
        assert window(kind, start) == (start, end)
        assert window(kind, end - 1) == (start, end)
        assert window(kind, end)[0] == end
    assert window_bounds(kind, np.array(starts[:-1])).ends.tolist() == starts[1:]


def test_days_of_a_changed_clock_have_23_and_25_hours() -> None:
    day = Calendar(1, "day", "Europe/Berlin")
    for noon, hours in [((2026, 3, 29, 12), 23), ((2026, 10, 25, 12), 25), ((2026, 6, 1, 12), 24)]:
        start, end = window(day, micros(*noon))
        assert end - start == hours * HOUR


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Asia/Manila"])
CALENDARS = st.builds(
    Calendar,
    st.integers(1, 5),
    st.sampled_from(["hour", "day", "week", "month"]),
    ZONES,
    st.integers(0, 40 * HOUR),
    st.none() | st.dates().filter(lambda day: day.day <= 28),
)


@given(CALENDARS, st.lists(TIMES, min_size=1, max_size=5))
def test_a_calendar_window_holds_its_times_and_begins_at_its_own_start(kind: Calendar, times: list[int]) -> None:
    starts, ends = windows_of(kind, np.array(times))
    assert all(start <= time < end for start, time, end in zip(starts, times, ends, strict=True))
    again = windows_of(kind, starts)
    assert (again.starts.tolist(), again.ends.tolist()) == (starts.tolist(), ends.tolist())
    following = windows_of(kind, ends)
    assert following.starts.tolist() == ends.tolist()
    # whatever stands around it
    assert [window(kind, time) for time in times] == list(zip(starts.tolist(), ends.tolist(), strict=True))


@given(TIMES)
def test_the_global_window_holds_all(time: int) -> None:
    assert window(Global(), time) == (GLOBAL_START, GLOBAL_END)
    assert (EPOCH + timedelta(microseconds=GLOBAL_START)).isoformat() == "0001-01-01T00:00:00+00:00"
    assert (EPOCH + timedelta(microseconds=GLOBAL_END)).isoformat() == "9999-12-31T23:59:59.999999+00:00"


@given(
    st.builds(Hopping, st.integers(1, 50), st.integers(1, 50), st.integers(-60, 60)),
    st.lists(st.integers(-300, 300), max_size=5),
)
def test_a_record_is_in_every_window_that_holds_its_time(hopping: Hopping, times: list[int]) -> None:
    expected = [
        (place, k * hopping.slide + hopping.offset)
        for place, time in enumerate(times)
        for k in range(-400, 400)
        if k * hopping.slide + hopping.offset <= time < k * hopping.slide + hopping.offset + hopping.size
    ]
    given = np.array(times, dtype=np.int64)
    places, starts = expand(hopping, hops_of(hopping, given))
    assert list(zip(places.tolist(), starts.tolist(), strict=True)) == expected
    # all of a slice are in the same windows
    of_slices = hops_of(hopping, slice_starts(hopping, given))
    assert list(zip(*(a.tolist() for a in expand(hopping, of_slices)), strict=True)) == expected


@given(
    st.builds(
        lambda step, steps, offset: Cumulate(step * steps, step, offset), *[st.integers(1, 9)] * 2, st.integers(-99, 99)
    ),
    st.lists(st.integers(-300, 300), max_size=5),
)
def test_a_record_is_in_each_cumulate_window_that_holds_its_time(window: Cumulate, times: list[int]) -> None:
    expected = [
        (place, window.size * k + window.offset, window.size * k + window.offset + length)
        for place, time in enumerate(times)
        for k in range(-450, 450)
        for length in range(window.step, window.size + 1, window.step)
        if 0 <= time - window.size * k - window.offset < length
    ]
    given = np.array(times, dtype=np.int64)
    for of in (given, slice_starts(window, given)):
        places, numbers = expand(window, hops_of(window, of))
        starts, ends = window_bounds(window, numbers)
        assert list(zip(places.tolist(), starts.tolist(), ends.tolist(), strict=True)) == expected


WINDOWS = st.one_of(
    st.builds(Tumbling, st.integers(1, 40 * DAY), st.integers(0, 40 * DAY)),
    st.builds(Hopping, st.integers(1, 40 * DAY), st.integers(DAY, 40 * DAY), st.integers(0, 40 * DAY)),
    st.builds(
        lambda step, offset: Cumulate(4 * step, step, offset), st.integers(1, 10 * DAY), st.integers(0, 40 * DAY)
    ),
    CALENDARS,
    st.builds(Session, st.integers(1, 40 * DAY)),
)


@pytest.mark.parametrize(
    ("kind", "least", "greatest"),
    [
        (Tumbling(HOUR), GLOBAL_START, GLOBAL_END - HOUR),
        (Tumbling(HOUR, 1), GLOBAL_START + 1, GLOBAL_END - HOUR + 1),
        (Hopping(HOUR, HOUR // 4), GLOBAL_START + 3 * HOUR // 4, GLOBAL_END - HOUR),
        # 0:10 to 1:00 of each hour
        (Hopping(5 * HOUR // 6, HOUR, HOUR // 6), GLOBAL_START, GLOBAL_END - 5 * HOUR // 6),
        (Cumulate(HOUR, HOUR // 4, 1), GLOBAL_START + 1, GLOBAL_END - HOUR + 1),
        (Calendar(1, "month"), GLOBAL_START, GLOBAL_END - 31 * DAY),
        (Calendar(1, "day", "Etc/GMT-9"), GLOBAL_START + 15 * HOUR, GLOBAL_END - 9 * HOUR),
        (Session(HOUR), GLOBAL_START, GLOBAL_END - HOUR),
        (Global(), GLOBAL_START, GLOBAL_END),
    ],
)
def test_times_whose_windows_are_in_the_years_1_to_9999(kind: Window, least: int, greatest: int) -> None:
    assert times_with_windows(kind) == (least, greatest)


@given(WINDOWS, st.sampled_from((0, 1)), st.integers(-100 * DAY, 100 * DAY))
def test_no_other_time_has_a_window_that_fits(kind: Window, edge: int, away: int) -> None:
    bounds = times_with_windows(kind)
    for near in (away, -1, 0, 1):
        time = min(max(bounds[edge] + near, GLOBAL_START), GLOBAL_END)
        fits = all(start >= GLOBAL_START and end <= GLOBAL_END for start, end in oracle_windows_of(kind, time))
        assert fits == (bounds[0] <= time <= bounds[1])
