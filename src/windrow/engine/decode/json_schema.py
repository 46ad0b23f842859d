"""JSON objects with the id of a JSON Schema in a registry, as Confluent's serializers write them.

Objects are not validated: a field is read as in JSON without a schema. The registry only says that the id is one of a
JSON Schema, so that other records are not mistaken for JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine.decode import field_columns as fc
from windrow.engine.decode.field_columns import Path, ReadColumns, TextColumns
from windrow.engine.decode.json_columns import JsonColumns, JsonField, exact_path_pattern, values_at
from windrow.engine.decode.json_text import parse_json, parse_object
from windrow.engine.decode.registry import PREFIX, Schemas


class JsonSchemaReader:
    """A `DatumReader` for JSON with the schemas of a registry."""

    def __init__(self, registry: m.Registry) -> None:
        self._schemas = Schemas(registry, "JSON", lambda _: None)
        self._columns: dict[tuple[JsonField, ...], JsonColumns] = {}

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Map the names of an object's members to their values."""
        self._schemas.of(raw)
        return parse_object(raw[PREFIX:])

    def parse_any(self, raw: bytes) -> object:
        """Return a value of any kind."""
        self._schemas.of(raw)
        return parse_json(raw[PREFIX:])

    def read(self, values: pa.Array, types: Mapping[Path, m.DataType], texts: TextColumns) -> Iterator[ReadColumns]:  # noqa: ARG002 - for other formats
        """Yield the columns of all plain objects, in one group for each schema."""
        fields = tuple(JsonField(path, type_, optional=True) for path, type_ in types.items())
        columns = self._columns.setdefault(fields, JsonColumns(exact_path_pattern(fields)))
        for rows, _ in self._schemas.groups(values):
            objects = fc.valid_text(pc.binary_slice(values.take(pa.array(rows)), PREFIX))
            found, read = columns.read(objects, columns.plain(objects), types)
            at = {field.path: columns.column(field, values_at(read, field.path)) for field in fields}
            yield ReadColumns(rows[found], at, np.ones(len(found), dtype=np.bool_))
