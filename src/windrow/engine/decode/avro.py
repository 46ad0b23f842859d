"""Avro records (https://avro.apache.org/docs/1.12.0/specification/), decoded one by one in plain Python or in columns.

Values are those of JSON with the same content: numbers become `NumberText`, times have their unit (`TimeText`), and
enums become strings. Bytes stay bytes, which no field type can hold. Avro values can therefore be converted to fields
in the same way as JSON values. The datum must end where the record ends. Strings that no field reads need not be UTF-8;
a string that is not UTF-8 is read as bytes.

When decoding in columns, a cursor in each record (`cursors`) is used to read one field of all records at once. The
schema is traversed once, in order. A branch of a union is read only for records that have this branch, and an item of
an array or map only for records that have another item. Each record is thus read as `read_datum` would read it, and it
is trusted if its cursor stops at the end of the record. A malformed record has no effect on other records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NoReturn, assert_never

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import schema
from windrow.engine.decode import field_columns as fc
from windrow.engine.decode.avro_defaults import with_defaults
from windrow.engine.decode.avro_skip import DEEPEST, skipper_of
from windrow.engine.decode.cursors import Cursors, Longs, Rows, unzigzag
from windrow.engine.decode.field_columns import FieldColumn, Mask, Path, Read, ReadColumns, TextColumns, Wanted
from windrow.engine.decode.needed import Needed
from windrow.engine.decode.registry import PREFIX, RegisteredSchema, Schemas
from windrow.engine.decode.values import (
    MAX_DEPTH,
    TOO_DEEP,
    BadValueError,
    MalformedError,
    NumberText,
    TimeText,
    convert,
    value_at,
)
from windrow.model import avro_schema as avro

_MOST_DIGITS: Final = 4_000
_MOST_BITS: Final = 13_000
"""Maximum size of a decimal, which is less than `_MOST_DIGITS` digits; a larger one stays bytes, and fits no field."""
_MOST_ITEMS: Final = 1000
"""A record with a longer array is left to the exact decoder, because each item takes a round."""
_DEEPEST: Final = 50
"""Maximum nesting that is decoded in columns, because each level takes frames of Python's stack."""
_LONG_BYTES: Final = 8
_IS_RECORD: Final[Path] = ()
"""The path of the column whose mask is true where a value is a record."""


def registered_type(schema: RegisteredSchema, reader: avro.AvroType | None = None) -> avro.AvroType:
    """Parse a registered schema, with the defaults of the reader's; raise InputError if it is not an Avro schema."""
    found = avro.parse_schema(schema.text, schema.called, [text for _, text in schema.references])
    return found if reader is None else with_defaults(found, reader)


class AvroReader:
    """A `RecordReader` for Avro, with one schema or the schemas of a registry, which reads what is `needed`."""

    def __init__(self, schemas: avro.AvroType | Schemas[avro.AvroType], needed: Needed = None) -> None:
        self._schemas = schemas
        self._needed = needed

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Map the names of a record's fields to their values."""
        value = self.parse_any(raw)
        if not isinstance(value, dict):
            msg = "not an object: the datum is not a record"
            raise MalformedError(msg)
        return value

    def parse_any(self, raw: bytes) -> object:
        """Return the value of a datum of any type."""
        if isinstance(self._schemas, Schemas):
            return read_datum(self._schemas.of(raw), raw, PREFIX, self._needed)
        return read_datum(self._schemas, raw, needed=self._needed)

    def read(self, values: pa.Array, types: Mapping[Path, m.DataType], texts: TextColumns) -> Iterator[ReadColumns]:
        """Yield the columns of all records that have a schema, in one group for each schema."""
        groups: Iterable[tuple[Rows, avro.AvroType]]
        if isinstance(self._schemas, Schemas):
            groups, skip = self._schemas.groups(values), PREFIX
        else:
            groups, skip = [(np.flatnonzero(values.is_valid()), self._schemas)], 0
        wanted = fc.wanted_tree(types)
        for rows, type_ in groups:
            own = values if len(rows) == len(values) else values.take(pa.array(rows))
            cursors = Cursors(own, skip)
            columns = _Reading(cursors, texts).read(type_, wanted, np.arange(len(own)), 1)
            is_record = columns.pop(_IS_RECORD).trusted
            yield ReadColumns(rows, columns, is_record & cursors.at_end())


def read_datum(type_: avro.AvroType, raw: bytes, begin: int = 0, needed: Needed = None) -> object:
    """Decode what is needed of the datum that begins at the byte `begin`.

    Raise MalformedError if the datum is malformed, in whatever part.
    """
    datum = _Datum(raw, begin)
    value = datum.read(type_, 1, needed)
    if datum.at < len(raw):
        msg = f"malformed: not Avro at byte {datum.at}: the datum ends here, the record has {len(raw)} bytes"
        raise MalformedError(msg)
    return value


class _Datum:
    """A cursor in the bytes of one record."""

    def __init__(self, raw: bytes, at: int) -> None:
        self._raw = raw
        self._path: list[str] = []
        self.at = at

    def skip(self, type_: avro.AvroType, depth: int) -> None:
        """Skip a value, with the errors of `read`."""
        skip = skipper_of(type_) if depth + DEEPEST <= MAX_DEPTH else None
        if skip is not None:
            try:
                at = skip(self._raw, self.at)
            except IndexError:
                at = len(self._raw) + 1
            if at <= len(self._raw):
                self.at = at
                return
        self.read(type_, depth)

    def read(self, type_: avro.AvroType, depth: int, needed: Needed = None) -> object:
        """Read a value; `depth` is the number of records, arrays and maps around it, including itself."""
        while isinstance(type_, avro.AvroUnion):
            type_ = type_.branches[self._index(len(type_.branches), "union", "branch")]
        match type_:
            case avro.AvroPrimitive(kind, nanos, scale):
                return self._primitive(kind, nanos, scale)
            case avro.AvroFixed(size, scale):
                return _from_bytes(self._take(size), scale)
            case avro.AvroEnum(symbols):
                return symbols[self._index(len(symbols), "enum", "symbol")]
        if depth > MAX_DEPTH:
            raise MalformedError(TOO_DEEP)
        match type_:
            case avro.AvroRecord():
                return self._fields(type_, depth, needed)
            case avro.AvroArray(items):
                return [self.read(items, depth + 1) for _ in self._items()]
            case avro.AvroMap(values):
                return self._entries(values, depth, needed)
            case _:
                assert_never(type_)

    def _entries(self, values: avro.AvroType, depth: int, needed: Needed) -> dict[str, object]:
        found: dict[str, object] = {}
        for _ in self._items():
            name = self._take(self._size()).decode(errors="surrogateescape")
            if needed is None or name in needed:
                found[name] = self.read(values, depth + 1, None if needed is None else needed[name])
            else:
                self.skip(values, depth + 1)
        return found

    def _fields(self, type_: avro.AvroRecord, depth: int, needed: Needed) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, inner in type_.fields:
            self._path.append(name)
            if needed is None or name in needed:
                found[name] = self.read(inner, depth + 1, None if needed is None else needed[name])
            else:
                self.skip(inner, depth + 1)
            self._path.pop()
        found |= {name: value for name, value in type_.missing if needed is None or name in needed}
        return found

    def _primitive(self, kind: avro.Primitive, nanos: int | None, scale: int | None) -> object:  # noqa: PLR0911 - a case each
        match kind:
            case "null":
                return None
            case "boolean":
                at = self.at
                byte = self._take(1)[0]
                if byte > 1:
                    self._fail("a boolean is 0 or 1", at)
                return byte == 1
            case "int" | "long":
                whole = self._long(32 if kind == "int" else 64)
                return NumberText(whole) if nanos is None else TimeText.of(whole, nanos)
            case "float":
                return NumberText(repr(struct.unpack("<f", self._take(4))[0]))
            case "double":
                return NumberText(repr(struct.unpack("<d", self._take(8))[0]))
            case "bytes":
                return _from_bytes(self._take(self._size()), scale)
            case "string":
                text = self._take(self._size())
                try:
                    return text.decode()
                except UnicodeDecodeError:
                    return text
            case _:
                assert_never(kind)

    def _items(self) -> Iterator[None]:
        """Yield once for each item of the blocks; the caller then reads the item."""
        while count := self._long(64):
            end = None
            if count < 0:
                count = -count
                size = self._size()
                end = self.at + size
            if count > len(self._raw) - self.at:  # a limit is needed for items without bytes
                self._fail(f"a block of {count} items is longer than the record", self.at)
            for _ in range(count):
                yield
            if end is not None and self.at != end:
                self._fail("a block has another size than it says", self.at)

    def _index(self, count: int, kind: str, part: str) -> int:
        at = self.at
        index = self._long(64)
        if not 0 <= index < count:
            self._fail(f"the {kind} has no {part} {index}", at)
        return index

    def _size(self) -> int:
        at = self.at
        size = self._long(64)
        if size < 0:
            self._fail(f"a length is {size}", at)
        return size

    def _long(self, bits: int) -> int:
        at, shift, value = self.at, 0, 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the last byte of an integer
                break
            shift += 7
            if shift > 63:  # noqa: PLR2004 - ten bytes are the most
                self._fail("an integer has more than 64 bits", at)
        if value >= 1 << bits:
            self._fail(f"an integer has more than {bits} bits", at)
        return (value >> 1) ^ -(value & 1)

    def _take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self._raw):
            self._fail(f"the record ends after {len(self._raw)} bytes, and needs {end}", self.at)
        taken = self._raw[self.at : end]
        self.at = end
        return taken

    def _fail(self, what: str, at: int) -> NoReturn:
        field = f" ({'.'.join(self._path)})" if self._path else ""
        msg = f"malformed: not Avro at byte {at}{field}: {what}"
        raise MalformedError(msg)


def _from_bytes(value: bytes, scale: int | None) -> object:
    if scale is None or not value:
        return value
    # built from its digits, so that no context rounds it
    unscaled = int.from_bytes(value, "big", signed=True)
    if unscaled.bit_length() > _MOST_BITS:
        return value
    if scale > _MOST_DIGITS:
        return NumberText(f"{unscaled}e-{scale}")
    return NumberText(format(Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale)), "f"))


@dataclass(frozen=True)
class _Reading:
    """One pass that reads the columns of a group of records."""

    cursors: Cursors
    texts: TextColumns

    def read(self, type_: avro.AvroType, wanted: Wanted | None, rows: Rows, depth: int) -> Read:  # noqa: PLR0911 - a case for each type
        """Read a value of each row, or skip it if `wanted` is None; `depth` is as in `_Datum.read`."""
        match type_:
            case avro.AvroUnion(branches):
                return self._union(branches, wanted, rows, depth)
            case avro.AvroPrimitive("null"):
                return _nulls(wanted, len(rows), trusted=True)
            case avro.AvroPrimitive():
                return _leaf(wanted, len(rows), self._primitive(type_, None if _is_tree(wanted) else wanted, rows))
            case avro.AvroFixed(size, scale):
                at = self.cursors.skip(rows, size)
                return _leaf(wanted, len(rows), self._bytes(wanted, at, self.cursors.at[rows] - at, scale))
            case avro.AvroEnum(symbols):
                index = self._index(rows, len(symbols))
                texts = pa.array(symbols or ("",), pa.string()).take(pa.array(index))
                return _leaf(wanted, len(rows), self._text(wanted, texts))
        if depth > _DEEPEST:
            self.cursors.fail(rows, np.ones(len(rows), dtype=np.bool_))
            return _nulls(wanted, len(rows), trusted=False)
        match type_:
            case avro.AvroRecord():
                return self._record(type_, wanted, rows, depth)
            case avro.AvroArray(items):
                return self._array(items, wanted, rows, depth)
            case avro.AvroMap(values):
                self._items(rows, lambda some: self._map_entry(values, some, depth))
                return _nulls(wanted, len(rows), trusted=False)
            case _:
                assert_never(type_)

    def _record(self, type_: avro.AvroRecord, wanted: Wanted | None, rows: Rows, depth: int) -> Read:
        if not len(rows):
            return _nulls(wanted, 0, trusted=False)
        tree: Mapping[str, Wanted] = wanted if isinstance(wanted, Mapping) else {}
        found: Read = {}
        for name, inner in type_.fields:
            part = tree.get(name)
            columns = self.read(inner, part, rows, depth + 1)
            if part is not None:
                found |= {(name, *path): column for path, column in columns.items() if path or not _is_tree(part)}
        for name, value in type_.missing:
            if name in tree:
                found |= _constants({name: tree[name]}, {name: value}, len(rows))
        if not _is_tree(wanted):
            return _nulls(wanted, len(rows), trusted=False)
        return _nulls(tree, len(rows), trusted=True) | found | {_IS_RECORD: _where(np.ones(len(rows), dtype=np.bool_))}

    def _union(self, branches: Sequence[avro.AvroType], wanted: Wanted | None, rows: Rows, depth: int) -> Read:
        if not len(rows):
            return _nulls(wanted, 0, trusted=False)
        index = self._index(rows, len(branches))
        failed = self.cursors.failed[rows]
        parts = []
        for number, branch in enumerate(branches):
            own = np.flatnonzero((index == number) & ~failed)
            if len(own) == len(rows):
                return self.read(branch, wanted, rows, depth)
            if len(own):
                parts.append((own, self.read(branch, wanted, rows[own], depth)))
        return fc.place_reads(_nulls(wanted, 0, trusted=False), parts, np.zeros(len(rows), dtype=np.bool_))

    def _array(self, items: avro.AvroType, wanted: Wanted | None, rows: Rows, depth: int) -> Read:
        of = wanted if isinstance(wanted, m.ArrayType) else None
        inner: Wanted | None = None
        if of is not None:
            is_struct = isinstance(of.element, m.StructType)
            inner = {field.name: field.type for field in of.element.fields} if is_struct else of.element  # type: ignore[union-attr, assignment]
        found: list[tuple[Longs, Read]] = []
        self._items(rows, lambda some: self.read(items, inner, some, depth + 1), found)
        if of is None:
            return _nulls(wanted, len(rows), trusted=False)
        places = np.concatenate([place for place, _ in found]) if found else np.zeros(0, dtype=np.int64)
        elements = _elements(of, fc.concat_reads(_nulls(inner, 0, trusted=False), [read for _, read in found]))
        # the items of a row were read in order, which a stable sort preserves
        order = np.argsort(places, kind="stable")
        values, trusted = elements.values.take(pa.array(order)), elements.trusted
        whole = fc.all_but(len(rows), places[~trusted].tolist())
        offsets = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(np.bincount(places, minlength=len(rows)), out=offsets[1:])
        arrays = pa.ListArray.from_arrays(pa.array(offsets), values, type=schema.arrow_type(of))
        return {(): FieldColumn(arrays, whole)}

    def _map_entry(self, values: avro.AvroType, rows: Rows, depth: int) -> Read:
        self._skip_bytes(rows)
        return self.read(values, None, rows, depth + 1)

    def _items(self, rows: Rows, read: Callable[[Rows], Read], found: list[tuple[Longs, Read]] | None = None) -> None:
        """Read blocks of items in rounds; each round reads one item of every row that has another item.

        The columns of each round are appended to `found`, together with the indexes of their rows.
        """
        cursors = self.cursors
        left, ends = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), -1)
        going = np.arange(len(rows))
        for _ in range(_MOST_ITEMS):
            begins = going[left[going] == 0]
            if len(begins):
                own = rows[begins]
                cursors.fail(own, (ends[begins] >= 0) & (cursors.at[own] != ends[begins]))
                count = unzigzag(cursors.varint(own))
                sized = np.flatnonzero(count < 0)
                ends[begins] = -1
                if len(sized):
                    sizes = unzigzag(cursors.varint(own[sized]))
                    cursors.fail(own[sized], sizes < 0)
                    ends[begins[sized]] = cursors.at[own[sized]] + np.clip(sizes, 0, len(cursors.data))
                    count = np.abs(count)
                # the least integer has no positive counterpart
                cursors.fail(own, (count < 0) | (count > cursors.end[own] - cursors.at[own]))
                left[begins] = count
            going = going[(left[going] > 0) & ~cursors.failed[rows[going]]]
            if not len(going):
                return
            columns = read(rows[going])
            if found is not None:
                found.append((going, columns))
            left[going] -= 1
        cursors.fail(rows[going], np.ones(len(going), dtype=np.bool_))

    def _primitive(  # noqa: PLR0911 - a case for each kind
        self, type_: avro.AvroPrimitive, wanted: Wanted | None, rows: Rows
    ) -> FieldColumn | None:
        cursors = self.cursors
        match type_.kind:
            case "null":
                return None
            case "boolean":
                bits = cursors.byte(rows)
                cursors.fail(rows, bits > 1)
                if not isinstance(wanted, m.BooleanType):
                    return None
                return FieldColumn(pa.array(bits == 1), np.ones(len(rows), dtype=np.bool_))
            case "int" | "long":
                given = cursors.varint(rows)
                if type_.kind == "int":
                    cursors.fail(rows, given >> np.uint64(32) > 0)
                return None if wanted is None else fc.number_column(wanted, unzigzag(given), type_.nanos)
            case "float" | "double":
                size = 4 if type_.kind == "float" else 8
                words = cursors.words(cursors.skip(rows, size))
                if not isinstance(wanted, m.DoubleType):
                    return None
                words = words.astype(np.uint32) if size == 4 else words  # noqa: PLR2004 - bytes of a float
                return fc.doubles_column(words.view(np.float32 if size == 4 else np.float64))  # noqa: PLR2004 - the same
            case "bytes":
                at, sizes = self._skip_bytes(rows)
                return self._bytes(wanted, at, sizes, type_.scale)
            case "string":
                at, sizes = self._skip_bytes(rows)
                return None if wanted is None else self._text(wanted, fc.valid_text(cursors.texts(at, sizes)))
            case _:
                assert_never(type_.kind)

    def _text(self, wanted: Wanted | None, texts: pa.Array) -> FieldColumn | None:
        return None if wanted is None or isinstance(wanted, Mapping) else self.texts.convert(wanted, texts)

    def _index(self, rows: Rows, count: int) -> Longs:
        """Read the index of a branch or symbol in each row; it is 0 for rows that failed."""
        index = unzigzag(self.cursors.varint(rows))
        wrong = (index < 0) | (index >= count)
        self.cursors.fail(rows, wrong)
        return np.where(wrong, 0, index)

    def _skip_bytes(self, rows: Rows) -> tuple[Longs, Longs]:
        """Skip length-prefixed bytes; return their positions and sizes (size 0 for rows that failed)."""
        sizes = unzigzag(self.cursors.varint(rows))
        self.cursors.fail(rows, sizes < 0)
        at = self.cursors.skip(rows, np.maximum(sizes, 0))
        return at, self.cursors.at[rows] - at

    def _bytes(self, wanted: Wanted | None, at: Longs, sizes: Longs, scale: int | None) -> FieldColumn | None:
        """Convert big-endian bytes to decimals of at most 64 bits; return None if no decimal is wanted."""
        if scale is None or not isinstance(wanted, m.DecimalType):
            return None
        words = self.cursors.words(at + sizes - _LONG_BYTES).byteswap().view(np.int64)
        spare = (8 * (_LONG_BYTES - np.clip(sizes, 1, _LONG_BYTES))).astype(np.int64)
        column = fc.decimals_column(wanted, (words << spare) >> spare, scale)
        return FieldColumn(column.values, column.trusted & (sizes >= 1) & (sizes <= _LONG_BYTES))


def _elements(of: m.ArrayType, read: Read) -> FieldColumn:
    """Combine the columns of array items into one column of elements."""
    if not isinstance(of.element, m.StructType):
        column = read[()]
        return column if of.optional else FieldColumn(column.values, column.trusted & fc.valid_mask(column.values))
    trusted = read[_IS_RECORD].trusted
    members = []
    for field in of.element.fields:
        column = read[field.name,]
        members.append(column.values)
        trusted = trusted & column.trusted & (np.True_ if field.optional else fc.valid_mask(column.values))
    arrow = schema.arrow_type(of).value_type
    return FieldColumn(pa.StructArray.from_arrays(members, fields=list(arrow)), trusted)


def _is_tree(wanted: Wanted | None) -> bool:
    return isinstance(wanted, Mapping)


def _where(mask: Mask) -> FieldColumn:
    """Return the column for the path `_IS_RECORD`, given its mask."""
    return FieldColumn(pa.nulls(len(mask)), mask)


def _constants(wanted: Mapping[str, Wanted], record: Mapping[str, object], count: int) -> Read:
    """Return columns with the values of one record in all rows; what the types cannot hold is not trusted."""
    found: Read = {}
    for path, type_ in fc.leaves(wanted):
        try:
            value = value_at(record, path)
            values = fc.array_of([None if value is None else convert("", type_, value)], type_)
        except BadValueError:
            found[path] = fc.nulls_column(type_, count, trusted=False)
        else:
            found[path] = FieldColumn(values.take(pa.array(np.zeros(count, dtype=np.int64))), np.ones(count, np.bool_))
    return found


def _nulls(wanted: Wanted | None, count: int, *, trusted: bool) -> Read:
    """Return columns of nulls.

    They are trusted if the records have null there, and untrusted if they have a value of a type that is not wanted.
    """
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        return {(): fc.nulls_column(wanted, count, trusted=trusted)}
    is_record = _where(np.zeros(count, dtype=np.bool_))
    return fc.nulls_columns(wanted, count, trusted=trusted) | {_IS_RECORD: is_record}


def _leaf(wanted: Wanted | None, count: int, column: FieldColumn | None) -> Read:
    return _nulls(wanted, count, trusted=False) if column is None or wanted is None else {(): column}
