"""The ordered files of a partition, and the offsets of their records.

A partition consists of all files that match a pattern. They are read one after the other in the order of their paths,
which are compared folder by folder, with numbers in names by value. The offset of a record is its position in this
sequence. It is the same in every run as long as files do not change and new files sort after all files already read.
`FileSequence.verify` detects violations.

Older versions compared names as text, and read names that begin with an underscore. A run that they began continues in
their order, because its offsets and its checksum are those of that order; its positions lack the member `names`.
"""

from __future__ import annotations

import glob
import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.files.names import Order, matching, natural_order, text_order
from windrow.connectors.files.rows import Rows, rows_of
from windrow.connectors.log.folder import raw_batch
from windrow.errors import InputError, RecordsLostError, SourceError
from windrow.model.connectors import split_pattern

_NATURAL = "natural"
"""Recorded with a position if the run compares numbers in names by value."""
MARK = 256
"""Number of bytes at each end of a file that, together with its name and size, identify it."""
_SAMPLE = 16
"""Maximum number of files whose rows are measured for a mean."""


@dataclass(frozen=True)
class DataFile:
    """A listed file: its name relative to the pattern's folder, its path, size, inode and modification time."""

    name: str
    path: Path
    size: int
    stamp: tuple[int, int]


@dataclass(frozen=True)
class Position:
    """A position between two records of a partition, with `line` records before it.

    The file `file` is the last one that was read from; `row` of its rows are before the position, and the next record
    starts at `byte` (0 if unknown, or at the end of the file).
    """

    line: int = 0
    file: str = ""
    row: int = 0
    byte: int = 0

    @staticmethod
    def of(noted: Mapping[str, Any]) -> Position:
        """Restore a position from the result of `FileSequence.noted`."""
        return Position(noted["line"], noted["file"], noted["row"], noted["byte"])


START = Position()


@dataclass(frozen=True)
class Span:
    """A range of a file: `rows` rows starting with number `row` at `byte` (0 if unknown).

    `offset` is the offset of the first row, and `header` the expected header of the file.
    """

    file: DataFile
    row: int
    byte: int
    rows: int
    offset: int
    header: m.CsvFormat | None

    def read(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Read the rows as RAW batches. The key of a record is its location, ``NAME:LINE``.

        Raise RecordsLostError if the file has changed since it was listed.
        """
        rows, at, name = rows_of(self.file.path, self.header), self.row, pa.scalar(self.file.name)
        for values in rows.read(self.row, self.byte, self.rows) if self._is_unchanged() else ():
            line, offset = rows.line(at), self.offset + at - self.row
            lines = pa.arange(line, line + len(values)).cast(pa.string())
            keys = pc.binary_join_element_wise(name, lines, ":").cast(pa.binary())
            yield raw_batch(partition, pa.arange(offset, offset + len(values)), values, keys)
            at += len(values)
        if at < self.row + self.rows:
            msg = f"the file {self.file.path} changed while it was read; restore its former contents"
            raise RecordsLostError(msg)

    def _is_unchanged(self) -> bool:
        try:
            return self.file.path.stat().st_size == self.file.size
        except FileNotFoundError:
            return False


@dataclass
class FileSequence:
    """The files that match a pattern, with cached row counts and sizes of unchanged files.

    `is_natural` is False for a run that an older version began. A sequence can be sent to another process.
    """

    pattern: str
    header: m.CsvFormat | None
    is_natural: bool = True
    _counts: dict[DataFile, int] = field(default_factory=dict)
    _sizes: dict[DataFile, int] = field(default_factory=dict)
    _marks: dict[DataFile, int] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _known: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def partitions(source: m.FilesSource) -> list[FileSequence]:
        """Return the file sequence of each of a source's partitions."""
        header = source.format if source.header and isinstance(source.format, m.CsvFormat) else None
        here = glob.escape(str(Path.cwd()))
        return [FileSequence(str(Path(here, path)), header) for path in source.path]

    def read_as(self, noted: Mapping[str, Any] | None) -> FileSequence:
        """Return the files in the order in which a run has read them up to a recorded position, if it has one."""
        is_natural = noted is None or "file" not in noted or noted.get("names") == _NATURAL
        return self if is_natural == self.is_natural else replace(self, is_natural=is_natural, _names=set())

    def order(self, name: str) -> Order:
        """Return the sort key of a name."""
        return natural_order(name) if self.is_natural else text_order(name)

    def files(self) -> list[DataFile]:
        """Return the existing files in order.

        Raise InputError if the folder or file in the pattern does not exist, SourceError if it cannot be listed.
        """
        folder, within = split_pattern(self.pattern)
        try:
            os.scandir(folder).close()
            found = [file for name in self._list(folder, within) if (file := _stat_file(folder, name)) is not None]
        except (FileNotFoundError, NotADirectoryError):
            msg = f"there is no folder {folder} for the files {self.pattern}; correct the path"
            raise InputError(msg) from None
        except OSError as exc:
            msg = f"cannot list the files {self.pattern}: {exc.filename}: {exc.strerror}"
            raise SourceError(msg) from exc
        if not found and not glob.has_magic(within):
            msg = f"there is no file {self.pattern}; correct the path"
            raise InputError(msg)
        return sorted(found, key=lambda file: self.order(file.name))

    def _list(self, folder: str, within: str) -> set[str]:
        """Return the matching names; if a name is included, so are all files that were created before it.

        A listing takes a while. If two files are created meanwhile, it may contain only the later one. A second listing
        contains every file that was created before a file of the first listing.
        """
        names = set(self._matching(folder, within))  # a name can match ``**`` in several ways
        if names != self._names:
            last = max(map(self.order, names), default=())
            names = {name for name in self._matching(folder, within) if self.order(name) <= last}
            self._require_readable(folder, within)
            self._names = names
        return self._names

    def _matching(self, folder: str, within: str) -> Iterator[str]:
        return matching(folder, within, data=self.is_natural)

    def _require_readable(self, folder: str, within: str) -> None:
        """Raise OSError if a folder cannot be listed. Without this check, glob would skip the folder silently."""
        parts = within.split("/")
        for upto in range(1, len(parts) + (parts[-1] == "**")):
            for name in self._matching(folder, "/".join([*parts[:upto], ""])):
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.scandir(Path(folder, name)).close()

    def end(self, files: Iterable[DataFile]) -> int:
        """Return the number of records in the partition."""
        return sum(map(self._count, files))

    def bytes_left(self, files: Sequence[DataFile], at: Position) -> int:
        """Estimate how many bytes follow a position; 0 if no record follows."""
        left = 0
        for file, row in self._rest(files, at):
            if not row:
                left += file.size
            elif there := self._count(file):
                left += file.size * (there - row) // there or (row < there)
        return left

    def about_left(self, files: Sequence[DataFile], at: Position) -> int:
        """Estimate how many records follow a position; 0 if none do.

        The estimate uses the record sizes in files that were already counted. If there are none, the next file is
        counted.
        """
        left = self.bytes_left(files, at)
        if not left:
            return 0
        counted = [file for file in files if file in self._counts] or [next(iter(self._rest(files, at)))[0]]
        size = sum(file.size for file in counted)
        return max(1, left * self.end(counted) // max(1, size))

    def rows_within(self, files: Sequence[DataFile], at: Position, most: int) -> int:
        """Return about how many rows after a position have `most` bytes in total; it is at least 1."""
        found, left = 0, float(most)
        for file, row in self._rest(files, at):
            there = self._count(file) - row
            if there <= 0:
                continue
            each = max(1, self._size(file)) / self._count(file)
            rows = min(there, int(left / each))
            found, left = found + rows, left - rows * each
            if rows < there:
                break
        return max(1, found)

    def mean_bytes(self, files: Sequence[DataFile]) -> float:
        """Return the mean bytes of the rows of some files."""
        some = files[:: -(-len(files) // _SAMPLE) or 1]
        return sum(map(self._size, some)) / max(1, self.end(some))

    def advance(self, files: Sequence[DataFile], at: Position, rows: int | None = None) -> Position:
        """Return the position that is a number of rows further on, or the end of the partition."""
        for file, row in self._rest(files, at):
            there = self._count(file) - row
            if there <= 0:
                continue
            if rows is None or rows >= there:
                at = Position(at.line + there, file.name, row + there)
            elif rows:
                known = at.byte if row else 0
                byte = self._rows(file).after(known, rows if known else row + rows)
                return Position(at.line + rows, file.name, row + rows, byte)
            else:
                return at
            rows = None if rows is None else rows - there
        return at

    def after(self, files: Sequence[DataFile], line: int) -> Position:
        """Return the position of an offset; raise SourceError if the partition ends before it."""
        found = self.advance(files, START, line)
        if found.line < line:
            msg = (
                f"the log lost records: {self.pattern} must be read up to offset {line}, but the files now have only "
                f"{found.line} records; restore the files"
            )
            raise SourceError(msg)
        return found

    def spans(self, files: Sequence[DataFile], start: Position, end: int | None = None) -> list[Span]:
        """Return the spans from a position to an offset or the end; raise SourceError if the partition ends before."""
        found, offset = [], start.line
        for file, row in self._rest(files, start):
            if end is not None and offset >= end:
                break
            rows = self._count(file) - row
            rows = rows if end is None else min(rows, end - offset)
            if rows > 0:
                found.append(Span(file, row, start.byte if row else 0, rows, offset, self.header))
                offset += rows
        if end is not None and offset < end:
            self.after(files, end)
        return found

    def noted(self, files: Sequence[DataFile], at: Position) -> dict[str, Any]:
        """Return a position as Spark records it, together with a checksum of the files up to it."""
        self._known = self._marks_up_to(files, at)
        return {**vars(at), "mark": _chain(self._known), **({"names": _NATURAL} if self.is_natural else {})}

    def verify(self, files: Sequence[DataFile], at: Position, mark: int) -> None:
        """Raise RecordsLostError if files up to a position have changed since it was recorded with checksum `mark`."""
        if (change := self.change(files, at, mark)) is not None:
            msg = (
                f"the log lost records: {self.pattern} was read up to offset {at.line}, in {at.file}, and {change}; "
                "restore the files, or start over with another checkpoint"
            )
            raise RecordsLostError(msg)

    def change(self, files: Sequence[DataFile], at: Position, mark: int) -> str | None:
        """Describe how files up to a position have changed since it was recorded with `mark`; None if they have not."""
        marks, known = self._marks_up_to(files, at), self._known
        if _chain(marks) == mark:
            self._known = marks
            return None
        if at.file not in marks:
            return f"{at.file} is gone"
        for name, before in known.items():
            if marks.get(name) != before:
                return f"{name} is gone" if name not in marks else f"{name} was changed; files must stay as they are"
        new = [file for file in files if file.name in marks and file.name not in known]
        last = max(new, key=lambda file: file.stamp[1]).name if new else at.file
        if known:
            return f"{last} was added; new files must sort after those that were read"
        return (
            f"a file up to there was added, changed or removed (last written: {last}); files must stay as they are, "
            "and new ones must sort after those that were read"
        )

    def beyond(self, files: Sequence[DataFile], at: Position) -> Position:
        """Return the position after all existing files up to `at`, so that changed files are not read again."""
        before = [file for file in files if self.order(file.name) < self.order(at.file)]
        same = next((file for file in files if file.name == at.file), None)
        if same is not None:
            row = min(at.row, self._count(same))
            return Position(self.end(before) + row, same.name, row)
        return Position(self.end(before), before[-1].name, self._count(before[-1])) if before else START

    def _marks_up_to(self, files: Sequence[DataFile], at: Position) -> dict[str, int]:
        read = self.up_to(files, at.file) if at.file else ()
        return {file.name: _cached(self._marks, file, _mark) for file in read}

    def up_to(self, files: Sequence[DataFile], name: str) -> Sequence[DataFile]:
        """Return the files that sort up to a name, whether or not that file exists."""
        return files[: bisect_right(files, self.order(name), key=lambda file: self.order(file.name))]

    def _rest(self, files: Iterable[DataFile], at: Position) -> Iterator[tuple[DataFile, int]]:
        """Yield the files from a position on, each with the number of its rows that are before the position."""
        last = self.order(at.file)
        for file in files:
            if file.name == at.file:
                yield file, at.row
            elif self.order(file.name) > last:
                yield file, 0

    def _count(self, file: DataFile) -> int:
        return _cached(self._counts, file, lambda file: self._rows(file).count())

    def _size(self, file: DataFile) -> int:
        return _cached(self._sizes, file, lambda file: self._rows(file).size())

    def _rows(self, file: DataFile) -> Rows:
        return rows_of(file.path, self.header)


def list_partitions(sequences: Sequence[FileSequence]) -> list[list[DataFile]]:
    """Return the files of each partition.

    Raise the errors of `FileSequence.files`, and InputError if a file matches twice, either in two partitions or
    through a symbolic link, which ``**`` follows.
    """
    listed = [sequence.files() for sequence in sequences]
    found: dict[int, DataFile] = {}
    for file in chain.from_iterable(listed):
        other = found.setdefault(file.stamp[0], file)  # not every file system has unique inodes
        if other is not file and other.path.resolve() == file.path.resolve():
            msg = (
                f"the same file is matched as {other.path} and as {file.path}, so each record would count twice; use "
                "patterns that match it only once"
            )
            raise InputError(msg)
    return listed


def _stat_file(folder: str, name: str) -> DataFile | None:
    path = Path(folder, name)
    try:
        name.encode()
        status = path.stat()
    except UnicodeEncodeError:
        msg = f"the name of the file {os.fsencode(path)!r} is not UTF-8; rename it"
        raise InputError(msg) from None
    except FileNotFoundError:  # removed meanwhile
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return DataFile(name, path, status.st_size, (status.st_ino, status.st_mtime_ns))


def _mark(file: DataFile) -> int:
    """Return a checksum of a file's name, size, first bytes and last bytes."""
    try:
        with file.path.open("rb", buffering=0) as opened:
            ends = opened.read(MARK)
            opened.seek(max(0, file.size - MARK))
            ends += opened.read(MARK)
    except OSError as exc:
        msg = f"cannot read {file.path}: {exc.strerror}"
        raise SourceError(msg) from exc
    return crc32(f"{file.name}\0{file.size}\0".encode() + ends)


def _chain(marks: Mapping[str, int]) -> int:
    return crc32(b"".join(mark.to_bytes(4, "big") for mark in marks.values()))


def _cached(known: dict[DataFile, int], file: DataFile, find: Callable[[DataFile], int]) -> int:
    if file not in known:
        known[file] = find(file)
    return known[file]
