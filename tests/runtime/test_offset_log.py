"""Where a checkpoint's source stands, as Spark has noted it."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.graphs import as_graph
from tests.runtime.spend import spend

from windrow.connectors.cuts import Offset
from windrow.connectors.log.source import LogFolder
from windrow.connectors.memory import CollectSink
from windrow.connectors.open_sources import open_source
from windrow.connectors.source import Loss
from windrow.errors import CheckpointError, SourceError
from windrow.model import LogSource, SqliteSink
from windrow.runtime.run import MAX_BYTES
from windrow.runtime.settings import SparkOptions
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.runtime.stream.integrity import is_whole
from windrow.runtime.stream.offsets import LossGuard, OffsetLog
from windrow.runtime.stream.steps import StepOffsets
from windrow.runtime.stream.take_savepoint import take_savepoint

PIPELINE = spend(LogSource("spend"), SqliteSink("spend.db", "spend"))
FIRST_STATES = {"state/0/0/1.changelog", "state/0/1/1.changelog", "state/0/0/1.zip"}
GONE = Loss(0, 5, 7, "offsets 5 to 6 are gone")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A checkpoint whose first two steps are done, and whose third was planned and got as far as the state."""
    made = Checkpoint.new(tmp_path, as_graph(PIPELINE), [0])
    made.write()
    for name in (
        *(f"offsets/{batch}" for batch in range(3)),
        *(f"commits/{batch}" for batch in range(2)),
        *(f"state/0/{part}/{version}.changelog" for part in range(2) for version in range(1, 4)),
        "state/0/0/1.zip",
        "state/0/1/3.zip",
        "state/0/0/_metadata/schema",
    ):
        path = made.spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = f"v1\n{{}}\n{written({'0': {'line': len(name)}})}\n".encode()
        path.write_bytes(content)
        path.with_name(f".{path.name}.crc").write_bytes(b"crc\0\0\0\x02\0" + zlib.crc32(content).to_bytes(4, "big"))
    return made


def written(at: Offset, *lost: Loss, ends: int = 3) -> str:
    return json.dumps(StepOffsets(at, ends, lost).to_json())


def there(checkpoint: Checkpoint) -> set[str]:
    """The files of the checkpoint, without those that say what is in others."""
    files = {path for path in checkpoint.spark.rglob("*") if path.is_file()}
    notes = {path for path in files if path.suffix == ".crc"}
    whole = {path.relative_to(str(checkpoint.spark)).as_posix() for path in files - notes}
    assert all(path.with_name(path.name[1 : -len(".crc")]) in files for path in notes)
    return whole


def test_a_step_that_is_taken_with_other_records_leaves_nothing_of_the_one_before(checkpoint: Checkpoint) -> None:
    before = there(checkpoint)
    OffsetLog(checkpoint).move({"0": {"line": 7}}, [GONE])
    assert before - there(checkpoint) == {
        "offsets/2",
        "state/0/0/3.changelog",
        "state/0/1/3.changelog",
        "state/0/1/3.zip",
    }
    assert there(checkpoint) <= before
    assert OffsetLog(checkpoint).read() == StepOffsets({"0": {"line": 7}}, ends=3, lost=(GONE,))
    lines = (checkpoint.spark / "offsets" / "1").read_text().splitlines()
    assert lines == ["v1", "{}", written({"0": {"line": 7}}, GONE)]


def test_ticks_that_an_earlier_version_noted_as_a_second_source_become_a_part_of_the_offsets(
    checkpoint: Checkpoint,
) -> None:
    notes = [checkpoint.note(batch) for batch in range(3)]
    for batch, tick in enumerate((0, 8_000_000, 9_000_000)):
        path = checkpoint.spark / "offsets" / str(batch)
        content = path.read_bytes() + f'{{"tick": {tick}}}'.encode()
        path.write_bytes(content)
        path.with_name(f".{batch}.crc").write_bytes(b"crc\0\0\0\x02\0" + zlib.crc32(content).to_bytes(4, "big"))
    before = there(checkpoint)
    for _ in range(2):
        OffsetLog(checkpoint).join_ticks()
        # one before the first tick is none
        for batch, end in enumerate([notes[0], replace(notes[1], tick=8_000_000), replace(notes[2], tick=9_000_000)]):
            path = checkpoint.spark / "offsets" / str(batch)
            assert path.read_text().splitlines() == ["v1", "{}", json.dumps(end.to_json())]
            assert is_whole(path)
    assert there(checkpoint) == before
    # and so in a plan that was kept
    begins, ends = ([note.to_json(), {"tick": tick}] for note, tick in zip(notes, (0, 5), strict=False))
    (checkpoint.folder / "planned.json").write_text(json.dumps([begins, ends]))
    assert checkpoint.kept_plan == [(notes[0].to_json(), replace(notes[1], tick=5).to_json())]


def test_a_step_that_is_taken_back_is_taken_as_it_was_planned(checkpoint: Checkpoint) -> None:
    before, third = there(checkpoint), checkpoint.note(2)
    assert checkpoint.kept_plan == []
    OffsetLog(checkpoint).take_back()
    gone = {"offsets/2", "commits/1", "state/0/0/3.changelog", "state/0/1/3.changelog", "state/0/1/3.zip"}
    assert before - there(checkpoint) == gone
    assert OffsetLog(checkpoint).read_planned() == checkpoint.note(1)
    # and so is the step after it, which executors may have computed
    [(begin, end)] = checkpoint.kept_plan
    assert StepOffsets.of(begin) == checkpoint.note(1)
    assert StepOffsets.of(end) == third
    OffsetLog(checkpoint).take_back()
    assert there(checkpoint) == {"offsets/0", "state/0/0/_metadata/schema", *FIRST_STATES}
    OffsetLog(checkpoint).take_back()
    assert checkpoint.batch is None


@pytest.mark.parametrize(("tables", "most", "forgets"), [(1, 6, True), (1, 7, False), (2, 6, False), (0, 6, True)])
def test_a_plan_of_more_records_than_a_step_may_have_is_forgotten_unless_the_tables_have_it(
    tables: int, most: int, *, forgets: bool, checkpoint: Checkpoint
) -> None:
    for batch, end in ((1, 3), (2, 10)):
        path = checkpoint.spark / "offsets" / str(batch)
        path.with_name(f".{path.name}.crc").unlink()
        path.write_text(f"v1\n{{}}\n{written({'0': {'line': end}})}\n")
    before = {path for path in checkpoint.spark.rglob("*") if path.is_file()}
    OffsetLog(checkpoint).forget_larger_plan(tables, most, MAX_BYTES)
    left = {path for path in checkpoint.spark.rglob("*") if path.is_file()}
    names = {path.relative_to(str(checkpoint.spark)).as_posix() for path in before - left if path.suffix != ".crc"}
    third = {"offsets/2", "state/0/0/3.changelog", "state/0/1/3.changelog", "state/0/1/3.zip"}
    assert names == (third if forgets else set())


@pytest.mark.parametrize(("most", "left"), [(6, 0), (7, 1)])
def test_a_kept_plan_of_more_records_than_a_step_may_have_is_forgotten(
    most: int, left: int, checkpoint: Checkpoint
) -> None:
    for batch, end in ((1, 3), (2, 10)):
        path = checkpoint.spark / "offsets" / str(batch)
        path.with_name(f".{path.name}.crc").unlink()
        path.write_text(f"v1\n{{}}\n{written({'0': {'line': end}})}\n")
    OffsetLog(checkpoint).take_back()
    OffsetLog(checkpoint).forget_larger_plan(1, most, MAX_BYTES)
    assert len(checkpoint.kept_plan) == left
    OffsetLog(checkpoint).move({"0": {"line": 2}}, [GONE])
    assert checkpoint.kept_plan == []


def test_what_was_to_be_told_before_is_told_too_and_once(checkpoint: Checkpoint) -> None:
    more = replace(GONE, partition=1)
    OffsetLog(checkpoint).move({"0": {"line": 7}}, [GONE])
    OffsetLog(checkpoint).move({"0": {"line": 9}}, [GONE, more])
    assert OffsetLog(checkpoint).read() == StepOffsets({"0": {"line": 9}}, ends=3, lost=(GONE, more))


def test_there_is_no_savepoint_of_a_run_that_has_yet_to_tell_what_is_gone(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    OffsetLog(checkpoint).move({"0": {"line": 7}}, [GONE])
    sink = CollectSink()
    monkeypatch.setattr(sink, "open", lambda *_: 1)
    with pytest.raises(CheckpointError, match=r"records were lost \(.*offsets 5 to 6.*\): run the pipeline once more"):
        take_savepoint(as_graph(PIPELINE), sink, checkpoint.folder, None, SparkOptions("local[1]"))


class KilledError(Exception):
    """The process is gone."""


@pytest.mark.parametrize("file", ["offsets/2", "offsets/1", "state/0/0/3.changelog"])
def test_a_move_that_ends_half_done_forgets_no_plan_before_it_is_noted_what_is_lost(
    file: str, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, replaced = Path.unlink, Path.replace

    def die(path: Path, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as either has it
        if path == checkpoint.spark / file or given[:1] == (checkpoint.spark / file,):
            raise KilledError
        return (replaced if given else unlink)(path, *given, **named)

    monkeypatch.setattr(Path, "unlink", die)
    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KilledError):
        OffsetLog(checkpoint).move({"0": {"line": 7}}, [GONE])
    stands = OffsetLog(checkpoint)
    noted = stands.read()
    assert noted is not None
    assert noted.lost == (GONE,) or stands.read_planned() is not None
    monkeypatch.undo()
    stands.move({"0": {"line": 7}}, [GONE])
    assert (stands.read(), stands.read_planned()) == (StepOffsets({"0": {"line": 7}}, ends=3, lost=(GONE,)), None)


@pytest.fixture
def planned(tmp_path: Path) -> tuple[LossGuard, list[str], Path]:
    """A run that died in a step of an embedded log that is cut off within that step now; what it tells, and the log."""
    folder = tmp_path / "spend"
    folder.mkdir()
    file = folder / "partition-0.jsonl"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(10)))
    made = Checkpoint.new(
        tmp_path / "checkpoint", as_graph(spend(LogSource(str(folder)), SqliteSink("x.db", "spend"))), [0]
    )
    made.write()
    log = LogFolder(folder)
    for batch, lines in enumerate((4, 8)):
        at = log.scan(0, max_lines=lines)
        noted = {"line": at.line, "byte": at.byte, "mark": log.mark(0, at), "head": log.head(0)}
        path = made.spark / "offsets" / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"v1\n{{}}\n{written({'0': noted})}\n")
    (made.spark / "commits").mkdir()
    (made.spark / "commits" / "0").write_text("v1\n{}")
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(6)))
    told: list[str] = []
    return LossGuard(open_source(LogSource(str(folder))), made, "continue", told.append), told, folder


def test_records_that_are_gone_of_a_planned_step_are_told_and_the_step_is_planned_anew(
    planned: tuple[LossGuard, list[str], Path],
) -> None:
    guard, told, _ = planned
    with pytest.raises(SourceError, match=r"lost records: partition 0: .* was cut off, read up to offset 8 .*Choose"):
        replace(guard, policy="stop").look(0)
    with pytest.raises(CheckpointError, match="Epoch 1 is in the tables"):
        guard.look(1)
    assert told == []
    stood = OffsetLog(guard.checkpoint).read()
    assert stood is not None
    assert guard.look(0)
    assert len(told) == 1
    assert "the next record is at offset 4" in told[0]
    moved = OffsetLog(guard.checkpoint).read()
    assert moved is not None
    assert replace(moved, lost=()) == stood
    assert [(loss.partition, loss.goes_on) for loss in moved.lost] == [(0, 4)]
    assert OffsetLog(guard.checkpoint).read_planned() is None
    assert not guard.look(0)


def test_a_planned_step_whose_records_are_there_stays(planned: tuple[LossGuard, list[str], Path]) -> None:
    guard, told, folder = planned
    (folder / "partition-0.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(12)))
    assert not guard.look(0)
    assert told == []
    left = OffsetLog(guard.checkpoint).read_planned()
    assert left is not None
    assert left.at["0"]["line"] == 8


def test_what_is_gone_behind_the_last_step_and_what_is_gone_of_the_planned_one_are_told_together(
    planned: tuple[LossGuard, list[str], Path],
) -> None:
    guard, told, folder = planned
    file = folder / "partition-1.jsonl"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(9)))
    for batch in range(2):
        path = guard.checkpoint.spark / "offsets" / str(batch)
        note = StepOffsets.of(json.loads(path.read_text().splitlines()[2]))
        log = LogFolder(folder)
        moved = replace(note, at={**note.at, "1": log.noted(1, log.scan(1, max_lines=5 + batch))})
        path.write_text(f"v1\n{{}}\n{json.dumps(moved.to_json())}\n")
    file.write_text("")
    assert guard.look(0)
    assert [text.partition("without them: ")[2].partition(":")[0] for text in told] == ["partition 1", "partition 0"]
    noted = OffsetLog(guard.checkpoint).read()
    assert noted is not None
    assert sorted((loss.partition, loss.goes_on) for loss in noted.lost) == [(0, 4), (1, 0)]


def test_a_plan_of_more_bytes_than_a_step_may_have_is_forgotten(checkpoint: Checkpoint) -> None:
    for batch, end in ((1, 3), (2, 10)):
        path = checkpoint.spark / "offsets" / str(batch)
        path.with_name(f".{path.name}.crc").unlink()
        path.write_text(f"v1\n{{}}\n{written({'0': {'line': end}})}\n")
    assert checkpoint.max_bytes is None
    OffsetLog(checkpoint).forget_larger_plan(1, 100, 1000)
    checkpoint.note_max_bytes(1000)
    OffsetLog(checkpoint).forget_larger_plan(1, 100, 1000)
    assert (checkpoint.spark / "offsets" / "2").exists()
    OffsetLog(checkpoint).forget_larger_plan(1, 100, 999)
    assert not (checkpoint.spark / "offsets" / "2").exists()
