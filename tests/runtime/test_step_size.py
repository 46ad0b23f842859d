"""A live run can change the size of its steps, and loses and repeats nothing by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.graphs import as_graph
from tests.runtime.answers import answer, expected_of
from tests.runtime.conftest import MakeLog
from tests.runtime.spend import events, spend
from tests.short_forms import operator_spec

from windrow.connectors.memory import CollectSink
from windrow.model import SqliteSink
from windrow.runtime.run import RunSettings
from windrow.runtime.stream import run as run_module
from windrow.runtime.stream.run import StreamRun
from windrow.telemetry.reports import StepReport
from windrow.testing.oracle import differences
from windrow.testing.transcript.views import observe

EVENTS = 3000
SIZES = [600, 200, 1000]


class Script:
    """A pace that wants another size after each step, as long as there are any."""

    def __init__(self, most: int, target: float) -> None:
        assert (most, target) == (600, 3.0)
        self._left = SIZES[1:]
        self.size = most

    def after(self, records: int, seconds: float) -> bool:
        assert records > 0
        assert seconds > 0
        # steps that were planned before the size changed do not count
        if abs(records - self.size) > 2 or not self._left:
            return False
        self.size = self._left.pop(0)
        return True


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", ["kafka", pytest.param("log", marks=pytest.mark.long)])
def test_steps_of_other_sizes_go_on_where_the_ones_before_ended(
    kind: str, make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "StepSizeController", Script)
    log = make_log(kind, 2)
    values = events(EVENTS, partitions=2)
    log.append(values)
    pipeline = spend(log.source, SqliteSink("unused.db", "spend"), at_end="hold")
    sink, reports = CollectSink(), list[StepReport]()
    settings = RunSettings(tmp_path / "checkpoint", max_records=SIZES[0], every=50_000, step_time=3_000_000)
    run = StreamRun(as_graph(pipeline), sink, settings)

    def on_step(report: StepReport) -> None:
        reports.append(report)
        if sum(report.offsets.values()) >= len(values):
            run.stop()

    assert run.run(on_step) == "asked"
    found = answer(
        operator_spec(pipeline), observe(operator_spec(pipeline), [sink.steps[epoch] for epoch in sorted(sink.steps)])
    )
    assert differences(expected_of(pipeline), found) == []
    assert [report.epoch for report in reports] == list(range(len(reports)))
    assert sum(report.events for report in reports) == len(values)
    # a share may be rounded down in each partition; a step that was planned before the size changed is as planned
    sizes = [max((size for size in SIZES if size <= report.events + 2), default=0) for report in reports[:-1]]
    assert sizes == sorted(sizes, key=SIZES.index)
    assert {200, 1000} <= set(sizes)
    # the log did not grow: what is read and what is not make it up
    known = [report for report in reports if report.behind is not None]
    assert known
    assert all(report.behind == len(values) - sum(report.offsets.values()) for report in known)
