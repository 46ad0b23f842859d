"""The history of a run: the reports of its steps, in a SQLite file beside the checkpoint.

A thread of its own writes it, so no step waits for it, and what fails there does not fail the run. Reports that are
read again are those that were written, or sums of consecutive ones (`StepReport.__add__`): the newest `FULL` steps are
kept as they are, older ones in sums of `MERGED`, still older ones in sums of as many sums, and so on, with at most
`SUMS` of each kind. So a file holds the whole run, and is bounded.
"""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import reduce
from operator import add
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from windrow.core.columns import MIN_TIME
from windrow.errors import InputError
from windrow.hosts.folders import Folder, on_this_machine
from windrow.hosts.reports import OnStep, StepReport

FILES: Final = ("progress.sqlite", "progress.sqlite-wal", "progress.sqlite-shm")
"""The files of a history: the database, and what SQLite has beside it while it is open."""
FULL: Final = 100_000
"""Steps that are kept as they are."""
SUMS: Final = 10_000
"""Sums of each size that are kept."""
MERGED: Final = 10
"""How many reports a sum is made of."""

_WAITING: Final = 1_000
"""Reports that may wait to be written; more are left out."""
_TOGETHER: Final = 1.0
"""Seconds for which reports are gathered to be written together."""
_LEAVE: Final = 5.0
"""Seconds that the end of a run waits for what is being written."""
_UNREADABLE: Final = (OSError, sqlite3.Error, KeyError, TypeError, ValueError, zlib.error)
_COLUMNS: Final = "size, epoch, committed, report"
_TABLE = """
    CREATE TABLE IF NOT EXISTS steps (
        id INTEGER PRIMARY KEY,
        size INTEGER NOT NULL, -- 0 a step, 1 the sum of some steps, 2 the sum of some of these ...
        epoch INTEGER NOT NULL, -- of the last step
        committed INTEGER, -- the wall clock in microseconds
        report BLOB NOT NULL -- JSON, compressed by zlib
    )
"""
_INDEX = "CREATE INDEX IF NOT EXISTS steps_by_size ON steps (size, id)"


def history_of(checkpoint: Folder) -> Path:
    """Return the file that has the history of a run, given its checkpoint."""
    return on_this_machine(checkpoint) / FILES[0]


class HistoryWriter:
    """Writes the reports of a run to a file, in a thread of its own, until the block ends.

    After a write that fails nothing more is written, and `on_warning` is called once with the reason.
    """

    def __init__(self, path: Path, on_warning: Callable[[str], None], *, full: int = FULL, sums: int = SUMS) -> None:
        self._path = path
        self._on_warning = on_warning
        self._limits = (full, sums)
        self._coming: queue.Queue[StepReport | None] = queue.Queue(_WAITING)
        self._has_failed = threading.Event()
        self._thread = threading.Thread(target=self._write, name="windrow-history", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        try:
            self._coming.put(None, timeout=_LEAVE)
        except queue.Full:
            return
        self._thread.join(_LEAVE)

    def noting(self, on_step: OnStep) -> OnStep:
        """Return what is called with each step, has it written, and calls `on_step`."""

        def note(report: StepReport) -> None:
            try:
                if not self._has_failed.is_set():
                    self._coming.put_nowait(report)
            except queue.Full:
                self._fail("the disk is too slow for it")
            on_step(report)

        return note

    def _write(self) -> None:
        reports, ended = self._gathered()
        if not reports:
            return  # where a run does not begin, there is no checkpoint to be beside
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(_opened(self._path)) as connection:
                held = _Held(connection, *self._limits)
                held.add(reports)
                while not ended:
                    reports, ended = self._gathered()
                    held.add(reports)
        except _UNREADABLE as exc:
            self._fail(str(exc))

    def _fail(self, why: str) -> None:
        if not self._has_failed.is_set():
            self._has_failed.set()
            self._on_warning(f"the history of this run is not written any more: {self._path}: {why}")

    def _gathered(self) -> tuple[list[StepReport], bool]:
        """Wait for a report; return those that come within a second, and whether the run has ended."""
        found = [self._coming.get()]
        until = time.monotonic() + _TOGETHER
        while found[-1] is not None and len(found) < _WAITING:
            try:
                found.append(self._coming.get(timeout=max(0.0, until - time.monotonic())))
            except queue.Empty:
                break
        return [report for report in found if report is not None], found[-1] is None


class _Held:
    """The rows of a file, by size."""

    def __init__(self, connection: sqlite3.Connection, full: int, sums: int) -> None:
        self._connection = connection
        self._limits = (full, sums)
        self._number = Counter(dict(connection.execute("SELECT size, count(*) FROM steps GROUP BY size")))

    def add(self, reports: Sequence[StepReport]) -> None:
        """Write reports, and add up the oldest ones where there are too many of a size."""
        full, sums = self._limits
        with self._connection:
            rows = [(0, report.epoch, report.committed, _packed(report)) for report in reports]
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
        total = reduce(add, (_unpacked(blob) for _, blob in found))
        # in the place of the last of them, all are in the order of time
        row = (found[-1][0], size + 1, total.epoch, total.committed, _packed(total))
        self._connection.execute(f"INSERT INTO steps (id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?)", row)
        self._number[size] -= len(found)
        self._number[size + 1] += 1


def read_history(path: Path, since: int | None = None, last: int | None = None) -> list[StepReport]:
    """Return the reports in a file, oldest first: those committed after `since` (microseconds), the `last` ones.

    Older ones are sums of several steps (see the module). Raise InputError if there is no file, or it cannot be read.
    """
    if not path.is_file():
        msg = f"there is no {path}: no step was taken with this checkpoint"
        raise InputError(msg)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute(
                "SELECT report FROM steps WHERE committed > ? ORDER BY id DESC LIMIT ?",
                (MIN_TIME if since is None else since, -1 if last is None else last),
            ).fetchall()
        return [_unpacked(blob) for (blob,) in reversed(rows)]
    except _UNREADABLE as exc:
        msg = f"{path} cannot be read ({exc}); remove it, and the next run begins a new one"
        raise InputError(msg) from exc


def forget_history(path: Path) -> None:
    """Remove the files of a history, if they are there."""
    for name in FILES:
        path.with_name(name).unlink(missing_ok=True)


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    # a power cut may cost the last steps, not the file
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", _TABLE, _INDEX):
        connection.execute(statement)
    return connection


def _packed(report: StepReport) -> bytes:
    return zlib.compress(json.dumps(report.plain()).encode(), 1)


def _unpacked(blob: bytes) -> StepReport:
    return StepReport.of_plain(json.loads(zlib.decompress(blob)))
