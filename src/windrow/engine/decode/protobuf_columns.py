"""Protobuf messages to columns: each round reads the next field of every message, and groups them by their tags.

Trusted is what the runtime reads alike: fields of proto3 in their own wire types, each at most once in a message (the
runtime would take the last, and merge messages), at most one of a oneof, texts in UTF-8 whether a field reads them or
not. Fields that the descriptor does not know are passed over. All else is left to `ProtobufReader.parse`.
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
from windrow.engine.decode.cursors import Cursors, Longs, Rows, unzigzag
from windrow.engine.decode.field_columns import (
    FieldColumn,
    Mask,
    Read,
    Wanted,
    doubles_column,
    leaves,
    nothing_there,
    nothing_trusted,
    number_column,
    times_column,
    to_mask,
    valid_mask,
    valid_text,
)
from windrow.engine.decode.text_columns import TextColumns

TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_DEEPEST: Final = 50
_MOST_FIELDS: Final = 1000
"""A message in which more fields follow one another is left to the runtime: each takes a round."""
_MICROS_IN_SECOND, _NANOS_IN_MICRO = 1_000_000, 1_000
_FAR: Final = 1 << 40
"""Seconds that no time in the years 1 to 9999 has."""

_F = FieldDescriptor
_WIRES: Final = {
    **dict.fromkeys((_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64), _FIXED64),
    **dict.fromkeys((_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32), _FIXED32),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE), _SIZED),
}
"""How a field of a type is written, if not as a variable-length integer."""
_INT32: Final = (_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_ENUM)


def is_plain(descriptor: Descriptor) -> bool:
    """Return whether the file of a message is in proto3, without features of editions."""
    file = FileDescriptorProto()
    descriptor.file.CopyToProto(file)
    return bool(file.syntax == "proto3")


def read_messages(
    descriptor: Descriptor, wanted: Mapping[str, Wanted], values: pa.Array, skip: int, texts: TextColumns
) -> tuple[Read, Mask]:
    """Return the wanted columns of binary values, none of them null, and a mask of those that are surely messages.

    The message of a value begins at its byte `skip`.
    """
    cursors = Cursors(values, skip)
    columns, trusted = _Messages(cursors, texts, 1).read(descriptor, wanted)
    return columns, trusted & cursors.finished()


class _Messages:
    """One pass over messages of one type, a cursor in each."""

    def __init__(self, cursors: Cursors, texts: TextColumns, depth: int) -> None:
        self._cursors = cursors
        self._texts = texts
        self._depth = depth
        self._count = len(cursors.at)

    def read(self, descriptor: Descriptor, wanted: Mapping[str, Wanted]) -> tuple[Read, Mask]:
        """Return the wanted columns, and a mask of the messages that can be trusted."""
        cursors, count = self._cursors, self._count
        trusted = np.ones(count, dtype=np.bool_)
        if self._depth > _DEEPEST:
            return _untrusted(wanted, count), np.zeros(count, dtype=np.bool_)
        fields = {field.number: _Field(field, wanted.get(field.name), count) for field in descriptor.fields}
        going = np.flatnonzero((cursors.at < cursors.end) & ~cursors.failed)
        for _ in range(_MOST_FIELDS):
            if not len(going):
                break
            tags = cursors.varint(going)
            for tag in np.unique(tags).tolist():
                own = going if len(tags) and (tags == tag).all() else going[tags == tag]
                self._field(tag, fields.get(tag >> 3), cursors.going(own), trusted)
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
                found = _absent(part, count)
            else:
                found = {(): nothing_there(part, count)}
            columns |= {(name, *path): column for path, column in found.items()}
        return columns, trusted & ~cursors.failed

    def _field(self, tag: int, field: _Field | None, rows: Rows, trusted: Mask) -> None:  # noqa: C901 - a case each
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
            # in the wire of another type, or several: the runtime knows what that means
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
        return columns, trusted & inner.finished()


_ReadInner = Callable[[Descriptor, Mapping[str, Wanted], Cursors], tuple[Read, Mask]]


class _Field:
    """The values of a field, as far as they are read; `there` says in which messages it is set."""

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
        """Keep variable-length integers; return the mask of those in the range of the type."""
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
        """Keep what has 8 bytes, or 4 of them."""
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
        """Keep texts and messages; return the mask of those that can be trusted."""
        good = np.ones(len(rows), dtype=np.bool_)
        if self.is_text:
            texts = valid_text(cursors.texts(at, sizes))
            good = valid_mask(texts)
            if self.wanted is not None:
                self._parts.append((rows, texts))
        elif self.is_message:
            columns, good = read(self._of.message_type, self._tree(), cursors.within(at, sizes))
            if self.wanted is not None:
                self._parts.append((rows, columns))
        return good

    def skip_packed(self, cursors: Cursors) -> Mask:
        """Return the mask of the packed values, which no field reads, that can be trusted."""
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
        return cursors.finished()

    def _tree(self) -> Mapping[str, Wanted]:
        """Return what is read within the message."""
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
        """Return the columns of the field, which is wanted, by the paths below it."""
        count = len(self.there)
        if self.wanted is None:
            return {}
        if isinstance(self.wanted, Mapping):
            if self.is_message and not self.is_repeated and not self._is_special:
                return self._within(self.wanted)
            # something else is there, or nothing
            absent = _untrusted(self.wanted, count) if self.is_repeated else _absent(self.wanted, count)
            is_null = ~self.there if self._of.has_presence else np.zeros(count, dtype=np.bool_)
            return {path: FieldColumn(one.values, one.trusted & is_null) for path, one in absent.items()}
        if self.is_repeated or (self.is_message and not self._tree()):
            return {(): nothing_trusted(self.wanted, count)}
        if self.is_message:
            within = self._within(self._tree())
            return {(): within["value",] if self._name in WRAPPERS else _time(within)}
        return {(): self._with_nulls(self._scalar(self.wanted, texts))}

    def _scalar(self, wanted: m.DataType, texts: TextColumns) -> FieldColumn:  # noqa: PLR0911 - a case for each type
        """Return values, of which those that are not set are the default."""
        count, type_ = len(self.there), self._of.type
        if type_ == _F.TYPE_STRING:
            return texts.convert(wanted, self._texts())
        if type_ == _F.TYPE_ENUM:
            names = {number: one.name for number, one in self._of.enum_type.values_by_number.items()}
            distinct, places = np.unique(self._longs, return_inverse=True)
            named = pa.array([names.get(number) for number in distinct.tolist()], pa.string())
            return texts.convert(wanted, named.take(pa.array(places)))
        if type_ in {_F.TYPE_DOUBLE, _F.TYPE_FLOAT}:
            if not isinstance(wanted, m.DoubleType):
                return nothing_trusted(wanted, count)
            return doubles_column(self._longs.view(np.float64))
        if type_ == _F.TYPE_BOOL:
            if not isinstance(wanted, m.BooleanType):
                return nothing_trusted(wanted, count)
            return FieldColumn(pa.array(self._longs == 1), np.ones(count, dtype=np.bool_))
        if type_ == _F.TYPE_BYTES:
            return nothing_trusted(wanted, count)
        column = number_column(wanted, self._longs, None) or nothing_trusted(wanted, count)
        if type_ == _F.TYPE_FIXED64:
            column = FieldColumn(column.values, column.trusted & (self._longs >= 0))
        return column

    def _texts(self) -> pa.Array:
        index = np.zeros(len(self.there), dtype=np.int64)
        next_ = 1
        for rows, texts in self._parts:
            index[rows] = np.arange(next_, next_ + len(texts))
            next_ += len(texts)
        parts = [pa.array([""], pa.string()), *(texts for _, texts in self._parts)]
        return pa.concat_arrays(parts).take(pa.array(index))

    def _with_nulls(self, column: FieldColumn) -> FieldColumn:
        """Return null where a field with presence is not set."""
        if not self._of.has_presence or self.there.all():
            return column
        index = pa.array(np.arange(len(self.there)), mask=~self.there)
        return FieldColumn(column.values.take(index), column.trusted | ~self.there)

    def _within(self, tree: Mapping[str, Wanted]) -> Read:
        """Return what is read within the messages, null where there is none."""
        count = len(self.there)
        found = {}
        for path, none in _absent(tree, count).items():
            index = np.full(count, -1)
            trusted = ~self.there
            next_, parts = 0, []
            for rows, columns in self._parts:
                column = columns[path]
                index[rows] = np.arange(next_, next_ + len(rows))
                trusted[rows] = column.trusted
                parts.append(column.values)
                next_ += len(rows)
            values = pa.concat_arrays([none.values.slice(0, 0), *parts])
            found[path] = FieldColumn(values.take(pa.array(index, mask=index < 0)), trusted)
        return found


def _time(within: Read) -> FieldColumn:
    """Return seconds and nanoseconds as times, null where there are none."""
    seconds, nanos = within["seconds",], within["nanos",]
    whole, more = (one.values.fill_null(0).to_numpy() for one in (seconds, nanos))
    is_near = np.abs(whole) < _FAR
    micros = np.where(is_near, whole, 0) * _MICROS_IN_SECOND + more // _NANOS_IN_MICRO
    is_null = seconds.values.is_null()
    column = times_column(pc.if_else(is_null, None, pa.array(micros)), 1)
    trusted = column.trusted & is_near & (more % _NANOS_IN_MICRO == 0) | to_mask(is_null)
    values = pc.if_else(is_null, None, column.values)
    return FieldColumn(values, trusted & seconds.trusted & nanos.trusted)


def _absent(tree: Mapping[str, Wanted], count: int) -> Read:
    return {path: nothing_there(type_, count) for path, type_ in leaves(tree)}


def _untrusted(tree: Mapping[str, Wanted], count: int) -> Read:
    return {path: nothing_trusted(type_, count) for path, type_ in leaves(tree)}
