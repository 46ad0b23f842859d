"""Folders of checkpoints: what a run keeps there, on a disk and in an object store."""

from __future__ import annotations

import json
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.graphs import as_graph
from tests.runtime.spend import spend

from windrow.connectors.sink import Run
from windrow.connectors.source import Loss
from windrow.engine.state.store import MemoryState
from windrow.errors import CheckpointError, EngineError, InputError
from windrow.model import LogSource, SqliteSink
from windrow.runtime.savepoint import FILE, Savepoint, fingerprint, require_new_folder
from windrow.runtime.spark.transport import TableTransport, read_table
from windrow.runtime.stream.checkpoint import Checkpoint, last_noted, locked
from windrow.runtime.stream.integrity import refuse_damaged
from windrow.runtime.stream.offsets import OffsetLog, agree
from windrow.runtime.stream.query import PlanGuard
from windrow.runtime.stream.steps import StepOffsets
from windrow.telemetry.folders import (
    Folder,
    fetch,
    folder_of,
    make_private,
    matching,
    new_folder,
    on_this_machine,
    remove,
    write_whole,
)
from windrow.telemetry.history import HistoryWriter, RunRecord, history_of
from windrow.telemetry.s3 import hadoop_settings

PIPELINE = spend(LogSource("log"), SqliteSink("x.db", "spend"))


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return folder_of(str(tmp_path / "kept") if request.param == "disk" else request.getfixturevalue("s3"))


def test_urls_of_object_stores(s3: str) -> None:
    assert folder_of("a/b") == Path("a/b")
    assert str(folder_of(s3)) == s3
    assert str(folder_of(f"{s3.replace('s3a', 's3')}/a/")) == f"{s3}/a"
    assert [str(folder_of(f"{s3}/a/b").parent), str(folder_of(f"{s3}/a").with_name("c"))] == [f"{s3}/a", f"{s3}/c"]
    for wrong in ("s3a://bucket", "s3a://bucket/", "ftp://host/path", "abfss://box@account/path", "://x"):
        with pytest.raises(InputError, match="is not a folder: specify a path, s3a://BUCKET/PATH or gs://BUCKET/PATH"):
            folder_of(wrong)
    for login in ("s3a://KEY:hunter2@bucket/path", "s3://KEY:hunt/er2@bucket/path", "http://me:hunter2@bucket/path"):
        with pytest.raises(InputError) as caught:
            folder_of(login)
        assert "hunt" not in str(caught.value)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_created_is_private_and_what_is_there_stays(umask: int, tmp_path: Path) -> None:
    """It holds records: of checkpoints, histories, savepoints and Spark's log, in the folders that they make."""
    (tmp_path / "mine").mkdir(mode=0o755)
    (tmp_path / "mine").chmod(0o755)
    before = os.umask(umask)
    try:
        with locked(tmp_path / "a" / "checkpoint"), locked(tmp_path / "mine"):
            pass
        with new_folder(tmp_path / "savepoint", "last") as made:
            (made / "last").touch()
        write_history(history_of(tmp_path / "realtime"))
        make_private(tmp_path / "log")
        make_private(tmp_path / "mine")
    finally:
        os.umask(before)
    for name in ("a/checkpoint", "savepoint", "realtime", "log"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700, name
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o755


def write_history(path: Path) -> None:
    with HistoryWriter(path, RunRecord.here("spend", "realtime"), pytest.fail) as history:
        history.begin()


def test_files_are_seen_whole_and_go_together(folder: Folder) -> None:
    assert not folder.exists()
    remove(folder)
    for number in (1, 2, 10):
        write_whole(folder / "offsets" / str(number), f"note {number}")
    write_whole(folder / "first", "1")
    write_whole(folder / "first", "2")
    assert (folder / "first").read_text() == "2"
    assert [path.name for path in matching(folder, "offsets/*")] == ["1", "10", "2"]
    assert [path.name for path in matching(folder, "*/[0-9]")] == ["1", "2"]
    assert last_noted(folder / "offsets") == 10
    assert last_noted(folder / "commits") is None
    remove(folder, last="first")
    assert not folder.exists()
    assert matching(folder, "**/*") == []


def test_a_folder_that_is_not_finished_is_not_there(folder: Folder) -> None:
    def write(*, fails: bool) -> None:
        with new_folder(folder, last="end") as draft:
            for name in ("end", "b", "a"):
                (draft / name).write_text(name)
            if fails:
                raise KeyError

    with pytest.raises(KeyError):
        write(fails=True)
    assert not folder.exists()
    require_new_folder(folder)
    write(fails=False)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "end"]
    with pytest.raises(InputError, match="is not empty"):
        require_new_folder(folder)
    assert fetch(folder / "a").read_text() == "a"


def test_a_checkpoint(folder: Folder) -> None:
    assert Checkpoint.open(folder, as_graph(PIPELINE)) is None
    with locked(folder):
        made = Checkpoint.new(folder, as_graph(PIPELINE), [0, 1])
        made.write()
        made.note_beginning(StepOffsets({"0": {"line": 0}}))
        made.note_identity("log 1")
        made.note_step_size(1_000)
        made.sync()
        with pytest.raises(CheckpointError, match=f"another run is using the checkpoint {folder}"), locked(folder):
            pass
    found = Checkpoint.open(folder, as_graph(PIPELINE))
    assert found == made
    assert found.identity == "log 1"
    assert found.step_size.read_text() == "1000\n"
    assert found.step_size.is_relative_to(on_this_machine(folder))
    with pytest.raises(CheckpointError, match="a different pipeline; it differs in\n  key_groups: 2 there, 3 here"):
        Checkpoint.open(folder, as_graph(replace(PIPELINE, key_groups=3)))
    Checkpoint.remove(folder)
    assert Checkpoint.open(folder, as_graph(PIPELINE)) is None
    write_whole(folder / "notes.txt", "mine")
    with pytest.raises(CheckpointError, match=r"is not a checkpoint of windrow: there is no windrow.json in it"):
        Checkpoint.open(folder, as_graph(PIPELINE))


def test_what_spark_keeps_is_taken_back(folder: Folder) -> None:
    made = Checkpoint.new(folder, as_graph(PIPELINE), [0])
    made.write()
    made.note_beginning(StepOffsets({"0": {"line": 0}}))
    write_whole(made.spark / "metadata", "{}")
    for batch in range(3):
        note = StepOffsets({"0": {"line": 10 * (batch + 1)}}).to_json()
        write_whole(made.spark / "offsets" / str(batch), f"v1\n{{}}\n{str(note).replace(chr(39), chr(34))}\n")
        write_whole(made.spark / "state/0/0" / f"{batch + 1}.changelog", "state")
    for batch in range(2):
        write_whole(made.spark / "commits" / str(batch), "v1\n{}")
    refuse_damaged(made.spark)
    assert made.offsets() == {0: 20}
    assert agree(made, 0) == 0  # the last commit is taken back, and what was planned after it
    kept = ["commits/0", "metadata", "offsets/0", "offsets/1", "state/0/0/1.changelog", "state/0/0/2.changelog"]
    assert [str(path).removeprefix(f"{made.spark}/") for path in matching(made.spark, "**/*") if path.is_file()] == kept
    OffsetLog(made).move({"0": {"line": 15}}, [Loss(0, 20, 15, "a file")])
    assert made.offsets() == {0: 15}
    assert OffsetLog(made).read() == StepOffsets({"0": {"line": 15}}, 0, (Loss(0, 20, 15, "a file"),))
    matching(made.spark, "state/0/0/*")[0].unlink()
    with pytest.raises(CheckpointError, match=r"state/0/0/1.changelog is gone; restore the checkpoint"):
        refuse_damaged(made.spark)


def test_a_savepoint(folder: Folder) -> None:
    state = MemoryState()
    state.set_summary(b"summary")
    state.set("panes", 7, b"x" * 100_000)
    known = Savepoint(Run("user-spend", "1"), 3, {0: 5}, (0,), 1, fingerprint(as_graph(PIPELINE)))
    known.write(folder, [(0, state)])
    assert Savepoint.read(folder) == known
    found = Savepoint.state(folder, 0)
    assert (found.summary(), dict(found.items())) == (b"summary", {("panes", 7): b"x" * 100_000})
    (folder / "group-0000.arrow").write_bytes(b"y")
    with pytest.raises(CheckpointError, match=r"group-0000.arrow is damaged"):
        Savepoint.state(folder, 0)
    (folder / FILE).unlink()
    with pytest.raises(CheckpointError, match="is not a savepoint"):
        Savepoint.read(folder)


def test_large_tables_come_to_the_driver_in_files(folder: Folder) -> None:
    rows = pa.table({"x": list(range(100_000))})
    blob = TableTransport(shared=str(folder)).put(rows)
    assert blob is not None
    assert len(blob) < 200
    assert read_table(blob).equals(rows)
    assert [path for path in matching(folder, "*") if path.is_file()] == []


def test_a_store_that_does_not_answer(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        nowhere = folder_of(s3.replace("checkpoints", "other-bucket"))
        with pytest.raises(CheckpointError, match=r"cannot access other-bucket/\w+ in the object store: .*credentials"):
            Checkpoint.open(nowhere, as_graph(PIPELINE))


def test_spark_is_led_to_the_same_store(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert s3
    found = hadoop_settings()
    assert found["spark.hadoop.fs.s3a.endpoint"].startswith("http://127.0.0.1:")
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert found["spark.hadoop.fs.s3a.endpoint.region"] == "us-east-1"
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert hadoop_settings() == {}


class Planned:
    """Spark, whose running query has planned a step up to a line; it has the names of Java."""

    def __init__(self, root: str, line: int) -> None:
        self._root, self._line = root, line
        self._jsparkSession = self

    def streams(self) -> Planned:
        return self

    def active(self) -> list[Planned]:
        return [self]

    def streamingQuery(self) -> Planned:  # noqa: N802 - Java's name
        return self

    def resolvedCheckpointRoot(self) -> str:  # noqa: N802 - the same
        return self._root

    def availableOffsets(self) -> Planned:  # noqa: N802 - the same
        return self

    values = toSeq = streams  # noqa: N815 - the same

    def size(self) -> int:
        return 1

    def apply(self, number: int) -> Planned:
        assert number == 0
        return self

    def json(self) -> str:
        return json.dumps(StepOffsets({"0": {"line": self._line}}).to_json())


def test_a_step_that_another_process_has_planned_is_not_taken(folder: Folder) -> None:
    made = Checkpoint.new(folder, as_graph(PIPELINE), [0])
    plan = json.dumps(StepOffsets({"0": {"line": 5}}).to_json())
    write_whole(made.spark / "offsets/0", f"v1\n{{}}\n{plan}")
    guard = PlanGuard(cast("SparkSession", Planned(str(made.spark), 5)), made)
    guard(0)
    guard(0)
    message = "another process has planned step 0 of the checkpoint"
    with pytest.raises(EngineError, match=message):
        PlanGuard(cast("SparkSession", Planned(str(made.spark), 6)), made)(0)
    write_whole(made.spark / "offsets/0", f"v1\n{{}}\n{plan.replace('5', '6')}")
    with pytest.raises(EngineError, match=message):
        guard(0)
