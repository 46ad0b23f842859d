"""After a power cut the checkpoint has what was synced; what came later is missing or torn, and the run resumes."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.contracts.stores import SqliteStore
from tests.graphs import as_graph
from tests.runtime.answers import assert_epochs, assert_same_values
from tests.runtime.runs import Runner
from tests.runtime.spend import Files, events, spend

from windrow.connectors.sqlite.tables import SqliteTables
from windrow.engine.changelog import StepOutput
from windrow.errors import CheckpointError
from windrow.model import LogSource, SqliteSink
from windrow.runtime.stream import checkpoint as checkpoint_room
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.runtime.stream.integrity import refuse_damaged
from windrow.runtime.stream.offsets import agree
from windrow.runtime.stream.steps import StepOffsets

PIPELINE = spend(LogSource("spend"), SqliteSink("spend.db", "spend"))


@dataclass
class Disk:
    """What a power cut would leave of a checkpoint and its tables, after each commit."""

    folder: Path
    store: SqliteStore
    synced: list[Path] = field(default_factory=list)
    after: dict[int, Path] = field(default_factory=dict)

    def sync(self, checkpoint: Path) -> None:
        """Keep what the checkpoint holds now, while Spark may be writing more."""
        image = self.folder / str(len(self.synced))
        for path in sorted(checkpoint.rglob("*")):
            copy = image / path.relative_to(checkpoint)
            with suppress(FileNotFoundError):
                if path.is_dir():
                    copy.mkdir(parents=True, exist_ok=True)
                else:
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, copy)
        self.synced.append(image)

    def commit(self, epoch: int) -> None:
        """Keep the tables after a commit, beside the checkpoint as far as it was synced."""
        self.after[epoch] = self.synced[-1]
        with (
            closing(sqlite3.connect(self.store.path)) as tables,
            closing(sqlite3.connect(self.folder / f"{epoch}.db")) as kept,
        ):
            tables.backup(kept)

    def cut(self, epoch: int, checkpoint: Path, *, torn: bool) -> None:
        """Have the checkpoint and the tables as a power cut just after a commit leaves them."""
        shutil.rmtree(checkpoint)
        shutil.copytree(self.after[epoch], checkpoint)
        for path in self.store.path.parent.glob(f"{self.store.path.name}*"):
            path.unlink()
        shutil.copy(self.folder / f"{epoch}.db", self.store.path)
        later = self.after[epoch + 1]
        for path in later.rglob("*"):
            name = checkpoint / path.relative_to(later)
            if torn and path.is_file() and not name.exists():
                name.parent.mkdir(parents=True, exist_ok=True)
                name.touch()


@pytest.mark.usefixtures("spark")
def test_a_power_cut_after_a_commit(
    files: Files, store: SqliteStore, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.append(events(600))
    pipeline = spend(files.source, store.settings())
    disk, commit = Disk(tmp_path / "disk", store), SqliteTables.commit

    def committed(sink: SqliteTables, epoch: int, output: StepOutput) -> None:
        commit(sink, epoch, output)
        disk.commit(epoch)

    with monkeypatch.context() as watched:
        watched.setattr(checkpoint_room, "_sync_file_system", disk.sync)
        watched.setattr(SqliteTables, "commit", committed)
        runner.bounded(pipeline, max_records=100)
    rows = store.query("SELECT * FROM spend ORDER BY 1, 2, 3")
    assert len(disk.after) >= 6
    for epoch, torn in ((2, False), (3, True)):
        disk.cut(epoch, runner.checkpoint, torn=torn)
        runner.bounded(pipeline, max_records=70)
        assert runner.reports[-1].epoch > epoch
        assert store.query("SELECT * FROM spend ORDER BY 1, 2, 3") == rows
        assert_same_values(store, pipeline)
        assert_epochs(store)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A checkpoint whose steps 0 and 1 are done, and step 2 planned and run as far as its states."""
    made = Checkpoint.new(tmp_path, as_graph(PIPELINE), [0])
    made.write()
    names = ["metadata", *(f"offsets/{batch}" for batch in range(3)), "commits/0", "commits/1"]
    for name in (*names, *(f"state/0/0/{version}.changelog" for version in range(1, 4)), "state/0/0/3.zip"):
        path = made.spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"v1\n{{}}\n{json.dumps(StepOffsets({}).to_json())}" if path.parent.name == "offsets" else "v1")
    return made


STATES = {"3.changelog", "3.zip"}


@pytest.mark.parametrize(
    ("written", "torn", "gone", "missing"),
    [
        (1, [], [], STATES),
        (1, ["state/0/0/3.zip"], [], STATES),
        (2, [], [], set()),
        (1, ["offsets/2"], ["offsets/2"], STATES),
        (1, ["commits/1"], ["commits/1", "offsets/2"], STATES),
        (0, ["commits/1"], ["commits/1", "offsets/2"], {"2.changelog", *STATES}),
        (0, ["commits/1", "offsets/1"], ["commits/1", "offsets/1", "offsets/2"], {"2.changelog", *STATES}),
        (0, ["commits/0"], ["commits/0", "commits/1", "offsets/1", "offsets/2"], {"2.changelog", *STATES}),
        (0, [], ["commits/1", "offsets/2"], STATES),
    ],
)
def test_what_is_torn_behind_the_tables_is_forgotten(
    written: int, torn: list[str], gone: list[str], missing: set[str], checkpoint: Checkpoint
) -> None:
    before = {path for path in checkpoint.spark.rglob("*") if path.is_file()}
    for name in torn:
        (checkpoint.spark / name).write_bytes(b"")
    assert agree(checkpoint, written) == written
    expected = {checkpoint.spark / name for name in (*gone, *(f"state/0/0/{name}" for name in missing))}
    assert before - {path for path in checkpoint.spark.rglob("*") if path.is_file()} == expected


def opened(checkpoint: Checkpoint, written: int) -> None:
    agree(checkpoint, written)
    refuse_damaged(checkpoint.spark)


@pytest.mark.parametrize(("written", "name"), [(1, "offsets/1"), (2, "offsets/2"), (1, "state/0/0/2.changelog")])
def test_what_is_torn_of_a_step_that_the_tables_have_is_refused(
    written: int, name: str, checkpoint: Checkpoint
) -> None:
    (checkpoint.spark / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is gone.*restore the checkpoint.*--fresh"):
        opened(checkpoint, written)


def test_a_file_system_that_cannot_be_synced_is_an_error(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(folder: Path) -> None:
        raise OSError(5, "Input/output error", str(folder))

    checkpoint.sync()
    monkeypatch.setattr(checkpoint_room, "_sync_file_system", failing)
    with pytest.raises(CheckpointError, match="cannot be written: Input/output error"):
        checkpoint.sync()
