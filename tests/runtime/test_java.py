from __future__ import annotations

import re
from pathlib import Path

import pytest

from windrow.errors import InputError, SetupError
from windrow.runtime.settings import SparkOptions
from windrow.runtime.spark.jars import java
from windrow.runtime.spark.session import spark_session


def fake_java(home: Path, body: str) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def test_takes_the_java_of_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java() == tmp_path / "bin" / "java"


def test_takes_the_java_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "echo 'openjdk version \"25\" 2025-09-16' >&2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java() == tmp_path / "bin" / "java"


@pytest.mark.parametrize(("version", "named"), [("1.8.0_402", "Java 8"), ("11.0.22", "Java 11"), ("16", "Java 16")])
def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, named: str) -> None:
    fake_java(tmp_path, f"echo 'openjdk version \"{version}\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=rf"JAVA_HOME is .* is {named}; Spark needs Java 17 or newer: install"):
        java()


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no java on PATH, and JAVA_HOME is not set: install a Java 17"):
        java()


def test_a_java_home_without_java_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=r"JAVA_HOME is .*-version` failed"):
        java()


@pytest.mark.parametrize("master", ["nonsense", "local[", "local[x]", "spark:", "http://localhost:7077", ""])
def test_what_is_no_master_is_wrong_input(master: str) -> None:
    with pytest.raises(InputError, match=f"--master {re.escape(repr(master))} is not a Spark master URL"):
        spark_session(SparkOptions(master))
