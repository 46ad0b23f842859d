"""Appends records to an embedded log, by one process at a time.

The log is never cut, not even after a write that failed: a reader may have read the whole lines of it, and producers
append meanwhile without a lock. A part of a line is ended instead, by a newline in the place of its own last byte: so
it is a malformed record, and what others have appended behind it stays a line.
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
from windrow.connectors.log.kept import Position
from windrow.connectors.source import NewRecord
from windrow.errors import SourceError


@contextmanager
def locked(folder: LogFolder) -> Iterator[None]:
    """Keep other processes from locking a log; raise SourceError if one has, InputError if the folder is no log."""
    folder.partitions()  # the folder is there
    lock = os.open(folder.path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(lock)
        msg = f"another process appends to the log {folder.path}, or trims it: wait until it has ended"
        raise SourceError(msg) from exc
    try:
        yield
    finally:
        os.close(lock)


def write_lines(path: Path, log: int, at: int, lines: bytes) -> None:
    """Write whole lines durably at the byte `at`, the end of a log that nobody else appends to: all or none of them.

    Raise SourceError if that fails.
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


class LogAppender:
    """The appender of an embedded log; see `windrow.connectors.source.Appender`. Producers may write meanwhile.

    If a crash leaves a part of a line that begins as `prefix`, the next one ends it.
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
        """Append records to their partitions; return their offsets."""
        return {partition: self._append(partition, those) for partition, those in sorted(records.items()) if those}

    def _append(self, partition: int, records: Sequence[NewRecord]) -> list[int]:
        path = self._folder.file(partition)
        try:
            with path.open("r+b", buffering=0) as whole, path.open("ab", buffering=0) as end:
                before = self._end_torn(partition, whole.fileno())
                for record in records:
                    line = record.value + b"\n"
                    while end.write(line) < len(line):
                        # the disk is full: the next write says so
                        os.pwrite(whole.fileno(), b"\n", end.tell() - 1)
                os.fsync(end.fileno())
        except OSError as exc:
            msg = f"cannot append to {path}: {exc.strerror}"
            raise SourceError(msg) from exc
        # a producer may have appended in between: what counts is what is there
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
        """End a part of a line that an appender left; return the position after the whole lines.

        Raise SourceError if the part is another producer's.
        """
        size = os.fstat(file).st_size
        before = self._folder.scan(
            partition, self._folder.first(partition), max_byte=size
        )  # not what is appended meanwhile
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
    """Return what appends to a log records that begin with `prefix`."""
    return LogAppender(source.path, prefix)
