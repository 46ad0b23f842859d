"""A disk that is full stops a run with a message; with room again it goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.stores import SqliteStore
from tests.faults.conftest import Trial
from tests.runtime.answers import assert_epochs, assert_same
from tests.runtime.runs import Runner
from tests.runtime.spend import events, spend

from windrow.errors import CheckpointError, EngineError, SinkError

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.long]

SIZE = 4 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 4 MiB."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or mount is None or umount is None:
        pytest.skip("only root can mount the small disk that this test fills")
    ran = subprocess.run([mount, "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], check=False)
    if ran.returncode != 0:
        pytest.skip("no small disk can be mounted here (a container without CAP_SYS_ADMIN?)")
    try:
        yield folder
    finally:
        subprocess.run([umount, "-l", str(folder)], check=True)


def fill(disk: Path, left: int) -> Path:
    """Take all of a disk's room but so many bytes."""
    filler = disk / "filler"
    room = os.statvfs(disk)
    filler.write_bytes(bytes(max(room.f_bavail * room.f_frsize - left, 0)))
    return filler


@pytest.mark.parametrize("left", [0, 20_000, 100_000])
def test_the_disk_of_the_tables(left: int, disk: Path, trial: Trial) -> None:
    store = SqliteStore(disk)
    feed = events(2000)
    trial.files.append(feed[:500])
    pipeline = spend(trial.files.source, store.settings(), at_end="hold")
    trial.runner.bounded(pipeline, 250)
    trial.files.append(feed[500:])
    filler = fill(disk, left)
    with pytest.raises(SinkError, match=r"make room, then start again|check the disk, then start again"):
        trial.runner.bounded(pipeline, 250)
    trial.injected("the tables' disk full")
    filler.unlink()
    trial.runner.bounded(pipeline, 250)
    assert_same(store, pipeline)
    assert_epochs(store)


@pytest.mark.parametrize("left", [0, 5_000, 20_000, 80_000])
def test_the_disk_of_the_checkpoint(left: int, disk: Path, trial: Trial) -> None:
    store = SqliteStore(trial.folder)
    runner = Runner(disk / "checkpoint")
    feed = events(2000)
    trial.files.append(feed[:500])
    pipeline = spend(trial.files.source, store.settings(), at_end="hold")
    runner.bounded(pipeline, 250)
    trial.files.append(feed[500:])
    filler = fill(disk, left)
    with pytest.raises((EngineError, CheckpointError), match="No space left on device"):
        runner.bounded(pipeline, 250)
    trial.injected("the checkpoint's disk full")
    filler.unlink()
    runner.bounded(pipeline, 250)
    assert_same(store, pipeline)
    assert_epochs(store)


@pytest.mark.parametrize("left", [0, 200_000])
def test_the_disk_of_temporary_files(left: int, disk: Path, trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(trial.folder)
    feed = events(30_000)
    trial.files.append(feed[:500])
    pipeline = spend(trial.files.source, store.settings(), at_end="hold")
    trial.runner.bounded(pipeline, 250)
    trial.files.append(feed[500:])
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    filler = fill(disk, left)
    with pytest.raises(EngineError, match="No space left on device"):
        trial.runner.bounded(pipeline, 30_000)
    trial.injected("the temporary files' disk full")
    filler.unlink()
    trial.runner.bounded(pipeline, 30_000)
    assert_same(store, pipeline)
    assert_epochs(store)
