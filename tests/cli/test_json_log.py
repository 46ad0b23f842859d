"""The structured log of a run: every line on stderr is a JSON object, whatever happens."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner
from tests.cli.test_run import LOG, PIPELINE, SQLITE
from tests.telemetry.test_history import STEP
from tests.waiting import time_with

from windrow.cli import main
from windrow.cli.json_log import JsonLog
from windrow.errors import RunError
from windrow.telemetry.reports import Alert
from windrow.tools.generate import LogSpec, write_log


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_steps_within_a_second_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    monotonic = mock.Mock(side_effect=[0.0, 0.0, 0.4, 0.9, 1.1, 1.1, 1.2, 1.2])
    with JsonLog("spend") as log, mock.patch("windrow.cli.json_log.time", time_with(monotonic=monotonic)):
        for epoch in range(4):
            log.on_step(replace(STEP, epoch=epoch, committed=7, late=1))
        log.on_step(replace(STEP, epoch=4))
    first, second, last, ended = lines(capsys.readouterr().err)
    assert (first["event"], first["level"], first["pipeline"], first["steps"]) == ("step", "info", "spend", 1)
    assert (second["steps"], second["epoch"], second["late"], second["behind"]) == (3, 3, 3, 3)
    assert second["parts"] == {"compute": 1.5, "commit": 0.75}
    assert (last["steps"], last["epoch"]) == (1, 4)
    assert (ended["event"], ended["steps"]) == ("ended", 5)
    assert ended["time"].endswith("Z")


def test_a_held_step_is_written_though_no_other_follows(capsys: pytest.CaptureFixture[str]) -> None:
    with JsonLog("spend") as log:
        log.on_step(replace(STEP, epoch=0))
        log.on_step(replace(STEP, epoch=1))
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.join(10)
        assert [one["epoch"] for one in lines(capsys.readouterr().err)] == [0, 1]


def test_a_step_is_written_before_what_follows_it(capsys: pytest.CaptureFixture[str]) -> None:
    with JsonLog("spend") as log:
        log.on_step(replace(STEP, epoch=0))
        log.on_step(replace(STEP, epoch=1))
        log.on_trouble("the broker is away")
    assert [one["event"] for one in lines(capsys.readouterr().err)] == ["step", "step", "fault", "ended"]


def test_faults_and_the_end_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with JsonLog("spend") as log:
            log.on_ready()
            log.on_trouble("the broker is away")
            log.on_warning("a list has changed")
            msg = "no room\nleft"
            raise RunError(msg)

    with pytest.raises(RunError):
        fail()
    found = lines(capsys.readouterr().err)
    assert [(one["level"], one["event"]) for one in found] == [
        ("info", "ready"),
        ("warning", "fault"),
        ("warning", "warning"),
        ("error", "failed"),
    ]
    assert (found[-1]["kind"], found[-1]["message"]) == ("RunError", "no room\nleft")


@pytest.mark.parametrize("option", [["--log", "json"], ["--log=json"], ["--log", "json", "--json"]])
def test_all_of_stderr_is_json(option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(LogSpec(events=200), tmp_path / "spend")
    Path("spend.yaml").write_text(PIPELINE.format(source=LOG, sink=SQLITE))
    ran = CliRunner().invoke(main, ["run", "spend.yaml", "--host", "memory", "--until-end", *option])
    found = lines(ran.stderr)
    assert (ran.exit_code, {one["event"] for one in found} >= {"step", "ended"}) == (0, True)
    bad = CliRunner().invoke(main, ["run", "none.yaml", "--host", "memory", "--until-end", *option])
    (error,) = lines(bad.stderr)
    assert "none.yaml" in error["error"]["message"]


def test_an_alert_is_a_line_when_it_is_raised_and_when_it_is_resolved(capsys: pytest.CaptureFixture[str]) -> None:
    alert = Alert("spend", "hot-key", "the key 'ann' has 60% of the records", 1, 2, None, {"share": 0.6})
    with JsonLog("spend") as log:
        log.on_alert(alert)
        log.on_alert(replace(alert, resolved=9))
    raised, resolved, _ = lines(capsys.readouterr().err)
    assert (raised["event"], raised["level"], raised["state"]) == ("alert", "warning", "raised")
    assert (raised["name"], raised["figures"], raised["since"]) == ("hot-key", {"share": 0.6}, 1)
    assert raised["runbook"] == "docs/guides/alerts.md#hot-key"
    assert (resolved["level"], resolved["state"], resolved["resolved"]) == ("info", "resolved", 9)
