"""Runs in the background: each in a thread of its own, which stops behind a step before the interpreter ends.

Steps are committed in pools of `concurrent.futures`, which take no more work once the interpreter begins to end, before
the functions of `atexit` are called. So runs are stopped by what `threading` calls then, the last registered first.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - it registers its end, which is to come after that of runs
import copy
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

from windrow import model as m
from windrow.client.result import Result, summary
from windrow.errors import WindrowError
from windrow.runtime.run import OnStart
from windrow.telemetry.reports import OnStep, StepReport, Totals
from windrow.terminal.interrupts import end_in_order
from windrow.terminal.progress import ProgressLine, progress_line

_LOGGER = logging.getLogger("windrow")

State = Literal["starting", "running", "stopping", "ended", "failed"]
"""How far a run is: it is running from its first step on, and stopping from a call of `stop` to its end."""


class BackgroundRun:
    """A run of `pipeline` in a thread of this process, as `pipeline.start` returns it.

    `launch` runs it to its end: it is given what to call when the run begins to take steps, with each step, and with
    the function that asks the run to stop. At a prompt the value shows how far the run is; in a notebook the cell that
    started it does.

    When the interpreter ends, the run finishes its current step and stops. All that was committed stays, and the next
    run with its checkpoint resumes from there, as it would after a crash. Methods can be called from any thread.

    As a context manager it stops the run at the end of the block:

    >>> with pipeline.start("memory", fresh=True) as run:
    ...     result = run.wait(timeout=60)
    >>> run
    spend: read to the end after 2 steps, at epoch 1: partition 0 at 5; low watermark 2026-01-01 10:05:00
      5 events in ... s (.../s): 3 inserts, 1 revision, 1 late, 0 expired, 0 dead letters
    """

    def __init__(
        self,
        graph: m.Graph,
        line: ProgressLine,
        launch: Callable[[Callable[[], None], OnStep, OnStart], Result],
    ) -> None:
        self.graph = graph
        self._line = line
        self._launch = launch
        self._lock = threading.Lock()
        self._state: State = "starting"
        self._ask: Callable[[], None] | None = None
        self._totals = Totals()
        self._result = Result(graph)
        self._error: BaseException | None = None
        self._ended = threading.Event()
        # a daemon: a Ctrl-C while the interpreter waits for its step ends the process
        self._thread = threading.Thread(target=self._run, name=f"windrow-run-{graph.name}", daemon=True)
        line.__enter__()  # here, as the cell is the one that is executed now
        _ACTIVE.add(self)
        end_in_order(lambda: bool(_ACTIVE))
        self._thread.start()

    @property
    def state(self) -> State:
        """How far the run is: ``starting``, ``running``, ``stopping``, ``ended`` or ``failed``."""
        return self._state

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended yet."""
        return self._state not in {"ended", "failed"}

    @property
    def totals(self) -> Totals:
        """The counts of the run up to its last step; `totals.last` is the report of that step."""
        return self._totals

    @property
    def result(self) -> Result:
        """The tables of the pipeline, which are read whenever they are asked for, while the run is active too."""
        return self._result

    def exception(self) -> BaseException | None:
        """Return the error by which the run has failed; None if it is active, or has ended without one."""
        return self._error

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for the end of the run, at most `timeout` seconds, and return its result.

        Ctrl-C ends the waiting, and not the run.

        Raises:
            TimeoutError: the run has not ended by then; it continues.
            WindrowError: the run has failed; what was committed stays.
        """
        # not by `join`: if a signal interrupts that, Python 3.11 takes the thread for ended
        if not self._ended.wait(timeout):
            msg = f"{self.graph.name} is {self._state} and has not ended within {timeout:g} s"
            raise TimeoutError(msg)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    def stop(self, timeout: float | None = None) -> Result:
        """Ask the run to finish its current step, and `wait` for its end.

        Raise what `wait` raises; after a TimeoutError the run still stops once its step is finished.
        """
        self._ask_to_stop()
        return self.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._ask_to_stop()
        self._ended.wait()
        if kind is None:
            self.wait()

    def __repr__(self) -> str:
        name, ended = self.graph.name, self._result.ended
        if ended is not None:
            return summary(name, ended, self._totals)
        if self._error is not None:
            return f"{name}: failed: {self._error}"
        if not self._totals.steps:
            return f"{name}: {self._state}"
        return f"{progress_line(name, self._totals, self._totals.rate)} ({self._state})"

    def _run(self) -> None:
        try:
            self._result = self._launch(self._on_ready, self._on_step, self._on_start)
        except BaseException as exc:  # it is raised where the run is waited for
            self._error = exc
            stack = None if isinstance(exc, WindrowError) else exc
            _LOGGER.error("%s: failed: %s", self.graph.name, exc, exc_info=stack)  # noqa: TRY400
        finally:
            with self._lock:
                self._state = "ended" if self._error is None else "failed"
            self._line.leave(repr(self))
            _ACTIVE.discard(self)
            self._ended.set()

    def _on_ready(self) -> None:
        with self._lock:
            if self._state == "starting":
                self._state = "running"

    def _on_step(self, report: StepReport) -> None:
        del report
        self._totals = copy.copy(self._line.totals)  # those of the line change with the next step
        self._on_ready()

    def _on_start(self, ask: Callable[[], None]) -> None:
        """Keep what asks the run to stop: first of a backfill, say, and then of the stream behind it."""
        with self._lock:
            self._ask = ask
            is_asked = self._state == "stopping"
        if is_asked:
            ask()

    def _ask_to_stop(self) -> None:
        with self._lock:
            if not self.is_active:
                return
            self._state = "stopping"
            ask = self._ask
        if ask is not None:
            ask()


_ACTIVE: set[BackgroundRun] = set()
_QUIET = 1.0
"""Seconds for which nothing is said of the wait for runs."""


def _stop_all() -> None:
    """Stop all runs that are active, and wait for them; say so of those that take a while."""
    runs = list(_ACTIVE)
    for timeout in (0.0, _QUIET):
        for run in runs:
            with suppress(Exception):  # that it takes longer, or its failure, which was logged
                run.stop(timeout)
    for run in runs:
        if run.is_active:
            _LOGGER.warning("%s: stopping after this step (Ctrl-C to stop at once)", run.graph.name)
        with suppress(Exception):
            run.stop()


os.register_at_fork(after_in_child=_ACTIVE.clear)  # the threads stay behind
# there is no public function that is called before the pools of `concurrent.futures` end
threading._register_atexit(_stop_all)  # type: ignore[attr-defined] # noqa: SLF001
