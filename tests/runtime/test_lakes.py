"""Delta tables and Parquet files have the oracle's answer, on the hosts that write tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import DeltaStore, ParquetStore
from tests.runtime.answers import assert_same
from tests.runtime.runs import Runner
from tests.runtime.spend import HOUR, Files, events, spend

from windrow.connectors.delta.folder import DeltaFolder, Write
from windrow.connectors.sink import Run
from windrow.errors import SinkError


@pytest.mark.parametrize("kind", [DeltaStore, ParquetStore])
def test_the_memory_host_writes_a_lake(
    kind: Callable[[Path], Any], files: Files, runner: Runner, tmp_path: Path
) -> None:
    files.append(events(3000))
    store = kind(tmp_path)
    pipeline = spend(files.source, store.settings())
    assert runner.bounded(pipeline, max_records=1000, host="memory") == "end"
    found = assert_same(store, pipeline)
    assert found.on_time
    assert found.late
    assert found.dead


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_step_that_one_table_has_is_not_planned_anew(
    files: Files, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DeltaStore(tmp_path)
    pipeline = spend(files.source, store.settings(), lateness=10 * HOUR, at_end="hold")
    files.append(events(600))
    commit = DeltaFolder.commit

    def fail(self: DeltaFolder, run: Run, epoch: int, check: Callable[[DeltaFolder], None], write: Write) -> None:
        if epoch == 1 and self.table == store.tables(pipeline).result:
            msg = "the disk is full"
            raise SinkError(msg)
        commit(self, run, epoch, check, write)

    monkeypatch.setattr(DeltaFolder, "commit", fail)
    with pytest.raises(SinkError, match="the disk is full"):
        runner.bounded(pipeline, max_records=300)
    monkeypatch.undo()
    assert runner.bounded(pipeline, max_records=200) == "end"
    assert_same(store, pipeline)


@pytest.mark.parametrize("kind", [DeltaStore, pytest.param(ParquetStore, marks=pytest.mark.long)])
@pytest.mark.usefixtures("spark")
def test_a_stream_that_resumes_writes_a_lake(
    kind: Callable[[Path], Any], files: Files, runner: Runner, tmp_path: Path
) -> None:
    store = kind(tmp_path)
    pipeline, records = spend(files.source, store.settings(), lateness=10 * HOUR, at_end="hold"), events(2000)
    for part in (records[:1000], records[1000:]):
        files.append(part)
        assert runner.bounded(pipeline, max_records=600) == "end"
    assert_same(store, pipeline)
    assert runner.reports[0].epoch > 0
