"""Tables come to the driver as they were, and leave nothing behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.hosts.spend import Files, events, spend

from windrow.hosts.batch.run import BatchRun
from windrow.hosts.batch.settings import BatchSettings
from windrow.hosts.memory import MemoryRun
from windrow.hosts.report import StepReport
from windrow.hosts.stream import carrier as carriers
from windrow.hosts.stream.carrier import Carrier, carrying, taken
from windrow.hosts.stream.run import Settings, StreamRun
from windrow.model import SqliteSink
from windrow.sinks.collect import CollectSink
from windrow.sinks.discard import DiscardSink

ROWS = pa.table({"n": pa.array(range(1000)), "name": pa.array(["A", None] * 500), "none": pa.nulls(1000, pa.binary())})


@pytest.mark.parametrize("least", [0, 1 << 30])
def test_a_table_by_way_of_a_file_or_not(least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriers, "_LEAST", least)
    for rows in (ROWS, ROWS.slice(10, 3), pa.concat_tables([ROWS, ROWS])):
        blob = Carrier(tmp_path).put(rows)
        assert blob is not None
        assert len(list(tmp_path.iterdir())) == (least == 0)
        found = taken(blob)
        assert list(tmp_path.iterdir()) == []
        assert found.equals(rows)
        assert found.schema.equals(rows.schema)


def test_through_spark_and_not_at_all(tmp_path: Path) -> None:
    blob = Carrier().put(ROWS)
    assert blob is not None
    assert taken(blob).equals(ROWS)
    assert Carrier().put(ROWS.slice(0, 0)) is None
    assert Carrier(tmp_path).put(ROWS.slice(0, 0)) is None
    assert Carrier(tmp_path, drops=True).put(ROWS) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_there_for_as_long_as_tasks_run(spark: SparkSession) -> None:
    with carrying(spark, drops=True) as carrier:
        assert carrier == Carrier(drops=True)
    with carrying(spark, drops=False) as carrier:
        assert carrier.folder is not None
        Carrier(carrier.folder).put(pa.concat_tables([ROWS] * 10))
        assert len(list(carrier.folder.iterdir())) == 1
        shutil.rmtree(carrier.folder)
        blob = Carrier(carrier.folder).put(pa.concat_tables([ROWS] * 10))
        assert blob is not None
        assert taken(blob).num_rows == 10_000
    assert not carrier.folder.exists()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("host", ["stream", "batch"])
def test_steps_without_rows(host: str, files: Files, tmp_path: Path) -> None:
    """They are counted as others are."""
    files.append(events(600))
    pipeline, reports = spend(files.source, SqliteSink("unused.db", "unused")), list[StepReport]()
    sink = DiscardSink()
    if host == "stream":
        settings = Settings(tmp_path / "checkpoint", until_end=True, max_records=300)
        StreamRun(pipeline, sink, settings).run(reports.append)
    else:
        BatchRun(pipeline, sink, BatchSettings(max_records=300)).run(reports.append)
    assert sink.last == len(reports) - 1 >= 1
    expected = CollectSink()
    MemoryRun(pipeline, expected, None).run(lambda _: None)
    output = expected.output(pipeline)
    assert sum(report.inserts for report in reports) == pc.sum(pc.equal(output.changes["op"], "insert")).as_py() > 0
    assert sum(report.expired for report in reports) == output.late.num_rows > 0
    assert sum(report.dead for report in reports) == output.dead.num_rows > 0
