"""Protobuf: messages by their descriptors, a message alone as protobuf's own runtime reads it.

A field that has presence and is not set is null; one without presence has its default. Fields that the descriptor does
not know are passed over. `google.protobuf.Timestamp` is a time, a wrapper (`google.protobuf.Int64Value` ...) its value.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError, Message

from windrow import model as m
from windrow.engine.decode.cursors import Rows
from windrow.engine.decode.field_columns import Path, ReadColumns, Wanted, to_mask, wanted_tree
from windrow.engine.decode.protobuf_columns import TIMESTAMP, WRAPPERS, is_plain, read_messages
from windrow.engine.decode.registry import PREFIX, RegisteredSchema, Schemas
from windrow.engine.decode.text_columns import TextColumns
from windrow.engine.decode.values import MalformedError, NumberText, TimeText
from windrow.errors import InputError

_OWN: Final = {
    one.DESCRIPTOR.name: one
    for one in (any_pb2, descriptor_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
}
"""The files that protobuf brings itself, by their names."""
_FIRST: Final = b"\0"
"""The indexes of the first message of a schema."""
_MOST_INDEXES: Final = 32


class ProtobufReader:
    """Reads messages of one type, or of those in a registry, as `RecordReader` says."""

    def __init__(self, schemas: Descriptor | Schemas[FileDescriptorProto]) -> None:
        self._schemas = schemas

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Return the fields of a message by their names."""
        if not isinstance(self._schemas, Schemas):
            return _message(self._schemas, raw, 0)
        file = self._schemas.of(raw)
        descriptor, begin = _indexed(file, raw)
        return _message(descriptor, raw, begin)

    def columns(self, types: Mapping[Path, m.DataType]) -> _ProtobufColumns:
        """Return what reads fields at these paths of many records."""
        return _ProtobufColumns(self._schemas, wanted_tree(types))


class _ProtobufColumns:
    """Reads columns of messages in proto3, as `ColumnReader` says; of a registry, of the first of each schema."""

    def __init__(self, schemas: Descriptor | Schemas[FileDescriptorProto], wanted: Mapping[str, Wanted]) -> None:
        self._schemas = schemas
        self._wanted = wanted
        self._texts = TextColumns()

    def read(self, values: pa.Array) -> Iterator[ReadColumns]:
        """Read binary values, with nulls among them; what is in no group is left to `parse`."""
        for rows, descriptor, skip in self._groups(values):
            if is_plain(descriptor):
                own = values if len(rows) == len(values) else values.take(pa.array(rows))
                columns, is_message = read_messages(descriptor, self._wanted, own, skip, self._texts)
                yield ReadColumns(rows, columns, is_message)

    def _groups(self, values: pa.Array) -> Iterator[tuple[Rows, Descriptor, int]]:
        if not isinstance(self._schemas, Schemas):
            yield np.flatnonzero(values.is_valid()), self._schemas, 0
            return
        for rows, file in self._schemas.groups(values):
            framed = pc.binary_slice(values.take(pa.array(rows)), PREFIX, PREFIX + 1)
            first = rows[to_mask(pc.equal(framed, _FIRST))]
            messages: list[Descriptor] = list(file.message_types_by_name.values())
            if messages:
                yield first, messages[0], PREFIX + len(_FIRST)


def descriptor_of(given: m.ProtobufMessage) -> Descriptor:
    """Return the descriptor of a message in a descriptor set; raise InputError if it is not there."""
    called = "the descriptor of the source"
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(given.descriptor, validate=True)).file
    except (DecodeError, binascii.Error) as exc:
        msg = f"{called} is not a descriptor set; write it by protoc --include_imports --descriptor_set_out=FILE"
        raise InputError(msg) from exc
    pool = _pool(files, called)
    try:
        return pool.FindMessageTypeByName(given.name)
    except KeyError as exc:
        names = [f"{file.package}.{one.name}".lstrip(".") for file in files for one in file.message_type]
        msg = f"{called} has no message {given.name!r}; it has {', '.join(names)}"
        raise InputError(msg) from exc


def registered_file(schema: RegisteredSchema) -> Any:  # noqa: ANN401 - a FileDescriptor of one of two implementations
    """Return the file of a registered schema, of which the registry gave descriptors in base64."""
    try:
        files = []
        for name, text in (*schema.references, ("", schema.text)):
            file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
            file.name = name or file.name or "schema.proto"
            files.append(file)
    except (DecodeError, binascii.Error) as exc:
        msg = f"{schema.called} is not a Protobuf descriptor: {exc}"
        raise InputError(msg) from exc
    return _pool(files, schema.called).FindFileByName(files[-1].name)


def _pool(files: Iterable[FileDescriptorProto], called: str) -> descriptor_pool.DescriptorPool:
    """Return a pool with some files, each behind those that it imports, and with protobuf's own that they import."""
    pool, known = descriptor_pool.DescriptorPool(), set()

    def add(file: FileDescriptorProto) -> None:
        for name in file.dependency:
            if name not in known and name in _OWN:
                own = FileDescriptorProto()
                _OWN[name].DESCRIPTOR.CopyToProto(own)
                add(own)
        if file.name not in known:
            known.add(file.name)
            pool.Add(file)

    try:
        for file in files:
            add(file)
    except (TypeError, KeyError) as exc:
        msg = f"{called} cannot be used: {exc}; write it with what it imports (protoc --include_imports)"
        raise InputError(msg) from exc
    return pool


def _indexed(file: Any, raw: bytes) -> tuple[Descriptor, int]:  # noqa: ANN401 - as above
    """Return which message of a file the indexes behind the id say, and where its bytes begin."""
    count, at = _varint(raw, PREFIX)
    if not 0 <= count <= _MOST_INDEXES:
        msg = f"malformed: not Protobuf at byte {PREFIX}: {count} indexes of messages"
        raise MalformedError(msg)
    indexes = [] if count else [0]
    for _ in range(count):
        index, at = _varint(raw, at)
        indexes.append(index)
    messages, found = list(file.message_types_by_name.values()), None
    for index in indexes:
        if not 0 <= index < len(messages):
            msg = f"malformed: not Protobuf at byte {PREFIX}: the schema has no message with the index {index}"
            raise MalformedError(msg)
        found = messages[index]
        messages = list(found.nested_types)
    return found, at


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(raw):
            break
        value |= (raw[at] & 0x7F) << shift
        at += 1
        if raw[at - 1] < 0x80:  # noqa: PLR2004 - the last byte of an integer
            return (value >> 1) ^ -(value & 1), at
    msg = f"malformed: not Protobuf at byte {at}: no index of a message"
    raise MalformedError(msg)


def _message(descriptor: Descriptor, raw: bytes, begin: int) -> Mapping[str, object]:
    message = message_factory.GetMessageClass(descriptor)()
    try:
        message.ParseFromString(raw[begin:] if begin else raw)
        is_whole = message.IsInitialized()
        found = _fields(message)  # where texts of proto2 are found not to be UTF-8
    except (DecodeError, UnicodeDecodeError, RecursionError) as exc:
        msg = "malformed: not Protobuf"
        raise MalformedError(msg) from exc
    if not is_whole:
        msg = f"malformed: not Protobuf: without {', '.join(message.FindInitializationErrors())}, which is required"
        raise MalformedError(msg)
    return found


def _fields(message: Message) -> dict[str, object]:
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: FieldDescriptor) -> object:
    if field.has_presence and not message.HasField(field.name):
        return None
    value: Any = getattr(message, field.name)
    if not field.is_repeated:
        return _value(field, value)
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        of = inner.fields_by_name["value"]
        return {_key(key): _value(of, one) for key, one in value.items()}
    return [_value(field, one) for one in value]


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _enum(field: FieldDescriptor, number: int) -> object:
    known = field.enum_type.values_by_number.get(number)
    return NumberText(number) if known is None else known.name


def _value(field: FieldDescriptor, value: Any) -> object:  # noqa: ANN401 - of any type
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _enum(field, value)
    if field.message_type is not None:
        return _submessage(value)
    return _SCALARS[type(value)](value)


def _submessage(message: Any) -> object:  # noqa: ANN401 - of any type
    name = message.DESCRIPTOR.full_name
    if name == TIMESTAMP:
        return TimeText.of(message.seconds * 1_000_000_000 + message.nanos, 1)
    if name in WRAPPERS:
        return _SCALARS[type(message.value)](message.value)
    return _fields(message)


_SCALARS: Final[Mapping[type, Callable[[Any], object]]] = {
    int: NumberText,
    float: lambda value: NumberText(repr(value)),
    bool: lambda value: value,
    str: lambda value: value,
    bytes: lambda value: value,
}
