"""Rows as Protobuf messages with a registered schema: after the id, the indexes of the first message, and the data.

The schema is the descriptor of a proto3 file in base64, as Confluent's serializer registers it. Its message has a field
for each column: `string`, `bool`, `int64`, `int32`, `double`, a `string` for a decimal, a `google.protobuf.Timestamp`
for a time, and a repeated field for a list, whose items may be messages. The field of a nullable column is optional.

A field keeps the number that it has in the versions of the subject; a new one gets the next number that none had.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
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
from windrow.engine.decode.protobuf import TIMESTAMP, registered_file
from windrow.engine.decode.registry import RegisteredSchema
from windrow.errors import InputError

Numbers = Mapping[tuple[str, str], int]
"""The numbers of fields by the name of their message within the first one, which is "", and their own name."""
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

    def derive(self, versions: Sequence[str]) -> str:
        numbers: dict[tuple[str, str], int] = {}
        for there in filter(None, map(first_message, versions)):
            for name, part in (("", there), *there.nested_types_by_name.items()):
                for field in part.fields:
                    numbers.setdefault((name, field.name), field.number)
        file = FileDescriptorProto(name=f"{self._name}.proto", syntax="proto3")
        message = file.message_type.add(name=self._name)
        _add_fields(message, message, "", self._columns, numbers)
        if TIMESTAMP in {
            field.type_name.lstrip(".") for part in (message, *message.nested_type) for field in part.field
        }:
            file.dependency.append("google/protobuf/timestamp.proto")
        return base64.b64encode(file.SerializeToString(deterministic=True)).decode()

    def fits(self, schema: str) -> bool:
        try:
            there = first_message(schema)
        except InputError:
            return False
        file = FileDescriptorProto.FromString(base64.b64decode(schema))
        return file.syntax == "proto3" and there is not None and _takes_fields(there, first_message(self.derive(())))

    def encoder(self, id_: int, schema: str) -> Encode:
        make: Any = GetMessageClass(first_message(schema))
        prefix = id_prefix(id_) + _FIRST

        def encode(rows: pa.RecordBatch) -> list[bytes]:
            columns = [_plain(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
            made = (make(**_present(rows.schema.names, values)) for values in zip(*columns, strict=True))
            return [prefix + message.SerializeToString(deterministic=True) for message in made]

        return encode


def first_message(schema: str) -> Any:  # noqa: ANN401 - a Descriptor of one of two implementations
    """Return the first message of a schema, or None; raise InputError if the schema is malformed."""
    file = registered_file(RegisteredSchema(schema, (), "a schema of the subject"))
    return next(iter(file.message_types_by_name.values()), None)


def _add_fields(
    message: DescriptorProto, first: DescriptorProto, within: str, columns: Sequence[pa.Field], numbers: Numbers
) -> None:
    """Add a field for each column; messages of items are added to the `first` message, under the names of columns."""
    last = max((number for (name, _), number in numbers.items() if name == within), default=0)
    for column in columns:
        if (number := numbers.get((within, column.name))) is None:
            number = last = last + 1
        field = message.field.add(name=column.name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        type_ = column.type
        if pa.types.is_list(type_):
            field.label, type_ = FieldDescriptorProto.LABEL_REPEATED, type_.value_type
        if pa.types.is_timestamp(type_):
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{TIMESTAMP}"
        elif pa.types.is_struct(type_):
            name = f"{within}_{column.name}_item".lstrip("_")
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{first.name}.{name}"
            _add_fields(first.nested_type.add(name=name), first, name, list(type_), numbers)
        else:
            field.type = FieldDescriptorProto.TYPE_STRING if pa.types.is_decimal(type_) else _TYPES[type_]
            if column.nullable and not pa.types.is_list(column.type):
                field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{column.name}")


def _takes_fields(there: Descriptor, own: Descriptor) -> bool:
    return all(
        field.name in there.fields_by_name and _takes(there.fields_by_name[field.name], field) for field in own.fields
    )


def _takes(there: FieldDescriptor, own: FieldDescriptor) -> bool:
    """Return True if a field can have all values of one that is derived from a column, and its lack of one."""
    is_alike = (there.type, there.is_repeated) == (own.type, own.is_repeated)
    if not is_alike or (own.has_presence and not there.has_presence):
        return False
    if own.message_type is None:
        return True
    names = there.message_type.full_name, own.message_type.full_name
    return names == (TIMESTAMP, TIMESTAMP) or (
        TIMESTAMP not in names and _takes_fields(there.message_type, own.message_type)
    )


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
    if pa.types.is_struct(type_):
        names = [part.name for part in type_]
        parts = [_plain(name, pc.struct_field(column, number)) for number in range(len(names))]
        rows = zip(column.is_valid().to_pylist(), zip(*parts, strict=True), strict=True)
        return [_present(names, values) if is_valid else None for is_valid, values in rows]
    return column.to_pylist()  # type: ignore[no-any-return]
