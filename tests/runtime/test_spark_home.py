"""Spark starts in a home without the zip of PySpark, and maps its classes from an archive that is made once."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import wait_until

from windrow.runtime.spark import home as room
from windrow.runtime.spark.home import SparkHome, make_archive, spark_home
from windrow.runtime.spark.jars import java


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of Python in which nothing has been made."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


def here(scratch: Path, java_home: Path = Path("/no/java")) -> SparkHome:
    home = spark_home(scratch, java_home)
    assert home is not None
    return home


def test_the_home_is_the_installation_without_its_zip_and_stays(environment: Path) -> None:
    home = here(environment / "scratch")
    assert home.folder.is_relative_to(environment / "share/windrow")
    assert (home.folder / "bin/spark-submit").is_file()
    assert (home.folder / "jars").is_dir()
    assert not (home.folder / "python").exists()
    assert here(environment / "scratch") == home
    assert home.java_options() == ""


def test_an_environment_that_has_two_paths_has_one_home(
    environment: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = here(environment / "scratch")
    link = tmp_path_factory.mktemp("links") / "link"
    link.symlink_to(environment)
    monkeypatch.setattr(sys, "prefix", str(link))
    assert here(environment / "scratch") == home


def test_where_the_environment_cannot_be_written_the_home_is_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for prefix in (tmp_path / "file", tmp_path / "with a space"):
        monkeypatch.setattr(sys, "prefix", str(prefix))
        home = here(tmp_path / "scratch")
        assert home == SparkHome(tmp_path / "scratch/home", None)
        assert home.java_options() == ""
        assert not make_archive(home)
    assert not (tmp_path / "with a space").exists()


def test_an_archive_is_made_once_and_those_of_another_java_go(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def run(folder: Path, made: Path, _: Path) -> None:
        assert list(folder.iterdir()) == []
        runs.append(made)
        made.write_text("classes")

    monkeypatch.setattr(room, "_run", run)
    home = here(environment / "scratch")
    assert home.archive is not None
    other = environment / "share/windrow/spark-of-another-java/classes.jsa"
    other.parent.mkdir()
    other.touch()
    (home.archive.parent / "making").mkdir()
    (home.archive.parent / "making/left").touch()  # by a process that was killed
    assert make_archive(home)
    assert make_archive(home)
    assert len(runs) == 1
    assert not other.exists()
    assert f"-XX:SharedArchiveFile={home.archive} " in home.java_options()
    assert {path.name for path in home.archive.parent.iterdir()} == {"classes.jsa", "home", "lock"}


def test_one_that_could_not_be_made_is_not_tried_again(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    monkeypatch.setattr(room, "_run", lambda _, made, __: runs.append(made))
    home = here(environment / "scratch")
    assert not make_archive(home)
    assert not make_archive(home)
    assert len(runs) == 1
    assert home.java_options() == ""
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("it was tried again"))
    home.archive_later()


def test_a_second_process_leaves_it_to_the_first(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_run", lambda *_: pytest.fail("both make it"))
    home = here(environment / "scratch")
    assert home.archive is not None
    with (home.archive.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not make_archive(home)


@pytest.mark.service
def test_java_loads_the_classes_of_a_run_from_the_archive(tmp_path: Path) -> None:
    home = here(tmp_path, java().resolve().parent.parent)
    if home.archive is None or not make_archive(home):
        pytest.skip("this environment has no class archive")
    log = tmp_path / "classes.log"
    options = f"{home.java_options()} -Xlog:class+load:file={log}"
    environment = os.environ | {"SPARK_HOME": str(home.folder)}
    command = [str(home.folder / "bin/spark-submit"), "--driver-java-options", options, "--version"]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    lines = log.read_text().splitlines()
    archived = [line for line in lines if "shared objects file (top)" in line]
    assert any("org.apache.spark.deploy.SparkSubmit " in line for line in archived)


WRITER = """
import subprocess, sys
child = subprocess.Popen(["sh", "-c", "trap '' HUP; echo $$ > child; while :; do sleep 0.1; done"])
{then}
"""

KILLED = """
import os, pathlib, time
while not pathlib.Path("child").exists():
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


def running(pid: int) -> bool:
    """Whether a process is there, and has not ended: what nobody waits for any more may stay as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_writes_the_archive_does_not_outlive_the_run_that_was_killed(tmp_path: Path) -> None:
    killed = WRITER.format(then=KILLED)
    assert room.run_guarded([sys.executable, "-c", killed], tmp_path, os.environ) == -9
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not running(child), "the writer to end")


def test_what_writes_the_archive_does_not_outlive_who_has_it_made(tmp_path: Path) -> None:
    """Who is killed so that it cannot end anything itself."""
    folder = tmp_path / "folder"
    folder.mkdir()
    made = WRITER.format(then="child.wait()")
    code = (
        "import os, sys, pathlib, windrow.runtime.spark.home as room\n"
        f"room.run_guarded([sys.executable, '-c', {made!r}], pathlib.Path({str(folder)!r}), os.environ)"
    )
    maker = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: (folder / "child").exists() and (folder / "child").read_text().endswith("\n"), "the writer")
    child = int((folder / "child").read_text())
    maker.kill()
    maker.wait(10)
    wait_until(lambda: not running(child) and not folder.exists(), "the writer to end, and its folder to go")


@pytest.mark.parametrize(
    ("code", "content", "kept"),
    [(0, b"\xa8\xba\x0b\xf0...", True), (0, b"\0\0\0\0...", False), (1, b"\xa8\xba", False)],
)
def test_half_an_archive_is_never_used(
    code: int, content: bytes, *, kept: bool, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(command: list[str], folder: Path, _: object) -> int:
        assert any(str(folder / "classes.jsa") in word for word in command)
        assert not folder.is_relative_to(environment)
        (folder / "classes.jsa").write_bytes(content)
        return code

    monkeypatch.setattr(room, "run_guarded", ended)
    home = here(environment / "scratch")
    assert make_archive(home) == kept
    assert bool(home.java_options()) == kept


def test_who_was_killed_leaves_it_to_the_next(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "run_guarded", lambda *_: -9)
    home = here(environment / "scratch")
    assert home.archive is not None
    assert not make_archive(home)
    assert not home.archive.exists()

    def ended(*_: object) -> int:
        shutil.rmtree(environment / "share")
        return 0

    monkeypatch.setattr(room, "run_guarded", ended)
    assert not make_archive(home)  # the environment was removed
    assert not (environment / "share").exists()
