"""The status of a run: whether it runs, its lag and trend, and which partition holds the watermark back, and why."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner
from tests.engine.pipelines import main as main_pipeline
from tests.graphs import as_graph
from tests.telemetry.test_history import STEP, T0
from tests.waiting import time_with

from windrow.authoring.printing import to_yaml
from windrow.cli import main
from windrow.errors import InputError
from windrow.telemetry.history import HistoryWriter, RunRecord, history_of
from windrow.telemetry.hot_keys import HotKeys
from windrow.telemetry.reports import Fault, Lag, StepReport, now_micros
from windrow.telemetry.status import RunStatus, standing_since
from windrow.telemetry.window_counts import WindowCounts

SECOND = 1_000_000
NOW = T0 + 1_000 * SECOND
RUNNING = RunRecord("spend", "stream", socket.gethostname(), os.getpid(), T0, NOW - SECOND)
BASE = replace(STEP, low_watermark=T0, watermarks={0: T0, 1: T0 + SECOND}, offsets={0: 7, 1: 9}, read={0: 60, 1: 0})


def steps(*changes: Mapping[str, object]) -> list[StepReport]:
    """Steps ten seconds apart, the last a second ago."""
    first = NOW - (len(changes) * 10 - 9) * SECOND
    return [
        replace(BASE, epoch=number, committed=first + number * 10 * SECOND, **one)  # type: ignore[arg-type]
        for number, one in enumerate(changes)
    ]


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (RUNNING, "running"),
        (None, "unknown"),
        (replace(RUNNING, ended=NOW), "ended"),
        (replace(RUNNING, ended=NOW, error="no room"), "failed"),
        (replace(RUNNING, seen=NOW - 16 * SECOND), "lost"),
        (replace(RUNNING, machine="elsewhere", seen=NOW), "running"),
        (replace(RUNNING, is_retrying=True), "retrying"),
        (replace(RUNNING, waiting=NOW - 119 * SECOND), "running"),
        (replace(RUNNING, waiting=NOW - 121 * SECOND), "stalled"),
        (replace(RUNNING, waiting=NOW - 121 * SECOND, every=30 * SECOND), "running"),
        (replace(RUNNING, waiting=NOW - 301 * SECOND, every=30 * SECOND), "stalled"),
    ],
)
def test_a_run_has_a_state(record: RunRecord | None, state: str) -> None:
    assert RunStatus.of(record, steps({}), NOW).state == state


def test_a_process_that_is_gone_was_killed() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(60)
    assert RunStatus.of(replace(RUNNING, pid=gone.pid), steps({}), NOW).state == "killed"


def test_lag_has_a_trend_and_an_end() -> None:
    found = RunStatus.of(
        replace(RUNNING, lag=Lag(NOW - SECOND, {0: 210, 1: 0}, {0: 3.0, 1: 0.0})),
        steps({"lag": {0: 310}}, {"lag": {0: 200}}),
        NOW,
    )
    assert (found.lag_trend, found.until_clear) == (-10.0, 21.0)
    assert found.lag is not None
    assert (found.lag.behind, found.lag.longest) == (210, 3.0)
    assert [(one.partition, one.lag, one.lag_seconds, one.per_second) for one in found.partitions] == [
        (0, 210, 3.0, 2.0),
        (1, 0, 0.0, 0.0),
    ]
    grows = RunStatus.of(replace(RUNNING, lag=Lag(NOW - SECOND, {0: 410})), steps({"lag": {0: 310}}, {}), NOW)
    assert (grows.lag_trend, grows.until_clear) == (10.0, None)


@pytest.mark.parametrize(
    ("last", "held"),
    [
        ({"lag": {0: 5, 1: 0}}, {0: "5 of its records have not been read yet"}),
        ({"lag": {0: 0, 1: 0}}, {0: "no record has advanced it for 20 s"}),
        ({"idle": [0], "low_watermark": T0 + SECOND}, {1: "no record has advanced it for 20 s"}),
        (
            {"watermarks": {0: T0 + 5, 1: T0 + 9}, "low_watermark": T0 + 5, "lag": None},
            {0: "its event times are the earliest"},
        ),
        ({"watermarks": {0: T0, 1: None}, "low_watermark": None}, {1: "none of its records has been read yet"}),
    ],
)
def test_why_the_watermark_is_where_it_is(last: dict[str, object], held: dict[int, str]) -> None:
    found = RunStatus.of(RUNNING, steps({}, {}, last), NOW)
    assert {one.partition: one.held for one in found.partitions if one.held} == held
    graph = as_graph(main_pipeline())
    advised = RunStatus.of(RUNNING, steps({}, {}, last), NOW, graph)
    for partition, why in held.items():
        (text,) = [one.held for one in advised.partitions if one.partition == partition]
        assert text is not None
        assert text.removeprefix(why) in {"", "; without time.idle it holds the others back until it has more records"}


def test_the_trend_of_a_query_that_hangs_is_since_its_last_step() -> None:
    found = RunStatus.of(
        replace(RUNNING, lag=Lag(NOW + 9 * SECOND, {0: 50})), steps({"lag": {0: 900}}, {"lag": {0: 0}}), NOW
    )
    assert (found.lag_trend, found.until_clear) == (5.0, None)


def test_lag_in_time_is_that_of_partitions_that_are_behind() -> None:
    assert Lag(1, {0: 5, 1: 0}, {1: 0.0}).longest is None
    assert Lag(1, {0: 5, 1: 1, 2: 0}, {0: 3.0, 2: 0.0}).longest == 3.0
    assert Lag(1, {0: 0}).longest == 0.0


def test_hot_keys_are_of_the_last_minute() -> None:
    old = {"committed": NOW - 90 * SECOND, "hot_keys": {"spend": HotKeys(100, {"old": 90})}}
    found = RunStatus.of(RUNNING, [replace(BASE, **old), *steps({}, {})], NOW)  # type: ignore[arg-type]
    assert found.hot_keys == {"spend": {"ann": 0.75}}


def test_windows_are_open_now_and_fired_and_closed_in_the_last_minute() -> None:
    old = replace(BASE, committed=NOW - 90 * SECOND, windows={"spend": WindowCounts((9, 9), (9, 9), (9, 9))})
    recent = {"windows": {"spend": WindowCounts((3, 1), (2, 0), (0, 1))}}
    found = RunStatus.of(RUNNING, [old, *steps(recent, recent)], NOW)
    assert found.plain()["windows"] == {"spend": {"open": [3, 1], "fired": [4, 0], "closed": [0, 2]}}
    assert RunStatus.of(RUNNING, [old], NOW).plain()["windows"] == {
        "spend": {"open": [9, 9], "fired": [0, 0], "closed": [0, 0]}
    }
    assert RunStatus.of(RUNNING, steps({}), NOW).plain()["windows"] is None


def write(folder: Path, reports: Sequence[StepReport], error: Exception | None = None) -> None:
    """Write a history as a process does that ends."""
    history = HistoryWriter(history_of(folder), RunRecord.here("main", "stream"), pytest.fail)
    with history:
        history.on_trouble(Fault("the database is away\nit said so", "sink", "trying again in 1 s"))
        for report in reports:
            history.on_step(report)
        history.__exit__(None if error is None else type(error), error, None)


def status(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "windrow", "status", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_command_says_it(tmp_path: Path) -> None:
    file = tmp_path / "main.yaml"
    file.write_text(to_yaml(as_graph(main_pipeline())))
    missing = status(tmp_path, "main.yaml")
    assert missing.returncode == 2
    assert "with --host memory or batch write none); run the pipeline on the stream host" in missing.stderr
    write(
        tmp_path / ".windrow" / main_pipeline().name,
        steps({"lag": {0: 3, 1: 0}, "rejected": 2, "dead_reasons": {"internal: where": 1, "null key: user": 1}}),
    )
    said = status(tmp_path, "main.yaml")
    assert (said.returncode, said.stderr) == (0, "")
    lines = said.stdout.splitlines()
    assert lines[0].startswith("main: ended at 20")
    assert lines[1].endswith("the database is away"), "what was tried then is over"
    assert "    held by partition 0: 3 of its records have not been read yet" in lines
    assert any(line.startswith("  lag then: 3 records") for line in lines), "a run that ended has none now"
    assert any(line.endswith(" behind the clock then") for line in lines)
    began = "  since it began: 1 event in 1 step; 0 late, 0 expired, 2 dead letters (1 internal), "
    assert any(line.startswith(began) for line in lines)
    assert lines[-1].split() == ["1", "9", "0", "0", "2026-01-01", "00:00:01"]
    first, checkpoint, *others = status(tmp_path).stdout.splitlines()
    assert (first, checkpoint, others[1:]) == (lines[0], f"  checkpoint .windrow/{main_pipeline().name}", lines[2:])
    plain = json.loads(status(tmp_path, "main.yaml", "--json").stdout)
    assert (plain["state"], plain["behind"], plain["held_back_by"]) == ("ended", 3, [0])
    assert plain["since_start"]["events"] == 1


def test_a_history_that_cannot_be_read_hides_no_other_run(tmp_path: Path) -> None:
    write(tmp_path / ".windrow" / "good", steps({}))
    (tmp_path / ".windrow" / "bad").mkdir()
    (tmp_path / ".windrow" / "bad" / "progress.sqlite").write_text("no database, and long enough to be looked at")
    said = status(tmp_path)
    assert (said.returncode, said.stderr) == (1, "")
    bad, good, *_ = said.stdout.splitlines()
    assert bad.startswith("bad: .windrow/bad/progress.sqlite cannot be read (file is not a database)")
    assert good.startswith("main: ended at ")
    states = [(one["checkpoint"], one["state"]) for one in json.loads(status(tmp_path, "--json").stdout)["runs"]]
    assert states == [(".windrow/bad", "unreadable"), (".windrow/good", "ended")]


def test_what_keys_hold_moves_no_cursor(tmp_path: Path) -> None:
    keys = HotKeys(100, {"\x1b[2Jred\n": 60, "": 20, "blue": 9})
    write(tmp_path / "there", [replace(BASE, hot_keys={"": keys}, committed=now_micros())])
    said = status(tmp_path, "--checkpoint", "there").stdout
    assert "  hot keys: \\x1b[2Jred\\n 60.0%\n" in said
    assert said.replace("\n", "").isprintable()


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_watching_ends_with_ctrl_c(option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / ".windrow" / "spend", steps({}))
    sleep = mock.Mock(side_effect=[None, KeyboardInterrupt])
    with mock.patch("windrow.cli.status.time", time_with(sleep=sleep)):
        ran = CliRunner().invoke(main, ["status", "--watch", *option])
    assert ran.exit_code == 0
    if option:
        assert [json.loads(line)["runs"][0]["state"] for line in ran.stdout.splitlines()] == ["ended"] * 2
    else:
        assert ran.stdout.count("main: ended at ") == 2


def test_a_run_that_failed_is_exit_code_1(tmp_path: Path) -> None:
    write(tmp_path / "there", steps({}), InputError("the topic was made anew"))
    said = status(tmp_path, "--checkpoint", "there")
    assert said.returncode == 1
    assert said.stdout.splitlines()[1] == "  error: the topic was made anew"
    assert "there is no checkpoint of a run" in status(tmp_path).stderr


def test_the_low_watermark_stands_since_the_step_that_moved_it() -> None:
    known = steps({"low_watermark": None}, {"low_watermark": 1}, {"low_watermark": 2}, {"low_watermark": 2})
    assert standing_since(known) == known[2].committed
    assert standing_since(known[3:]) == known[3].committed
    assert standing_since(known[:1]) is None
    assert standing_since([]) is None
