"""The end of the input: told once, after all of it, and to no later run."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.pipelines import main, record

from windrow.errors import EngineError
from windrow.hosts.stream.checkpoint import Checkpoint
from windrow.hosts.stream.run import Settings, StreamRun
from windrow.model import Emit, LogSource, Pipeline
from windrow.sinks.collect import CollectSink

DIED = "killed after the end was told"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "spend"
    folder.mkdir()
    return folder


def write(log: Path, *values: bytes) -> None:
    with (log / "partition-0.jsonl").open("ab") as file:
        file.writelines(value + b"\n" for value in values)


def told(sink: CollectSink) -> list[tuple[object, ...]]:
    """(epoch, op, pane, total) of all changes."""
    return [
        (epoch, row["op"], row["pane"], int(row["total"]))
        for epoch, output in sorted(sink.steps.items())
        for row in output.changes.to_pylist()
    ]


def test_an_end_that_no_epoch_was_given_is_taken_back(tmp_path: Path) -> None:
    checkpoint = Checkpoint.new(tmp_path / "checkpoint", main(), [0])
    checkpoint.write()
    checkpoint.tell_end()
    assert len(list(checkpoint.control.glob("*.json"))) == 1
    checkpoint.forget_ends()
    assert list(checkpoint.control.glob("*.json")) == []
    checkpoint.tell_end()
    offsets = checkpoint.spark / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").touch()
    checkpoint.forget_ends()
    assert [path.name for path in checkpoint.control.glob("*.json")] == ["0.json"]


@pytest.mark.usefixtures("spark")
def test_what_comes_before_the_end_is_told_is_before_the_end(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, record("A", 1), record("A", 2))
    tell_end = Checkpoint.tell_end

    def grow_and_tell(checkpoint: Checkpoint) -> None:
        write(log, record("A", 1), record("A", 2), record("A", 3), record("A", 4))
        tell_end(checkpoint)

    monkeypatch.setattr(Checkpoint, "tell_end", grow_and_tell)
    sink = CollectSink()
    settings = Settings(tmp_path / "checkpoint", until_end=True, max_records=2)
    StreamRun(_over(log), sink, settings).run(lambda _: None)
    assert told(sink) == [(1, "insert", "on_time", 6)]


@pytest.mark.usefixtures("spark")
def test_an_end_that_was_told_but_not_taken_is_no_end_for_the_next_run(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, record("A", 1), record("A", 2))
    sink, settings = CollectSink(), Settings(tmp_path / "checkpoint", until_end=True)
    tell_end = Checkpoint.tell_end

    def tell_and_die(checkpoint: Checkpoint) -> None:
        tell_end(checkpoint)
        raise EngineError(DIED)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "tell_end", tell_and_die)
        with pytest.raises(EngineError, match=DIED):
            StreamRun(_over(log), sink, settings).run(lambda _: None)
    write(log, record("A", 3), record("A", 7))
    held = replace(_over(log), emit=Emit(lateness=main().emit.lateness, at_end="hold"))
    StreamRun(held, sink, settings).run(lambda _: None)
    assert [row[1:] for row in told(sink)] == [("insert", "on_time", 3)]
    assert [row for output in sink.steps.values() for row in output.clocks.to_pylist()] == []


def _over(log: Path) -> Pipeline:
    return main(source=LogSource(str(log)))
