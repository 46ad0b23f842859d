"""The line that says how far a run has come."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from windrow.telemetry.reports import Alert, StepReport, Totals
from windrow.terminal.progress import RecentRate, alert_line, progress_line

T0 = 1_767_225_600_000_000
SECOND = 1_000_000


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


def said(report: StepReport, width: int = 1000) -> str:
    """What is said after one step."""
    totals, rate = Totals(), RecentRate()
    totals.add(report)
    rate.add(report)
    return progress_line("spend", totals, rate.per_second, width)


def line(watermarks: dict[int | str, int | None], low: int | None, idle: list[int | str] | None = None) -> str:
    """What is said of the low watermark."""
    report = replace(REPORT, watermarks=watermarks, low_watermark=low, idle=idle or [])
    return said(report).removeprefix("spend: 1 events, 1/s, ")


def test_it_names_who_holds_the_low_watermark_back_and_who_is_idle() -> None:
    assert line({0: T0}, T0) == "low watermark 2026-01-01 00:00:00"
    assert line({0: T0, 1: T0 + 1}, T0) == "low watermark 2026-01-01 00:00:00, by partition 0"
    assert (
        line({0: T0, 1: T0 + 1}, T0 + 1, [0]) == "low watermark 2026-01-01 00:00:00, by partition 1, idle: partition 0"
    )
    # time has gone on by itself
    assert line({0: T0 - 5}, T0, [0]) == "low watermark 2026-01-01 00:00:00, idle: partition 0"


def test_it_names_who_has_said_nothing_yet() -> None:
    assert line({0: T0, 1: None, 2: None}, None, [2]) == (
        "no low watermark, nothing yet from partition 1, idle: partition 2"
    )
    many: dict[int | str, int | None] = dict.fromkeys(range(7))
    assert line(many, None) == "no low watermark, nothing yet from partitions 0, 1, 2, 3, 4 ..."


def test_it_says_how_far_behind_a_run_is() -> None:
    low = "1/s, low watermark 2026-01-01 00:00:00"
    assert said(REPORT).endswith(low)
    assert said(replace(REPORT, lag={0: 0, 1: 0})).endswith(low)
    assert said(replace(REPORT, lag={0: 1234})).endswith(f"{low}, 1,234 behind")
    assert said(replace(REPORT, lag={0: 1234}, lag_seconds={0: 61.7})).endswith(f"{low}, 1,234 behind (1m1s)")
    three = replace(REPORT, lag={0: 5, 1: 2000, 2: 0}, records=0, late=3, dead=1)
    assert said(three).endswith(f"{low}, 2,005 behind, 1 dead, 3 late, 2,000 behind in partition 1")


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = RecentRate()
    assert rate.per_second == 0
    for records, seconds, expected in ((80_000, 8.0, 10_000), (300, 2.0, 8_030), (300, 1.0, 200), (900, 60.0, 15)):
        rate.add(replace(REPORT, records=records, seconds=seconds))
        assert rate.per_second == expected


def test_a_line_of_a_long_run_has_what_matters_in_eighty_columns() -> None:
    report = replace(REPORT, records=123_456_789, dead=2, seconds=1000.0, lag={0: 10**7, 1: 0}, idle=[1])
    assert said(report, 80) == ("spend: 123M events, 123k/s, low watermark 2026-01-01 00:00:00, 10.0M behind")


@given(
    label=st.text(st.characters(codec="ascii", categories=["L"]), max_size=60),
    counts=st.lists(st.integers(0, 10**14), min_size=5, max_size=5),
    partitions=st.integers(1, 200),
    low=st.none() | st.integers(-(2**62), 2**62),
    width=st.integers(40, 200),
)
def test_a_line_is_never_wider_than_it_may_be(
    label: str, counts: list[int], partitions: int, low: int | None, width: int
) -> None:
    records, late, expired, dead, behind = counts
    marks: dict[int | str, int | None] = dict.fromkeys(range(partitions), low)
    report = replace(REPORT, records=records, late=late, expired=expired, dead=dead, watermarks=marks)
    report = replace(report, low_watermark=low, lag=dict.fromkeys(marks, behind), idle=[0])
    totals = Totals()
    totals.add(report)
    assert len(progress_line(label, totals, records / 3, width)) <= width


def test_an_alert_is_said_with_its_runbook_and_how_long_it_lasted() -> None:
    alert = Alert("spend", "hot-key", "the key 'ann' has 60% of the records", T0, T0 + SECOND)
    assert alert_line(alert) == "hot-key: the key 'ann' has 60% of the records (docs/guides/alerts.md#hot-key)"
    assert alert_line(replace(alert, resolved=T0 + 90 * SECOND)) == "hot-key resolved, after 1m30s"
