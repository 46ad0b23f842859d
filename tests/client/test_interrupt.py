from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest

from windrow.terminal.common import echo_error
from windrow.terminal.interrupts import stopping

ROOT = Path(__file__).parents[2]


def test_a_second_signal_in_the_midst_of_the_words_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the run: said within themselves, the words would be an error of Python's streams."""
    said, asked = list[str](), list[bool]()

    def echo(text: str, **more: Any) -> None:  # noqa: ANN401 - click's own
        del more
        assert not said, "the words come twice"
        said.append(text)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(click, "echo", echo)
    before = signal.getsignal(signal.SIGINT)
    try:
        with stopping(echo_error) as on_start:
            on_start(lambda: asked.append(True))
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        logging.disable(logging.NOTSET)
    assert (said, asked) == (["stopping after this step (again to stop at once)"], [True])
    assert signal.getsignal(signal.SIGINT) == before


PAIRS = list(product((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), repeat=2))


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda one: one.name)
def test_each_pair_of_signals(first: signal.Signals, second: signal.Signals) -> None:
    """The first one asks the run to stop, a second one ends it, unless it says again that the terminal is closed."""
    said, asked = list[str](), list[bool]()
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    ends = nullcontext() if second == signal.SIGHUP else pytest.raises(KeyboardInterrupt)
    try:
        with stopping(said.append) as on_start:
            on_start(lambda: asked.append(True))
            signal.raise_signal(first)
            with ends:
                signal.raise_signal(second)
            assert asked == [True]
            on_start(lambda: asked.append(False))  # what comes behind a backfill is asked at once
            assert asked == [True, False]
    finally:
        logging.disable(logging.NOTSET)
        signal.signal(signal.SIGHUP, kept[signal.SIGHUP])
    again = "stopping after this step (again to stop at once)"
    assert said == ["the terminal was closed: stopping after this step" if first == signal.SIGHUP else again]
    assert {number: signal.getsignal(number) for number in kept} == kept


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    """As by nohup."""
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asked = list[bool]()
    try:
        with stopping(lambda _: None) as on_start:
            on_start(lambda: asked.append(True))
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, kept)
    assert asked == []


def test_a_signal_goes_to_the_program_when_its_run_has_ended() -> None:
    order = list[str]()

    def run() -> None:
        with stopping(lambda _: None, passes_on=True) as on_start:
            on_start(lambda: order.append("stop"))
            signal.raise_signal(signal.SIGTERM)
            order.append("the run ends")

    kept = signal.signal(signal.SIGTERM, lambda *_: order.append("the program's"))
    try:
        run()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with pytest.raises(SystemExit) as ended:
            run()
    finally:
        signal.signal(signal.SIGTERM, kept)
    assert order == ["stop", "the run ends", "the program's", "stop", "the run ends"]
    assert ended.value.code == 128 + signal.SIGTERM


SCRIPT = r"""
import os, signal, sys, threading
from pathlib import Path
from tests.client.purchases import spend, write_purchases

def on_step(report):
    if report.epoch == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    sys.stdout.write(f"step {report.epoch}\n")

write_purchases(Path("data/spend"))
made, how = spend(), sys.argv[1]
options = {"max_records": 1, "on_step": on_step}
try:
    if how == "run":
        made.run("memory", **options)
        print("the script goes on")
    elif how == "start":
        made.start("memory", **options).wait()
        print("the script goes on")
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        threading.Thread(target=lambda: sys.stdout.write(f"{made.run('memory', **options).ended}\n")).start()
        threading.Event().wait(30)
finally:
    sys.stdout.write("finally\n")
"""


@pytest.mark.parametrize(("how", "code"), [("run", 143), ("start", 143), ("thread", 5)])
def test_sigterm_ends_a_script_when_its_run_has_finished_a_step(how: str, code: int, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    lines = done.stdout.splitlines()
    assert {"step 0", "finally"} <= set(lines)
    if how == "thread":  # a run in a thread of the program's own ends in order too, at the end of the log at the latest
        assert lines[-1] in {"asked", "end"}
    if how == "run":
        assert len(lines) == 2
    assert "Traceback" not in done.stderr
