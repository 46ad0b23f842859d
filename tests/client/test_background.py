"""Runs in the background: what they show while they run, how they end, and that they resume where they were."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.client.purchases import PURCHASES, spend, write_purchases
from tests.waiting import wait_until

from windrow.errors import InputError, SinkError
from windrow.telemetry.reports import StepReport
from windrow.terminal import progress


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the log of the guide."""
    monkeypatch.chdir(tmp_path)
    write_purchases(tmp_path / "data" / "spend")
    return tmp_path


class Gate:
    """Holds a run behind each of its steps until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.steps: list[StepReport] = []

    def on_step(self, report: StepReport) -> None:
        self.steps.append(report)
        assert self._open.wait(60)

    def open(self) -> None:
        self._open.set()


def test_a_run_is_read_while_it_is_active_and_stops_behind_its_step() -> None:
    gate = Gate()
    run = spend().start("memory", max_records=2, on_step=gate.on_step)
    wait_until(lambda: gate.steps, "the first step")
    assert (run.state, run.is_active, run.totals.events, run.exception()) == ("running", True, 2, None)
    assert run.result.counts["spend_changes"] == len(run.result.to_arrow("changes"))
    assert repr(run).startswith("spend: 2 events")
    assert repr(run).endswith("(running)")
    with pytest.raises(TimeoutError, match=r"^spend is running and has not ended within 0.01 s"):
        run.wait(timeout=0.01)
    with pytest.raises(TimeoutError, match=r"^spend is stopping"):
        run.stop(timeout=0)
    gate.open()
    result = run.wait(timeout=60)
    assert (result.ended, run.state, run.is_active, len(gate.steps)) == ("asked", "ended", False, 1)
    assert repr(run).startswith("spend: stopped on request after 1 step")
    assert run.stop() is result


def test_a_failure_is_raised_where_the_run_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    spend().run("memory")
    run = spend().start("memory")
    for wait in (run.wait, run.stop):
        with pytest.raises(SinkError, match="rows of another run"):
            wait(timeout=60)
    assert (run.state, str(run.exception())) == ("failed", caplog.messages[0].removeprefix("spend: failed: "))
    with pytest.raises(SinkError), spend().start("memory") as run:
        pass
    with pytest.raises(KeyError), spend().start("memory") as run:
        raise KeyError
    assert run.state == "failed"
    with pytest.raises(InputError, match="leave out until_end=False"):
        spend().start("memory", until_end=False)
    with pytest.raises(TypeError, match="untl_end"):
        spend().start("memory", untl_end=False)  # type: ignore[call-arg]


def test_the_cell_of_a_notebook_shows_how_far_a_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(progress, "_cell", lambda: shown.append)
    run = spend().start("memory")
    run.wait(timeout=60)
    assert shown[0] == "spend: starting"
    assert shown[1].startswith("spend: 5 events")
    assert shown[-1] == repr(run)
    assert shown[-1].startswith("spend: read to the end")


SCRIPT = """
import threading
from tests.client.purchases import spend

first = threading.Event()
{body}
assert first.wait(60)
"""


def ended_process(body: str) -> str:
    """Run a program that ends while runs are active; return what it wrote on stderr."""
    made = [sys.executable, "-c", SCRIPT.format(body=body)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(made, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def test_runs_in_one_process_do_not_mix_and_end_with_it() -> None:
    line = Path("data/spend/partition-0.jsonl").read_text()
    with Path("data/spend/partition-0.jsonl").open("a") as log:
        log.write(line * 40)
    said = ended_process("""
for number in range(3):
    spend(database=f"{number}.db").start("memory", max_records=1, on_step=lambda _: first.set())
spend().preview()
""")
    assert said == ""
    whole = spend(database="whole.db").run("memory", max_records=1).to_arrow("changes").to_pylist()
    for number in range(3):
        changes = spend(database=f"{number}.db").result().to_arrow("changes").to_pylist()
        # whole steps, which the run without an end has too
        assert changes
        assert changes == [row for row in whole if row["epoch"] <= changes[-1]["epoch"]]


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_live_run_that_ends_with_its_process_resumes(folder: Path) -> None:
    said = ended_process("""
run = spend().start(until_end=False, every="100ms", on_step=lambda _: first.set())
""")
    assert "Traceback" not in said
    before = spend().result()
    assert before.counts["spend_changes"] >= len(before.to_arrow())
    users = [user for user, _, _ in PURCHASES]
    with (folder / "data" / "spend" / "partition-0.jsonl").open("a") as log:
        for number, user in enumerate(users):
            log.write(f'{{"user_id": "{user}", "event_time": "2026-01-01T10:1{number}:00Z", "amount": "1.00"}}\n')
    with spend().start() as run:
        result = run.wait(timeout=100)
    assert (result.ended, run.totals.events) == ("end", len(users))
    assert spend().replay("memory", checkpoint=".windrow/spend").diff(result).same
