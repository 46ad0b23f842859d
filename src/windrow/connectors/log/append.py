"""Append records to an embedded log, from one process at a time.

The log is never truncated, not even after a failed write, because a reader may already have read its complete lines,
and producers append concurrently without a lock. Instead, the last byte of an incomplete line is replaced by a newline.
The line thereby becomes a malformed record, and lines that others have appended after it stay intact.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from windrow import model as m
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.segments import Position
from windrow.connectors.source import Appender, NewRecord
from windrow.errors import SourceError


@contextmanager
def locked(folder: LogFolder) -> Iterator[None]:
    """Lock a log for the block; raise SourceError if another process holds the lock, InputError if there is no log."""
    folder.partitions()  # raises if there is no log
    lock = os.open(folder.path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(lock)
        msg = f"another process is appending to the log {folder.path} or trimming it: wait until it has ended"
        raise SourceError(msg) from exc
    try:
        yield
    finally:
        os.close(lock)


def write_lines(path: Path, log: int, at: int, lines: bytes) -> None:
    """Durably write complete lines at byte `at`, the end of a log that has no other writers.

    If writing fails, the file is truncated to `at` and SourceError is raised.
    """
    left, end = memoryview(lines), at
    try:
        while left:
            written = os.pwrite(log, left, end)
            left, end = left[written:], end + written
        os.fsync(log)
    except OSError as exc:
        os.ftruncate(log, at)
        msg = f"cannot write the log {path}: {exc.strerror}"
        raise SourceError(msg) from exc


class LogAppender(Appender):
    """Appends records to an embedded log. Producers may write to the log at the same time.

    If a crash leaves an incomplete line that starts with `prefix`, the next appender terminates it.
    """

    def __init__(self, path: str, prefix: bytes) -> None:
        self._folder = LogFolder(path)
        self._prefix = prefix
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        self._lock.enter_context(locked(self._folder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._lock.close()

    def append(self, records: Mapping[int, Sequence[NewRecord]]) -> dict[int, list[int]]:
        return {partition: self._append(partition, new) for partition, new in sorted(records.items()) if new}

    def _append(self, partition: int, records: Sequence[NewRecord]) -> list[int]:
        path = self._folder.file(partition)
        try:
            with path.open("r+b", buffering=0) as whole, path.open("ab", buffering=0) as end:
                before = self._end_torn(partition, whole.fileno())
                for record in records:
                    line = record.value + b"\n"
                    while end.write(line) < len(line):
                        # the disk is full: the next write raises
                        os.pwrite(whole.fileno(), b"\n", end.tell() - 1)
                os.fsync(end.fileno())
        except OSError as exc:
            msg = f"cannot append to {path}: {exc.strerror}"
            raise SourceError(msg) from exc
        # a producer may have appended in between: find the records in the log
        waiting = {record.value: number for number, record in enumerate(records)}
        offsets = [-1] * len(records)
        for batch in self._folder.read(partition, before):
            for offset, value in zip(
                batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True
            ):
                if value in waiting:
                    offsets[waiting[value]] = offset
        return offsets

    def _end_torn(self, partition: int, file: int) -> Position:
        """Terminate an incomplete line left by an appender; return the position after the complete lines.

        Raise SourceError if the incomplete line was written by another producer.
        """
        size = os.fstat(file).st_size
        before = self._folder.scan(
            partition, self._folder.first(partition), max_byte=size
        )  # not lines that are appended meanwhile
        if before.byte < size:
            if os.pread(file, len(self._prefix), before.byte) != self._prefix:
                msg = (
                    f"{self._folder.file(partition)} ends in an incomplete record: wait until its producer has written "
                    "it, or complete it"
                )
                raise SourceError(msg)
            os.pwrite(file, b"\n", size - 1)
        return before


def log_appender(source: m.LogSource, _identity: str, prefix: bytes) -> LogAppender:
    """Return the appender of records that start with `prefix`."""
    return LogAppender(source.path, prefix)
