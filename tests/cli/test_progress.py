"""The line that says how far a run has come."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.cli.progress import format_time, status
from windrow.hosts.reports import StepReport, Totals
from windrow.sinks.tables import utc_text

T0 = 1_767_225_600_000_000
SECOND = 1_000_000
YEAR_1 = -62_135_596_800 * SECOND
YEAR_10000 = 253_402_300_800 * SECOND


REPORT = StepReport(
    epoch=0,
    records=1,
    late=0,
    expired=0,
    dead=0,
    inserts=0,
    revisions=0,
    open_windows=0,
    watermarks={0: T0},
    offsets={},
    low_watermark=T0,
    idle=[],
    seconds=1.0,
)


def said(report: StepReport) -> str:
    """What is said after one step."""
    totals = Totals()
    totals.add(report)
    return status(totals)


def line(watermarks: dict[int, int | None], low: int | None, idle: list[int] | None = None) -> str:
    """What is said of the low watermark."""
    report = replace(REPORT, watermarks=watermarks, low_watermark=low, idle=idle or [])
    return said(report).removeprefix("1 events, 1/s, ").removesuffix(", 0 late, 0 expired, 0 dead")


def test_it_names_who_holds_the_low_watermark_back_and_who_is_idle() -> None:
    assert line({0: T0}, T0) == "low watermark 2026-01-01 00:00:00"
    assert line({0: T0, 1: T0 + 1}, T0) == "low watermark 2026-01-01 00:00:00 by partition 0"
    assert (
        line({0: T0, 1: T0 + 1}, T0 + 1, [0]) == "low watermark 2026-01-01 00:00:00 by partition 1, idle: partition 0"
    )
    # time has gone on by itself
    assert line({0: T0 - 5}, T0, [0]) == "low watermark 2026-01-01 00:00:00, idle: partition 0"


def test_it_names_who_has_said_nothing_yet() -> None:
    assert line({0: T0, 1: None, 2: None}, None, [2]) == (
        "no low watermark: nothing yet from partition 1, idle: partition 2"
    )
    many = dict.fromkeys(range(7))
    assert line(many, None) == "no low watermark: nothing yet from partitions 0, 1, 2, 3, 4 ..."


def test_it_says_how_far_behind_a_run_is() -> None:
    assert said(REPORT).endswith(" 0 dead")
    assert said(replace(REPORT, lag={0: 0, 1: 0})).endswith(" 0 dead")
    assert said(replace(REPORT, lag={0: 1234})).endswith(" 0 dead, 1,234 behind")
    assert said(replace(REPORT, lag={0: 5, 1: 2000, 2: 0})).endswith(" 0 dead, 2,005 behind (2,000 in partition 1)")


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
