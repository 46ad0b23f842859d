"""A backfill by the batch host, then the stream from there: the answer of the whole log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.contracts.stores import Store
from tests.runtime.answers import assert_same
from tests.runtime.runs import Runner
from tests.runtime.spend import Files, events, spend
from tests.short_forms import Pipeline

from windrow.connectors.open_sources import open_source
from windrow.errors import SinkError
from windrow.runtime.savepoint import Savepoint
from windrow.runtime.stream.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("spark")

EVENTS = events(900)
HALF = 500


@pytest.fixture
def pipeline(files: Files, store: Store) -> Pipeline:
    """The main job over a log that has its first half."""
    files.append(EVENTS[:HALF])
    return replace(spend(files.source, store.settings()), key_groups=3)


def test_a_backfill_that_is_ended_twice_on_its_way(
    pipeline: Pipeline, files: Files, store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, method in ((Savepoint, "write"), (Checkpoint, "write")):
        with monkeypatch.context() as broken:
            # before what is known is saved, the rows are there; then before the checkpoint is written
            broken.setattr(owner, method, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                runner.bounded(pipeline, backfill=True)
    backfilled = Savepoint.read(runner.checkpoint / "backfill")
    assert sum(backfilled.offsets.values()) == HALF
    assert backfilled.at == open_source(pipeline.source).beginning(backfilled.offsets)

    files.append(EVENTS[HALF:])
    runner.bounded(pipeline, 150, backfill=True)
    assert runner.reports[0].epoch == backfilled.epoch + 1
    assert sum(report.events for report in runner.reports) == len(EVENTS) - HALF
    assert_same(store, pipeline)

    runner.bounded(pipeline, backfill=True)
    assert sum(report.events for report in runner.reports) == 0


def test_rows_of_another_run_are_not_cleared(pipeline: Pipeline, store: Store, runner: Runner, tmp_path: Path) -> None:
    Runner(tmp_path / "first").bounded(pipeline)
    found = store.read(store.tables(pipeline).result)
    assert found
    for _ in range(2):
        with pytest.raises(SinkError, match="holds the rows of another run"):
            runner.bounded(pipeline, backfill=True)
    assert store.read(store.tables(pipeline).result) == found
