"""What a run on Spark reports of its steps, and keeps."""

from __future__ import annotations

import pytest
from tests.contracts.stores import Store
from tests.runtime.conftest import MakeLog
from tests.runtime.runs import Runner
from tests.runtime.spend import Files, events, spend

from windrow.telemetry.histogram import Histogram
from windrow.telemetry.history import history_of, read_history
from windrow.telemetry.reports import Totals, now_micros
from windrow.telemetry.samples import SAMPLE
from windrow.telemetry.status import RunStatus

pytestmark = pytest.mark.usefixtures("spark")
PARTS = {"plan", "compute", "collect", "wait", "sync", "commit"}


def test_a_stream_reports_its_steps_and_keeps_the_reports(make_log: MakeLog, store: Store, runner: Runner) -> None:
    log = make_log("kafka", 2)
    log.append(events(600, partitions=2))
    runner.bounded(spend(log.source, store.settings()), max_records=300)
    first, *_, last = runner.reports
    for report in runner.reports:
        assert sum(report.read.values()) == report.records
        # each good record is taken by one operator, and each record has a log timestamp
        assert Histogram.sum(report.lateness.values()).total == report.records
        assert report.latency.total == report.events
        assert report.log_times.keys() == report.read.keys()
        assert report.parts.keys() == PARTS
        assert min(report.parts.values()) >= 0
        assert report.took <= sum(report.parts.values()) + 1
        assert report.committed is not None
        assert len(report.samples) == min(SAMPLE, report.records)
        # no record is behind another operator, so each has been judged
        assert all(one.verdicts.keys() == {""} and one.log_time is not None for one in report.samples)
    assert first.tasks.keys() == {"read", "decode", "operate"}
    assert min(first.tasks.values()) > 0
    assert last.state_rows is not None
    assert last.state_bytes is not None
    assert last.state_rows > 0
    assert last.state_by_node == {"user-spend": (last.state_rows, last.state_bytes)}
    assert read_history(history_of(runner.checkpoint)) == runner.reports
    status = RunStatus.read(history_of(runner.checkpoint), now_micros())
    assert (status.state, status.record and status.record.error) == ("ended", None)
    assert status.lag is not None
    assert status.lag.behind == 0
    assert status.record is not None
    assert status.record.totals is not None
    assert status.record.totals["events"] == sum(report.events for report in runner.reports)
    totals = Totals()
    for report in runner.reports:
        totals.add(report)
    plain = totals.plain()
    assert plain["latency_seconds"].keys() == {"p50", "p99", "p99.9"}
    assert plain["lateness_seconds"]["p50"] == 0


def test_a_batch_run_reports_lateness_and_commits(files: Files, store: Store, runner: Runner) -> None:
    files.append(events(100))
    runner.bounded(spend(files.source, store.settings()), host="batch")
    report = runner.reports[0]
    assert Histogram.sum(report.lateness.values()).total == report.records
    assert report.parts.keys() == {"commit"}
    assert report.tasks.keys() == {"read", "decode", "operate"}
    assert not history_of(runner.checkpoint).exists()
