"""The line that says how far a run has come."""

from __future__ import annotations

from windrow.cli.progress import status
from windrow.hosts.report import StepReport
from windrow.hosts.totals import Totals

T0 = 1_767_225_600_000_000


def line(watermarks: dict[int, int | None], low: int | None, idle: list[int] | None = None) -> str:
    """What is said of the low watermark."""
    report = StepReport(
        epoch=0,
        records=1,
        late=0,
        expired=0,
        dead=0,
        inserts=0,
        revisions=0,
        open_windows=0,
        watermarks=watermarks,
        offsets={},
        low_watermark=low,
        idle=idle or [],
        seconds=1.0,
    )
    totals = Totals()
    totals.add(report)
    return status(totals).removeprefix("1 events, 1/s, ").removesuffix(", 0 late, 0 expired, 0 dead")


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
