"""Protobuf messages, decoded one by one with Protobuf's runtime or in columns.

A field with presence is null if it is not set; a field without presence then has its default. Unknown fields are
skipped. A `google.protobuf.Timestamp` becomes a time, and a wrapper (such as `google.protobuf.Int64Value`) its value.

When decoding in columns, each round reads the next field of every message, grouped by tag. A message is trusted if the
runtime is certain to read it in the same way: its fields are those of proto3 in their own wire types, each occurs at
most once (the runtime would take the last one, and merge messages), at most one field of a oneof is set, and all
strings are UTF-8. All other messages are left to the runtime.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError, Message

from windrow import model as m
from windrow.engine.decode import field_columns as fc
from windrow.engine.decode.cursors import Cursors, Longs, Rows, unzigzag
from windrow.engine.decode.field_columns import FieldColumn, Mask, Path, Read, ReadColumns, TextColumns, Wanted
from windrow.engine.decode.needed import Needed
from windrow.engine.decode.registry import PREFIX, RegisteredSchema, Schemas
from windrow.engine.decode.values import MalformedError, NumberText, TimeText
from windrow.errors import InputError

_OWN: Final = {
    f"google/protobuf/{name}.proto": import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR
    for name in ("any", "descriptor", "duration", "empty", "struct", "timestamp", "wrappers")
}
"""The descriptors of Protobuf's own files, by name."""
_FIRST: Final = b"\0"
"""The encoded indexes that stand for the first message of a schema."""
_MOST_INDEXES: Final = 32
TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_DEEPEST: Final = 50
_MOST_FIELDS: Final = 1000
"""A message with more fields is left to the runtime, because each field takes a round."""
_MICROS_IN_SECOND, _NANOS_IN_MICRO = 1_000_000, 1_000
_FAR: Final = 1 << 40
"""Number of seconds that is greater than any time in the years 1 to 9999."""

_F = FieldDescriptor
_WIRES: Final = {
    **dict.fromkeys((_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64), _FIXED64),
    **dict.fromkeys((_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32), _FIXED32),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE), _SIZED),
}
"""Wire types of field types other than variable-length integers."""
_INT32: Final = (_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_ENUM)


class ProtobufReader:
    """A `RecordReader` for Protobuf, with one message type or the schemas of a registry; it reads what is `needed`."""

    def __init__(self, schemas: Descriptor | Schemas[FileDescriptorProto], needed: Needed = None) -> None:
        self._schemas = schemas
        self._needed = needed

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Map the names of a message's fields to their values."""
        return _message(*self._type_of(raw), self._needed)

    def parse_any(self, raw: bytes) -> object:
        """Return the value of a message, which for a wrapper is a single value."""
        raw, descriptor, begin = self._type_of(raw)
        found = _message(raw, descriptor, begin, None)
        return found["value"] if descriptor.full_name in WRAPPERS else found

    def _type_of(self, raw: bytes) -> tuple[bytes, Descriptor, int]:
        """Return the bytes of a record with the type of its message and the position where it begins."""
        if not isinstance(self._schemas, Schemas):
            return raw, self._schemas, 0
        return raw, *_find_message(self._schemas.of(raw), raw)

    def read(self, values: pa.Array, types: Mapping[Path, m.DataType], texts: TextColumns) -> Iterator[ReadColumns]:
        """Yield the columns of proto3 messages; with a registry, only of the first message of each schema."""
        wanted = fc.wanted_tree(types)
        for rows, descriptor, skip in self._groups(values):
            if _is_proto3(descriptor.file):
                own = values if len(rows) == len(values) else values.take(pa.array(rows))
                cursors = Cursors(own, skip)
                columns, trusted = _Messages(cursors, texts, 1).read(descriptor, wanted)
                yield ReadColumns(rows, columns, trusted & cursors.at_end())

    def _groups(self, values: pa.Array) -> Iterator[tuple[Rows, Descriptor, int]]:
        if not isinstance(self._schemas, Schemas):
            yield np.flatnonzero(values.is_valid()), self._schemas, 0
            return
        for rows, file in self._schemas.groups(values):
            framed = pc.binary_slice(values.take(pa.array(rows)), PREFIX, PREFIX + 1)
            first = rows[fc.to_mask(pc.equal(framed, _FIRST))]
            messages: list[Descriptor] = list(file.message_types_by_name.values())
            if messages:
                yield first, messages[0], PREFIX + len(_FIRST)


def descriptor_of(given: m.ProtobufMessage) -> Descriptor:
    """Return the descriptor of a message in a descriptor set; raise InputError if it is missing or malformed."""
    called = "the descriptor of the source"
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(given.descriptor, validate=True)).file
    except (DecodeError, binascii.Error) as exc:
        msg = f"{called} is not a descriptor set; create it with protoc --include_imports --descriptor_set_out=FILE"
        raise InputError(msg) from exc
    pool = _pool(files, called)
    try:
        return pool.FindMessageTypeByName(given.name)
    except KeyError as exc:
        names = [f"{file.package}.{type_.name}".lstrip(".") for file in files for type_ in file.message_type]
        msg = f"{called} has no message {given.name!r}; its messages are {', '.join(names)}"
        raise InputError(msg) from exc


def registered_file(schema: RegisteredSchema) -> Any:  # noqa: ANN401 - a FileDescriptor of one of two implementations
    """Return the file of a registered schema; raise InputError if it is malformed.

    The texts of Protobuf schemas are descriptors in base64.
    """
    try:
        files = []
        for name, text in (*schema.references, ("", schema.text)):
            file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
            file.name = name or file.name or "schema.proto"
            add_oneofs(file.message_type)
            files.append(file)
    except (DecodeError, binascii.Error) as exc:
        msg = f"{schema.called} is not a Protobuf descriptor: {exc}"
        raise InputError(msg) from exc
    return _pool(files, schema.called).FindFileByName(files[-1].name)


def add_oneofs(messages: Iterable[DescriptorProto]) -> None:
    """Add the oneofs that the compiler makes of optional fields, which Karapace leaves out."""
    for message in messages:
        taken = {named.name for named in (*message.field, *message.oneof_decl)}
        for field in message.field:
            if field.proto3_optional and not field.HasField("oneof_index"):
                name = f"_{field.name}"
                while name in taken:
                    name = f"X{name}"
                taken.add(name)
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=name)
        add_oneofs(message.nested_type)


def _pool(files: Iterable[FileDescriptorProto], called: str) -> descriptor_pool.DescriptorPool:
    """Return a pool of files, given in the order of their imports, and of Protobuf's own files that they import."""
    pool, known = descriptor_pool.DescriptorPool(), set()

    def add(file: FileDescriptorProto) -> None:
        for name in file.dependency:
            if name not in known and name in _OWN:
                own = FileDescriptorProto()
                _OWN[name].CopyToProto(own)
                add(own)
        if file.name not in known:
            known.add(file.name)
            pool.Add(file)

    try:
        for file in files:
            add(file)
    except (TypeError, KeyError) as exc:
        msg = f"{called} cannot be used: {exc}; include the files that it imports (protoc --include_imports)"
        raise InputError(msg) from exc
    return pool


def _find_message(file: Any, raw: bytes) -> tuple[Descriptor, int]:  # noqa: ANN401 - as above
    """Find a message type of a file by the indexes after the id; also return the position of the message's bytes."""
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


def _message(raw: bytes, descriptor: Descriptor, begin: int, needed: Needed) -> Mapping[str, object]:
    message = message_factory.GetMessageClass(descriptor)()
    try:
        message.ParseFromString(raw[begin:] if begin else raw)
        is_whole = message.IsInitialized()
        found = _fields(message, needed)  # here proto2 strings turn out not to be UTF-8
    except (DecodeError, UnicodeDecodeError, RecursionError) as exc:
        msg = "malformed: not Protobuf"
        raise MalformedError(msg) from exc
    if not is_whole:
        msg = f"malformed: not Protobuf: without {', '.join(message.FindInitializationErrors())}, which is required"
        raise MalformedError(msg)
    return found


def _fields(message: Message, needed: Needed = None) -> dict[str, object]:
    found = {}
    for field in message.DESCRIPTOR.fields:
        if needed is None or field.name in needed:
            found[field.name] = _field(message, field, None if needed is None else needed[field.name])
        elif _may_be_wrong(field):
            _field(message, field)
    return found


@lru_cache(maxsize=1024)
def _may_be_wrong(field: FieldDescriptor) -> bool:
    """Return True if a field may have a string that the runtime has not checked: one of another syntax than proto3."""
    seen: set[str] = set()
    left = [field]
    while left:
        inner = left.pop()
        if inner.type == _F.TYPE_STRING and not _is_proto3(inner.file):
            return True
        if inner.message_type is not None and inner.message_type.full_name not in seen:
            seen.add(inner.message_type.full_name)
            left += inner.message_type.fields
    return False


def _is_proto3(file: FileDescriptor) -> bool:
    """Return True if a file is proto3; proto2 and editions have other rules."""
    found = FileDescriptorProto()
    file.CopyToProto(found)
    return str(found.syntax) == "proto3"


def _field(message: Message, field: FieldDescriptor, needed: Needed = None) -> object:
    if field.has_presence and not message.HasField(field.name):
        return None
    value: Any = getattr(message, field.name)
    if not field.is_repeated:
        return _value(field, value, needed)
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        of = inner.fields_by_name["value"]
        # boolean keys are written as in JSON
        return {
            str(key).lower() if isinstance(key, bool) else str(key): _value(of, entry) for key, entry in value.items()
        }
    return [_value(field, element) for element in value]


def _value(field: FieldDescriptor, value: Any, needed: Needed = None) -> object:  # noqa: ANN401 - of any type
    if field.type == FieldDescriptor.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return NumberText(value) if known is None else known.name
    if field.message_type is None:
        return _scalar(value)
    name = value.DESCRIPTOR.full_name
    if name == TIMESTAMP:
        return TimeText.of(value.seconds * 1_000_000_000 + value.nanos, 1)
    return _scalar(value.value) if name in WRAPPERS else _fields(value, needed)


def _scalar(value: float | str | bytes) -> object:
    """Convert numbers to `NumberText`; return booleans, strings and bytes unchanged."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return NumberText(repr(value)) if is_number else value


class _Messages:
    """One pass over messages of one type, with a cursor in each message."""

    def __init__(self, cursors: Cursors, texts: TextColumns, depth: int) -> None:
        self._cursors = cursors
        self._texts = texts
        self._depth = depth
        self._count = len(cursors.at)

    def read(self, descriptor: Descriptor, wanted: Mapping[str, Wanted]) -> tuple[Read, Mask]:
        """Return the wanted columns, and the mask of trusted messages."""
        cursors, count = self._cursors, self._count
        trusted = np.ones(count, dtype=np.bool_)
        if self._depth > _DEEPEST:
            return fc.nulls_columns(wanted, count, trusted=False), np.zeros(count, dtype=np.bool_)
        fields = {field.number: _Field(field, wanted.get(field.name), count) for field in descriptor.fields}
        going = np.flatnonzero((cursors.at < cursors.end) & ~cursors.failed)
        for _ in range(_MOST_FIELDS):
            if not len(going):
                break
            tags = cursors.varint(going)
            for tag in np.unique(tags).tolist():
                own = going if len(tags) and (tags == tag).all() else going[tags == tag]
                self._field(tag, fields.get(tag >> 3), cursors.without_failed(own), trusted)
            going = going[(cursors.at[going] < cursors.end[going]) & ~cursors.failed[going]]
        trusted[going] = False
        for oneof in descriptor.oneofs:
            if len(oneof.fields) > 1:
                trusted &= np.sum([fields[field.number].there for field in oneof.fields], axis=0) <= 1
        columns: Read = {}
        for name, part in wanted.items():
            field = descriptor.fields_by_name.get(name)
            if field is not None:
                found = fields[field.number].columns(self._texts)
            elif isinstance(part, Mapping):
                found = fc.nulls_columns(part, count, trusted=True)
            else:
                found = {(): fc.nulls_column(part, count, trusted=True)}
            columns |= {(name, *path): column for path, column in found.items()}
        return columns, trusted & ~cursors.failed

    def _field(self, tag: int, field: _Field | None, rows: Rows, trusted: Mask) -> None:  # noqa: C901 - a case for each wire
        wire, cursors = tag & 7, self._cursors
        if not len(rows):
            return
        if tag >> 3 == 0 or tag >> 32 or wire not in {_VARINT, _FIXED64, _SIZED, _FIXED32}:
            cursors.fail(rows, np.ones(len(rows), dtype=np.bool_))
            return
        is_packed = field is not None and field.is_repeated and wire == _SIZED != field.wire
        if (
            field is not None
            and not is_packed
            and (wire != field.wire or (field.is_repeated and field.wanted is not None))
        ):
            # the wire type of a different type, or a wanted repeated field: left to the runtime
            trusted[rows] = False
            field = None
        if field is not None and not field.is_repeated:
            trusted[rows] &= ~field.there[rows]
            field.there[rows] = True
        match wire:
            case 0:
                numbers = cursors.varint(rows)
                if field is not None:
                    trusted[rows] &= field.take_varints(rows, numbers)
            case 1 | 5:
                words = cursors.words(cursors.skip(rows, 8 if wire == _FIXED64 else 4))
                if field is not None:
                    field.take_words(rows, words)
            case _:
                sizes = cursors.varint(rows).view(np.int64)
                cursors.fail(rows, sizes < 0)
                at = cursors.skip(rows, np.maximum(sizes, 0))
                if field is not None and is_packed:
                    trusted[rows] &= field.skip_packed(cursors.within(at, cursors.at[rows] - at))
                elif field is not None:
                    trusted[rows] &= field.take_bytes(rows, at, cursors.at[rows] - at, cursors, self._inner)

    def _inner(self, descriptor: Descriptor, wanted: Mapping[str, Wanted], inner: Cursors) -> tuple[Read, Mask]:
        columns, trusted = _Messages(inner, self._texts, self._depth + 1).read(descriptor, wanted)
        return columns, trusted & inner.at_end()


_ReadInner = Callable[[Descriptor, Mapping[str, Wanted], Cursors], tuple[Read, Mask]]


class _Field:
    """The values of a field that have been read so far; `there` is the mask of messages in which it is set."""

    def __init__(self, field: FieldDescriptor, wanted: Wanted | None, count: int) -> None:
        self._of = field
        self.wanted = wanted
        self.wire = _WIRES.get(field.type, _VARINT)
        self.is_repeated = field.is_repeated
        self.is_message = field.type == _F.TYPE_MESSAGE
        self.is_text = field.type == _F.TYPE_STRING
        self.there = np.zeros(count, dtype=np.bool_)
        self._longs: Longs = np.zeros(count if wanted is not None else 0, dtype=np.int64)
        self._parts: list[tuple[Rows, Any]] = []

    def take_varints(self, rows: Rows, given: npt.NDArray[np.uint64]) -> Mask:
        """Store variable-length integers; return the mask of integers in the range of the type."""
        longs = given.view(np.int64)
        if self._of.type in {_F.TYPE_SINT32, _F.TYPE_SINT64}:
            longs = unzigzag(given)
        if self._of.type in _INT32:
            good = (longs >= -(2**31)) & (longs < 2**31)
        elif self._of.type == _F.TYPE_UINT32:
            good = (longs >= 0) & (longs < 2**32)
        elif self._of.type == _F.TYPE_BOOL:
            good = (longs >= 0) & (longs <= 1)
        elif self._of.type == _F.TYPE_UINT64:
            good = longs >= 0
        else:
            good = np.ones(len(rows), dtype=np.bool_)
        if self.wanted is not None:
            self._longs[rows] = longs
        return good

    def take_words(self, rows: Rows, words: npt.NDArray[np.uint64]) -> None:
        """Store values of 8 or 4 bytes."""
        if self.wanted is None:
            return
        match self._of.type:
            case _F.TYPE_FLOAT:
                with np.errstate(invalid="ignore"):  # from a signalling NaN
                    words = words.astype(np.uint32).view(np.float32).astype(np.float64).view(np.uint64)
            case _F.TYPE_SFIXED32:
                words = words.astype(np.uint32).view(np.int32).astype(np.int64).view(np.uint64)
            case _F.TYPE_FIXED32:
                words = words.astype(np.uint32).astype(np.uint64)
        self._longs[rows] = words.view(np.int64)

    def take_bytes(self, rows: Rows, at: Longs, sizes: Longs, cursors: Cursors, read: _ReadInner) -> Mask:
        """Store strings and messages; return the mask of trusted ones."""
        good = np.ones(len(rows), dtype=np.bool_)
        if self.is_text:
            texts = fc.valid_text(cursors.texts(at, sizes))
            good = fc.valid_mask(texts)
            if self.wanted is not None:
                self._parts.append((rows, texts))
        elif self.is_message:
            columns, good = read(self._of.message_type, self._tree(), cursors.within(at, sizes))
            if self.wanted is not None:
                self._parts.append((rows, columns))
        return good

    def skip_packed(self, cursors: Cursors) -> Mask:
        """Check packed values without storing them; return the mask of trusted rows."""
        sizes = cursors.end - cursors.at
        if self.wanted is not None:
            return np.zeros(len(sizes), dtype=np.bool_)
        if self.wire != _VARINT:
            whole: Mask = sizes % (8 if self.wire == _FIXED64 else 4) == 0
            return whole
        return cursors.are_varints()

    def _tree(self) -> Mapping[str, Wanted]:
        """Map each name to read within the message to its type."""
        if isinstance(self.wanted, Mapping):
            return {} if self._is_special else self.wanted
        if self._name in WRAPPERS and self.wanted is not None:
            return {"value": self.wanted}
        if self._name == TIMESTAMP and isinstance(self.wanted, m.TimestampType):
            return {"seconds": m.LongType(), "nanos": m.LongType()}
        return {}

    @property
    def _name(self) -> str:
        return str(self._of.message_type.full_name) if self.is_message else ""

    @property
    def _is_special(self) -> bool:
        return self._name == TIMESTAMP or self._name in WRAPPERS

    def columns(self, texts: TextColumns) -> Read:
        """Return the columns of the field by the path below it, or no columns if the field is not wanted."""
        count = len(self.there)
        if self.wanted is None:
            return {}
        if isinstance(self.wanted, Mapping):
            if self.is_message and not self.is_repeated and not self._is_special:
                return self._within(self.wanted)
            # a value of a different kind, or no value
            may_be_null = self._of.has_presence and not self.is_repeated
            is_null = ~self.there if may_be_null else np.zeros(count, dtype=np.bool_)
            nulls = fc.nulls_columns(self.wanted, count, trusted=False)
            return {path: FieldColumn(column.values, is_null) for path, column in nulls.items()}
        if self.is_repeated or (self.is_message and not self._tree()):
            return {(): fc.nulls_column(self.wanted, count, trusted=False)}
        if self.is_message:
            within = self._within(self._tree())
            return {(): within["value",] if self._name in WRAPPERS else _time(within)}
        return {(): self._with_nulls(self._scalar(self.wanted, texts))}

    def _scalar(self, wanted: m.DataType, texts: TextColumns) -> FieldColumn:
        """Return the values of the field, with the default where it is not set."""
        column = None
        match self._of.type:
            case _F.TYPE_STRING:
                return texts.convert(wanted, self._texts())
            case _F.TYPE_ENUM:
                names = {number: value.name for number, value in self._of.enum_type.values_by_number.items()}
                distinct, places = np.unique(self._longs, return_inverse=True)
                named = pa.array([names.get(number) for number in distinct.tolist()], pa.string())
                return texts.convert(wanted, named.take(pa.array(places)))
            case _F.TYPE_DOUBLE | _F.TYPE_FLOAT if isinstance(wanted, m.DoubleType):
                return fc.doubles_column(self._longs.view(np.float64))
            case _F.TYPE_BOOL if isinstance(wanted, m.BooleanType):
                return FieldColumn(pa.array(self._longs == 1), np.ones(len(self._longs), dtype=np.bool_))
            case _F.TYPE_DOUBLE | _F.TYPE_FLOAT | _F.TYPE_BOOL | _F.TYPE_BYTES:
                pass
            case type_:
                column = fc.number_column(wanted, self._longs, None)
                if column is not None and type_ == _F.TYPE_FIXED64:
                    column = FieldColumn(column.values, column.trusted & (self._longs >= 0))
        return column or fc.nulls_column(wanted, len(self.there), trusted=False)

    def _texts(self) -> pa.Array:
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *(rows for rows, _ in self._parts)])
        index = np.zeros(len(self.there), dtype=np.int64)
        index[rows] = np.arange(1, len(rows) + 1)
        parts = [pa.array([""], pa.string()), *(texts for _, texts in self._parts)]
        return pa.concat_arrays(parts).take(pa.array(index))

    def _with_nulls(self, column: FieldColumn) -> FieldColumn:
        """Return the column with null where a field with presence is not set."""
        if not self._of.has_presence or self.there.all():
            return column
        index = pa.array(np.arange(len(self.there)), mask=~self.there)
        return FieldColumn(column.values.take(index), column.trusted | ~self.there)

    def _within(self, tree: Mapping[str, Wanted]) -> Read:
        """Return the columns within the messages, with null where there is no message."""
        return fc.place_reads(fc.nulls_columns(tree, 0, trusted=True), self._parts, ~self.there)


def _time(within: Read) -> FieldColumn:
    """Combine seconds and nanoseconds into times, with null where they are null."""
    seconds, nanos = within["seconds",], within["nanos",]
    whole, more = (column.values.fill_null(0).to_numpy() for column in (seconds, nanos))
    is_near = np.abs(whole) < _FAR
    micros = np.where(is_near, whole, 0) * _MICROS_IN_SECOND + more // _NANOS_IN_MICRO
    is_null = seconds.values.is_null()
    column = fc.times_column(pc.if_else(is_null, None, pa.array(micros)), 1)
    trusted = column.trusted & is_near & (more % _NANOS_IN_MICRO == 0) | fc.to_mask(is_null)
    values = pc.if_else(is_null, None, column.values)
    return FieldColumn(values, trusted & seconds.trusted & nanos.trusted)
