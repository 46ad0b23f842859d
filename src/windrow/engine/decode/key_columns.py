"""Columns of keys, read as `KeyReader` reads them one by one; unusual keys are left to it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine.decode import field_columns as fc
from windrow.engine.decode.field_columns import FieldColumn, Path, Rows
from windrow.engine.decode.json_columns import JsonColumns, JsonField, exact_path_pattern, values_at
from windrow.engine.decode.record_key import KeyReader

_TEXT: Final = r'^(?:[^\x00{"][^\x00]*)?$'
"""Matches keys that are text, and neither JSON nor the bytes of a schema's id."""
_JSON_TEXT: Final = r'^"[^"\\\x00-\x1f]*"$'
_JSON_OBJECT: Final = r"^\{[^\\]*$"
_ENVELOPE: Final = '"payload"'
_NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.int64)


class KeyColumns:
    """Reads columns of keys."""

    def __init__(self, keys: KeyReader) -> None:
        self._keys = keys
        self._texts = fc.TextColumns()

    def column(self, keys: pa.Array, within: Path, type_: m.DataType, *, is_single: bool) -> FieldColumn:
        """Return the values at a path of binary keys; with `is_single`, a key of a single value has it there too."""
        found = fc.nulls_column(type_, len(keys), trusted=False)
        texts = fc.valid_text(keys) if self._keys.format in {None, "text", "json"} else None
        if is_single and self._keys.format in {None, "text"}:
            plain = ".*" if self._keys.format == "text" else _TEXT
            found = self._texts.convert(type_, _like(texts, plain))
        if is_single and self._keys.format in {None, "json"}:
            inner = pc.utf8_slice_codeunits(_like(texts, _JSON_TEXT), 1, -1)
            found = _merge(found, np.arange(len(keys)), self._texts.convert(type_, inner))
        if is_single and self._keys.format == "binary":
            for size in (4, 8):
                rows = np.flatnonzero(fc.holds_mask(pc.equal(pc.binary_length(keys), size)))
                numbers = np.frombuffer(b"".join(keys.take(pa.array(rows)).to_pylist()), f">i{size}")
                column = fc.number_column(type_, numbers.astype(np.int64), None)
                found = found if column is None else _merge(found, rows, column)
        if within and self._keys.format in {None, "json"}:
            found = _merge(found, *self._of_objects(texts, within, type_))
        if within and self._keys.reader is not None:
            for read in self._keys.reader.read(keys, {within: type_}, self._texts):
                column = read.columns[within]
                found = _merge(found, read.rows, FieldColumn(column.values, column.trusted & read.is_record))
        return found

    def _of_objects(self, texts: pa.Array, within: Path, type_: m.DataType) -> tuple[Rows, FieldColumn]:
        """Return the rows of keys that are plain JSON objects, and their values."""
        may_be = pc.match_substring_regex(texts, _JSON_OBJECT)
        may_be = pc.fill_null(pc.and_not(may_be, pc.match_substring(texts, _ENVELOPE)), fill_value=False)
        if not pc.any(may_be).as_py() or not all(within):
            return _NO_ROWS, fc.nulls_column(type_, 0, trusted=False)
        field = JsonField(within, type_, optional=True)
        columns = _json_columns(field)
        rows, read = columns.read(texts, pc.and_(may_be, columns.plain(texts)), {within: type_})
        return rows, columns.column(field, values_at(read, within))


@lru_cache(maxsize=64)
def _json_columns(field: JsonField) -> JsonColumns:
    return JsonColumns(exact_path_pattern([field]))


def _like(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, pa.string()))


def _merge(found: FieldColumn, rows: Rows, column: FieldColumn) -> FieldColumn:
    """Return a column with the trusted values of another one at its rows."""
    rows, chosen = rows[column.trusted], np.flatnonzero(column.trusted)
    if not len(rows):
        return found
    index = np.arange(len(found.values))
    index[rows] = len(index) + chosen
    values = pa.concat_arrays([found.values, column.values.cast(found.values.type)]).take(pa.array(index))
    trusted = found.trusted.copy()
    trusted[rows] = True
    return FieldColumn(values, trusted)
