"""Rows with a registered schema: Avro, and JSON with a JSON Schema, in the wire format of Confluent's serializers.

A record is a zero byte, the id of its schema in four bytes, and the data. The schema is derived from the columns of the
rows, so it is the same in each run of a pipeline:

==================  ===========================  ================================
column              Avro                         JSON Schema
==================  ===========================  ================================
string, boolean     string, boolean              string, boolean
long, int           long, int                    integer
double              double                       number, or null if it is not finite
decimal             bytes, decimal               string
timestamp           long, timestamp-micros       string, date-time
list                array, its items nullable    array, its items nullable
==================  ===========================  ================================

A nullable column is a union with null first and the default null, and no required property. So is each result in a
derived schema, even if it is never null: readers have null for a result that was added after the record was written.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from io import BytesIO
from typing import Any, ClassVar, Final

import pyarrow as pa

from windrow.connectors.kafka.rows import Encode, as_json, with_nullable
from windrow.engine.decode.registry import MAGIC
from windrow.errors import needs_extra

_NO_LETTER: Final = re.compile(r"[^A-Za-z0-9_]")


class RowEncoding(ABC):
    """An encoding of rows with the given columns; `topic` names the schema. `kind` is that of schemas in a registry.

    The columns `results` are nullable in the derived schema.
    """

    kind: ClassVar[str]
    form: ClassVar[str | None] = None
    """The requested format of a schema's text."""
    is_numbered: ClassVar[bool] = False
    """Whether the derived schema depends on the versions that a subject has."""

    def __init__(self, topic: str, columns: Sequence[pa.Field], results: Container[str] = ()) -> None:
        name = _NO_LETTER.sub("_", topic)
        self._name = f"_{name}" if name[:1].isdigit() else name
        self._columns = columns
        self._derived = with_nullable(columns, results)

    @abstractmethod
    def derive(self, versions: Sequence[str] = ()) -> str:
        """Return the schema that is derived from the columns, which may follow earlier versions."""

    @abstractmethod
    def fits(self, schema: str) -> bool:
        """Return True if all rows can be encoded with a schema that someone else has registered."""

    @abstractmethod
    def encoder(self, id_: int, schema: str) -> Encode:
        """Return the encoder for a schema, which is the derived one or fits, and has this id."""


class AvroEncoding(RowEncoding):
    """Avro's binary encoding. Another schema may have more fields with defaults, and more nullable ones."""

    kind = "AVRO"

    def derive(self, versions: Sequence[str] = ()) -> str:  # noqa: ARG002 - names identify the fields
        return json.dumps({"type": "record", "name": self._name, "fields": list(map(self._field, self._derived))})

    def fits(self, schema: str) -> bool:
        with needs_extra("registry", "Avro"):
            import fastavro  # noqa: PLC0415 - an extra
        there = _parsed(schema)
        if there.get("type") != "record":
            return False
        fields = {field["name"]: field for field in there["fields"]}
        own = {column.name for column in self._columns}
        try:
            fastavro.parse_schema(there)
            # written once, as not each default that a schema may have can be
            for name in fields.keys() - own:
                fastavro.schemaless_writer(BytesIO(), fields[name]["type"], fields[name]["default"])
        except Exception:  # noqa: BLE001 - the library's errors have no common class
            return False
        return all(
            column.name in fields and _takes(fields[column.name]["type"], self._field(column)["type"])
            for column in self._columns
        )

    def encoder(self, id_: int, schema: str) -> Encode:
        with needs_extra("registry", "Avro"):
            import fastavro  # noqa: PLC0415 - an extra
        parsed = fastavro.parse_schema(json.loads(schema))
        prefix = id_prefix(id_)

        def encode(rows: pa.RecordBatch) -> list[bytes]:
            encoded = []
            for row in _with_numbers(rows).to_pylist():
                stream = BytesIO()
                stream.write(prefix)
                fastavro.schemaless_writer(stream, parsed, row)
                encoded.append(stream.getvalue())
            return encoded

        return encode

    def _field(self, column: pa.Field) -> dict[str, Any]:
        type_ = _avro_type(column.type)
        if not column.nullable:
            return {"name": column.name, "type": type_}
        return {"name": column.name, "type": ["null", type_], "default": None}


class JsonSchemaEncoding(RowEncoding):
    """JSON objects, as without a schema. Another schema may have more properties that are not required."""

    kind = "JSON"

    def derive(self, versions: Sequence[str] = ()) -> str:  # noqa: ARG002 - names identify the fields
        return json.dumps(
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "title": self._name,
                "type": "object",
                # other properties can be added later only to a closed object
                "additionalProperties": False,
                "properties": {column.name: _property(column) for column in self._derived},
                "required": _required(self._derived),
            }
        )

    def fits(self, schema: str) -> bool:
        there = _without_notes(_parsed(schema))
        known = {name: _without_notes(type_) for name, type_ in there.get("properties", {}).items()}
        is_open = there.get("additionalProperties", True) is True
        return (
            there.get("type") == "object"
            and there.keys() <= _parsed(self.derive()).keys()
            and set(there.get("required", ())) <= set(_required(self._columns))
            and all(
                known[column.name] in (_property(column), _property(column.with_nullable(nullable=True)))
                if column.name in known
                else is_open
                for column in self._columns
            )
        )

    def encoder(self, id_: int, schema: str) -> Encode:  # noqa: ARG002 - an object is the same with each
        prefix = id_prefix(id_)
        return lambda rows: [prefix + text for text in as_json(rows)]


def id_prefix(id_: int) -> bytes:
    """Return the bytes before the data of a record whose schema has this id."""
    return bytes([MAGIC]) + id_.to_bytes(4)


def _parsed(schema: str) -> dict[str, Any]:
    """Return a schema's JSON, or an empty mapping if it is no object."""
    found = json.loads(schema)
    return found if isinstance(found, dict) else {}


def _with_numbers(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with times in microseconds, which take less time to convert."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(number, field.name, rows.column(number).cast(pa.int64()))
    return rows


_AVRO: Final = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float64(): "double",
}


def _avro_type(type_: pa.DataType) -> Any:  # noqa: ANN401 - JSON
    if pa.types.is_decimal(type_):
        return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if pa.types.is_timestamp(type_):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if pa.types.is_list(type_):
        return {"type": "array", "items": ["null", _avro_type(type_.value_type)]}
    return _AVRO[type_]


def _takes(there: object, own: object) -> bool:
    """Return True if a type of Avro has all values of one of this module, the same number for each."""
    branches = there if isinstance(there, list) else [there]
    if isinstance(own, list):
        return "null" in branches and _takes(branches, own[1])
    return any(_takes_all(branch, own) for branch in branches)


def _takes_all(there: object, own: Any) -> bool:  # noqa: ANN401 - JSON
    if isinstance(there, dict) and "logicalType" not in there and there["type"] in _AVRO.values():
        there = there["type"]
    if isinstance(there, str) or isinstance(own, str):
        return there == own or (there, own) == ("long", "int")
    if not isinstance(there, dict) or there.get("type") != own["type"]:
        return False
    if own["type"] == "array":
        return _takes(there["items"], own["items"])
    is_same = all(there.get(name) == own.get(name) for name in ("logicalType", "scale"))
    return is_same and int(there.get("precision", 0)) >= int(own.get("precision", 0))


_JSON: Final = {
    pa.string(): {"type": "string"},
    pa.bool_(): {"type": "boolean"},
    pa.int32(): {"type": "integer"},
    pa.int64(): {"type": "integer"},
    pa.float64(): {"type": "number"},
}
_NULL: Final = {"type": "null"}
_NOTES: Final = ("$id", "description", "default", "examples", "title")
"""Keywords of JSON Schema that allow each value."""


def _may_be_null(column: pa.Field) -> bool:
    """Return True if the value in JSON can be null: JSON has no infinities and no NaN."""
    return bool(column.nullable or pa.types.is_floating(column.type))


def _required(columns: Sequence[pa.Field]) -> list[str]:
    return [column.name for column in columns if not _may_be_null(column)]


def _property(column: pa.Field) -> dict[str, Any]:
    type_ = _json_type(column.type)
    return {"oneOf": [_NULL, type_]} if _may_be_null(column) else type_


def _json_type(type_: pa.DataType) -> dict[str, Any]:
    if pa.types.is_decimal(type_):
        return {"type": "string"}
    if pa.types.is_timestamp(type_):
        return {"type": "string", "format": "date-time"}
    if pa.types.is_list(type_):
        return {"type": "array", "items": {"oneOf": [_NULL, _json_type(type_.value_type)]}}
    return _JSON[type_]


def _without_notes(schema: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(schema, dict):
        return schema
    return {name: value for name, value in schema.items() if name not in _NOTES}
