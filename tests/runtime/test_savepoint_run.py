"""A run that resumes from a savepoint: the same answers as one that never stopped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contracts.stores import Store
from tests.graphs import as_graph
from tests.runtime.answers import assert_same
from tests.runtime.conftest import MakeLog
from tests.runtime.runs import Runner
from tests.runtime.spend import MINUTE, Files, Topic, event, events, spend
from tests.runtime.test_loss import make_anew
from tests.short_forms import Pipeline

from windrow.connectors.open_sinks import open_sinks
from windrow.engine.columns import unpack
from windrow.engine.state.store import MemoryState
from windrow.errors import CheckpointError, InputError, SinkError, SourceError
from windrow.runtime.savepoint import Savepoint
from windrow.runtime.settings import SparkOptions
from windrow.runtime.stream import take_savepoint as taking
from windrow.runtime.stream.checkpoint import Checkpoint, locked
from windrow.runtime.stream.offsets import begin_from
from windrow.runtime.stream.take_savepoint import look, take_savepoint

pytestmark = pytest.mark.usefixtures("spark")

EVENTS = events(900)
HALF = 500
COMPRESSED = 1 << 14
"""Spark's state store has blobs of this size compressed."""


@pytest.fixture
def half(files: Files, store: Store, runner: Runner) -> Pipeline:
    """The pipeline, run over the first half of its log."""
    pipeline = replace(spend(files.source, store.settings(), at_end="hold"), key_groups=3)
    files.append(EVENTS[:HALF])
    runner.bounded(pipeline, 200)
    return pipeline


def take(pipeline: Pipeline, checkpoint: Path) -> Path:
    sink = open_sinks(as_graph(pipeline))
    try:
        taken = take_savepoint(as_graph(pipeline), sink, checkpoint, None, SparkOptions("local[*]"))
        assert isinstance(taken, Path)
        return taken
    finally:
        sink.close()


def goes_on(runner: Runner, pipeline: Pipeline, savepoint: Path) -> Runner:
    """Run from a savepoint into a checkpoint of its own, to the end."""
    other = Runner(runner.checkpoint.with_name("other"))
    other.bounded(pipeline, 150, savepoint=savepoint)
    return other


def test_a_run_goes_on_from_a_savepoint_with_other_key_groups(
    half: Pipeline, files: Files, store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = runner.reports[-1]
    folder = take(half, runner.checkpoint)
    savepoint = Savepoint.read(folder)
    assert (savepoint.epoch, savepoint.offsets) == (stopped.epoch, stopped.offsets)
    assert folder == runner.checkpoint.with_name(f"checkpoint-{stopped.epoch}")

    files.append(EVENTS[HALF:])
    wider = replace(half, key_groups=5, salt=2, emit=replace(half.emit, at_end="fire"))
    with monkeypatch.context() as broken:
        # it is ended before the checkpoint is written
        broken.setattr(Checkpoint, "write", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            goes_on(runner, wider, folder)
    other = goes_on(runner, wider, folder)
    assert other.reports[0].epoch == stopped.epoch + 1
    assert_same(store, wider)

    with pytest.raises(SinkError, match="handed over to another run"):
        runner.bounded(half)
    assert [report.records for report in goes_on(runner, wider, folder).reports] == [0]  # the end, told again
    with pytest.raises(CheckpointError, match=r"other did not begin from the savepoint"):
        goes_on(runner, wider, take(wider, other.checkpoint))
    with pytest.raises(InputError, match="is not empty"):
        take_savepoint(as_graph(wider), open_sinks(as_graph(wider)), other.checkpoint, folder, SparkOptions("local[*]"))


def test_a_savepoint_of_large_blobs_has_them_as_they_were(files: Files, store: Store, runner: Runner) -> None:
    pipeline = spend(files.source, store.settings(), at_end="hold")
    many = events(3_000, users=1_500, duration=4 * MINUTE)
    files.append(many[:2_000])
    runner.bounded(pipeline, 1_000)
    folder = take(pipeline, runner.checkpoint)
    blobs = [blob for _, state in Savepoint.states(folder) for _, blob in state.items()]
    assert max(map(len, blobs)) > COMPRESSED
    assert sum(unpack(blob).num_rows for blob in blobs) > 1_000
    files.append(many[2_000:])
    ended = replace(pipeline, emit=replace(pipeline.emit, at_end="fire"))
    goes_on(runner, ended, folder)
    assert_same(store, ended)


@pytest.mark.parametrize("kind", ["log", pytest.param("kafka", marks=pytest.mark.long)])
def test_a_log_that_is_another_one_than_the_savepoints_has_lost_records(
    kind: str, make_log: MakeLog, store: Store, runner: Runner, request: pytest.FixtureRequest
) -> None:
    """It has more records than the savepoint has read, so its offsets alone would not tell."""
    log = make_log(kind, 2)
    log.append([(partition, event(minute)) for minute in range(20) for partition in range(2)])
    pipeline = spend(log.source, store.settings(), at_end="hold")
    runner.bounded(pipeline)
    folder = take(pipeline, runner.checkpoint)
    if isinstance(log, Topic):
        make_anew(request.getfixturevalue("kafka"), log.name, 2)
    else:
        for file in runner.checkpoint.with_name("spend").iterdir():
            file.write_bytes(b"")
    more = [(partition, event(60 + minute)) for minute in range(30) for partition in range(2)]
    log.append(more)
    with pytest.raises(SourceError, match=r"lost records: partition 0: .* read up to offset 20.*partition 1: "):
        goes_on(runner, pipeline, folder)
    other = Runner(runner.checkpoint.with_name("other"))
    other.bounded(pipeline, savepoint=folder, on_data_loss="continue")
    assert sum(report.records for report in other.reports) == len(more)


def test_a_savepoint_is_of_the_last_step_in_the_tables_and_is_whole(
    half: Pipeline, store: Store, runner: Runner, tmp_path: Path
) -> None:
    with locked(runner.checkpoint), pytest.raises(CheckpointError, match="another run is using the checkpoint"):
        take(half, runner.checkpoint)
    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        take(half, tmp_path / "nowhere")
    checkpoint = Checkpoint.open(runner.checkpoint, as_graph(half))
    assert checkpoint is not None
    # Spark was ended before it noted the step, and had planned none after it
    for path in (checkpoint.spark / "commits").glob(f"*{checkpoint.batch}*"):
        path.unlink()
    folder = take(half, runner.checkpoint)
    assert Savepoint.read(folder).offsets == runner.reports[-1].offsets
    whole = (folder / "group-0001.arrow").read_bytes()
    (folder / "group-0001.arrow").write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=r"group-0001\.arrow is damaged"):
        goes_on(runner, half, folder)
    (folder / "group-0001.arrow").write_bytes(whole)
    goes_on(runner, replace(half, emit=replace(half.emit, at_end="fire")), folder)
    assert_same(store, replace(half, emit=replace(half.emit, at_end="fire")))


def test_what_a_run_began_with_is_known_before_a_step_has_taken_it_over(
    files: Files, store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = replace(spend(files.source, store.settings(), at_end="hold"), key_groups=3)
    wider = replace(pipeline, key_groups=5)
    files.append(EVENTS[:HALF])
    runner.bounded(pipeline, backfill=True)
    backfilled = known(Savepoint.states(runner.checkpoint / "backfill"))
    assert any(blobs for _, blobs in backfilled.values())
    first = take(pipeline, runner.checkpoint)
    assert known(Savepoint.states(first)) == backfilled
    assert Savepoint.read(first).offsets == Savepoint.read(runner.checkpoint / "backfill").offsets

    # one that was ended before its first step, then one whose first step is empty
    ended = runner.checkpoint.with_name("ended")
    with locked(ended):
        begin_from(ended, as_graph(wider), first)
    epoch, states = look(as_graph(wider), ended, SparkOptions("local[*]"))
    second = take(wider, ended)
    assert (Savepoint.read(second).epoch, Savepoint.read(second).offsets) == (epoch, Savepoint.read(first).offsets)
    assert known(Savepoint.states(second)) == known(states) == known(Savepoint.states(ended / "start"))
    with pytest.raises(SinkError, match="handed over to another run"):
        runner.bounded(pipeline)
    other = goes_on(runner, wider, second)
    third = take(wider, other.checkpoint)
    assert known(Savepoint.states(third)) == known(Savepoint.states(second))

    files.append(EVENTS[HALF:])
    last = Runner(runner.checkpoint.with_name("last"))
    last.bounded(pipeline, 150, savepoint=third)
    _, states = look(as_graph(pipeline), last.checkpoint, SparkOptions("local[*]"))
    now, then = dict(states), known(Savepoint.states(last.checkpoint / "start"))
    with monkeypatch.context() as small:
        # a step that has reached one key group alone
        small.setattr(taking, "read_states", lambda *_: iter([(1, now[1])]))
        _, states = look(as_graph(pipeline), last.checkpoint, SparkOptions("local[*]"))
        assert known(states) == then | known([(1, now[1])])
    last.bounded(replace(pipeline, emit=replace(pipeline.emit, at_end="fire")))
    assert_same(store, replace(pipeline, emit=replace(pipeline.emit, at_end="fire")))


def known(states: Iterable[tuple[int, MemoryState]]) -> dict[int, tuple[bytes | None, dict[tuple[str, int], bytes]]]:
    """What each key group knows, by its number."""
    return {group: (state.summary(), dict(state.items())) for group, state in sorted(states, key=lambda each: each[0])}
