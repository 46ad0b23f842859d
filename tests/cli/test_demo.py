"""`windrow demo`: the main job, and the proof that a replay gives the same."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from unittest import mock
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from rich.console import Console

from windrow.authoring.load import open_pipeline
from windrow.cli import main
from windrow.cli.demo import _watch

COMMAND = (sys.executable, "-c", "from windrow.cli import main; main()", "demo")


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it where Java cannot find the machine's name, as in a container without a network."""
    names = folder.with_name("hosts")
    names.write_text("127.0.0.1 localhost\n")
    environment = os.environ | {"JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={names}"}
    arguments = [*COMMAND, "--events", "20000", "--folder", str(folder), *options]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=540, env=environment)


@pytest.mark.service
def test_the_demo_says_what_it_did_and_that_a_replay_is_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    ran = demo(folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "A day of 20,000 events of 10,000 users, in 4 partitions" in ran.stdout
    assert ran.stdout.count("table, changelog, late output and dead letters are the same\n") == 2
    assert "The results are the same to the last digit, whatever the steps." in ran.stdout
    page = f"See the run:   windrow dashboard {folder}/pipeline.yaml --checkpoint {folder}/checkpoint --open"
    assert ran.stdout.endswith(f"{page}\n")
    assert "No late record replaced a row, so there is no retraction to show: try more --events." in ran.stdout
    assert "A retraction" not in ran.stdout  # of so few events none is late in a window of another
    for noise in ("Traceback", "WARN", "Exception", "Error", "py4j"):
        assert noise not in ran.stdout + ran.stderr
    with closing(sqlite3.connect(folder / "spend.db")) as db:
        [(read_,)] = db.execute(
            "SELECT (SELECT sum(events) FROM user_spend_5m) + (SELECT count(*) FROM user_spend_5m_late) "
            "+ (SELECT count(*) FROM user_spend_5m_dead)"
        )
    assert read_ == 20_000
    assert "events read" in ran.stdout


@pytest.mark.service
def test_a_second_demo_replaces_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    for events in ("3000", "2000"):
        result = CliRunner().invoke(
            main, ["demo", "--events", events, "--folder", str(folder), "--host", "memory", "--json"]
        )
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        assert (told["events"], told["same"]) == (int(events), True)
        assert [replay["differences"] for replay in told["replays"]] == [[], []]
        # three different cuts, or the comparison would show nothing
        assert len({told["steps"], *(replay["steps"] for replay in told["replays"])}) == 3


@pytest.mark.service
def test_the_demo_shows_a_retraction(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--events", "40000", "--folder", str(tmp_path), "--host", "memory"])
    assert result.exit_code == 0, result.output
    assert "Spark" not in result.stdout
    assert "A retraction: a late record replaced a row" in result.stdout
    shown = [line.split()[0] for line in result.stdout.splitlines() if " u0" in line]
    assert shown[-3:] == ["insert", "update_before", "update_after"]


def test_a_small_demo_says_that_it_has_no_retraction(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--events", "1000", "--folder", str(tmp_path), "--host", "memory"])
    assert result.exit_code == 0, result.output
    assert "No late record replaced a row, so there is no retraction to show: try more --events." in result.stdout


@pytest.mark.parametrize("name", ["thesis.tex", ".hidden"])
def test_a_folder_that_holds_something_else_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("years of work")
    result = CliRunner().invoke(main, ["demo", "--events", "1000", "--folder", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr == f"windrow: {tmp_path} is not empty and is not an earlier demo: choose another --folder\n"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("x")
    result = CliRunner().invoke(main, ["demo", "--events", "1000", "--folder", str(tmp_path / "demo")])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"windrow: {tmp_path}/demo is ")
    assert "Traceback" not in result.output


def test_a_folder_that_cannot_be_created_is_wrong_input() -> None:
    result = CliRunner().invoke(main, ["demo", "--events", "1000", "--folder", "/proc/windrow-demo"])
    assert result.exit_code == 2
    assert result.stderr.startswith("windrow: /proc/windrow-demo cannot be created or replaced: ")
    assert result.stderr.endswith("; choose another --folder\n")


@pytest.mark.parametrize("option", ["--json", "--host=memory"])
def test_a_run_that_is_watched_is_a_stream(tmp_path: Path, option: str) -> None:
    ran = CliRunner().invoke(main, ["demo", "--watch", "--folder", str(tmp_path / "demo"), option])
    assert ran.exit_code == 2
    assert f"leave out {option.replace('=', ' ')}" in ran.output
    assert not (tmp_path / "demo").exists()


def test_a_run_is_watched_on_a_page(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def run(*_: object, **__: object) -> None:
        with urlopen(browsed.call_args.args[0], timeout=30) as answer:  # noqa: S310 - loopback
            seen.append(answer.read())

    with (
        mock.patch("webbrowser.open") as browsed,
        mock.patch("windrow.cli.demo._run", run),
        mock.patch("windrow.cli.demo._wait_for_interrupt", side_effect=KeyboardInterrupt),
    ):
        _watch(Console(), open_pipeline("examples/user_spend.yaml").runnable(), tmp_path, 1000)
    assert b"<title>windrow</title>" in seen[0]
