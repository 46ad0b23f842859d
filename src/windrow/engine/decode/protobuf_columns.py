"""Protobuf messages to columns: each round reads the next field of every message, grouped by tag.

A message is trusted if the runtime is sure to read it alike: fields of proto3 in their own wire types, each at most
once (the runtime would take the last, and merge messages), at most one field of a oneof, and all texts in UTF-8.
Unknown fields are skipped. All other messages are left to `ProtobufReader.parse`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from windrow import model as m
from windrow.engine.decode import field_columns as fc
from windrow.engine.decode.cursors import Cursors, Longs, Rows, unzigzag
from windrow.engine.decode.field_columns import FieldColumn, Mask, Read, TextColumns, Wanted

TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_DEEPEST: Final = 50
_MOST_FIELDS: Final = 1000
"""A message with more fields is left to the runtime: each field takes a round."""
_MICROS_IN_SECOND, _NANOS_IN_MICRO = 1_000_000, 1_000
_FAR: Final = 1 << 40
"""Seconds beyond all times in the years 1 to 9999."""

_F = FieldDescriptor
_WIRES: Final = {
    **dict.fromkeys((_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64), _FIXED64),
    **dict.fromkeys((_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32), _FIXED32),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE), _SIZED),
}
"""Wire types of field types other than variable-length integers."""
_INT32: Final = (_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_ENUM)


def is_plain(descriptor: Descriptor) -> bool:
    """Return whether the file of a message is in proto3, without features of editions."""
    file = FileDescriptorProto()
    descriptor.file.CopyToProto(file)
    return bool(file.syntax == "proto3")


def read_messages(
    descriptor: Descriptor, wanted: Mapping[str, Wanted], values: pa.Array, skip: int, texts: TextColumns
) -> tuple[Read, Mask]:
    """Return the wanted columns of binary values without nulls, and the mask of the trusted messages.

    The message of a value begins at its byte `skip`.
    """
    cursors = Cursors(values, skip)
    columns, trusted = _Messages(cursors, texts, 1).read(descriptor, wanted)
    return columns, trusted & cursors.at_end()


class _Messages:
    """One pass over messages of one type, a cursor in each."""

    def __init__(self, cursors: Cursors, texts: TextColumns, depth: int) -> None:
        self._cursors = cursors
        self._texts = texts
        self._depth = depth
        self._count = len(cursors.at)

    def read(self, descriptor: Descriptor, wanted: Mapping[str, Wanted]) -> tuple[Read, Mask]:
        """Return the wanted columns, and the mask of the trusted messages."""
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
            # a wire type of another type, or a wanted repeated field: left to the runtime
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
    """The values of a field that are read so far; `there` is the mask of the messages in which it is set."""

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
        """Store variable-length integers; return the mask of those in the range of the type."""
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
                with np.errstate(invalid="ignore"):  # of a NaN that signals
                    words = words.astype(np.uint32).view(np.float32).astype(np.float64).view(np.uint64)
            case _F.TYPE_SFIXED32:
                words = words.astype(np.uint32).view(np.int32).astype(np.int64).view(np.uint64)
            case _F.TYPE_FIXED32:
                words = words.astype(np.uint32).astype(np.uint64)
        self._longs[rows] = words.view(np.int64)

    def take_bytes(self, rows: Rows, at: Longs, sizes: Longs, cursors: Cursors, read: _ReadInner) -> Mask:
        """Store texts and messages; return the mask of the trusted ones."""
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
        """Return the mask of the trusted among packed values, which are only checked."""
        sizes = cursors.end - cursors.at
        if self.wanted is not None:
            return np.zeros(len(sizes), dtype=np.bool_)
        if self.wire != _VARINT:
            whole: Mask = sizes % (8 if self.wire == _FIXED64 else 4) == 0
            return whole
        going = np.flatnonzero(sizes)
        for _ in range(_MOST_FIELDS):
            if not len(going):
                break
            cursors.varint(going)
            going = going[(cursors.at[going] < cursors.end[going]) & ~cursors.failed[going]]
        return cursors.at_end()

    def _tree(self) -> Mapping[str, Wanted]:
        """Return the types to read within the message, by name."""
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
        """Return the columns of the field by path below it; none if it is not wanted."""
        count = len(self.there)
        if self.wanted is None:
            return {}
        if isinstance(self.wanted, Mapping):
            if self.is_message and not self.is_repeated and not self._is_special:
                return self._within(self.wanted)
            # a value of another kind, or none
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
        """Return values, with the default where the field is not set."""
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
        """Return null where a field with presence is not set."""
        if not self._of.has_presence or self.there.all():
            return column
        index = pa.array(np.arange(len(self.there)), mask=~self.there)
        return FieldColumn(column.values.take(index), column.trusted | ~self.there)

    def _within(self, tree: Mapping[str, Wanted]) -> Read:
        """Return the columns within the messages, null where there is no message."""
        return fc.place_reads(fc.nulls_columns(tree, 0, trusted=True), self._parts, ~self.there)


def _time(within: Read) -> FieldColumn:
    """Return seconds and nanoseconds as times, null where they are null."""
    seconds, nanos = within["seconds",], within["nanos",]
    whole, more = (column.values.fill_null(0).to_numpy() for column in (seconds, nanos))
    is_near = np.abs(whole) < _FAR
    micros = np.where(is_near, whole, 0) * _MICROS_IN_SECOND + more // _NANOS_IN_MICRO
    is_null = seconds.values.is_null()
    column = fc.times_column(pc.if_else(is_null, None, pa.array(micros)), 1)
    trusted = column.trusted & is_near & (more % _NANOS_IN_MICRO == 0) | fc.to_mask(is_null)
    values = pc.if_else(is_null, None, column.values)
    return FieldColumn(values, trusted & seconds.trusted & nanos.trusted)
