"""A compacted log is read by the batch host and by replays as one that never had the records that are gone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.graphs import as_graph
from tests.runtime.spend import Files, events, spend
from tests.short_forms import Pipeline

from windrow.connectors.log import retention
from windrow.connectors.log.source import EmbeddedLog, LogFolder
from windrow.model import LogSource, SqliteSink
from windrow.runtime.launch import launch
from windrow.runtime.replay import ReplayOptions, plan_replay, run_replay
from windrow.runtime.run import HostName, ReplayHost, RunSettings

PARTITIONS = 2


@pytest.fixture
def log(tmp_path: Path) -> LogSource:
    """A log whose first part is compacted, and whose first records are trimmed."""
    files = Files(tmp_path / "log", PARTITIONS)
    files.append(events(400, partitions=PARTITIONS))
    folder = LogFolder(tmp_path / "log")
    (trimmed,) = retention.plan_trim(folder, offsets={0: 10})
    retention.apply(folder, trimmed)
    for partition in range(PARTITIONS):
        change = retention.plan_compact(folder, ["user_id"], active=8_000, tombstones_before=0, partition=partition)
        assert change is not None
        retention.apply(folder, change)
    return LogSource(str(tmp_path / "log"))


def rows(path: Path, table: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"SELECT window_start, user_id, total, events FROM {table} ORDER BY 1, 2").fetchall()


def launched(pipeline: Pipeline, folder: Path, host: HostName) -> list[Any]:
    made = replace(pipeline, sink=SqliteSink(str(folder / f"{host}.db"), "spend"))
    options = RunSettings(folder / "checkpoint", host, until_end=True, max_records=70)
    assert launch(as_graph(made), options, lambda _: None, lambda _: None) == "end"
    return rows(folder / f"{host}.db", "spend")


def replayed(pipeline: Pipeline, folder: Path, host: ReplayHost) -> list[Any]:
    made = replace(pipeline, sink=SqliteSink(str(folder / "replay.db"), "spend"))
    options = ReplayOptions(folder / "none", end="log", host=host, into=f"by_{host}", max_records=70)
    assert run_replay(plan_replay(as_graph(made), options), options, lambda _: None, lambda _: None) == "end"
    return rows(folder / "replay.db", f"by_{host}")


@pytest.fixture
def expected(log: LogSource, tmp_path: Path) -> list[Any]:
    """The rows of a log that has only the records that are left."""
    plain = tmp_path / "plain"
    plain.mkdir()
    for batch in EmbeddedLog(log).read_all():
        for partition, value in zip(batch["partition"].to_pylist(), batch["value"].to_pylist(), strict=True):
            with (plain / f"partition-{partition}.jsonl").open("ab") as file:
                file.write(value + b"\n")
    found = launched(spend(LogSource(str(plain)), SqliteSink("unused.db", "unused")), plain, "memory")
    assert 0 < len(found) < 400
    return found


def test_in_memory(log: LogSource, tmp_path: Path, expected: list[Any]) -> None:
    pipeline = spend(log, SqliteSink("unused.db", "unused"))
    assert launched(pipeline, tmp_path, "memory") == expected
    assert replayed(pipeline, tmp_path, "memory") == expected


@pytest.mark.usefixtures("spark")
def test_as_a_batch(log: LogSource, tmp_path: Path, expected: list[Any]) -> None:
    pipeline = spend(log, SqliteSink("unused.db", "unused"))
    assert launched(pipeline, tmp_path, "batch") == expected
    assert replayed(pipeline, tmp_path, "batch") == expected
