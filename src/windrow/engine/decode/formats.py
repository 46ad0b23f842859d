"""Readers of records that are not JSON: what a record holds, one by one and by columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, assert_never

import pyarrow as pa

from windrow import model as m
from windrow.engine.decode.avro_columns import AvroReader, registered_type
from windrow.engine.decode.csv_lines import CsvReader
from windrow.engine.decode.field_columns import Path, ReadColumns
from windrow.engine.decode.registry import Schemas
from windrow.model.avro_schema import parse_schema


class ColumnReader(Protocol):
    """Reads fields of many records at once."""

    def read(self, values: pa.Array) -> Iterator[ReadColumns]:
        """Read binary values, with nulls among them, in groups of rows; what is in no group is left to `parse`."""
        ...


class RecordReader(Protocol):
    """Reads the records of a format."""

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Return what a record holds, as JSON would (`values.NumberText`); raise MalformedError if it is none."""
        ...

    def columns(self, types: Mapping[Path, m.DataType]) -> ColumnReader:
        """Return what reads fields at these paths of many records."""
        ...


def open_reader(format_: m.RecordFormat) -> RecordReader | None:
    """Return the reader of a format, None for JSON; nothing is reached before a record is read."""
    match format_:
        case "json" | "debezium":
            return None
        case m.AvroFormat(schema):
            if isinstance(schema, m.Registry):
                return AvroReader(Schemas(schema, "AVRO", registered_type))
            return AvroReader(parse_schema(schema, "the schema of the source"))
        case m.CsvFormat():
            return CsvReader(format_)
        case m.ProtobufFormat(schema):
            from windrow.engine.decode.protobuf_messages import (  # noqa: PLC0415 - its runtime only where it is used
                ProtobufReader,
                descriptor_of,
                registered_file,
            )

            if isinstance(schema, m.Registry):
                return ProtobufReader(Schemas(schema, "PROTOBUF", registered_file, "serialized"))
            return ProtobufReader(descriptor_of(schema))
        case _:
            assert_never(format_)
