"""The growing history of a run, read beside its checkpoint, and the cached views of it.

The running process is not queried. The history file is read at most once a second, and only while someone is viewing
it. Each view is computed once for each change of the history and shared by all clients.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import Any, Final, Literal

from windrow import model as m
from windrow.errors import InputError, StoppedError
from windrow.telemetry.folders import Folder
from windrow.telemetry.history import RunRecord, history_of, read_new, read_runs
from windrow.telemetry.reports import COUNTS, StepReport, now_micros
from windrow.telemetry.status import STEPS, RunStatus, last_alerts

POINTS: Final = 600
"""Greatest number of points in a chart over time."""
_READ: Final = 10_000
"""Greatest number of reports that are read at once from an existing history."""
_RECENT: Final = 3_600
"""Reports that are kept as they are; older ones are summed up."""
_PAUSE: Final = 1.0
"""Seconds between two reads of the file."""
_LEFT: Final = 0.2
"""Seconds between two checks whether a client that waits has left."""

_TOTALS: Final = ("events", *(name for name in COUNTS if name != "records"))
"""The counts that the totals of a run have."""
_SHOWN: Final = 20
_ANSWERS: Final = 256
"""Greatest number of cached answers."""

Query = Mapping[str, str]
"""The parameters of a view by name."""
_Question = tuple[str, tuple[tuple[str, str], ...]]
"""A view and its parameters."""


def _never() -> bool:
    return False


@dataclass(frozen=True)
class WatchedRun:
    """A run to watch: its name, its checkpoint, and its pipeline if known; `file` is its name on the command line."""

    name: str
    checkpoint: Folder
    pipeline: m.Graph | None = None
    file: str | None = None


def first_commit(steps: Iterable[StepReport]) -> int | None:
    """Return the first known commit time of `steps` in microseconds, or None if there is none."""
    return next((step.committed for step in steps if step.committed is not None), None)


@dataclass(frozen=True)
class Seen:
    """A run as it was last read: its status, its newest steps, and all steps as at most `2 * POINTS` sums.

    `alerts` are the active alerts of the history, then the newest resolved ones. `absent` is the reason why there is no
    history, or None. `now` is the wall clock in microseconds. `older` are the records of all processes if only part of
    the history was read, else it is empty.
    """

    run: WatchedRun
    version: int
    now: int
    status: RunStatus
    recent: Sequence[StepReport] = ()
    series: Sequence[StepReport] = ()
    alerts: Sequence[Mapping[str, Any]] = ()
    absent: str | None = None
    older: Sequence[RunRecord] = ()

    @property
    def first(self) -> int | None:
        """Commit time of the first step that was read (microseconds)."""
        return first_commit(self.series)

    @property
    def partial(self) -> dict[str, Any] | None:
        """Times from which sums and counts are known if only part of the history was read, else None."""
        return {"since": self.first, "counts_since": self.counts_since} if self.older else None

    @cached_property
    def counts(self) -> Mapping[str, int] | None:
        """Counts of all steps by name, or None if there are no steps."""
        if self.total is None:
            return None
        known = [record.totals for record in self.older if record.totals is not None]
        counts = {name: sum(int(totals.get(name, 0)) for totals in known) for name in _TOTALS}
        if counts["events"] < self.total.events:  # all was read, or an older version has written no totals
            counts = {name: int(getattr(self.total, name)) for name in _TOTALS}
        return counts | {"records": counts["events"] - counts["dead"]}

    @property
    def counts_since(self) -> int | None:
        """Time from which `counts` are known: the first step's commit, or the start of the first process."""
        counts, total = self.counts, self.total
        is_all = counts is not None and total is not None and counts["events"] > total.events
        return self.older[0].began if is_all else self.first

    @cached_property
    def total(self) -> StepReport | None:
        """The sum of all steps, or None if there are none."""
        return reduce(add, self.series) if self.series else None

    def over(self, seconds: float | None) -> list[StepReport]:
        """Return the steps of the last `seconds` before the newest step, or all steps, as at most `2 * POINTS` sums."""
        if seconds is None or not self.recent or self.recent[-1].committed is None:
            return list(self.series)
        since = self.recent[-1].committed - seconds * 1_000_000
        first = self.recent[0].committed
        steps = Series()
        # if steps are many, the newest do not reach back this far, but the sums do
        for report in self.recent if first is None or first <= since else self.series:
            if report.committed is not None and report.committed >= since:
                steps.add(report)
        return list(steps.sums)


class Series:
    """At most `2 * POINTS` sums, each over the same number of consecutive steps."""

    def __init__(self) -> None:
        self.sums: list[StepReport] = []
        self._size = 1
        self._in_last = 0

    def add(self, report: StepReport) -> None:
        """Append a step."""
        if self.sums and self._in_last < self._size:
            self.sums[-1] += report
            self._in_last += 1
            return
        if len(self.sums) == 2 * POINTS:
            self.sums = [first + second for first, second in zip(self.sums[::2], self.sums[1::2], strict=True)]
            self._size *= 2
        self.sums.append(report)
        self._in_last = 1


@dataclass
class _Known:
    """The reports read from a history file so far, and the position of the newest."""

    place: tuple[int, int, int | None] | None = None
    recent: deque[StepReport] = field(default_factory=lambda: deque(maxlen=_RECENT))
    series: Series = field(default_factory=Series)
    has_older: bool = False


@dataclass(frozen=True)
class LongView:
    """A view that can take long to compute; the last argument of `make` returns True once no client waits for it."""

    make: Callable[[Seen, Query, Callable[[], bool]], dict[str, Any]]


View = Callable[[Seen, Query], dict[str, Any]] | LongView
"""Returns the plain JSON of a view."""


@dataclass
class _Answer:
    """A finished or pending answer.

    `waiting` has a function for each waiting client, which returns True once the client has disconnected.
    """

    made: Future[bytes] = field(default_factory=Future)
    waiting: list[Callable[[], bool]] = field(default_factory=list)


class Watch:
    """Reads a run and answers its `views` as JSON; thread-safe."""

    def __init__(self, run: WatchedRun, views: Mapping[str, View], clock: Callable[[], int] = now_micros) -> None:
        self.run = run
        self._views = views
        self._clock = clock
        self._path: Path = history_of(run.checkpoint)
        self._lock = threading.Lock()
        self._looked = -_PAUSE
        self._known = _Known()
        self._mark: object = None
        self._seen = Seen(run, 0, clock(), RunStatus.of(None, [], clock()), absent="it has not been read yet")
        self._answers: dict[_Question, _Answer] = {}

    def look(self) -> Seen:
        """Return the current state of the run, after reading the file if it was last read more than a second ago."""
        with self._lock:
            if time.monotonic() - self._looked >= _PAUSE:
                self._read()
                self._looked = time.monotonic()
            return self._seen

    def answer(self, view: str, query: Query, is_left: Callable[[], bool] = _never) -> tuple[int, bytes]:
        """Return the version of a view and the view as JSON.

        Raise KeyError if there is no such view, and StoppedError soon after `is_left` returns True. Errors of the view
        propagate. A long view is stopped once all clients that wait for it have disconnected.
        """
        make = self._views[view]
        seen = self.look()
        question = view, tuple(sorted(query.items()))
        with self._lock:
            known = self._answers.get(question) if seen is self._seen else None
            answer = known or _Answer()
            if not answer.made.done():
                answer.waiting.append(is_left)
            if known is None and seen is self._seen:
                if len(self._answers) >= _ANSWERS:
                    self._answers.clear()
                self._answers[question] = answer
        if known is None:
            self._make(make, seen, query, question, answer)
        while not wait([answer.made], _LEFT).done:
            if is_left():
                raise StoppedError
        return seen.version, answer.made.result()

    def _make(self, make: View, seen: Seen, query: Query, question: _Question, answer: _Answer) -> None:
        def is_stopped() -> bool:
            with self._lock:
                is_stopped = all(is_left() for is_left in answer.waiting)
                # the next client starts a new one
                return is_stopped and self._forget(question, answer)

        try:
            about = {"run": self.run.name, "version": seen.version, "partial": seen.partial}
            view = make.make(seen, query, is_stopped) if isinstance(make, LongView) else make(seen, query)
            answer.made.set_result(json.dumps({**about, **view}, ensure_ascii=False, allow_nan=False).encode())
        except BaseException as exc:  # noqa: BLE001 - raised for all clients that wait
            # the next attempt may succeed
            with self._lock:
                self._forget(question, answer)
            answer.made.set_exception(exc)

    def _forget(self, question: _Question, answer: _Answer) -> Literal[True]:
        if self._answers.get(question) is answer:
            del self._answers[question]
        return True

    def _read(self) -> None:
        now = self._clock()
        record: RunRecord | None = None
        older: Sequence[RunRecord] = ()
        absent: str | None = None
        try:
            new = read_new(self._path, self._known.place, _READ)
            runs = read_runs(self._path)
            record = runs[-1] if runs else None
            alerts = _alerts(self._path)
        except InputError as exc:
            absent, self._known, alerts = exc.message, _Known(), ()
        else:
            if new.is_whole:
                self._known = _Known(has_older=new.has_older)
            self._known.place = new.last
            older = runs if self._known.has_older else ()
            for report in new.reports:
                self._known.recent.append(report)
                self._known.series.add(report)
        steps = list(self._known.recent)
        status = RunStatus.of(record, steps[-STEPS:], now, self.run.pipeline)
        mark = self._known.place, record, status.state, absent, alerts
        if mark != self._mark:
            self._mark = mark
            version = self._seen.version + 1
            sums = list(self._known.series.sums)
            self._seen = Seen(self.run, version, now, status, steps, sums, alerts, absent, older)
            self._answers = {}


def _alerts(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the active alerts of a history, then the resolved ones, each newest first."""
    found = [alert.plain() for alert in reversed(last_alerts(path))]
    return tuple(sorted(found, key=lambda alert: alert["resolved"] is not None)[:_SHOWN])
