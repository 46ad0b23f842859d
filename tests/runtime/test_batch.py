"""The batch host gives the oracle's answer, from every source to every sink."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.contracts.stores import SqliteStore, Store
from tests.graphs import as_graph, sink_spec_of
from tests.runtime.answers import assert_epochs, assert_same, expected_of, micros
from tests.runtime.conftest import MakeLog, MakeStore
from tests.runtime.runs import Runner
from tests.runtime.spend import HOUR, Files, events, spend
from tests.short_forms import Pipeline

from windrow.connectors.memory import CollectSink
from windrow.connectors.open_sources import open_source
from windrow.engine.changelog import StepOutput
from windrow.engine.schema import RAW
from windrow.engine.watermarks.journal import WatermarkBounds
from windrow.errors import InputError, SinkError, SourceError
from windrow.runtime.batch.plan import BatchSettings
from windrow.runtime.batch.run import BatchRun
from windrow.runtime.launch import launch
from windrow.runtime.memory import MemoryHost
from windrow.runtime.run import RunSettings
from windrow.runtime.savepoint import Savepoint
from windrow.telemetry.reports import StepReport
from windrow.tools.generate.spec import START

pytestmark = pytest.mark.usefixtures("spark")


def sort(output: StepOutput) -> tuple[list[Any], ...]:
    """The rows of an output, whatever its steps were: the changes of each window and user stay in their order."""
    changes = output.changes.to_pylist()
    others = (output.late, output.dead, output.clocks)
    return (
        sorted(changes, key=lambda row: (row["window_start"], row["user_id"])),
        *(sorted(table.to_pylist(), key=lambda row: (row["offset"], row["partition"])) for table in others),
    )


def between(files: Files, begin: dict[int, int], end: dict[int, int]) -> pa.Table:
    """The raw records between two cuts."""
    whole = pa.Table.from_batches(open_source(files.source).read_all(), schema=RAW)
    places = zip(whole.column("partition").to_pylist(), whole.column("offset").to_pylist(), strict=True)
    return whole.filter(pa.array(begin[partition] <= offset < end[partition] for partition, offset in places))


def run(pipeline: Pipeline, **settings: Any) -> tuple[StepOutput, list[StepReport]]:  # noqa: ANN401 - any setting
    """Run into memory; return all that was given, and the reports."""
    sink, reports = CollectSink(), list[StepReport]()
    assert BatchRun(as_graph(pipeline), sink, BatchSettings(**settings)).run(reports.append) == "end"
    return sink.output(sink_spec_of(pipeline).rows), reports


@pytest.mark.parametrize(("kind", "into"), [("log", "sqlite"), ("kafka", "postgres")])
def test_a_batch_run_gives_the_oracles_answer(
    kind: str, into: str, make_log: MakeLog, make_store: MakeStore, runner: Runner
) -> None:
    log, store = make_log(kind, 3), make_store(into)
    log.append(events(3000))
    pipeline = spend(log.source, store.settings())
    assert runner.bounded(pipeline, max_records=1000, host="batch") == "end"
    found = assert_same(store, pipeline)
    assert found.on_time
    assert found.late
    assert {"malformed", "missing", "wrong type"} <= set(found.dead.values())
    assert_epochs(store, 4)
    assert sum(report.events for report in runner.reports) == sum(runner.reports[-1].offsets.values()) > 3000
    assert runner.reports[-1].open_windows == 0
    together = reduce(add, runner.reports).windows
    assert together is not None
    assert together[pipeline.name].total.fired > together[pipeline.name].total.closed > 0
    assert together[pipeline.name].open == (0,) * pipeline.key_groups
    clocks = store.read(store.tables(pipeline).clocks)
    assert [(row["partition"], row["reason"]) for row in clocks] == [(0, "end"), (1, "end"), (2, "end")]
    # what is there is not written over, but with --fresh
    with pytest.raises(SinkError, match="--fresh"):
        runner.bounded(pipeline, host="batch")
    runner.bounded(pipeline, host="batch", fresh=True)
    assert assert_same(store, pipeline).table == found.table


def test_an_empty_log_has_an_end_and_no_rows(files: Files, store: Store, runner: Runner) -> None:
    pipeline = spend(files.source, store.settings())
    assert runner.bounded(pipeline, host="batch") == "end"
    assert store.result(pipeline) == []
    assert [row["reason"] for row in store.read(store.tables(pipeline).clocks)] == ["end"] * 3
    held, reports = run(spend(files.source, store.settings(), at_end="hold"))
    assert held.clocks.num_rows == 0
    assert reports == []


def test_a_range_is_judged_as_if_the_log_were_no_longer(files: Files, store: Store, tmp_path: Path) -> None:
    feed = events(600)
    files.append(feed[:500])
    pipeline = spend(files.source, store.settings())
    end = {partition: last for partition, (_, last) in open_source(files.source).ends().items()}
    whole, _ = run(pipeline, max_records=130)
    files.append(feed[500:])
    part, _ = run(pipeline, max_records=130, end=end)
    assert sort(part) == sort(whole)
    rest, reports = run(pipeline, begin=end)
    assert sum(report.events for report in reports) == len(feed) - 500
    (tmp_path / "rest").mkdir()
    alone = Files(tmp_path / "rest" / "spend", 3)
    alone.append(feed[500:])
    expected, _ = run(spend(alone.source, store.settings()))
    assert sort(rest)[0] == sort(expected)[0]
    with pytest.raises(SourceError, match="offset 9999 of partition 1 is not in the log"):
        run(pipeline, end={1: 9999})


def test_ends_and_floors_of_a_journal_are_repeated(files: Files, store: Store) -> None:
    pipeline = spend(files.source, store.settings(), lateness=10 * HOUR)
    host, told = MemoryHost(as_graph(pipeline), [0, 1, 2]), list[StepOutput]()
    before = dict.fromkeys(range(3), 0)
    ends = []
    feed = events(400, users=5, duration=3 * HOUR)
    for part in (feed[:150], feed[150:300], feed[300:]):
        files.append(part)
        there = {partition: last for partition, (_, last) in open_source(files.source).ends().items()}
        raw = between(files, before, there)
        told += [StepOutput.concat(group.rows for group in groups) for groups in (host.step(raw), host.end())]
        before = there
        ends.append(there)
    expected = StepOutput.concat(told)
    found, _ = run(pipeline, ends=tuple(ends[:2]), max_records=100)
    assert sort(found) == sort(expected)
    assert sort(run(pipeline, max_records=100)[0]) != sort(expected)
    # a floor makes late what would be on time
    late = WatermarkBounds(((0, 0, START + 24 * HOUR), (1, 0, START + 24 * HOUR), (2, 0, START + 24 * HOUR)))
    floored, reports = run(pipeline, bounds=late)
    assert floored.changes.num_rows == 0
    assert sum(report.expired for report in reports) == floored.late.num_rows == sum(r.records for r in reports) > 0


def test_only_windows_that_end_after_a_time_are_written(files: Files, store: Store) -> None:
    files.append(events(600))
    pipeline = spend(files.source, store.settings())
    whole, _ = run(pipeline)
    since = START + 12 * HOUR
    part, [report] = run(pipeline, since=since)
    for table in ("changes", "late"):
        rows = [row for row in getattr(whole, table).to_pylist() if micros(row["window_end"]) > since]
        assert getattr(part, table).to_pylist() == rows
    assert 0 < part.late.num_rows < whole.late.num_rows
    assert report.inserts == part.changes.column("op").to_pylist().count("insert")
    assert part.dead == whole.dead
    assert part.clocks == whole.clocks


def test_a_savepoint_holds_what_the_key_groups_know(files: Files, store: Store, tmp_path: Path) -> None:
    files.append(events(500))
    pipeline = spend(files.source, store.settings(), at_end="hold")
    sink = CollectSink()
    settings = BatchSettings(max_records=500, savepoint=tmp_path / "point")
    reports: list[StepReport] = []
    BatchRun(as_graph(pipeline), sink, settings).run(reports.append)
    savepoint = Savepoint.read(tmp_path / "point")
    assert savepoint.offsets == reports[-1].offsets
    assert savepoint.epoch == sink.last
    assert savepoint.partitions == (0, 1, 2)
    # a host that resumes from there comes to what one run comes to
    host = MemoryHost(as_graph(pipeline), [0, 1, 2])
    host.begin(state for _, state in Savepoint.states(tmp_path / "point"))
    last = StepOutput.concat(group.rows for group in host.end())
    together = StepOutput.concat([sink.output(sink_spec_of(pipeline).rows), last])
    assert sort(together) == sort(run(spend(files.source, store.settings()), max_records=500)[0])
    with pytest.raises(InputError, match="not empty"):
        BatchRun(as_graph(pipeline), CollectSink(), settings).run(reports.append)


def test_a_run_that_is_asked_to_stop_writes_no_more(files: Files, store: Store) -> None:
    files.append(events(600))
    pipeline = spend(files.source, store.settings())
    sink, reports = CollectSink(), list[StepReport]()
    batch = BatchRun(as_graph(pipeline), sink, BatchSettings(max_records=100))

    def on_step(report: StepReport) -> None:
        reports.append(report)
        if report.epoch == 1:
            batch.stop()

    assert batch.run(on_step) == "asked"
    assert len(reports) == len(sink.steps) == 2
    # asked before it began: nothing is computed, and nothing written
    idle = BatchRun(as_graph(pipeline), sink := CollectSink(), BatchSettings())
    idle.stop()
    assert idle.run(on_step) == "asked"
    assert sink.steps == {}


def test_a_run_that_fails_says_what_to_do(files: Files, store: Store, tmp_path: Path) -> None:
    files.append(events(600))

    class Full(CollectSink):
        def commit(self, epoch: int, *outputs: StepOutput) -> None:
            if epoch == 1:
                msg = "the disk is full"
                raise SinkError(msg)
            super().commit(epoch, *outputs)

    pipeline = spend(files.source, store.settings())
    sink = Full()
    with pytest.raises(SinkError, match="the disk is full"):
        BatchRun(as_graph(pipeline), sink, BatchSettings(max_records=200)).run(lambda _: None)
    # what it has left is not taken for an answer
    with pytest.raises(SinkError, match="--fresh"):
        BatchRun(as_graph(pipeline), sink, BatchSettings()).run(lambda _: None)
    with pytest.raises(InputError, match="--until-end"):
        launch(as_graph(pipeline), RunSettings(tmp_path / "checkpoint", host="batch"), lambda _: None, lambda _: None)


@pytest.mark.long
@pytest.mark.parametrize("into", ["sqlite", "postgres"])
@pytest.mark.parametrize("kind", ["log", "kafka"])
def test_every_source_and_sink(kind: str, into: str, make_log: MakeLog, make_store: MakeStore, runner: Runner) -> None:
    log, store = make_log(kind, 4), make_store(into)
    log.append(events(20_000, partitions=4))
    pipeline = spend(log.source, store.settings(), late="batch" if kind == "log" else "each")
    runner.bounded(pipeline, max_records=3000, host="batch")
    found = assert_same(store, pipeline)
    assert found.on_time == expected_of(pipeline).on_time


@pytest.mark.long
def test_the_demos_day_is_the_same_as_by_the_stream_host(tmp_path: Path) -> None:
    log = Files(tmp_path / "spend", 4)
    log.append(events(1_000_000, partitions=4, users=10_000))
    tables = []
    for host in ("stream", "batch"):
        (tmp_path / host).mkdir()
        store = SqliteStore(tmp_path / host)
        pipeline = spend(log.source, store.settings())
        Runner(tmp_path / host / "checkpoint").bounded(pipeline, max_records=250_000, host=host)
        names = store.tables(pipeline)
        changes = [
            {name: value for name, value in row.items() if name not in {"epoch", "seq"}}
            for row in store.read(names.changes, "window_start, user_id, epoch, seq")
        ]
        order = 'partition, "offset"'
        tables.append((store.result(pipeline), changes, store.read(names.late, order), store.read(names.dead, order)))
    assert tables[0] == tables[1]
