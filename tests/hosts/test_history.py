"""The history of a run: what is read is what was written, or sums of it; and no run fails because of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.test_progress import REPORT

from windrow.core.histogram import Histogram
from windrow.errors import InputError
from windrow.hosts.history import MERGED, HistoryWriter, forget_history, read_history
from windrow.hosts.reports import StepReport

T0 = 1_767_225_600_000_000
STEP = replace(
    REPORT,
    watermarks={0: T0, 1: None},
    offsets={0: 7},
    lag={0: 3},
    lag_seconds={0: 1.5},
    read={0: 1},
    log_times={0: T0},
    lateness={0: Histogram((1, 2))},
    latency=Histogram((0, 3)),
    parts={"compute": 0.5, "commit": 0.25},
    tasks={"read": 1.0},
    key_group_load=1.5,
    state_bytes=10,
)


def steps(number: int) -> list[StepReport]:
    return [replace(STEP, epoch=epoch, committed=T0 + epoch) for epoch in range(number)]


def written(path: Path, reports: Sequence[StepReport], **limits: int) -> list[str]:
    """Write reports, and return the warnings."""
    warnings: list[str] = []
    seen: list[StepReport] = []
    with HistoryWriter(path, warnings.append, **limits) as history:
        note = history.noting(seen.append)
        for report in reports:
            note(report)
    assert seen == list(reports)
    return warnings


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "progress.sqlite"
    assert written(path, steps(3)) == []
    assert written(path, [replace(STEP, epoch=3, committed=T0 + 3)]) == []
    assert read_history(path) == steps(4)
    assert read_history(path, last=2) == steps(4)[2:]
    assert read_history(path, since=T0 + 1) == steps(4)[2:]
    forget_history(path)
    assert list(path.parent.iterdir()) == []


def test_old_steps_are_added_up(tmp_path: Path) -> None:
    path, reports = tmp_path / "progress.sqlite", steps(400)
    assert written(path, reports, full=20, sums=15) == []
    found = read_history(path)
    assert found[-11:] == reports[-11:]
    with sqlite3.connect(path) as connection:
        sizes = dict(connection.execute("SELECT size, count(*) FROM steps GROUP BY size"))
    connection.close()
    assert sizes[0] <= 20
    assert sizes[1] <= 15
    assert [report.epoch for report in found] == sorted(report.epoch for report in found)
    assert reduce(add, found) == reduce(add, reports)
    assert found[0].records == MERGED**2


def test_a_run_without_steps_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    assert written(path, []) == []
    assert not path.exists()
    with pytest.raises(InputError, match="no step was taken with this checkpoint"):
        read_history(path)


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    path.write_text("this is no database, and is long enough not to be taken for an empty one " * 20)
    (warning,) = written(path, steps(2))
    assert warning.endswith("progress.sqlite: file is not a database")
    with pytest.raises(InputError, match="file is not a database"):
        read_history(path)


counts = st.integers(0, 1000)
histograms = st.lists(counts, max_size=5).map(Histogram.trimmed)
names = st.integers(0, 3) | st.sampled_from(["orders/0", "rates/1"])
reports = st.builds(
    StepReport,
    epoch=counts,
    records=counts,
    late=counts,
    expired=counts,
    dead=counts,
    inserts=counts,
    revisions=counts,
    open_windows=counts,
    watermarks=st.dictionaries(names, st.none() | counts),
    offsets=st.dictionaries(names, counts),
    low_watermark=st.none() | counts,
    idle=st.lists(names),
    seconds=st.floats(0, 10),
    lag=st.none() | st.dictionaries(names, counts),
    read=st.dictionaries(names, counts),
    lateness=st.dictionaries(names, histograms),
    latency=histograms,
    parts=st.dictionaries(st.sampled_from(["plan", "commit"]), st.integers(0, 9)),
)


@given(reports)
def test_a_report_survives_json(report: StepReport) -> None:
    assert StepReport.of_plain(json.loads(json.dumps(report.plain()))) == report


@given(reports, reports, reports)
def test_adding_reports_is_associative(one: StepReport, two: StepReport, three: StepReport) -> None:
    left, right = (one + two) + three, one + (two + three)
    assert replace(left, seconds=0, took=0) == replace(right, seconds=0, took=0)
