"""Fields that records of files have from folders ``key=value``, unless the record has a value or null of that name.

The key of a record of a file is its place, ``NAME:LINE``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine.decode import field_columns as fc
from windrow.engine.decode.field_columns import FieldColumn, Mask, Path, Rows
from windrow.engine.decode.values import BadValueError, PlainText, Value, convert

_FOLDERS = 4096
"""Folders whose fields are kept in memory."""
_RESERVED = frozenset({m.LOG_TIME, "_key", "_value"})
_Fields = Mapping[str, PlainText | None]


@dataclass(frozen=True)
class FolderFields:
    """The fields of the folders of a source's files."""

    source: m.FilesSource

    @staticmethod
    def of(source: m.Source) -> FolderFields | None:
        """Return the folder fields of a source, or None if its records have none."""
        return FolderFields(source) if isinstance(source, m.FilesSource) and source.format != "debezium" else None

    def of_rows(self, raw: pa.RecordBatch) -> Sequence[_Fields] | None:
        """Return the fields of each record of a batch in `schema.RAW`, or None if none of them has any."""
        found = self._by_folder(raw)
        return None if found is None else [found[0][folder] for folder in found[1].tolist()]

    def fill(
        self, raw: pa.RecordBatch, rows: Rows, columns: Mapping[Path, FieldColumn], types: Mapping[Path, m.DataType]
    ) -> Mapping[Path, FieldColumn]:
        """Return the columns of some rows of a batch, with the values of folders where a record has none.

        Such a value is not trusted if the record's text has the name, because it may be null there.
        """
        found = self._by_folder(raw)
        if found is None:
            return columns
        folders, numbers = found[0], found[1][rows]
        own = self.source.format.columns if isinstance(self.source.format, m.CsvFormat) else ()
        filled = dict(columns)
        for path, column in columns.items():
            has_field = np.array([path[0] in fields for fields in folders])[numbers] & ~fc.valid_mask(column.values)
            if path[0] in own or not has_field.any():
                continue
            if len(path) > 1:
                filled[path] = FieldColumn(column.values, column.trusted & ~has_field)
                continue
            of_folders = _converted([fields.get(path[0]) for fields in folders], types[path])
            values = of_folders.values.take(pa.array(numbers)).cast(column.values.type)
            trusted = of_folders.trusted[numbers] & ~self._is_named(raw, rows, path[0])
            filled[path] = FieldColumn(
                pc.if_else(pa.array(has_field), values, column.values), np.where(has_field, trusted, column.trusted)
            )
        return filled

    def _is_named(self, raw: pa.RecordBatch, rows: Rows, name: str) -> Mask:
        """Return the mask of rows whose text has a name; lines of CSV have no names."""
        if isinstance(self.source.format, m.CsvFormat):
            return np.zeros(len(rows), dtype=np.bool_)
        texts = fc.valid_text(raw.column("value").take(pa.array(rows)))
        return fc.holds_mask(pc.match_substring(texts, f'"{name}"'))

    def _by_folder(self, raw: pa.RecordBatch) -> tuple[list[_Fields], npt.NDArray[np.int64]] | None:
        """Return the fields of each folder in a batch, and the number of each record's folder; None without fields."""
        keys = raw.column("key")
        if not (pc.any(pc.match_substring(keys, "=")).as_py() or any("=" in path for path in self.source.path)):
            return None
        names = pc.binary_join_element_wise("", pc.fill_null(keys.cast(pa.string()), ""), "/")
        encoded = pc.list_element(pc.split_pattern(names, "/", max_splits=1, reverse=True), 0).dictionary_encode()
        partitions = raw.column("partition").to_numpy() % m.MAX_PARTITIONS
        count = max(1, len(encoded.dictionary))
        places, numbers = np.unique(partitions * count + encoded.indices.to_numpy(), return_inverse=True)
        found = [
            _fields_of(self.source, partition, f"{encoded.dictionary[folder].as_py()}/")
            for partition, folder in (divmod(place, count) for place in places.tolist())
        ]
        return (found, numbers) if any(found) else None


@lru_cache(_FOLDERS)
def _fields_of(source: m.FilesSource, partition: int, name: str) -> _Fields:
    fields = source.folder_fields(partition, name)
    return {key: None if text is None else PlainText(text) for key, text in fields.items() if key not in _RESERVED}


def _converted(texts: Sequence[PlainText | None], type_: m.DataType) -> FieldColumn:
    """Convert the texts of folders to a type; a text that the type cannot hold is not trusted."""
    values: list[Value | None] = []
    trusted = np.ones(len(texts), dtype=np.bool_)
    for number, text in enumerate(texts):
        try:
            values.append(None if text is None else convert("", type_, text))
        except BadValueError:
            values.append(None)
            trusted[number] = False
    return FieldColumn(fc.array_of(values, type_), trusted)
