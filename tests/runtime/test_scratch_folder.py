"""Temporary files of a process that was killed are removed by the next one that starts Spark, and no others."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from windrow.runtime.settings import settings_of
from windrow.runtime.spark import transport

MAKES = """
import sys
from windrow.runtime.spark.transport import scratch_folder

folder = scratch_folder()
(folder / "local").mkdir()
(folder / "local" / "blockmgr").write_text("much")
print(folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of its own, for this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def process() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process, and the folder that it has made."""
    with subprocess.Popen(
        [sys.executable, "-c", MAKES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        try:
            yield other, Path(other.stdout.readline().strip())
        finally:
            other.kill()


def make() -> Path:
    """Make a folder as a process does that starts."""
    return transport.scratch_folder.__wrapped__()


def test_what_a_killed_process_left_is_removed_and_a_living_ones_stays(temporary: Path) -> None:
    with process() as (_, living), process() as (killed, left):
        killed.send_signal(signal.SIGKILL)
        killed.wait(30)
        assert (left / "local" / "blockmgr").exists()
        for name in ("spark-1", "blockmgr-1", "windrow-other"):
            (temporary / name).mkdir()
        elsewhere = temporary / "elsewhere"
        elsewhere.mkdir()
        (temporary / "windrow-scratch-link").symlink_to(elsewhere)
        made = make()
        names = {"spark-1", "blockmgr-1", "windrow-other", "elsewhere", "windrow-scratch-link"}
        assert {path.name for path in temporary.iterdir()} == names | {living.name, made.name}
        assert (living / "local" / "blockmgr").exists()


def test_a_folder_that_is_half_removed_is_removed(temporary: Path) -> None:
    (temporary / "windrow-scratch-half" / "local").mkdir(parents=True)
    made = make()
    assert list(temporary.iterdir()) == [made]


def test_a_process_removes_its_own_in_the_end(temporary: Path) -> None:
    with process() as (other, folder):
        assert folder.parent == temporary
        other.communicate("", timeout=60)
        assert other.returncode == 0
        assert not folder.exists()


def test_a_forked_child_that_ends_leaves_the_folder(temporary: Path) -> None:
    forks = "import os\nchild = os.fork()\nif child:\n    os.waitpid(child, 0)\n    print(folder.exists())\n"
    words = [sys.executable, "-c", f"{MAKES}\n{forks}"]
    done = subprocess.run(words, input="", capture_output=True, text=True, timeout=60, check=True)
    folder, is_there = done.stdout.split()
    assert (Path(folder).parent, is_there) == (temporary, "True")


@pytest.mark.usefixtures("temporary")
def test_a_cleaner_of_old_files_sees_a_lock_on_the_folder() -> None:
    with process() as (_, living):
        seen = os.open(living, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):  # as systemd-tmpfiles asks
                fcntl.flock(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(seen)


def test_spark_keeps_its_files_there(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        settings = settings_of({"spark.master": "local[1]"}, Path(short))
    assert settings["spark.local.dir"] == f"{short}/local"
    assert settings["spark.driver.extraJavaOptions"].endswith(f" -Djava.io.tmpdir={short}/local")
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="Jobs") as upper:
        for folder in (upper, tmp_path / ("x" * 80)):
            Path(folder).mkdir(exist_ok=True)
            made = settings_of({"spark.master": "local[1]"}, Path(folder))
            assert made["spark.local.dir"] == f"{folder}/local"
            assert "java.io.tmpdir" not in made["spark.driver.extraJavaOptions"]
