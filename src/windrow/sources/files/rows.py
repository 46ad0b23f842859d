"""The rows of one file: lines of text, which may be compressed, or rows of Parquet as JSON objects.

A row is known by its number in the file, from 0. A header is no row. The last line of a file needs no newline.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.core import duckdb_sql
from windrow.errors import InputError, Place, SourceError
from windrow.model import CsvFormat
from windrow.sources.log.folder import BATCH_ROWS, BLOCK, MAX_LINE, lines_of

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextRows:
    """The lines of a file; its first line names the columns of `header`, if one is given.

    A byte is one of the text, also where the file is compressed (its name ends in ``.gz``).
    """

    path: Path
    header: CsvFormat | None = None

    def count(self) -> int:
        """Return how many rows there are."""
        return sum(_lines(block) for _, block in self._blocks(0))

    def after(self, byte: int, rows: int) -> int:
        """Return the byte behind so many rows from a byte on, where a row begins."""
        for at, block in self._blocks(byte):
            if rows == 0:
                return at
            if (there := _lines(block)) < rows:
                byte, rows = at + len(block), rows - there
            else:
                return at + _cut(block, rows)
        return byte

    def read(self, row: int, byte: int, rows: int) -> Iterator[pa.Array]:
        """Yield so many rows as binary values, from `row` on, which begins at `byte` (0: it is not known where)."""
        start = byte or (self.after(0, row) if row else 0)
        for _, block in self._blocks(start):
            part = block[: _cut(block, rows)] if _lines(block) > rows else block
            rows -= _lines(part)
            text = part.replace(b"\r\n", b"\n") if b"\r" in part else part
            yield lines_of(text if text.endswith(b"\n") else text.removesuffix(b"\r") + b"\n")
            if not rows:
                return

    def line(self, row: int) -> int:
        """Return the number of the line of a row, from 1."""
        return row + (1 if self.header is None else 2)

    def _blocks(self, byte: int) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of whole lines from a byte on, each behind its first byte; they have no header."""
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
        with self._opened() as file:
            if byte:
                file.seek(byte)
            head: list[bytes] = []  # the beginning of a line that is longer than a block
            held = 0
            while block := file.read(BLOCK):
                if cut := block.rfind(b"\n") + 1:
                    whole = b"".join([*head, block[:cut]])
                    yield byte, whole
                    byte += len(whole)
                    head, held = [], 0
                head.append(block[cut:])
                held += len(head[-1])
                if held > MAX_LINE:
                    msg = f"{self.path} has a line of more than {MAX_LINE} bytes; a record can hold no more"
                    raise SourceError(msg)
            if held:
                yield byte, b"".join(head)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with (
                gzip.open(self.path, "rb")
                if self.path.name.endswith(".gz")
                else self.path.open("rb", buffering=0) as file
            ):
                yield file  # type: ignore[misc] # what gzip returns reads bytes, too
        except (gzip.BadGzipFile, EOFError, zlib.error) as exc:
            msg = f"{self.path} is not gzip, or is cut off ({exc}): write it again, elsewhere, and move it there"
            raise SourceError(msg) from exc
        except OSError as exc:
            msg = f"cannot read {self.path}: {exc.strerror}"
            raise SourceError(msg) from exc

    def _check_header(self, line: bytes, given: CsvFormat) -> None:
        try:
            text = line.decode().strip("\r\n")
            names = next(csv.reader([text], delimiter=given.delimiter, strict=True), [])
        except (UnicodeDecodeError, csv.Error) as exc:
            msg = f"the header is not CSV: {exc}"
            raise InputError(msg, Place(str(self.path), 1)) from exc
        if tuple(names) != given.columns:
            msg = (
                f"the header has {', '.join(names) or 'nothing'}, and the columns of the source are "
                f"{', '.join(given.columns)}: give them in the order of the file, or header: false if there is none"
            )
            raise InputError(msg, Place(str(self.path), 1))


@dataclass(frozen=True)
class ParquetRows:
    """The rows of a Parquet file, each as a JSON object with its columns.

    Decimals and times are texts, which `decode` reads exactly; binary values are texts in base64.
    """

    path: Path

    def count(self) -> int:
        """Return how many rows there are."""
        with self._opened() as file:
            return int(file.metadata.num_rows)

    def after(self, byte: int, rows: int) -> int:  # noqa: ARG002 - as of lines
        """Return 0: rows are found by their numbers."""
        return 0

    def read(self, row: int, byte: int, rows: int) -> Iterator[pa.Array]:  # noqa: ARG002 - the same
        """Yield so many rows as binary values, from `row` on."""
        with self._opened() as file:
            groups: list[int] = []
            skip = row
            for number in range(file.num_row_groups):
                if not groups and skip >= (there := file.metadata.row_group(number).num_rows):
                    skip -= there
                else:
                    groups.append(number)
            sql, duck = _json_query(file.schema_arrow), duckdb_sql.Connection()
            for read in file.iter_batches(BATCH_ROWS, row_groups=groups, use_threads=False):
                batch = read.slice(skip, rows)
                skip, rows = max(0, skip - read.num_rows), rows - batch.num_rows
                if batch.num_rows:
                    table = pa.table(batch.columns, names=[f"c{at}" for at in range(batch.num_columns)])
                    found = duckdb_sql.query(duck, sql, rows=table.append_column("n", pa.nulls(batch.num_rows)))
                    yield found.column(0).combine_chunks().cast(pa.binary())
                if rows <= 0:
                    return

    def line(self, row: int) -> int:
        """Return the number of a row, from 1."""
        return row + 1

    @contextmanager
    def _opened(self) -> Iterator[pq.ParquetFile]:
        try:
            with pq.ParquetFile(self.path) as file:
                yield file
        except (pa.ArrowException, OSError) as exc:
            msg = f"cannot read {self.path} as Parquet: {exc}"
            raise SourceError(msg) from exc


Rows = TextRows | ParquetRows


def rows_of(path: Path, header: CsvFormat | None) -> Rows:
    """Return the rows of a file, which is Parquet if its name says so."""
    return ParquetRows(path) if path.suffix == ".parquet" else TextRows(path, header)


def _lines(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def _cut(block: bytes, rows: int) -> int:
    """Return the byte of a block behind its first rows, of which there are so many at the least."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    return len(block) if len(ends) < rows else int(ends[rows - 1]) + 1


def _json_query(columns: pa.Schema) -> str:
    """Return the query that makes a JSON object of each row; the columns are `c0`, `c1` ..."""
    parts = [
        f"{duckdb_sql.literal(one.name)}, {_json_value(f'c{number}', one.type)}" for number, one in enumerate(columns)
    ]
    return f"SELECT json_object({', '.join(parts)})::VARCHAR FROM rows"


def _json_value(column: str, type_: pa.DataType) -> str:
    if pa.types.is_floating(type_):  # NaN is no JSON: as a text it is a value that no number is
        return f"CASE WHEN isfinite({column}) THEN to_json({column}::DOUBLE) ELSE to_json({column}::VARCHAR) END"
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return f"base64({column})"
    return f"{column}::{_json_type(type_)}"


def _json_type(type_: pa.DataType) -> str:
    """Return DuckDB's type of values that JSON has without loss."""
    if pa.types.is_boolean(type_):
        return "BOOLEAN"
    if pa.types.is_integer(type_):
        return "UBIGINT" if pa.types.is_uint64(type_) else "BIGINT"
    if pa.types.is_floating(type_):
        return "DOUBLE"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return f"{_json_type(type_.value_type)}[]"
    if pa.types.is_struct(type_):
        fields = [type_.field(at) for at in range(type_.num_fields)]
        return f"STRUCT({', '.join(f'{duckdb_sql.identifier(one.name)} {_json_type(one.type)}' for one in fields)})"
    return "JSON" if pa.types.is_map(type_) else "VARCHAR"
