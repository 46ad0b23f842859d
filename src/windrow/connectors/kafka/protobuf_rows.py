"""Rows as Protobuf messages with a registered schema: after the id, the indexes of the first message, and the data.

The schema is the descriptor of a proto3 file in base64, as Confluent's serializer registers it. Its message has a field
for each column: `string`, `bool`, `int64`, `int32`, `double`, a `string` for a decimal, a `google.protobuf.Timestamp`
for a time, and a repeated field for a list. The field of a nullable column is optional, and so is that of each result.

A field keeps the number that it has in the versions of the subject; a new one gets the next number that none had.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

from windrow.connectors.kafka.encoding import RowEncoding, id_prefix
from windrow.connectors.kafka.rows import Encode
from windrow.connectors.tables import SECOND, decimal_text
from windrow.connectors.unfit import RefusedError
from windrow.engine.decode.protobuf import TIMESTAMP, add_oneofs, registered_file
from windrow.engine.decode.registry import RegisteredSchema
from windrow.errors import InputError

_FIRST: Final = b"\0"
"""The encoded indexes that stand for the first message of a schema."""
_TYPES: Final = {
    pa.string(): FieldDescriptorProto.TYPE_STRING,
    pa.bool_(): FieldDescriptorProto.TYPE_BOOL,
    pa.int32(): FieldDescriptorProto.TYPE_INT32,
    pa.int64(): FieldDescriptorProto.TYPE_INT64,
    pa.float64(): FieldDescriptorProto.TYPE_DOUBLE,
}


class ProtobufEncoding(RowEncoding):
    """Protobuf messages. Another schema may have more fields, and more optional ones."""

    kind = "PROTOBUF"
    form = "serialized"
    is_numbered = True

    def derive(self, versions: Sequence[str] = ()) -> str:
        return self._descriptor(self._derived, versions)

    def _descriptor(self, columns: Iterable[pa.Field], versions: Sequence[str] = ()) -> str:
        """Return a schema with a field for each column, which has its number in these versions."""
        numbers: dict[str, int] = {}
        for there in filter(None, map(first_message, versions)):
            for field in there.fields:
                numbers.setdefault(field.name, field.number)
        last = max(numbers.values(), default=0)
        file = FileDescriptorProto(name=f"{self._name}.proto", syntax="proto3")
        message = file.message_type.add(name=self._name)
        for column in columns:
            if (number := numbers.get(column.name)) is None:
                number = last = last + 1
            _add_field(message, column, number)
        add_oneofs([message])
        if any(field.type_name for field in message.field):
            file.dependency.append("google/protobuf/timestamp.proto")
        return base64.b64encode(file.SerializeToString(deterministic=True)).decode()

    def fits(self, schema: str) -> bool:
        try:
            there = first_message(schema)
        except InputError:
            return False
        file = FileDescriptorProto.FromString(base64.b64decode(schema))
        own = first_message(self._descriptor(self._columns))
        return file.syntax == "proto3" and there is not None and _takes_fields(there, own)

    def encoder(self, id_: int, schema: str) -> Encode:
        make: Any = GetMessageClass(first_message(schema))
        prefix = id_prefix(id_) + _FIRST

        def encode(rows: pa.RecordBatch) -> list[bytes]:
            columns = [_plain(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
            given: Iterable[tuple[Any, ...]] = zip(*columns, strict=True) if columns else repeat((), rows.num_rows)
            made = (make(**_present(rows.schema.names, values)) for values in given)
            return [prefix + message.SerializeToString(deterministic=True) for message in made]

        return encode


def first_message(schema: str) -> Any:  # noqa: ANN401 - a Descriptor of one of two implementations
    """Return the first message of a schema, or None; raise InputError if the schema is malformed."""
    file = registered_file(RegisteredSchema(schema, (), "a schema of the subject"))
    return next(iter(file.message_types_by_name.values()), None)


def _add_field(message: DescriptorProto, column: pa.Field, number: int) -> None:
    field = message.field.add(name=column.name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    type_ = column.type
    if pa.types.is_list(type_):
        field.label, type_ = FieldDescriptorProto.LABEL_REPEATED, type_.value_type
    if pa.types.is_timestamp(type_):
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{TIMESTAMP}"
    else:
        field.type = FieldDescriptorProto.TYPE_STRING if pa.types.is_decimal(type_) else _TYPES[type_]
        if column.nullable and not pa.types.is_list(column.type):
            field.proto3_optional = True


def _takes_fields(there: Descriptor, own: Descriptor) -> bool:
    return all(
        field.name in there.fields_by_name and _takes(there.fields_by_name[field.name], field) for field in own.fields
    )


def _takes(there: FieldDescriptor, own: FieldDescriptor) -> bool:
    """Return True if a field can have all values of one that is derived from a column, and its lack of one."""
    is_alike = (there.type, there.is_repeated) == (own.type, own.is_repeated)
    if not is_alike or (own.has_presence and not there.has_presence):
        return False
    return own.message_type is None or there.message_type.full_name == TIMESTAMP


def _present(names: Sequence[str], values: Sequence[object]) -> dict[str, object]:
    """Return the values that are not null, by name."""
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _plain(name: str, column: pa.Array) -> list[Any]:
    """Return the values of a column as those of a field; raise RefusedError for a list with a null."""
    type_ = column.type
    if pa.types.is_decimal(type_):
        return decimal_text(column).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(type_):
        pairs = (None if micros is None else divmod(micros, SECOND) for micros in column.cast(pa.int64()).to_pylist())
        return [None if pair is None else {"seconds": pair[0], "nanos": pair[1] * 1000} for pair in pairs]
    if pa.types.is_list(type_):
        items = iter(_plain(name, column.flatten()))
        lists = [[next(items) for _ in range(count or 0)] for count in pc.list_value_length(column).to_pylist()]
        if any(item is None for items_ in lists for item in items_):
            msg = f"refused: Protobuf: the list {name} has a null"
            raise RefusedError(msg)
        return lists
    return column.to_pylist()  # type: ignore[no-any-return]
