"""Appends records to an embedded log, by one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from windrow.errors import SourceError
from windrow.sources.base import NewRecord
from windrow.sources.log.folder import LogFolder


class LogAppender:
    """The appender of an embedded log; see `windrow.sources.base.Appender`. Producers may write meanwhile.

    The lines of a partition are written at once. If a crash leaves a part of a line that begins as `prefix`, the next
    one removes it: readers have not read it, as it has no newline.
    """

    def __init__(self, path: str, prefix: bytes) -> None:
        self._folder = LogFolder(path)
        self._prefix = prefix
        self._lock = -1

    def __enter__(self) -> Self:
        self._folder.partitions()  # the folder is there
        self._lock = os.open(self._folder.path, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(self._lock)
            msg = f"another process appends to the log {self._folder.path}: wait until it has ended"
            raise SourceError(msg) from exc
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def append(self, records: Mapping[int, Sequence[NewRecord]]) -> dict[int, list[int]]:
        """Append records to their partitions; return their offsets."""
        return {partition: self._append(partition, those) for partition, those in sorted(records.items()) if those}

    def _append(self, partition: int, records: Sequence[NewRecord]) -> list[int]:
        path = self._folder.file(partition)
        try:
            with path.open("r+b", buffering=0) as file:
                self._remove_torn(partition, file.fileno())
                before = self._folder.scan(partition)
                os.lseek(file.fileno(), 0, os.SEEK_END)
            with path.open("ab", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                left = b"".join(record.value + b"\n" for record in records)
                try:
                    while left:
                        left = left[file.write(left) :]
                    os.fsync(file.fileno())
                except OSError:
                    os.ftruncate(file.fileno(), size)
                    raise
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

    def _remove_torn(self, partition: int, file: int) -> None:
        """Remove a part of a line that an appender left; raise SourceError if another producer did."""
        if self._folder.ends_with_newline(partition):
            return
        whole = self._folder.scan(partition).byte
        if os.pread(file, len(self._prefix), whole) != self._prefix:
            msg = (
                f"{self._folder.file(partition)} ends in an incomplete record: wait until its producer has written it, "
                "or complete it"
            )
            raise SourceError(msg)
        os.ftruncate(file, whole)
