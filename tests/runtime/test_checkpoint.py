"""Whose a checkpoint is, and what it does not go on with."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tests.contracts.stores import SqliteStore, Store
from tests.graphs import as_graph
from tests.runtime.answers import assert_epochs, assert_same, assert_same_values
from tests.runtime.runs import Runner
from tests.runtime.spend import MINUTE, Files, events, spend
from tests.short_forms import Pipeline

from windrow.connectors.cuts import Offset
from windrow.connectors.sink import Follows, Run
from windrow.connectors.sqlite.tables import SqliteTables
from windrow.errors import CheckpointError, SinkError
from windrow.model import (
    Aggregate,
    Count,
    DecimalType,
    Decode,
    Delay,
    EventTime,
    KafkaSource,
    LogSource,
    PostgresSink,
    Punctuated,
    SqliteSink,
    Tumbling,
)
from windrow.runtime.stream.checkpoint import Checkpoint, locked
from windrow.runtime.stream.steps import StepOffsets

PIPELINE = spend(LogSource("data/spend"), SqliteSink("spend.db", "spend"))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The checkpoint of `PIPELINE`, before its first step."""
    Checkpoint.new(tmp_path / "kept", as_graph(PIPELINE), [0, 1]).write()
    return tmp_path / "kept"


def wider(pipeline: Pipeline) -> Decode:
    """The same fields, but for a wider amount."""
    *others, amount = pipeline.decode.fields
    return Decode((*others, replace(amount, type=DecimalType(14, 2))))


DIFFERENCES: list[tuple[dict[str, Any], str]] = [
    ({"window": Tumbling(10 * MINUTE)}, 'window.tumbling: "5m" there, "10m" here'),
    ({"window": Tumbling(5 * MINUTE, MINUTE)}, r'window.tumbling: "5m" there, {"size": "5m", "offset": "1m"} here'),
    ({"time": EventTime("event_time", Delay(MINUTE))}, 'time.delay: "10m" there, "1m" here'),
    ({"time": EventTime("event_time", Punctuated("w"))}, 'time.punctuated: nothing there, "w" here'),
    ({"emit": replace(PIPELINE.emit, lateness=0)}, 'emit.lateness: "30m" there, "0s" here'),
    ({"emit": replace(PIPELINE.emit, late="batch")}, 'emit.late: "each" there, "batch" here'),
    ({"decode": wider(PIPELINE)}, r'decode.amount: "decimal\(12,2\)" there, "decimal\(14,2\)" here'),
    ({"decode": Decode(PIPELINE.decode.fields[::-1])}, "the order of decode: user_id, event_time, amount there"),
    ({"key": ("user_id", "amount")}, r'key: \["user_id"\] there, \["user_id", "amount"\] here'),
    ({"aggregates": (Aggregate("total", Count()),)}, r'aggregate.total: "sum\(amount\)" there, "count\(\)" here'),
    ({"aggregates": PIPELINE.aggregates[::-1]}, "the order of aggregate: total, events, .* there, mean, most, .* here"),
    ({"source": KafkaSource("localhost:9092", "spend")}, r'source.log: {"path": "data/spend"} there, nothing here'),
    ({"key_groups": 4}, "key_groups: 2 there, 4 here"),
    ({"name": "other"}, 'name: "user-spend" there, "other" here'),
]


@pytest.mark.parametrize(("changed", "message"), DIFFERENCES, ids=[text.partition(":")[0] for _, text in DIFFERENCES])
def test_another_pipelines_checkpoint_names_the_field_that_differs(
    changed: dict[str, Any], message: str, kept: Path
) -> None:
    with pytest.raises(CheckpointError, match=rf"(?s){kept} belongs to a different pipeline.*{message}.*--fresh"):
        Checkpoint.open(kept, as_graph(replace(PIPELINE, **changed)))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"source": LogSource("elsewhere/spend")},
        {"sink": PostgresSink("postgresql://localhost/spend", "spend")},
        {"emit": replace(PIPELINE.emit, at_end="hold")},
    ],
)
def test_where_things_are_and_how_a_run_ends_may_change(changed: dict[str, Any], kept: Path) -> None:
    found = Checkpoint.open(kept, as_graph(replace(PIPELINE, **changed)))
    assert found is not None
    assert found.partitions == (0, 1)
    assert found.committed is None


def test_a_log_of_another_name_is_reported(kept: Path) -> None:
    moved = replace(PIPELINE, source=LogSource("elsewhere/other"))
    found = Checkpoint.read(kept)
    assert found is not None
    assert found.renamed(as_graph(moved)) == []  # before the first step
    planned(kept)
    assert [(one.there, one.here) for one in found.renamed(as_graph(moved))] == [("spend", "other")]
    assert found.renamed(as_graph(replace(PIPELINE, source=LogSource("elsewhere/spend")))) == []
    assert found.differences(as_graph(moved)) == []


def test_before_the_first_step_a_changelog_can_begin(kept: Path) -> None:
    without = replace(PIPELINE, sink=SqliteSink("spend.db", "spend", changelog=False))
    for pipeline in (without, PIPELINE, without):
        found = Checkpoint.open(kept, as_graph(pipeline))
        assert found is not None
        found.write()
    planned(kept)
    with pytest.raises(CheckpointError, match=r"sink\.sqlite\.changelog: false there, true here"):
        Checkpoint.open(kept, as_graph(PIPELINE))


def planned(checkpoint: Path) -> None:
    """Let a checkpoint have a step."""
    (checkpoint / "spark" / "offsets").mkdir(parents=True)
    (checkpoint / "spark" / "offsets" / "0").touch()


@pytest.mark.parametrize("damaged", [b"", b'{"format": 1, "name":', b"[]", b"7", b'{"name": "user-spend"}', b"\xff"])
def test_a_damaged_checkpoint_is_an_error(damaged: bytes, kept: Path) -> None:
    (kept / "windrow.json").write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r"windrow\.json cannot be read .*--fresh"):
        Checkpoint.open(kept, as_graph(PIPELINE))


@pytest.mark.parametrize("versions", [-1, 1])
def test_a_checkpoint_of_another_format_is_an_error(versions: int, kept: Path) -> None:
    body = json.loads((kept / "windrow.json").read_text())
    other = body["format"] + versions
    (kept / "windrow.json").write_text(json.dumps(body | {"format": other}))
    with pytest.raises(CheckpointError, match=rf"windrow\.json has format {other}, not .* continue with that"):
        Checkpoint.open(kept, as_graph(PIPELINE))


def test_two_runs_do_not_share_a_checkpoint(files: Files, store: Store, runner: Runner) -> None:
    pipeline = spend(files.source, store.settings())
    Checkpoint.new(runner.checkpoint, as_graph(pipeline), [0]).write()
    with locked(runner.checkpoint):
        for fresh in (False, True):
            with pytest.raises(CheckpointError, match="another run is using the checkpoint"):
                runner.bounded(pipeline, fresh=fresh)
    with locked(runner.checkpoint):
        pass


@pytest.mark.usefixtures("spark")
def test_a_run_that_begins_while_another_one_does_is_refused_before_it_touches_the_tables(
    files: Files, store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.append(events(300))
    pipeline = spend(files.source, store.settings())
    opened: list[Run] = []
    begin = SqliteTables.open

    def while_another_begins(sink: SqliteTables, run: Run, follows: Follows | None) -> int | None:
        last = begin(sink, run, follows)
        opened.append(run)
        if len(opened) == 1:
            for fresh in (False, True):
                with pytest.raises(CheckpointError, match="another run is using the checkpoint"):
                    Runner(runner.checkpoint).bounded(pipeline, fresh=fresh)
        return last

    monkeypatch.setattr(SqliteTables, "open", while_another_begins)
    runner.bounded(pipeline)
    assert len(opened) == 1
    assert_same(store, pipeline)


@pytest.mark.usefixtures("spark")
def test_a_run_that_could_not_begin_keeps_none_from_it(
    files: Files, store: Store, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.append(events(300))
    pipeline = spend(files.source, store.settings())
    with monkeypatch.context() as broken:
        broken.setattr(SqliteTables, "open", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            runner.bounded(pipeline)
    assert not runner.checkpoint.exists()
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"the checkpoint .*file/checkpoint cannot be written: Not a directory"):
        Runner(tmp_path / "file" / "checkpoint").bounded(pipeline)
    runner.bounded(pipeline)
    assert_same(store, pipeline)


def test_a_lock_that_was_taken_away_is_none(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the file and the lock on it, its owner left or removed the checkpoint."""
    taken = fcntl.flock

    def removed(file: BinaryIO, how: int) -> None:
        Path(file.name).unlink()
        taken(file, how)

    with monkeypatch.context() as late:
        late.setattr(fcntl, "flock", removed)
        with pytest.raises(CheckpointError, match="another run is using the checkpoint"), locked(runner.checkpoint):
            pass
    with locked(runner.checkpoint):
        pass


def test_a_folder_of_somebody_else_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(CheckpointError, match=r"is not a checkpoint of windrow.*choose another folder"):
        Checkpoint.open(tmp_path, as_graph(PIPELINE))
    with pytest.raises(CheckpointError, match=r"is not a checkpoint of windrow.*choose another folder"):
        Checkpoint.remove(tmp_path)
    assert (tmp_path / "thesis.tex").exists()
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="is not a checkpoint of windrow"):
        Checkpoint.open(tmp_path / "file", as_graph(PIPELINE))


@pytest.mark.usefixtures("spark")
def test_what_stands_behind_a_checkpoint_may_not_vanish(
    files: Files, store: SqliteStore, runner: Runner, tmp_path: Path
) -> None:
    feed = events(300)
    files.append(feed[:200])
    pipeline = spend(files.source, store.settings())
    runner.bounded(pipeline, max_records=50)
    last = runner.reports[-1].epoch
    files.append(feed[200:])
    before = store.path.read_bytes()

    # tables of another time than the checkpoint's
    store.query(f"DELETE FROM windrow_epochs WHERE epoch > {last - 2}")
    with pytest.raises(CheckpointError, match=rf"is at epoch {last}, but the tables are at epoch {last - 2}.*--fresh"):
        runner.bounded(pipeline)

    # a table of the pipeline, then all of them, then the file
    store.path.write_bytes(before)
    store.query("DROP TABLE spend_late")
    with pytest.raises(SinkError, match=rf"'spend_late' is gone.*steps 0 to {last}"):
        runner.bounded(pipeline)
    for (name,) in store.query("SELECT name FROM sqlite_master WHERE type = 'table'"):
        store.query(f"DROP TABLE {name}")
    for _ in range(2):
        with pytest.raises(SinkError, match=rf"is at epoch {last}, but the tables hold nothing of it.*--fresh"):
            runner.bounded(pipeline)
        store.path.unlink()

    # back in place, it goes on
    for path in tmp_path.glob("spend.db-*"):
        path.unlink()
    store.path.write_bytes(before)
    runner.bounded(pipeline)
    assert runner.reports[0].epoch == last + 1
    assert_same_values(store, pipeline)
    assert_epochs(store)

    # without the checkpoint the rows are another run's
    elsewhere = Runner(tmp_path / "elsewhere")
    with pytest.raises(SinkError, match=r"another run of pipeline 'user-spend'.*--fresh.*--checkpoint"):
        elsewhere.bounded(pipeline)
    assert not elsewhere.checkpoint.exists()
    elsewhere.bounded(pipeline, fresh=True)
    assert_same(store, pipeline)
    assert_epochs(store)


def test_fresh_removes_nothing_that_is_not_windrows(files: Files, store: Store, runner: Runner) -> None:
    pipeline = spend(files.source, store.settings())
    runner.checkpoint.mkdir()
    (runner.checkpoint / "thesis.tex").touch()
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        runner.bounded(pipeline, fresh=True)
    assert (runner.checkpoint / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("at", "offsets"),
    [
        ({"10": {"line": 3, "byte": 40, "mark": 1}, "2": {"line": 0, "byte": 0, "mark": 0}}, {2: 0, 10: 3}),
        ({"spend": {"1": 7, "0": 12}}, {0: 12, 1: 7}),
        ({}, {}),
    ],
    ids=["log", "kafka", "nothing"],
)
def test_a_checkpoint_says_where_its_last_committed_step_ended(at: Offset, offsets: dict[int, int], kept: Path) -> None:
    checkpoint = Checkpoint.open(kept, as_graph(PIPELINE))
    assert checkpoint is not None
    assert checkpoint.offsets() == {}
    (checkpoint.spark / "offsets").mkdir(parents=True)
    (checkpoint.spark / "commits").mkdir()
    for epoch, end in enumerate([at, {"spend": {"0": 99}}]):  # the second is planned, not committed
        text = json.dumps(StepOffsets(end).to_json())
        (checkpoint.spark / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{text}\n-")
    (checkpoint.spark / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert checkpoint.offsets() == offsets
    (checkpoint.spark / "offsets" / "0").write_text("v1\n{}")
    with pytest.raises(CheckpointError, match="offsets/0 cannot be read"):
        checkpoint.offsets()
