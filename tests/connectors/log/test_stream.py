"""The embedded log as Spark reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.connectors.streaming import Stream, raw, records

from windrow.connectors.open_sources import open_source
from windrow.engine.schema import RAW
from windrow.model import LogSource


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.mkdir()
    (path / "partition-0.jsonl").write_bytes(b"a\nb\r\n\nd\n")
    (path / "partition-1.jsonl").write_bytes(b"\xff\x00\n")
    return path


def test_a_log_is_cut_into_exactly_the_steps_that_were_prescribed(
    log: Path, spark: SparkSession, tmp_path: Path
) -> None:
    frame = raw(open_source(LogSource(str(log))), spark, cuts=[{0: 1}, {0: 3, 1: 1}])
    steps = Stream(frame, tmp_path / "checkpoint").run()
    assert [records([step]) for step in steps] == [
        {0: [(0, b"a")]},
        {0: [(1, b"b\r"), (2, b"")], 1: [(0, b"\xff\x00")]},
        {0: [(3, b"d")]},
    ]
    assert all(step.schema.names == RAW.names for step in steps)


def test_a_path_may_be_relative(
    log: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log.parent)
    frame = raw(open_source(LogSource("log")), spark)
    monkeypatch.chdir("/")
    assert sum(step.num_rows for step in Stream(frame, tmp_path / "checkpoint").run()) == 5


def test_a_log_that_was_cut_off_stops_the_stream_with_our_message(
    log: Path, spark: SparkSession, tmp_path: Path
) -> None:
    Stream(raw(open_source(LogSource(str(log))), spark), tmp_path / "checkpoint").run()
    (log / "partition-0.jsonl").write_bytes(b"a\n")
    with pytest.raises(PySparkException, match=r"RecordsLostError: the log lost records: partition 0 .* offset 4"):
        Stream(raw(open_source(LogSource(str(log))), spark), tmp_path / "checkpoint").run()
