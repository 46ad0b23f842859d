"""How numbers, durations and times are written for people."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.connectors.tables import utc_text
from windrow.telemetry.numbers import format_time, short_bytes, short_duration, short_number

T0 = 1_767_225_600_000_000
SECOND = 1_000_000
YEAR_1 = -62_135_596_800 * SECOND
YEAR_10000 = 253_402_300_800 * SECOND


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.6, "1"),
        (9_999.4, "9,999"),
        (9_999.6, "10.0k"),
        (99_949, "99.9k"),
        (99_951, "100k"),
        (999_400, "999k"),
        (999_600, "1.0M"),
        (10**15, "1000T"),
    ],
)
def test_a_number_is_short(number: float, text: str) -> None:
    assert short_number(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.0154, "15ms"),
        (0.9996, "1s"),
        (59.94, "59.9s"),
        (59.96, "1m"),
        (60, "1m"),
        (200.7, "3m20s"),
        (3_599, "59m59s"),
        (4 * 3_600 + 5 * 60 + 7, "4h5m"),
        (12 * 86_400 + 3 * 3_600 + 59, "12d3h"),
    ],
)
def test_a_duration_is_short(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (T0 + 999_999, "2026-01-01 00:00:00"),
        (-1, "1969-12-31 23:59:59"),
        (YEAR_1, "0001-01-01 00:00:00"),
        (YEAR_1 - 30 * SECOND, "0000-12-31 23:59:30"),
        (YEAR_1 - 3 * 366 * 86_400 * SECOND, "-0003-12-30 00:00:00"),
        (YEAR_10000 - 1, "9999-12-31 23:59:59"),
        (YEAR_10000, "10000-01-01 00:00:00"),
        (-(2**63) + 1, "-290308-12-21 19:59:05"),
        (2**63 - 1, "294247-01-10 04:00:54"),
    ],
)
def test_a_time_of_any_year_is_written(micros: int, text: str) -> None:
    assert format_time(micros) == text


@given(seconds=st.integers(2 * YEAR_1 // SECOND, 2 * YEAR_10000 // SECOND))
def test_a_time_is_written_as_the_tables_of_sqlite_have_it(seconds: int) -> None:
    there = utc_text(pa.array([seconds * SECOND], pa.timestamp("us", "UTC")))[0].as_py()
    assert format_time(seconds * SECOND) == there


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (5, "5 bytes"),
        (999.6, "1.0 kB"),
        (99_960, "100 kB"),
        (388_000, "388 kB"),
        (999_600, "1.0 MB"),
        (1_200_000, "1.2 MB"),
        (3e15, "3,000.0 TB"),
    ],
)
def test_sizes_have_three_digits(number: float, text: str) -> None:
    assert short_bytes(number) == text
