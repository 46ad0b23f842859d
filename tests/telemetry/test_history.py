"""The history of a run: what is read is what was written, or sums of it; and no run fails because of it."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.test_progress import REPORT
from tests.examples import examples
from tests.waiting import wait_until

from windrow.errors import InputError, RunError
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.history import MERGED, RUNS, HistoryWriter, RunRecord, forget_history, read_history, read_runs
from windrow.telemetry.hot_keys import HotKeys
from windrow.telemetry.reports import Fault, Lag, Observer, StepReport
from windrow.telemetry.samples import SAMPLE, RecordSample, least
from windrow.telemetry.window_counts import GroupWindows, WindowCounts

T0 = 1_767_225_600_000_000
STEP = replace(
    REPORT,
    watermarks={0: T0, 1: None},
    offsets={0: 7},
    lag={0: 3},
    lag_seconds={0: 1.5},
    read={0: 1},
    leaps={0: 1},
    log_times={0: T0},
    lateness={0: Histogram((1, 2))},
    latency=Histogram((0, 3)),
    parts={"compute": 0.5, "commit": 0.25},
    tasks={"read": 1.0},
    key_group_load=1.5,
    state_bytes=10,
    state_by_node={"spend": (2, 10)},
    hot_keys={"spend": HotKeys(40, {"ann": 30})},
    dead_by_sink={"table": {"missing: amount": 1}},
    samples=(RecordSample(0, 3, T0, T0 + 1, 7, {"": "late"}),),
)


def steps(number: int) -> list[StepReport]:
    return [replace(STEP, epoch=epoch, committed=T0 + epoch) for epoch in range(number)]


def written(path: Path, reports: Sequence[StepReport], **limits: int) -> list[str]:
    """Write reports, and return the warnings."""
    warnings: list[str] = []
    seen: list[StepReport] = []
    with HistoryWriter(path, RunRecord.here("spend", "stream"), warnings.append, **limits) as history:
        note = Observer.all_of([history.observer, Observer(seen.append)]).on_step
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
    with pytest.raises(InputError, match="no run with this checkpoint has written a history"):
        read_history(path)


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    path.write_text("this is no database, and is long enough not to be taken for an empty one " * 20)
    (warning,) = written(path, steps(2))
    assert warning.endswith("progress.sqlite: file is not a database")
    with pytest.raises(InputError, match="file is not a database"):
        read_history(path)


def writer(path: Path) -> HistoryWriter:
    return HistoryWriter(path, RunRecord.here("spend", "stream"), pytest.fail)


def test_a_run_leaves_how_it_stood(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    with writer(path) as history:
        history.on_ready()
        history.on_step(replace(STEP, committed=T0))
        history.on_trouble(Fault("the database is away", "sink"))
        history.on_lag(Lag(T0 + 1, {0: 9}, {0: 2.5}))
    (record,) = read_runs(path)
    assert (record.pipeline, record.host, record.pid) == ("spend", "stream", os.getpid())
    assert (record.fault, record.is_retrying, record.error) == ("the database is away", True, None)
    assert record.lag == Lag(T0 + 1, {0: 9}, {0: 2.5})
    assert record.ended is not None
    assert record.began <= record.ended <= record.seen
    assert record.totals is not None
    assert record.totals["events"] == 1
    assert record.totals["commit_seconds"]["p50"] == 0.35


def test_why_a_run_failed_is_kept_and_the_next_one_is_another(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"

    def fail() -> None:
        with writer(path) as history:
            history.on_step(STEP)
            msg = "the checkpoint is damaged"
            raise RunError(msg)

    with pytest.raises(RunError):
        fail()
    written(path, [STEP])
    assert [record.error for record in read_runs(path)] == ["the checkpoint is damaged", None]
    assert [record.error for record in read_runs(path, last=1)] == [None]


def test_a_run_that_does_not_start_with_its_checkpoint_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    written(path, [STEP])

    def fail(*, is_its_own: bool) -> None:
        with writer(path) as history:
            if is_its_own:
                history.begin()
            msg = "the log is away"
            raise RunError(msg)

    for is_its_own in (False, True):
        with pytest.raises(RunError):
            fail(is_its_own=is_its_own)
    assert [record.error for record in read_runs(path)] == [None, "the log is away"]


def test_a_run_that_waits_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    with writer(path) as history:
        history.on_ready()
        wait_until(lambda: path.is_file() and read_runs(path), "the record of the run")
        first = read_runs(path)[0].seen
        wait_until(lambda: read_runs(path)[0].seen != first, "a later sign of the run")
    assert read_history(path) == []


def test_records_of_runs_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    written(path, [STEP])
    with sqlite3.connect(path) as connection:
        row = connection.execute("SELECT seen, record FROM runs").fetchone()
        connection.executemany("INSERT INTO runs (seen, record) VALUES (?, ?)", [row] * (2 * RUNS))
    connection.close()
    written(path, [STEP])
    assert len(read_runs(path, last=10 * RUNS)) == RUNS


def test_a_history_without_records_of_runs_is_read(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    written(path, [STEP])
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE runs")
    connection.close()
    assert read_runs(path) == []
    written(path, [STEP])
    assert len(read_runs(path)) == 1
    assert len(read_history(path)) == 2


counts = st.integers(0, 1000)
histograms = st.lists(counts, max_size=5).map(Histogram.of_counts)
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
    hot_keys=st.dictionaries(
        st.sampled_from(["", "spend"]),
        st.builds(HotKeys, st.integers(1, 1000), st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9))),
    ),
    samples=st.lists(st.tuples(names, st.integers(0, 30)), max_size=SAMPLE, unique=True).map(
        lambda places: least(
            RecordSample(name, offset, T0, None, 1_000 * offset % 997, {"": "late"}) for name, offset in places
        )
    ),
    parts=st.dictionaries(st.sampled_from(["plan", "commit"]), st.integers(0, 9)),
    windows=st.none()
    | st.dictionaries(
        st.sampled_from(["clicks", "spend"]),
        st.lists(st.builds(GroupWindows, counts, counts, counts), min_size=1, max_size=4).map(WindowCounts.of),
    ),
)


@examples(40)
@given(reports)
def test_a_report_survives_json(report: StepReport) -> None:
    assert StepReport.of_plain(json.loads(json.dumps(report.plain()))) == report


def test_the_windows_of_older_versions_are_not_known() -> None:
    plain = replace(STEP, windows={}).plain()
    del plain["windows"]
    assert StepReport.of_plain(plain).windows is None


@examples(40)
@given(reports, reports, reports)
def test_adding_reports_is_associative(one: StepReport, two: StepReport, three: StepReport) -> None:
    left, right = (one + two) + three, one + (two + three)
    assert replace(left, seconds=0, took=0) == replace(right, seconds=0, took=0)
