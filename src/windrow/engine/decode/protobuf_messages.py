"""Protobuf messages by their descriptors; protobuf's runtime reads single messages.

A field with presence that is not set is null; a field without presence has its default. Unknown fields are skipped.
`google.protobuf.Timestamp` is a time, a wrapper (`google.protobuf.Int64Value` ...) its value.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
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
from windrow.engine.decode.field_columns import Path, ReadColumns, TextColumns, Wanted, to_mask, wanted_tree
from windrow.engine.decode.protobuf_columns import TIMESTAMP, WRAPPERS, is_plain, read_messages
from windrow.engine.decode.registry import PREFIX, RegisteredSchema, Schemas
from windrow.engine.decode.values import MalformedError, NumberText, TimeText
from windrow.errors import InputError

_OWN: Final = {
    file.DESCRIPTOR.name: file
    for file in (any_pb2, descriptor_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
}
"""The files of protobuf itself, by name."""
_FIRST: Final = b"\0"
"""The indexes of the first message of a schema."""
_MOST_INDEXES: Final = 32


class ProtobufReader:
    """Reads messages of one type or those of a registry, as `RecordReader` says."""

    def __init__(self, schemas: Descriptor | Schemas[FileDescriptorProto]) -> None:
        self._schemas = schemas

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Return the fields of a message by their names."""
        if not isinstance(self._schemas, Schemas):
            return _message(self._schemas, raw, 0)
        file = self._schemas.of(raw)
        descriptor, begin = _find_message(file, raw)
        return _message(descriptor, raw, begin)

    def columns(self, types: Mapping[Path, m.DataType]) -> _ProtobufColumns:
        """Return the reader of the fields at these paths for many records."""
        return _ProtobufColumns(self._schemas, wanted_tree(types))


class _ProtobufColumns:
    """Reads columns of proto3 messages, as `ColumnReader` says; with a registry, the first message of each schema."""

    def __init__(self, schemas: Descriptor | Schemas[FileDescriptorProto], wanted: Mapping[str, Wanted]) -> None:
        self._schemas = schemas
        self._wanted = wanted
        self._texts = TextColumns()

    def read(self, values: pa.Array) -> Iterator[ReadColumns]:
        """Read binary values, some of them null; rows in no group are left to `parse`."""
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
    """Return the descriptor of a message in a descriptor set; raise InputError if it is missing."""
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
        names = [f"{file.package}.{type_.name}".lstrip(".") for file in files for type_ in file.message_type]
        msg = f"{called} has no message {given.name!r}; it has {', '.join(names)}"
        raise InputError(msg) from exc


def registered_file(schema: RegisteredSchema) -> Any:  # noqa: ANN401 - a FileDescriptor of one of two implementations
    """Return the file of a registered schema, whose texts are descriptors in base64."""
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
    """Return a pool of files in the order of their imports, with the imported ones of protobuf itself."""
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


def _find_message(file: Any, raw: bytes) -> tuple[Descriptor, int]:  # noqa: ANN401 - as above
    """Return the message of a file by the indexes behind the id, and the position of its bytes."""
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
        # keys of booleans are those of JSON
        return {
            str(key).lower() if isinstance(key, bool) else str(key): _value(of, entry) for key, entry in value.items()
        }
    return [_value(field, element) for element in value]


def _value(field: FieldDescriptor, value: Any) -> object:  # noqa: ANN401 - of any type
    if field.type == FieldDescriptor.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return NumberText(value) if known is None else known.name
    if field.message_type is None:
        return _scalar(value)
    name = value.DESCRIPTOR.full_name
    if name == TIMESTAMP:
        return TimeText.of(value.seconds * 1_000_000_000 + value.nanos, 1)
    return _scalar(value.value) if name in WRAPPERS else _fields(value)


def _scalar(value: float | str | bytes) -> object:
    """Return a number as `NumberText`; booleans, texts and bytes stay as they are."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return NumberText(repr(value)) if is_number else value
