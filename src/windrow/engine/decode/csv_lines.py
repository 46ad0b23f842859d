"""CSV: a record is a line of values (RFC 4180), one for each column, without a header.

An empty value is null, whether quoted or not. A line end at the end of the record is ignored; a line end within the
record makes it malformed, even in quotes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from windrow import model as m
from windrow.engine.decode import field_columns as fc
from windrow.engine.decode.field_columns import FieldColumn, Path, ReadColumns
from windrow.engine.decode.values import BOOLEAN_TEXTS, MalformedError, PlainText

_LINE_END = re.compile(r"\r?\n\Z")
_BLOCK = 1 << 30


class CsvReader:
    """A `RecordReader` for lines of CSV."""

    def __init__(self, format_: m.CsvFormat) -> None:
        self._format = format_
        self._names = format_.columns
        delimiter = re.escape(format_.delimiter)
        value = rf'(?:"(?:[^"]|"")*"|[^"{delimiter}]*)'
        self._form = re.compile(f"{value}(?:{delimiter}{value})*")
        value = rf'(?:"(?:[^"\r\n\x00]|"")*"|[^"\r\n\x00{delimiter}]*)'
        self._strict = f"^{value}(?:{delimiter}{value}){{{len(self._names) - 1}}}$"
        self._parse = pa_csv.ParseOptions(delimiter=format_.delimiter, ignore_empty_lines=False)
        columns = [str(at) for at in range(len(self._names))]
        self._read = pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=columns)
        self._convert = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=False
        )

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Map the name of each column to its value in a line, or to None if the value is empty."""
        try:
            line = _LINE_END.sub("", raw.decode())
        except UnicodeDecodeError as exc:
            msg = f"malformed: not UTF-8 at byte {exc.start}"
            raise MalformedError(msg) from exc
        if "\n" in line or "\r" in line:
            msg = "malformed: not CSV: the record has more than one line"
            raise MalformedError(msg)
        csv.field_size_limit(_BLOCK)  # of the process: others may have set it
        try:
            values = next(csv.reader([line], delimiter=self._format.delimiter, strict=True), []) or [""]
        except csv.Error as exc:
            msg = f"malformed: not CSV: {exc}"
            raise MalformedError(msg) from exc
        if self._form.fullmatch(line) is None:
            msg = "malformed: not CSV: a quote in a value that is not in quotes"
            raise MalformedError(msg)
        if len(values) != len(self._names):
            count = "1 value" if len(values) == 1 else f"{len(values)} values"
            msg = f"malformed: not CSV: {count} for the columns {', '.join(self._names)}"
            raise MalformedError(msg)
        return {name: PlainText(value) if value else None for name, value in zip(self._names, values, strict=True)}

    def read(self, values: pa.Array, types: Mapping[Path, m.DataType], texts: fc.TextColumns) -> Iterator[ReadColumns]:
        """Yield the columns of the lines in the strict form of the RFC; other lines are left to `parse`."""
        lines = fc.valid_text(values)
        rows = np.flatnonzero(fc.holds_mask(pc.match_substring_regex(lines, self._strict)))
        if not len(rows):
            return
        lines = lines if len(rows) == len(lines) else lines.take(pa.array(rows))
        text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_buffer()
        table = pa_csv.read_csv(pa.BufferReader(text), self._read, self._parse, self._convert)
        columns = {path: self._column(table, path, type_, texts) for path, type_ in types.items()}
        yield ReadColumns(rows, columns, np.ones(len(rows), dtype=np.bool_))

    def _column(self, table: pa.Table, path: Path, type_: m.DataType, converter: fc.TextColumns) -> FieldColumn:
        if path[0] not in self._names:
            return fc.nulls_column(type_, table.num_rows, trusted=True)
        if len(path) > 1:
            return fc.nulls_column(type_, table.num_rows, trusted=False)
        texts = table.column(self._names.index(path[0])).combine_chunks()
        is_empty = fc.to_mask(pc.equal(texts, ""))
        if is_empty.any():
            texts = pc.if_else(pa.array(is_empty), pa.scalar(None, pa.string()), texts)
        if isinstance(type_, m.BooleanType):
            column = FieldColumn(pc.equal(texts, "true"), fc.holds_mask(pc.is_in(texts, pa.array(list(BOOLEAN_TEXTS)))))
        else:
            column = converter.convert(type_, texts)
        values = pc.if_else(pa.array(is_empty), None, column.values) if is_empty.any() else column.values
        return FieldColumn(values, column.trusted | is_empty)
