"""Background runs: each has its own thread, and stops after a step before the interpreter exits.

Steps are committed in pools of `concurrent.futures`. These refuse work as soon as the interpreter begins to exit,
before it calls the functions registered with `atexit`. So runs are stopped by a function that `threading` calls
earlier; it calls such functions in reverse order of registration.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - it registers its exit function, which must run after that of runs
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
"""The state of a run. It is running once it takes steps, and stopping from a call of `stop` until it has ended."""


class BackgroundRun:
    """A run of `pipeline` in a thread of this process, as returned by `pipeline.start`.

    `launch` runs the pipeline and returns when the run has ended. It receives three functions, and calls the first when
    the run begins to take steps, the second with each step, and the third with a function that asks the run to stop.
    A Python prompt shows the progress of the run as the value of this object; a notebook shows it in the cell that
    started the run.

    When the interpreter exits, the run finishes its current step and stops. Committed steps are kept, and the next run
    with the same checkpoint resumes from there, as it would after a crash. Methods can be called from any thread.

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
        # a daemon, so that Ctrl-C ends the process while the interpreter waits for its step
        self._thread = threading.Thread(target=self._run, name=f"windrow-run-{graph.name}", daemon=True)
        line.__enter__()  # here, in the cell that is being executed
        _ACTIVE.add(self)
        end_in_order(lambda: bool(_ACTIVE))
        self._thread.start()

    @property
    def state(self) -> State:
        """The state of the run: ``starting``, ``running``, ``stopping``, ``ended`` or ``failed``."""
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
        """The tables of the pipeline, which are read at each access, even while the run is active."""
        return self._result

    def exception(self) -> BaseException | None:
        """Return the error of a failed run; None if it is active, or has ended without an error."""
        return self._error

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for the end of the run, at most `timeout` seconds, and return its result.

        Ctrl-C ends the wait, not the run.

        Raises:
            TimeoutError: the run has not ended by then; it continues.
            WindrowError: the run has failed; committed steps are kept.
        """
        # not by `join`: if a signal interrupts it, Python 3.11 considers the thread ended
        if not self._ended.wait(timeout):
            msg = f"{self.graph.name} is {self._state} and has not ended within {timeout:g} s"
            raise TimeoutError(msg)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    def stop(self, timeout: float | None = None) -> Result:
        """Ask the run to finish its current step, and `wait` for its end, with the same errors.

        After a TimeoutError the run still stops once its step is finished.
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
        except BaseException as exc:  # `wait` raises it
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
        self._totals = copy.copy(self._line.totals)  # the next step changes those of the line
        self._on_ready()

    def _on_start(self, ask: Callable[[], None]) -> None:
        """Keep the function that stops the current part of the run: a backfill, and then the stream."""
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
"""Seconds to wait for runs before a message about the wait."""


def _stop_all() -> None:
    """Stop all active runs and wait for them; log a message about each run that takes a while."""
    runs = list(_ACTIVE)
    for timeout in (0.0, _QUIET):
        for run in runs:
            with suppress(Exception):  # the timeout, or the failure of the run, which was logged
                run.stop(timeout)
    for run in runs:
        if run.is_active:
            _LOGGER.warning("%s: stopping after this step (Ctrl-C to stop at once)", run.graph.name)
        with suppress(Exception):
            run.stop()


os.register_at_fork(after_in_child=_ACTIVE.clear)  # a child process has none of the threads
# no public hook runs before the pools of `concurrent.futures` end
threading._register_atexit(_stop_all)  # type: ignore[attr-defined] # noqa: SLF001
