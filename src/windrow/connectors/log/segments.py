"""The retained part of a partition of an embedded log, after records were trimmed or compacted.

Producers append to ``partition-N.jsonl`` without holding a lock, so the file is never replaced. Removed records are
punched out of it: the file keeps its length, so that offsets and byte positions stay valid, and the file system frees
the blocks. Two files beside it describe what is missing:

- ``partition-N.kept.json``, which is always replaced as a whole, has the first retained position, and the position from
  which on records are in ``partition-N.jsonl`` itself. It is written before blocks are freed, so a reader that has read
  zeros also finds the new description.
- The compacted segment that it names contains the remaining records before that position. It is an Arrow file with the
  offset of each record, the byte after its line, and its value.

The first block of the file is never freed, as its first line identifies the file, and neither are the bytes just before
the position.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from windrow.errors import SourceError

MARK = 256
"""Number of bytes before a position, and of the first line, by which a file is identified."""
_BLOCK = 4096
_PUNCH = 0x03  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
SEGMENT = pa.schema([("offset", pa.int64()), ("end", pa.int64()), ("value", pa.binary())])
"""A compacted segment: the offset of each record, the byte of ``partition-N.jsonl`` after its line, and its value."""


@dataclass(frozen=True, order=True)
class Position:
    """A position between two lines, with `line` lines and `byte` bytes before it."""

    line: int = 0
    byte: int = 0


START = Position()


@dataclass(frozen=True)
class Retained:
    """The retained part of a partition: it starts at `first`, and records before `base` are in `segment`.

    `segment` is the name of a file, None if no record before `base` is left.
    """

    first: Position = START
    base: Position = START
    segment: str | None = None

    @staticmethod
    def read(file: Path) -> Retained:
        """Read the retained part of a partition; raise SourceError if its description is damaged or of another file."""
        path = beside(file)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return _WHOLE
        damaged = f"{path} is damaged: restore it, or remove the log and write it again"
        try:
            plain = json.loads(text)
            first, base = (Position(*map(int, plain[name])) for name in ("first", "base"))
            kept, known = Retained(first, base, plain["segment"]), plain["head"]
        except (ValueError, KeyError, TypeError) as exc:
            raise SourceError(damaged) from exc
        if not START <= first <= base:
            raise SourceError(damaged)
        if file.exists() and head(file) != known:
            msg = f"{path} belongs to a former {file.name}: remove it if the log was recreated"
            raise SourceError(msg)
        return kept

    def write(self, file: Path) -> None:
        """Durably write the JSON file that describes the retained part of a partition."""
        path = beside(file)
        plain = {
            "first": [self.first.line, self.first.byte],
            "base": [self.base.line, self.base.byte],
            "segment": self.segment,
            "head": head(file),
        }
        replace_durably(path, plain)

    def free(self, file: Path) -> bool:
        """Free the blocks and segments that are not retained; return whether the file system supports this.

        The call may be repeated.
        """
        for other in file.parent.glob(f"{file.stem}.compacted-*.arrow"):
            if other.name != self.segment:
                other.unlink(missing_ok=True)
        begin, end = _BLOCK, (self.base.byte - MARK) // _BLOCK * _BLOCK
        return end <= begin or _punch(file, begin, end - begin)


_WHOLE = Retained()


def beside(file: Path) -> Path:
    """Return the path of the JSON file that describes the retained part of a partition."""
    return file.with_name(f"{file.stem}.kept.json")


def head(file: Path) -> int:
    """Return a checksum of the start of the first line, which does not change while the file grows."""
    with file.open("rb", buffering=0) as opened:
        return crc32(opened.read(MARK).partition(b"\n")[0])


def replace_durably(path: Path, plain: Mapping[str, object]) -> None:
    """Atomically and durably replace the contents of a file with a JSON object."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w", encoding="utf-8") as out:
        json.dump(plain, out)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)
    sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _punch(file: Path, begin: int, length: int) -> bool:
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    # musl has only 64-bit offsets, and since 1.2.4 no second name for the function
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        return False
    with file.open("r+b", buffering=0) as opened:
        while fallocate(opened.fileno(), _PUNCH, ctypes.c_int64(begin), ctypes.c_int64(length)):
            if (number := ctypes.get_errno()) != errno.EINTR:
                if number in {errno.EOPNOTSUPP, errno.ENOSYS}:
                    return False
                raise OSError(number, os.strerror(number), str(file))
    return True


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Convert errors of a compacted segment that is missing or damaged to SourceError."""
    try:
        yield
    except (OSError, pa.ArrowInvalid) as exc:
        msg = f"the compacted segment {path} cannot be read ({exc}): restore it, or remove the log and write it again"
        raise SourceError(msg) from exc


class Segment:
    """A compacted segment, with its offsets and records."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _whole(path):
            self.offsets, self.ends = _index(str(path))

    def at(self, line: int) -> int:
        """Return the number of records with offsets before `line`."""
        return int(np.searchsorted(self.offsets, line))

    def position(self, count: int, first: Position) -> Position:
        """Return the position after the first `count` records, or `first` if `count` is 0."""
        return Position(int(self.offsets[count - 1]) + 1, int(self.ends[count - 1])) if count else first

    def read(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read the records with offsets from `begin` up to, but not including, `end`."""
        at, stop = self.at(begin), self.at(end)
        with _whole(self._path), pa.OSFile(str(self._path)) as file, ipc.open_file(file) as reader:
            before = 0
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                skip, last = max(0, at - before), min(batch.num_rows, stop - before)
                before += batch.num_rows
                if skip < last:
                    yield batch.slice(skip, last - skip)


def write_segment(path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Durably write a compacted segment; return the number of its records."""
    rows = 0
    options = ipc.IpcWriteOptions(compression="zstd")
    with path.open("wb") as file:
        with ipc.new_file(file, SEGMENT, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        file.flush()
        os.fsync(file.fileno())
    sync_path(path.parent)
    return rows


@lru_cache(maxsize=64)
def _index(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets and end bytes of a segment. A named segment never changes, so the result is cached."""
    options = ipc.IpcReadOptions(included_fields=[0, 1])
    with pa.OSFile(path) as file, ipc.open_file(file, options=options) as reader:
        table = reader.read_all()
    return table.column(0).to_numpy(), table.column(1).to_numpy()
