"""The files of an embedded log. Each line is a record, and files are read in blocks as Arrow data."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.log.segments import MARK, START, Position, Retained, Segment, head
from windrow.connectors.not_text import PREFIX, refusal
from windrow.engine.schema import MICROS, RAW
from windrow.errors import InputError, RecordsLostError, SourceError

BLOCK = 4 << 20
MAX_LINE = 1 << 30
_LIKE = re.compile(r"partition-.*\.jsonl")
_NAME = re.compile(r"partition-(0|[1-9][0-9]{0,8})\.jsonl")
T = TypeVar("T")


class LogFolder:
    """The files of an embedded log.

    Files are opened only while they are accessed. A last line without a newline does not count yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def file(self, partition: int) -> Path:
        """Return the path of a partition's file."""
        return self.path / f"partition-{partition}.jsonl"

    def partitions(self) -> list[int]:
        """Return the partitions in order; raise InputError if the folder is not a log."""
        return sorted(self.sizes())

    def sizes(self) -> dict[int, int]:
        """Return the size of each partition in bytes; raise InputError if the folder is not a log."""
        try:
            with os.scandir(self.path) as entries:
                found = {entry.name: entry.stat() for entry in entries if _LIKE.fullmatch(entry.name)}
        except FileNotFoundError:
            msg = f"there is no log folder {self.path}; create one with `windrow generate`, or correct the path"
            raise InputError(msg) from None
        except NotADirectoryError:
            msg = f"{self.path} is not a folder; a log is a folder with partition-0.jsonl, partition-1.jsonl, ..."
            raise InputError(msg) from None
        except OSError as exc:
            msg = f"cannot list the log folder {self.path}: {exc.strerror}"
            raise SourceError(msg) from exc
        if not found:
            msg = f"{self.path} is not a log: it has no partition-0.jsonl, partition-1.jsonl, ..."
            raise InputError(msg)
        return {self._number(name, status): status.st_size for name, status in found.items()}

    def _number(self, name: str, status: os.stat_result) -> int:
        match = _NAME.fullmatch(name)
        if match is None:
            msg = (
                f"{self.path / name} is not the name of a partition: partition-N.jsonl, N a whole number without a sign"
            )
            raise InputError(msg)
        if not stat.S_ISREG(status.st_mode):
            msg = f"{self.path / name} is not a file; a partition is a file with one record per line"
            raise InputError(msg)
        return int(match[1])

    def retained(self, partition: int) -> Retained:
        """Return the retained part of a partition, which may have been trimmed or compacted.

        Raise SourceError if the description of this part cannot be read or is damaged.
        """
        try:
            return Retained.read(self.file(partition))
        except OSError as exc:
            msg = f"cannot read the log {self.path}: {exc.strerror}"
            raise SourceError(msg) from exc

    def first(self, partition: int) -> Position:
        """Return the position of the first retained record."""
        return self.retained(partition).first

    def segment(self, kept: Retained) -> Segment | None:
        """Open the compacted segment, or return None if there is none."""
        return None if kept.segment is None else Segment(self.path / kept.segment)

    def read_stable(self, partition: int, look: Callable[[Retained], T]) -> T:
        """Return the result of `look`, calling it again if the partition was trimmed or compacted in the meantime."""
        kept = self.retained(partition)
        while True:
            try:
                found = look(kept)
            except (OSError, SourceError):
                if (now := self.retained(partition)) == kept:
                    raise
            else:
                if (now := self.retained(partition)) == kept:
                    return found
            kept = now

    def scan(
        self, partition: int, start: Position = START, max_lines: int | None = None, max_byte: int | None = None
    ) -> Position:
        """Return the position after at most `max_lines` records that follow `start` and end at or before `max_byte`.

        Raise SourceError if the file is shorter than `start`, no line ends at `start`, or records after it were
        trimmed.
        """

        def look(kept: Retained) -> Position:
            self._require(partition, start, kept)
            if start.line >= kept.base.line:
                return self._scan(partition, start, max_lines, max_byte)
            at, left, segment = start, max_lines, self.segment(kept)
            if segment is not None:
                before = segment.at(start.line)
                there = (
                    len(segment.offsets) if max_byte is None else int(np.searchsorted(segment.ends, max_byte, "right"))
                )
                count = max(0, there - before) if left is None else min(left, max(0, there - before))
                at = segment.position(before + count, kept.first) if count else start
                left = None if left is None else left - count
            if left == 0 or (max_byte is not None and max_byte < kept.base.byte):
                return at
            return self._scan(partition, kept.base, left, max_byte)

        return self.read_stable(partition, look)

    def _scan(self, partition: int, start: Position, max_lines: int | None, max_byte: int | None) -> Position:
        with self._open(partition, start) as file:
            line, end, at = start.line, start.byte, start.byte
            while max_lines is None or line - start.line < max_lines:
                block = file.read(BLOCK if max_byte is None else max(0, min(BLOCK, max_byte - at)))
                if not block:
                    break
                newlines = np.frombuffer(block, np.uint8) == ord("\n")
                count = int(np.count_nonzero(newlines))
                if max_lines is not None and line + count - start.line > max_lines:
                    keep = max_lines - (line - start.line)
                    return Position(start.line + max_lines, at + int(np.flatnonzero(newlines)[keep - 1]) + 1)
                if count:
                    line, end = line + count, at + block.rindex(b"\n") + 1
                at += len(block)
            return Position(line, end)

    def about_lines(self, partition: int, start: Position, end: int) -> int:
        """Estimate the number of lines between a position and a byte, based on the first block of lines."""

        def look(kept: Retained) -> int:
            before, at = 0, start
            if start.line < kept.base.line:
                segment = self.segment(kept)
                before = 0 if segment is None else len(segment.offsets) - segment.at(start.line)
                at = kept.base
            left = end - at.byte
            if left <= 0:
                return before
            with self._open(partition, at) as file:
                block = file.read(min(BLOCK, left))
            lines = block.count(b"\n")
            return before + (lines if len(block) == left else max(1, lines * left // max(1, len(block))))

        return self.read_stable(partition, look)

    def between_transactions(self, partition: int, start: Position, end: Position, size: int) -> Position:
        """Return the first position from `end` on at which no transaction is divided, or else the last one before it.

        The records of a transaction that are not its last say so at their beginning. Only the first `size` bytes are
        searched, and the result is not before `start`.
        """
        if end <= start or not self._is_divided(partition, end):
            return end
        at = end
        for batch in self.read(partition, end, self.scan(partition, end, max_byte=size)):
            for line in batch.column("value").to_pylist():
                at = Position(at.line + 1, at.byte + len(line) + 1)
                if not _MORE.match(line):
                    return at
        found = at = start
        for batch in self.read(partition, start, end):
            for line in batch.column("value").to_pylist():
                at = Position(at.line + 1, at.byte + len(line) + 1)
                found = found if _MORE.match(line) else at
        return found

    def _is_divided(self, partition: int, at: Position) -> bool:
        """Return True if the record before a position is not the last of its transaction."""
        if at.line <= self.retained(partition).base.line:
            return False
        with self._open(partition, at) as file:
            size, line = _LINE, b""
            while b"\n" not in line[:-1]:
                begin = max(0, at.byte - size)
                file.seek(begin)
                line = file.read(at.byte - begin)
                if not begin:
                    break
                size *= 4
        return _MORE.match(line[line.rfind(b"\n", 0, -1) + 1 :]) is not None

    def ends_with_newline(self, partition: int) -> bool:
        """Return True if a partition is empty or its last line is complete."""
        with self._open(partition, START) as file:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                return True
            file.seek(size - 1)
            return file.read(1) == b"\n"

    def up_to(self, partition: int, line: int, start: Position, max_byte: int | None = None) -> Position:
        """Return the position after the records that follow `start` and have offsets before `line`, or the end."""

        def look(kept: Retained) -> Position:
            self._require(partition, start, kept)
            if start.line >= kept.base.line:
                return self._scan(partition, start, line - start.line, max_byte)
            if line >= kept.base.line:
                return self._scan(partition, kept.base, line - kept.base.line, max_byte)
            segment = self.segment(kept)
            byte = start.byte if segment is None else segment.position(segment.at(line), kept.first).byte
            return Position(line, max(byte, start.byte))

        return self.read_stable(partition, look)

    def after(self, partition: int, line: int, start: Position | None = None) -> Position:
        """Return the position of an offset; raise SourceError if the partition ends before it."""
        found = self.up_to(partition, line, self.first(partition) if start is None else start)
        if found.line < line:
            msg = (
                f"the log lost records: partition {partition} ({self.file(partition)}) must be read up to offset "
                f"{line}, but now has only {found.line} lines; bring the file back"
            )
            raise SourceError(msg)
        return found

    def read(  # noqa: C901 - the file, and the segment before it
        self, partition: int, start: Position | None = None, end: Position | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the records between two positions in RAW batches of a few MB.

        By default, `start` is the first record and `end` the current end. If the log is compacted while it is read,
        only the remaining records are returned. Raise SourceError if the file no longer has exactly these lines, a
        record was trimmed, or a line is longer than 1 GiB.
        """
        at = self.first(partition) if start is None else start
        end = self.scan(partition, at) if end is None else end
        while at.line < end.line:
            kept = self.retained(partition)
            self._require(partition, at, kept)
            try:
                if at.line < kept.base.line:
                    up_to = min(end, kept.base)
                    segment = self.segment(kept)
                    for batch in () if segment is None else segment.read(at.line, up_to.line):
                        yield raw_batch(partition, batch.column("offset"), batch.column("value"))
                        at = Position(batch.column("offset")[-1].as_py() + 1, batch.column("end")[-1].as_py())
                    at = up_to
                    continue
                with self._open(partition, at) as file:
                    for block in line_blocks(self._blocks(file, partition, end.byte - at.byte), self.file(partition)):
                        if at < self.retained(partition).base:
                            break  # trimmed or compacted while it was read: the block may be zeros
                        line = at.line
                        for batch in batches(block, partition, line):
                            yield batch
                            line += batch.num_rows
                        at = Position(line, at.byte + len(block))
                    else:
                        if at.line != end.line:
                            raise self._lost(partition, end, f"it has {at.line} lines in the first {end.byte} bytes")
                        return
            except (OSError, SourceError) as exc:
                if self.retained(partition) == kept:
                    if isinstance(exc, SourceError):
                        raise
                    msg = f"cannot read {self.file(partition)}: {exc.strerror}"
                    raise SourceError(msg) from exc

    def read_lines(self, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read the records with offsets from `first` up to, but not including, `end`, as `read` does."""
        start = self.after(partition, first)
        return self.read(partition, start, self.after(partition, end, start))

    def _blocks(self, file: BinaryIO, partition: int, left: int) -> Iterator[bytes]:
        """Read `left` bytes in blocks; raise SourceError if the file ends before."""
        while left:
            block = file.read(min(BLOCK, left))
            if not block:
                msg = f"the log lost records: {self.file(partition)} was cut off while it was read; bring the file back"
                raise SourceError(msg)
            left -= len(block)
            yield block

    def mark(self, partition: int, position: Position) -> int:
        """Return a checksum of the bytes just before a position, by which a later reader can detect that they changed.

        The checksum is 0 if this part of the log was compacted, because the original bytes no longer exist.
        """

        def look(kept: Retained) -> int:
            if position.line < kept.base.line:
                return 0
            with self._open(partition, position) as file:
                file.seek(max(0, position.byte - MARK))
                return crc32(file.read(position.byte - file.tell()))

        return self.read_stable(partition, look)

    def head(self, partition: int) -> int:
        """Return a checksum of the start of the first line, which does not change while the file grows."""
        with self._open(partition, START):
            return head(self.file(partition))

    def _require(self, partition: int, at: Position, kept: Retained) -> None:
        if at.line < kept.first.line:
            msg = f"the log {self.path} lost records: partition {partition}: {trimmed(at.line, kept.first.line)}"
            raise RecordsLostError(msg)

    @contextmanager
    def _open(self, partition: int, start: Position) -> Iterator[BinaryIO]:
        """Open a partition at a position, which must be the end of a line or the start of the file."""
        path = self.file(partition)
        try:
            with path.open("rb", buffering=0) as raw:
                file: BinaryIO = raw
                size = os.fstat(file.fileno()).st_size
                if size < start.byte:
                    raise self._lost(partition, start, f"it has only {size} bytes now")
                if start.byte:
                    file.seek(start.byte - 1)
                    if file.read(1) != b"\n":
                        raise self._lost(partition, start, f"no line ends at byte {start.byte} now")
                else:
                    if (message := refusal(path, file.read(PREFIX))) is not None:
                        raise SourceError(message)
                    file.seek(0)
                yield file
        except FileNotFoundError:
            raise self._lost(partition, start, "it is gone") from None
        except OSError as exc:
            msg = f"cannot read {path}: {exc.strerror}"
            raise SourceError(msg) from exc

    def _lost(self, partition: int, at: Position, what: str) -> RecordsLostError:
        return RecordsLostError(
            f"the log lost records: partition {partition} ({self.file(partition)}) was read up to offset {at.line} "
            f"(byte {at.byte}), and {what}; bring the file back, or start over with another checkpoint"
        )

    def verify(self, partition: int, at: Position, mark: int, head: int | None = None) -> None:
        """Raise SourceError if the bytes before a position have changed since `mark` and `head` were recorded.

        Offsets recorded by older versions have no `head`.
        """
        self._require(partition, at, kept := self.retained(partition))
        if at.line >= kept.base.line and self.mark(partition, at) not in {mark, 0}:
            raise self._lost(partition, at, "the bytes before that position have changed")
        if head is not None and self.head(partition) != head:
            raise self._lost(partition, at, "its first line has changed")

    def noted(self, partition: int, at: Position) -> dict[str, int]:
        """Return a position as Spark records it, with checksums of the bytes before it and of the first line."""
        return {"line": at.line, "byte": at.byte, "mark": self.mark(partition, at), "head": self.head(partition)}


BATCH_ROWS = 65_536
_LINE = 4096
"""Bytes in which the last line is first sought."""
_MORE = re.compile(rf'\{{"{m.LOG_TIME}": [0-9]+, "{m.MORE}": true, "before": '.encode())
"""The beginning of a change of a database that is not the last of its transaction."""


def trimmed(stood: int, first: int) -> str:
    """Describe the offsets that were lost, in the same words as for a topic."""
    return f"offsets {stood} to {first - 1} are gone"


def batches(block: bytes, partition: int, first: int) -> Iterator[pa.RecordBatch]:
    """Split complete lines into RAW batches of at most `BATCH_ROWS` rows.

    The last line also ends with a newline, and the first line has the offset `first`. The value of a record is its line
    without the newline; its key and log time are null.
    """
    values = lines_of(block)
    for at in range(0, len(values), BATCH_ROWS):
        rows = min(BATCH_ROWS, len(values) - at)
        yield raw_batch(partition, pa.arange(first + at, first + at + rows), values.slice(at, rows))


def line_blocks(blocks: Iterable[bytes], file: Path) -> Iterator[bytes]:
    """Regroup blocks so that each consists of complete lines, except that the last newline may be missing.

    Raise SourceError for a line longer than 1 GiB.
    """
    head: list[bytes] = []  # parts of a line that is longer than a block
    held = 0
    for block in blocks:
        if cut := block.rfind(b"\n") + 1:
            yield b"".join([*head, block[:cut]])
            head, held = [], 0
        head.append(block[cut:])
        held += len(head[-1])
        if held > MAX_LINE:
            msg = f"{file} has a line of more than {MAX_LINE} bytes; a record can hold no more"
            raise SourceError(msg)
    if held:
        yield b"".join(head)


def lines_of(block: bytes) -> pa.Array:
    """Split a block of complete lines into binary values without the newlines."""
    values = pc.split_pattern(pa.array([block], pa.binary()), b"\n").values
    return values.slice(0, len(values) - 1)  # nothing follows the last newline


def raw_batch(partition: int, offsets: pa.Array, values: pa.Array, keys: pa.Array | None = None) -> pa.RecordBatch:
    """Return a RAW batch of records that have no log timestamps."""
    rows = len(offsets)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            offsets,
            pa.nulls(rows, MICROS),
            pa.nulls(rows, pa.binary()) if keys is None else keys,
            values,
        ],
        schema=RAW,
    )
