"""The rows of a file: lines of text, optionally compressed, or rows of a Parquet file (`parquet`).

Rows are numbered from 0, and a header does not count. The last line of a file does not need a newline.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.connectors.files.parquet import ParquetRows
from windrow.connectors.log.folder import BLOCK, line_blocks, lines_of
from windrow.connectors.not_text import HEAD, refusal
from windrow.errors import InputError, Place, SourceError

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextRows:
    """The lines of a text file. If `header` is set, the first line names the columns.

    Byte positions refer to the uncompressed text, even if the file is compressed (its name ends in ``.gz``).
    """

    path: Path
    header: m.CsvFormat | None = None

    def count(self) -> int:
        """Return the number of rows."""
        return sum(_lines(block) for _, block in self._blocks(0))

    def size(self) -> int:
        """Return the bytes of the rows; for a compressed file, an estimate from its beginning."""
        with self._open() as file:
            there = self.path.stat().st_size
            if not isinstance(file, gzip.GzipFile):
                return there
            text = len(file.read(BLOCK))
            return text if text < BLOCK else text * there // max(1, file.fileobj.tell())

    def after(self, byte: int, rows: int) -> int:
        """Return the byte at which a number of rows end, counted from the row that starts at `byte`."""
        for at, block in self._blocks(byte):
            if rows == 0:
                return at
            if (there := _lines(block)) < rows:
                byte, rows = at + len(block), rows - there
            else:
                return at + _cut(block, rows)
        return byte

    def read(self, row: int, byte: int, rows: int) -> Iterator[pa.Array]:
        """Yield `rows` rows as binary values, starting with row number `row` at `byte` (0 if unknown)."""
        start = byte or (self.after(0, row) if row else 0)
        for _, block in self._blocks(start):
            part = block[: _cut(block, rows)] if _lines(block) > rows else block
            rows -= _lines(part)
            text = part.replace(b"\r\n", b"\n") if b"\r" in part else part
            yield lines_of(text if text.endswith(b"\n") else text.removesuffix(b"\r") + b"\n")
            if not rows:
                return

    def line(self, row: int) -> int:
        """Return the line number of a row, counted from 1."""
        return row + (1 if self.header is None else 2)

    def _blocks(self, byte: int) -> Iterator[tuple[int, bytes]]:
        """Yield (position, block) pairs from a byte on; blocks consist of whole lines and exclude the header."""
        for at, block in self._whole_lines(byte):
            if at:
                yield at, block
                continue
            lead = len(_BOM) if block.startswith(_BOM) else 0
            if self.header is not None:
                end = _cut(block, 1)
                self._check_header(block[lead:end], self.header)
                lead = end
            if lead < len(block):
                yield lead, block[lead:]

    def _whole_lines(self, byte: int) -> Iterator[tuple[int, bytes]]:
        with self._open() as file:
            head = b""
            if byte:
                file.seek(byte)
            else:
                head = file.read(HEAD)
                if (message := refusal(self.path, head)) is not None:
                    raise SourceError(message)
            for block in line_blocks(chain([head], iter(lambda: file.read(BLOCK), b"")), self.path):
                yield byte, block
                byte += len(block)

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            with (
                gzip.open(self.path, "rb")
                if self.path.name.endswith(".gz")
                else self.path.open("rb", buffering=0) as file
            ):
                yield file  # type: ignore[misc] # a gzip file reads bytes, too
        except (gzip.BadGzipFile, EOFError, zlib.error) as exc:
            msg = (
                f"{self.path} is not a gzip file or is truncated ({exc}): write it again elsewhere, then move it into "
                "place"
            )
            raise SourceError(msg) from exc
        except OSError as exc:
            msg = f"cannot read {self.path}: {exc.strerror}"
            raise SourceError(msg) from exc

    def _check_header(self, line: bytes, given: m.CsvFormat) -> None:
        try:
            text = line.decode().strip("\r\n")
            names = next(csv.reader([text], delimiter=given.delimiter, strict=True), [])
        except (UnicodeDecodeError, csv.Error) as exc:
            msg = f"the header is not CSV: {exc}"
            raise InputError(msg, Place(str(self.path), 1)) from exc
        if tuple(names) != given.columns:
            msg = (
                f"the header has {', '.join(names) or 'nothing'}, but the columns of the source are "
                f"{', '.join(given.columns)}: list them in the order of the file, or set header: false without one"
            )
            raise InputError(msg, Place(str(self.path), 1))


Rows = TextRows | ParquetRows


def rows_of(path: Path, header: m.CsvFormat | None) -> Rows:
    """Return the rows of a file: Parquet if its name ends in ``.parquet``, otherwise text."""
    return ParquetRows(path) if path.suffix == ".parquet" else TextRows(path, header)


def _lines(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def _cut(block: bytes, rows: int) -> int:
    """Return the byte after the first `rows` rows of a block that has at least that many."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    return len(block) if len(ends) < rows else int(ends[rows - 1]) + 1
