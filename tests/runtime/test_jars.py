"""Fetching is tested with a `java` that copies files where Ivy would put them: no network, a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from windrow.errors import SetupError
from windrow.runtime.spark import jars

FAKE_JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17"' >&2; exit; fi
echo run >> "{log}"
for argument; do last=$argument; done
folder=${{last%/*}}
cp "{source}"/* "$folder"
{then}
"""


class FakeIvy:
    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = home / "runs"
        self.base = home / "jars"
        self.source = home / "source"
        self.source.mkdir()
        self._program = home / "java" / "bin" / "java"
        self._program.parent.mkdir(parents=True)
        self.after("")
        monkeypatch.setenv("JAVA_HOME", str(home / "java"))
        monkeypatch.setenv("WINDROW_JARS", str(self.base))

    def after(self, then: str) -> None:
        """Have it do this last."""
        self._program.write_text(FAKE_JAVA.format(log=self.log, source=self.source, then=then))
        self._program.chmod(0o755)

    @property
    def runs(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def real() -> list[Path]:
    """The broker's jars as setup fetched them."""
    return jars.broker_jars()


@pytest.fixture
def ivy(real: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIvy:
    fake = FakeIvy(tmp_path, monkeypatch)
    for jar in real:
        (fake.source / jar.name).symlink_to(jar)
    return fake


def test_the_broker_is_whole(real: list[Path]) -> None:
    names = [jar.name.rsplit("-", 1)[0] for jar in real]
    assert {"kafka_2.13", "kafka-server", "log4j-slf4j-impl"} <= set(names)
    assert all(jar.stat().st_size > 0 for jar in real)


def test_a_set_is_fetched_once(ivy: FakeIvy, real: list[Path]) -> None:
    first = jars.broker_jars()
    assert [jar.name for jar in first] == [jar.name for jar in real]
    assert all(jar.is_file() and jar.is_relative_to(ivy.base) for jar in first)
    assert jars.broker_jars() == first
    assert ivy.runs == 1


def test_a_failed_fetch_leaves_nothing_and_is_told(ivy: FakeIvy) -> None:
    ivy.after("echo 'unresolved dependency' >&2; exit 1")
    with pytest.raises(
        SetupError, match=r"(?s)cannot fetch the broker jars: is the network available.*unresolved dependency"
    ):
        jars.broker_jars()
    assert [path.name for path in ivy.base.iterdir()] == [".lock"]


def test_half_a_set_is_not_taken(ivy: FakeIvy) -> None:
    next(ivy.source.glob("kafka-clients-*")).unlink()
    with pytest.raises(SetupError, match=r"Ivy fetched jars that differ .*: kafka-clients-\S+\.jar\. Remove"):
        jars.broker_jars()
    assert [path.name for path in ivy.base.iterdir()] == [".lock"]


def test_a_changed_jar_is_not_taken(ivy: FakeIvy) -> None:
    jar = next(ivy.source.glob("jose4j-*"))
    jar.unlink()
    jar.write_bytes(b"another")
    with pytest.raises(SetupError, match=r": jose4j-\S+\.jar\."):
        jars.broker_jars()


def test_what_a_killed_fetch_left_goes(ivy: FakeIvy) -> None:
    left = ivy.base / ".part-left"
    left.mkdir(parents=True)
    jars.broker_jars()
    assert not left.exists()


def test_a_folder_that_cannot_be_made_is_told(ivy: FakeIvy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDROW_JARS", str(ivy.log / "under-a-file"))
    ivy.log.touch()
    with pytest.raises(SetupError, match="set WINDROW_JARS to a writable folder"):
        jars.broker_jars()


def test_an_unknown_set_is_an_error() -> None:
    with pytest.raises(SetupError, match=r"has no jars named spork"):
        jars.jar_set("spork")


def test_the_command_says_what_is_wrong_in_one_line(ivy: FakeIvy, capsys: pytest.CaptureFixture[str]) -> None:
    ivy.after("exit 1")
    assert jars.main(["broker"]) == SetupError.exit_code
    assert capsys.readouterr().err.startswith("windrow: cannot fetch the broker jars")


def test_as_a_program_it_says_that_java_is_missing(tmp_path: Path) -> None:
    environment = os.environ | {"JAVA_HOME": str(tmp_path / "nowhere"), "WINDROW_JARS": str(tmp_path / "jars")}
    command = [sys.executable, "-m", "windrow.runtime.spark.jars", "broker"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (SetupError.exit_code, "")
    assert ran.stderr.startswith("windrow: JAVA_HOME ")
    assert "Traceback" not in ran.stderr
