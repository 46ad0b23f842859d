"""Tables come to the next process as they were, and leave nothing behind."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.graphs import as_graph, sink_spec_of
from tests.runtime.spend import MINUTE, Files, events, spend
from tests.short_forms import operator_spec

from windrow.connectors.memory import CollectSink
from windrow.connectors.open_sources import open_source
from windrow.connectors.sink import SinkGroup
from windrow.engine.columns import pack, unpack
from windrow.engine.level import open_levels
from windrow.engine.messages import Records
from windrow.engine.operators.base import NodeInput, StepInput
from windrow.engine.operators.ingest import Ingest
from windrow.engine.schema import record_schema
from windrow.engine.state.store import MemoryState
from windrow.model import Aggregate, Emit, Graph, JoinNode, Max, SinkNode, SourceNode, SqliteSink, WindowNode
from windrow.runtime.batch.plan import BatchSettings
from windrow.runtime.batch.run import BatchRun
from windrow.runtime.memory import MemoryRun
from windrow.runtime.run import RunSettings
from windrow.runtime.spark import transport as transport_module
from windrow.runtime.spark.rows import packet_batch, read_packets, with_records
from windrow.runtime.spark.transport import TableTransport, carrying, read_table, scratch_folder
from windrow.runtime.stream.run import StreamRun
from windrow.telemetry.reports import StepReport

ROWS = pa.table({"n": pa.array(range(1000)), "name": pa.array(["A", None] * 500), "none": pa.nulls(1000, pa.binary())})


@pytest.mark.parametrize("least", [0, 1 << 30])
def test_a_table_by_way_of_a_file_or_not(least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "_LEAST", least)
    for rows in (ROWS, ROWS.slice(10, 3), pa.concat_tables([ROWS, ROWS])):
        blob = TableTransport(tmp_path).put(rows)
        assert blob is not None
        assert len(list(tmp_path.iterdir())) == (least == 0)
        found = read_table(blob)
        assert list(tmp_path.iterdir()) == []
        assert found.equals(rows)
        assert found.schema.equals(rows.schema)


def test_through_spark_and_not_at_all(tmp_path: Path) -> None:
    blob = TableTransport().put(ROWS)
    assert blob is not None
    assert read_table(blob).equals(ROWS)
    assert TableTransport().put(ROWS.slice(0, 0)) is None
    assert TableTransport(tmp_path).put(ROWS.slice(0, 0)) is None
    assert TableTransport(tmp_path, drops=True).put(ROWS) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_there_for_as_long_as_tasks_run(spark: SparkSession) -> None:
    with carrying(spark, drops=True) as transport:
        assert transport.drops
        assert transport.folder is not None
        assert len(transport.pack(pa.concat_tables([ROWS] * 10))) < 1000  # records come all the same
    assert not transport.folder.exists()
    with carrying(spark, drops=False) as transport:
        assert transport.folder is not None
        TableTransport(transport.folder).put(pa.concat_tables([ROWS] * 10))
        assert len(list(transport.folder.iterdir())) == 1
        shutil.rmtree(transport.folder)
        blob = TableTransport(transport.folder).put(pa.concat_tables([ROWS] * 10))
        assert blob is not None
        assert read_table(blob).num_rows == 10_000
    assert not transport.folder.exists()


@pytest.mark.parametrize("least", [0, 1 << 30])
def test_packets_of_records(least: int, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "_LEAST", least)
    files.append(events(600))
    pipeline = spend(files.source, SqliteSink("unused.db", "unused"))
    raw = list(open_source(files.source).read_all())
    sent = list(Ingest(as_graph(pipeline), packed=TableTransport(tmp_path / "rows").pack).run(raw))
    assert len(list(tmp_path.glob("rows/*"))) == sum(isinstance(packet.message, Records) for packet in sent) * (
        least == 0
    )
    read = list(read_packets(packet_batch(packet).to_pandas() for packet in sent))
    given = {"": NodeInput.of(operator_spec(pipeline), record_schema(operator_spec(pipeline)))}
    came = StepInput.of(given, (with_records(packet.message) for packet in read))
    assert list(tmp_path.glob("rows/*")) == []
    expected = StepInput.of(given, (packet.message for packet in Ingest(as_graph(pipeline)).run(raw)))
    assert came.raw[""].num_rows > 400
    assert came.raw[""].equals(expected.raw[""])
    assert (came.dead, came.progress) == (expected.dead, expected.progress)


@pytest.mark.usefixtures("spark")
def test_a_step_whose_records_come_by_files(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    files.append(events(60_000))
    pipeline, sink = spend(files.source, SqliteSink("unused.db", "unused")), CollectSink()
    StreamRun(as_graph(pipeline), sink, RunSettings(tmp_path / "checkpoint", until_end=True)).run(lambda _: None)
    expected = CollectSink()
    MemoryRun(as_graph(pipeline), expected, None).run(lambda _: None)
    for table in ("changes", "late", "dead"):
        came, there = (getattr(one.output(sink_spec_of(pipeline).rows), table).to_pylist() for one in (sink, expected))
        assert sorted(came, key=repr) == sorted(there, key=repr) != []
    assert list(tmp_path.glob("windrow-*")) == []


def _two_levels(files: Files) -> Graph:
    """Return a join that takes records at the second level, with the rows of a window at the first."""
    one = spend(files.source, SqliteSink("unused.db", "unused"))
    emit = Emit(lateness=30 * MINUTE)
    nodes = (
        SourceNode("events", one.source, one.decode, one.time, lateness=30 * MINUTE),
        WindowNode("minutes", "events", one.key, one.window, (Aggregate("most", Max("amount")),), emit),
        JoinNode("with_most", "events", "minutes", one.key, one.key, after=5 * MINUTE),
        SinkNode("to_with_most", "with_most", SqliteSink("unused.db", "with_most")),
    )
    return Graph("shop", nodes, 2)


def test_records_that_a_level_gives_the_next_one(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "_LEAST", 0)
    files.append(events(600))
    graph, transport = _two_levels(files), TableTransport(tmp_path / "rows")
    messages = [packet.message for packet in Ingest(graph).run(open_source(files.source).read_all())]
    found = []
    for packed in (pack, transport.pack):
        level, _ = open_levels(graph, [0, 1], packed)
        packets = level.step(0, messages, MemoryState()).packets
        found.append([one.message for one in packets if isinstance(one.message, Records) and not one.message.is_raw])
    assert len(list(tmp_path.glob("rows/*"))) == len(found[1]) > 0
    opened = [one for one in map(with_records, found[1]) if isinstance(one, Records)]
    assert [unpack(one.blob) for one in opened] == [unpack(one.blob) for one in found[0]]


@pytest.mark.usefixtures("spark")
def test_records_that_pass_a_level_in_a_file(files: Files, tmp_path: Path) -> None:
    files.append(events(20_000))
    graph = _two_levels(files)
    sink, expected = CollectSink(), CollectSink()
    StreamRun(graph, SinkGroup((["to_with_most"], sink)), RunSettings(tmp_path / "checkpoint", until_end=True)).run(
        lambda _: None
    )
    MemoryRun(graph, SinkGroup((["to_with_most"], expected)), None).run(lambda _: None)
    came, there = (
        pa.concat_tables(step.changes for step in each.steps.values()).to_pylist() for each in (sink, expected)
    )
    assert sorted(came, key=repr) == sorted(there, key=repr) != []


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("host", ["stream", "batch"])
def test_steps_without_rows(host: str, files: Files, tmp_path: Path) -> None:
    """They are counted as others are."""
    files.append(events(600))
    pipeline, reports = spend(files.source, SqliteSink("unused.db", "unused")), list[StepReport]()
    sink = CollectSink()
    sink.needs_rows = False
    if host == "stream":
        settings = RunSettings(tmp_path / "checkpoint", until_end=True, max_records=300)
        StreamRun(as_graph(pipeline), sink, settings).run(reports.append)
    else:
        BatchRun(as_graph(pipeline), sink, BatchSettings(max_records=300)).run(reports.append)
    assert sink.last == len(reports) - 1 >= 1
    expected = CollectSink()
    MemoryRun(as_graph(pipeline), expected, None).run(lambda _: None)
    output = expected.output(sink_spec_of(pipeline).rows)
    assert sum(report.inserts for report in reports) == pc.sum(pc.equal(output.changes["op"], "insert")).as_py() > 0
    assert sum(report.expired for report in reports) == output.late.num_rows > 0
    assert sum(report.dead for report in reports) == output.dead.num_rows > 0


def test_the_files_are_in_the_folder_that_the_next_start_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "is_one_process", lambda _: True)
    with carrying(cast("SparkSession", None), drops=False) as transport:
        assert transport.folder is not None
        assert transport.folder.parent == scratch_folder()
