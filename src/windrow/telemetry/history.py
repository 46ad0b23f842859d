"""The history of a run: its state, the reports of its steps and its alerts, in a SQLite file beside the checkpoint.

A separate thread writes the file, so no step waits for it, and a failed write does not fail the run. Each process that
runs with the checkpoint has a record (`RunRecord`), which it rewrites at least every two seconds. The newest `FULL`
reports are kept as they are. Older reports are kept as sums of `MERGED` consecutive reports (`StepReport.__add__`),
still older ones as sums of such sums, and so on, with at most `SUMS` of each size. So the file covers the whole run,
and its size is bounded.
"""

from __future__ import annotations

import json
import os
import platform
import queue
import socket
import sqlite3
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import reduce
from importlib.metadata import version
from operator import add
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from windrow.errors import InputError
from windrow.telemetry.folders import Folder, make_private, on_this_machine
from windrow.telemetry.reports import Alert, Fault, Lag, Observer, StepReport, Totals, now_micros

FILES: Final = ("progress.sqlite", "progress.sqlite-wal", "progress.sqlite-shm")
"""The files of a history: the database, and the files that SQLite creates beside it while it is open."""
FULL: Final = 100_000
"""Number of steps whose reports are kept as they are."""
SUMS: Final = 10_000
"""Number of sums of each size that are kept."""
MERGED: Final = 10
"""Number of reports that are merged into a sum."""

RUNS: Final = 100
"""Number of process records that are kept."""
ALERTS: Final = 1_000
"""Number of alerts that are kept."""

_PACKAGES: Final = ("windrow", "pyspark", "pandas", "pyarrow", "duckdb")

_WAITING: Final = 1_000
"""Number of reports that may wait to be written. A further report stops the history."""
_COLLECT: Final = 1.0
"""Seconds for which reports are collected before they are written together."""
_BEAT: Final = 2.0
"""Maximum seconds between two writes of the record."""
_LEAVE: Final = 5.0
"""Seconds to wait for the writer at the end of a run."""
_UNREADABLE: Final = (OSError, sqlite3.Error, KeyError, TypeError, ValueError, zlib.error)
_COLUMNS: Final = "size, epoch, committed, report"
_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS steps (
        id INTEGER PRIMARY KEY,
        size INTEGER NOT NULL, -- 0 a step, 1 the sum of some steps, 2 the sum of some of these ...
        epoch INTEGER NOT NULL, -- of the last step
        committed INTEGER, -- the wall clock in microseconds
        report BLOB NOT NULL -- JSON, compressed by zlib
    )
    """,
    "CREATE INDEX IF NOT EXISTS steps_by_size ON steps (size, id)",
    """
    CREATE TABLE IF NOT EXISTS runs (
        id INTEGER PRIMARY KEY,
        seen INTEGER NOT NULL, -- the wall clock in microseconds
        record TEXT NOT NULL -- JSON
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS alerts (
        raised INTEGER NOT NULL, -- the wall clock in microseconds
        name TEXT NOT NULL,
        alert TEXT NOT NULL, -- JSON
        PRIMARY KEY (raised, name)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS savepoints (
        saved INTEGER PRIMARY KEY, -- the wall clock in microseconds
        folder TEXT NOT NULL
    )
    """,
)


@dataclass(frozen=True)
class RunRecord:
    """The state of a process that runs, or ran, with a checkpoint, as of its last write (`seen`).

    The process is identified by `machine` and `pid`. Times are microseconds. `ended` is None while the process runs;
    `error` is the error that ended it, if any. `fault` is the last fault after which it continued, at `fault_at`; it
    `is_retrying` until the query has started again. `lag` is the last known lag; `waiting` is the time since which
    records have been waiting without a commit, or None if no records wait. `totals` are the totals of its steps
    (`Totals.plain`). `versions` are the versions of windrow, Python and packages; `every` is the interval between steps
    in microseconds. In records written by older versions, the last two are None.
    """

    pipeline: str
    host: str
    machine: str
    pid: int
    began: int
    seen: int
    ended: int | None = None
    error: str | None = None
    fault: str | None = None
    fault_at: int | None = None
    is_retrying: bool = False
    lag: Lag | None = None
    waiting: int | None = None
    totals: Mapping[str, Any] | None = None
    versions: Mapping[str, str] | None = None
    every: int | None = None

    @staticmethod
    def here(pipeline: str, host: str, every: int | None = None) -> RunRecord:
        """Return a new record for this process."""
        now, here = now_micros(), socket.gethostname()
        return RunRecord(pipeline, host, here, os.getpid(), now, now, versions=installed_versions(), every=every)

    def plain(self) -> dict[str, Any]:
        """Return the record as plain JSON."""
        return asdict(self) | {"lag": None if self.lag is None else self.lag.plain()}

    @staticmethod
    def of_plain(made: Mapping[str, Any]) -> RunRecord:
        """Parse the result of `plain`; raise KeyError or TypeError if it is not a record."""
        return RunRecord(**{**made, "lag": None if made["lag"] is None else Lag.of_plain(made["lag"])})


def installed_versions() -> dict[str, str]:
    """Return the versions of windrow, Python, and the packages that affect state and results."""
    return {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()}


def history_of(checkpoint: Folder) -> Path:
    """Return the path of the history file for a checkpoint."""
    return on_this_machine(checkpoint) / FILES[0]


class HistoryWriter:
    """Writes the state of a run and the reports of its steps to a file, in a background thread, until the block ends.

    Writing starts when `begin` is called, or when the run is ready or has committed a step. Before that, the checkpoint
    may turn out to belong to another run. After a failed write nothing more is written, and `on_warning` is called once
    with the reason.
    """

    def __init__(
        self, path: Path, record: RunRecord, on_warning: Callable[[str], None], *, full: int = FULL, sums: int = SUMS
    ) -> None:
        self._path = path
        self._on_warning = on_warning
        self._limits = (full, sums)
        self._coming: queue.Queue[StepReport | None] = queue.Queue(_WAITING)
        self._has_failed = threading.Event()
        self._has_begun = threading.Event()
        self._lock = threading.Lock()
        self._record = record
        self._alerts: list[Alert] = []
        self._thread = threading.Thread(target=self._write, name="windrow-history", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._note(ended=now_micros(), error=None if value is None else str(value) or type(value).__name__)
        try:
            self._coming.put(None, timeout=_LEAVE)
        except queue.Full:
            return
        self._thread.join(_LEAVE)

    def begin(self) -> None:
        """Start writing, as the checkpoint is known to be the run's own.

        From now on, the history also shows why a run fails to start.
        """
        self._has_begun.set()

    @property
    def observer(self) -> Observer:
        """Callbacks that add the events of a run to the history."""
        return Observer(self.on_step, self.on_trouble, self.on_ready, self.on_lag, self.begin)

    def on_step(self, report: StepReport) -> None:
        """Queue a step's report to be written."""
        lag = report.last_lag and report.last_lag.with_slots_of(self._record.lag)
        known = {} if lag is None else {"lag": lag, "waiting": lag.asked if lag.behind else None}
        self._note(is_retrying=False, **known)
        try:
            if not self._has_failed.is_set():
                self._coming.put_nowait(report)
        except queue.Full:
            self._fail("the disk is too slow")

    def on_lag(self, lag: Lag) -> None:
        """Update the lag in the record, and the time since which records have been waiting."""
        waiting = self._record.waiting or lag.asked
        self._note(lag=lag, waiting=waiting if lag.behind else None)

    def on_trouble(self, fault: Fault) -> None:
        """Note a fault after which the run continues."""
        self._note(fault=fault.what, fault_at=now_micros(), is_retrying=True)

    def on_ready(self) -> None:
        """Note that the run is processing steps, for the first time or again after a fault."""
        self._note(is_retrying=False)
        self.begin()

    def note_alert(self, alert: Alert) -> None:
        """Queue an alert that was raised or resolved, to be written with the next reports."""
        with self._lock:
            self._alerts.append(alert)

    def _note(self, **changes: Any) -> None:  # noqa: ANN401 - fields of a record
        with self._lock:
            self._record = replace(self._record, **changes)

    def _write(self) -> None:
        reports, ended = self._collect()
        while not (reports or ended or self._has_begun.is_set()):
            reports, ended = self._collect()
        if not reports and not self._has_begun.is_set():
            return
        try:
            make_private(self._path.parent)
            with closing(_open(self._path)) as connection:
                rows, totals = _Rows(connection, *self._limits), Totals()
                while True:
                    for report in reports:
                        totals.add(report)
                    with self._lock:
                        record, alerts, self._alerts = self._record, self._alerts, []
                    rows.add(reports, replace(record, seen=now_micros(), totals=totals.plain()), alerts)
                    if ended:
                        return
                    reports, ended = self._collect()
        except _UNREADABLE as exc:
            self._fail(str(exc))

    def _fail(self, why: str) -> None:
        if not self._has_failed.is_set():
            self._has_failed.set()
            self._on_warning(f"the history of this run is no longer written: {self._path}: {why}")

    def _collect(self) -> tuple[list[StepReport], bool]:
        """Wait for a report, collect more for up to a second, and return them and whether the run has ended."""
        found: list[StepReport] = []
        wait, until = _BEAT, 0.0
        while len(found) < _WAITING:
            try:
                report = self._coming.get(timeout=wait)
            except queue.Empty:
                break
            if report is None:
                return found, True
            until = until or time.monotonic() + _COLLECT
            found.append(report)
            wait = max(0.0, until - time.monotonic())
        return found, False


_FORGET = "DELETE FROM alerts WHERE rowid NOT IN (SELECT rowid FROM alerts ORDER BY raised DESC LIMIT ?)"


class _Rows:
    """The rows of an open history file. Counts how many reports and sums of each size there are."""

    def __init__(self, connection: sqlite3.Connection, full: int, sums: int) -> None:
        self._connection = connection
        self._limits = (full, sums)
        self._number = Counter(dict(connection.execute("SELECT size, count(*) FROM steps GROUP BY size")))
        with connection:
            connection.execute("DELETE FROM runs WHERE id <= (SELECT max(id) FROM runs) - ?", (RUNS - 1,))
            self._run = connection.execute("INSERT INTO runs (seen, record) VALUES (0, 'null')").lastrowid

    def add(self, reports: Sequence[StepReport], record: RunRecord, alerts: Sequence[Alert] = ()) -> None:
        """Write the record, reports and alerts; merge the oldest reports of a size if there are too many."""
        full, sums = self._limits
        with self._connection:
            given = [(alert.raised, alert.name, json.dumps(alert.plain(), default=str)) for alert in alerts]
            self._connection.executemany("INSERT OR REPLACE INTO alerts (raised, name, alert) VALUES (?, ?, ?)", given)
            if given:
                self._connection.execute(_FORGET, (ALERTS,))
            row = record.seen, json.dumps(record.plain()), self._run
            self._connection.execute("UPDATE runs SET seen = ?, record = ? WHERE id = ?", row)
            rows = [(0, report.epoch, report.committed, _pack(report)) for report in reports]
            self._connection.executemany(f"INSERT INTO steps ({_COLUMNS}) VALUES (?, ?, ?, ?)", rows)
            self._number[0] += len(rows)
            size = 0
            while self._number[size]:
                while self._number[size] > (sums if size else full):
                    self._merge(size)
                size += 1

    def _merge(self, size: int) -> None:
        found = self._connection.execute(
            "SELECT id, report FROM steps WHERE size = ? ORDER BY id LIMIT ?", (size, MERGED)
        ).fetchall()
        self._connection.executemany("DELETE FROM steps WHERE id = ?", [(id_,) for id_, _ in found])
        total = reduce(add, (_unpack(blob) for _, blob in found))
        # the sum takes the place of the last row, so that rows stay in order of time
        row = (found[-1][0], size + 1, total.epoch, total.committed, _pack(total))
        self._connection.execute(f"INSERT INTO steps (id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?)", row)
        self._number[size] -= len(found)
        self._number[size + 1] += 1


def read_history(path: Path, since: int | None = None, last: int | None = None) -> list[StepReport]:
    """Return the `last` reports of a file that were committed after `since` (microseconds), oldest first.

    Older reports are sums of several steps (see the module). Raise InputError if the file does not exist or cannot be
    read.
    """
    with _open_to_read(path) as connection:
        rows = connection.execute(
            "SELECT report FROM steps WHERE ?1 IS NULL OR committed > ?1 ORDER BY id DESC LIMIT ?2",
            (since, -1 if last is None else last),
        ).fetchall()
        return [_unpack(blob) for (blob,) in reversed(rows)]


@dataclass(frozen=True)
class NewSteps:
    """Reports that a reader has not seen yet, oldest first. If `is_whole`, they replace everything the reader has seen.

    The position of the newest report is `last`, to be passed to the next call of `read_new`. If `has_older`, older
    reports were left out.
    """

    reports: tuple[StepReport, ...]
    last: tuple[int, int, int | None]
    is_whole: bool
    has_older: bool = False


def read_new(path: Path, seen: tuple[int, int, int | None] | None, most: int) -> NewSteps:
    """Return the reports after the position `seen`.

    Return the newest `most` reports instead if `seen` is None, is no longer in the file, or is more than `most` reports
    back. Raise InputError as `read_history` does.
    """
    with _open_to_read(path) as connection:
        is_known = seen is not None and bool(
            # the oldest steps are summed up first, so no step after one that is still whole is in a sum with it
            connection.execute(
                "SELECT 1 FROM steps WHERE (id, epoch) = (?, ?) AND committed IS ? AND size = 0", seen
            ).fetchone()
        )
        after = seen[0] if seen is not None and is_known else 0
        newest = "SELECT id, epoch, committed, report FROM steps WHERE id > ? ORDER BY id DESC LIMIT ?"
        rows = connection.execute(newest, (after, most + 1)).fetchall()
        has_older = len(rows) > most
        is_known, rows = is_known and not has_older, rows[:most]
        last = rows[0][:3] if rows else seen if seen is not None and is_known else (0, 0, None)
        return NewSteps(tuple(_unpack(row[3]) for row in reversed(rows)), last, not is_known, has_older)


def read_runs(path: Path, last: int = RUNS) -> list[RunRecord]:
    """Return the records of the `last` processes that ran with a checkpoint, oldest first.

    The list is empty for a file of an older version. Raise InputError as `read_history` does.
    """
    with _open_to_read(path) as connection:
        if not _has(connection, "runs"):
            return []
        rows = connection.execute("SELECT record FROM runs WHERE seen > 0 ORDER BY id DESC LIMIT ?", (last,)).fetchall()
        return [RunRecord.of_plain(json.loads(text)) for (text,) in reversed(rows)]


def read_alerts(path: Path, last: int = ALERTS) -> list[Alert]:
    """Return the `last` alerts of a checkpoint's runs, active or resolved, in the order in which they were raised.

    The list is empty for a file of an older version. Raise InputError as `read_history` does.
    """
    with _open_to_read(path) as connection:
        if not _has(connection, "alerts"):
            return []
        rows = connection.execute("SELECT alert FROM alerts ORDER BY raised DESC, name LIMIT ?", (last,)).fetchall()
        return [Alert.of_plain(json.loads(text)) for (text,) in reversed(rows)]


def read_last_savepoint(path: Path) -> int | None:
    """Return the time of the newest savepoint of a checkpoint (microseconds), or None if none is known.

    Raise InputError as `read_history` does.
    """
    with _open_to_read(path) as connection:
        if not _has(connection, "savepoints"):
            return None
        (saved,) = connection.execute("SELECT max(saved) FROM savepoints").fetchone()
        return int(saved) if saved is not None else None


def note_savepoint(path: Path, folder: Folder) -> None:
    """Record in a checkpoint's history that a savepoint was just taken, if the history exists and is writable."""
    if not path.is_file():
        return
    with suppress(*_UNREADABLE), closing(_open(path)) as connection, connection:
        connection.execute(
            "INSERT OR REPLACE INTO savepoints (saved, folder) VALUES (?, ?)", (now_micros(), str(folder))
        )


def _has(connection: sqlite3.Connection, table: str) -> bool:
    """Return True if the file has a table. Files of older versions lack some tables."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    return found is not None


@contextmanager
def _open_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a history for reading. Raise InputError if the file does not exist, or if reading it in the block fails."""
    if not path.is_file():
        msg = (
            f"there is no {path}: no run with this checkpoint has written a history (runs with --host memory or batch "
            "write none); run the pipeline on the stream host, or choose another checkpoint"
        )
        raise InputError(msg)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            yield connection
    except _UNREADABLE as exc:
        msg = f"{path} cannot be read ({exc}); remove it, and the next run begins a new one"
        raise InputError(msg) from exc


def forget_history(path: Path) -> None:
    """Remove the files of a history if they exist."""
    for name in FILES:
        path.with_name(name).unlink(missing_ok=True)


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    # a power cut may cost the last steps, not the file
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", *_TABLES):
        connection.execute(statement)
    return connection


def _pack(report: StepReport) -> bytes:
    return zlib.compress(json.dumps(report.plain()).encode(), 1)


def _unpack(blob: bytes) -> StepReport:
    return StepReport.of_plain(json.loads(zlib.decompress(blob)))
