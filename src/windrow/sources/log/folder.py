"""Files of an embedded log: a record a line, read in blocks as Arrow."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core.schema import MICROS, RAW
from windrow.errors import InputError, RecordsLostError, SourceError

BLOCK = 4 << 20
MAX_LINE = 1 << 30
_LIKE = re.compile(r"partition-.*\.jsonl")
_NAME = re.compile(r"partition-(0|[1-9][0-9]{0,8})\.jsonl")
_MARK = 256


@dataclass(frozen=True, order=True)
class Position:
    """A place between two lines: `line` lines and `byte` bytes are before it."""

    line: int = 0
    byte: int = 0


START = Position()


class LogFolder:
    """The files of an embedded log; it holds nothing open, and a last line without a newline is not there yet."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def file(self, partition: int) -> Path:
        """Return the path of a partition."""
        return self.path / f"partition-{partition}.jsonl"

    def partitions(self) -> list[int]:
        """Return the partitions in order; raise InputError if the folder is not a log."""
        return sorted(self.sizes())

    def sizes(self) -> dict[int, int]:
        """Return the bytes of each partition; raise InputError if the folder is not a log."""
        try:
            with os.scandir(self.path) as entries:
                found = {entry.name: entry.stat() for entry in entries if _LIKE.fullmatch(entry.name)}
        except FileNotFoundError:
            msg = f"there is no log folder {self.path}; make one with `windrow generate`, or correct the path"
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
                f"{self.path / name} is not named as a partition is: partition-N.jsonl, N a whole number without a sign"
            )
            raise InputError(msg)
        if not stat.S_ISREG(status.st_mode):
            msg = f"{self.path / name} is not a file; a partition is a file with a record a line"
            raise InputError(msg)
        return int(match[1])

    def scan(
        self, partition: int, start: Position = START, max_lines: int | None = None, max_byte: int | None = None
    ) -> Position:
        """Return the position after at most `max_lines` whole lines from `start` that end at or before `max_byte`.

        Raise SourceError if the file is shorter than `start`, or no line ends there.
        """
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
        """Return about how many lines there are between a position and a byte, judged by the first block of them."""
        left = end - start.byte
        if left <= 0:
            return 0
        with self._open(partition, start) as file:
            block = file.read(min(BLOCK, left))
        lines = block.count(b"\n")
        return lines if len(block) == left else max(1, lines * left // max(1, len(block)))

    def ends_with_newline(self, partition: int) -> bool:
        """Return whether a partition's last line is whole; an empty file has none that is not."""
        with self._open(partition, START) as file:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                return True
            file.seek(size - 1)
            return file.read(1) == b"\n"

    def after(self, partition: int, line: int, start: Position = START) -> Position:
        """Return the position after that many lines; raise SourceError if there are fewer."""
        found = self.scan(partition, start, max_lines=line - start.line)
        if found.line < line:
            msg = (
                f"the log lost records: partition {partition} ({self.file(partition)}) is to be read up to offset "
                f"{line}, and it has only {found.line} lines now; bring the file back"
            )
            raise SourceError(msg)
        return found

    def read(self, partition: int, start: Position = START, end: Position | None = None) -> Iterator[pa.RecordBatch]:
        """Read the records between two positions (to the end that the file has now) as RAW batches of some MB.

        Raise SourceError if the file does not hold exactly these lines any more, or a line is longer than 1 GiB.
        """
        end = self.scan(partition, start) if end is None else end
        line = start.line
        with self._open(partition, start) as file:
            for block in self._blocks(file, partition, end.byte - start.byte):
                for batch in batches(block, partition, line):
                    yield batch
                    line += batch.num_rows
        if line != end.line:
            raise self._lost(partition, end, f"it has {line} lines in the first {end.byte} bytes")

    def read_lines(self, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read the lines from `first` up to `end`, which is not read, as `read` does."""
        start = self.after(partition, first)
        return self.read(partition, start, self.after(partition, end, start))

    def _blocks(self, file: BinaryIO, partition: int, left: int) -> Iterator[bytes]:
        """Read `left` bytes in blocks of whole lines; the last line must be whole."""
        head: list[bytes] = []  # the beginning of a line that is longer than a block
        held = 0
        while left:
            block = file.read(min(BLOCK, left))
            if not block:
                msg = f"the log lost records: {self.file(partition)} was cut off while it was read; bring the file back"
                raise SourceError(msg)
            left -= len(block)
            cut = block.rfind(b"\n") + 1
            if cut:
                yield b"".join([*head, block[:cut]])
                head, held = [], 0
            head.append(block[cut:])
            held += len(head[-1])
            if held > MAX_LINE:
                msg = f"{self.file(partition)} has a line of more than {MAX_LINE} bytes; a record can hold no more"
                raise SourceError(msg)

    def mark(self, partition: int, position: Position) -> int:
        """Return a checksum of the bytes just before a position: who comes back later sees if they are others."""
        with self._open(partition, position) as file:
            file.seek(max(0, position.byte - _MARK))
            return crc32(file.read(position.byte - file.tell()))

    def head(self, partition: int) -> int:
        """Return a checksum of the first line, as far as that goes: it stays the same while the file grows."""
        with self._open(partition, START) as file:
            return crc32(file.read(_MARK).partition(b"\n")[0])

    @contextmanager
    def _open(self, partition: int, start: Position) -> Iterator[BinaryIO]:
        """Open a partition at a position that must be the end of a line (or the beginning of the file)."""
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

    def verify(self, partition: int, at: Position, mark: int) -> None:
        """Raise SourceError unless the file still holds what was before a position when `mark` was taken."""
        if self.mark(partition, at) != mark:
            raise self._lost(partition, at, "other bytes stand before that place now")

    def noted(self, partition: int, at: Position) -> dict[str, int]:
        """Return a position as Spark notes it: with marks of the bytes before it, and of the first line."""
        return {"line": at.line, "byte": at.byte, "mark": self.mark(partition, at), "head": self.head(partition)}


BATCH_ROWS = 65_536


def batches(block: bytes, partition: int, first: int) -> Iterator[pa.RecordBatch]:
    """Cut whole lines, the last with its newline, into RAW batches of at most `BATCH_ROWS` rows.

    The first line has the offset `first`; a value is a line's bytes without the newline; key and log time are null.
    """
    values = pc.split_pattern(pa.array([block], pa.binary()), b"\n").values
    lines = len(values) - 1  # nothing stands behind the last newline
    for at in range(0, lines, BATCH_ROWS):
        rows = min(BATCH_ROWS, lines - at)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(partition, pa.int32()), rows),
                pa.arange(first + at, first + at + rows),
                pa.nulls(rows, MICROS),
                pa.nulls(rows, pa.binary()),
                values.slice(at, rows),
            ],
            schema=RAW,
        )
