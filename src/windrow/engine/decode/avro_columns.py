"""Avro records to columns: a field is read of all records at once, by a cursor in each (`cursors`).

The schema is gone through once, in its order. A value of a union is read for the records that have its branch, items of
arrays and maps for those that have one more. So a record is read as `avro.read_record` reads it, and is trusted if its
cursor stands at its end at last; what is wrong with one has no effect on others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import schema
from windrow.engine.decode.avro import read_record
from windrow.engine.decode.cursors import Cursors, Longs, Rows, unzigzag
from windrow.engine.decode.field_columns import (
    FieldColumn,
    Mask,
    Path,
    Read,
    ReadColumns,
    Wanted,
    decimals_column,
    doubles_column,
    leaves,
    nothing_there,
    nothing_trusted,
    number_column,
    valid_mask,
    valid_text,
    wanted_tree,
)
from windrow.engine.decode.registry import PREFIX, RegisteredSchema, Schemas
from windrow.engine.decode.text_columns import TextColumns
from windrow.model.avro_schema import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    parse_schema,
)

_MOST_ITEMS: Final = 1000
"""A record with an array of more items is left to the exact decoder: each takes a round."""
_DEEPEST: Final = 50
"""Levels of nesting that are read by columns: each takes some frames of Python's stack."""
_LONG_BYTES: Final = 8
_IS_RECORD: Final[Path] = ()
"""The path at which the columns of a record say where there is one."""


def registered_type(schema: RegisteredSchema) -> AvroType:
    """Return the type of a registered schema; raise InputError if it is none."""
    return parse_schema(schema.text, schema.called, [text for _, text in schema.references])


class AvroReader:
    """Reads Avro of one schema, or of those in a registry, as `RecordReader` says."""

    def __init__(self, schemas: AvroType | Schemas[AvroType]) -> None:
        self._schemas = schemas

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Return the fields of a record by their names."""
        if isinstance(self._schemas, Schemas):
            return read_record(self._schemas.of(raw), raw, PREFIX)
        return read_record(self._schemas, raw)

    def columns(self, types: Mapping[Path, m.DataType]) -> _AvroColumns:
        """Return what reads fields at these paths of many records."""
        return _AvroColumns(self._schemas, wanted_tree(types))


class _AvroColumns:
    """Reads columns of Avro, by schema, as `ColumnReader` says."""

    def __init__(self, schemas: AvroType | Schemas[AvroType], wanted: Mapping[str, Wanted]) -> None:
        self._schemas = schemas
        self._wanted = wanted
        self._texts = TextColumns()

    def read(self, values: pa.Array) -> Iterator[ReadColumns]:
        """Read binary values, with nulls among them."""
        groups: Iterable[tuple[Rows, AvroType]]
        if isinstance(self._schemas, Schemas):
            groups, skip = self._schemas.groups(values), PREFIX
        else:
            groups, skip = [(np.flatnonzero(values.is_valid()), self._schemas)], 0
        for rows, type_ in groups:
            own = values if len(rows) == len(values) else values.take(pa.array(rows))
            columns, is_record = read_columns(type_, self._wanted, own, skip, self._texts)
            yield ReadColumns(rows, columns, is_record)


def read_columns(
    type_: AvroType, wanted: Mapping[str, Wanted], values: pa.Array, skip: int, texts: TextColumns
) -> tuple[Read, Mask]:
    """Return the wanted columns of binary values, none of them null, and a mask of those that are whole records.

    The datum of a value begins at its byte `skip`.
    """
    cursors = Cursors(values, skip)
    columns = _Reading(cursors, texts).read(type_, wanted, np.arange(len(values)), 1)
    is_record = columns.pop(_IS_RECORD).trusted
    return columns, is_record & cursors.finished()


@dataclass(frozen=True)
class _Reading:
    """One pass over some records."""

    cursors: Cursors
    texts: TextColumns

    def read(self, type_: AvroType, wanted: Wanted | None, rows: Rows, depth: int) -> Read:  # noqa: PLR0911 - one a type
        """Read a value of each row; without `wanted`, only move on. `depth` is as in `avro.read_record`."""
        match type_:
            case AvroUnion(branches):
                return self._union(branches, wanted, rows, depth)
            case AvroPrimitive("null"):
                return _absent(wanted, len(rows))
            case AvroPrimitive():
                return _leaf(wanted, len(rows), self._primitive(type_, None if _is_tree(wanted) else wanted, rows))
            case AvroFixed(size, scale):
                at = self.cursors.skip(rows, size)
                return _leaf(wanted, len(rows), self._bytes(wanted, at, self.cursors.at[rows] - at, scale))
            case AvroEnum(symbols):
                index = self._index(rows, len(symbols))
                texts = pa.array(symbols or ("",), pa.string()).take(pa.array(index))
                return _leaf(wanted, len(rows), self._text(wanted, texts))
        if depth > _DEEPEST:
            self.cursors.fail(rows, np.ones(len(rows), dtype=np.bool_))
            return _unread(wanted, len(rows))
        match type_:
            case AvroRecord():
                return self._record(type_, wanted, rows, depth)
            case AvroArray(items):
                return self._array(items, wanted, rows, depth)
            case AvroMap(values):
                self._items(rows, lambda some: self._map_entry(values, some, depth))
                return _unread(wanted, len(rows))
            case _:
                assert_never(type_)

    def _record(self, type_: AvroRecord, wanted: Wanted | None, rows: Rows, depth: int) -> Read:
        if not len(rows):
            return _unread(wanted, 0)
        tree: Mapping[str, Wanted] = wanted if isinstance(wanted, Mapping) else {}
        found: Read = {}
        for name, inner in type_.fields:
            part = tree.get(name)
            columns = self.read(inner, part, rows, depth + 1)
            if part is not None:
                found |= {(name, *path): column for path, column in columns.items() if path or not _is_tree(part)}
        if not _is_tree(wanted):
            return _unread(wanted, len(rows))
        return _absent(tree, len(rows)) | found | {_IS_RECORD: _where(np.ones(len(rows), dtype=np.bool_))}

    def _union(self, branches: Sequence[AvroType], wanted: Wanted | None, rows: Rows, depth: int) -> Read:
        if not len(rows):
            return _unread(wanted, 0)
        index = self._index(rows, len(branches))
        failed = self.cursors.failed[rows]
        parts = []
        for number, branch in enumerate(branches):
            own = np.flatnonzero((index == number) & ~failed)
            if len(own) == len(rows):
                return self.read(branch, wanted, rows, depth)
            if len(own):
                parts.append((own, self.read(branch, wanted, rows[own], depth)))
        return _joined(parts, wanted, len(rows))

    def _array(self, items: AvroType, wanted: Wanted | None, rows: Rows, depth: int) -> Read:
        of = wanted if isinstance(wanted, m.ArrayType) else None
        inner: Wanted | None = None
        if of is not None:
            is_struct = isinstance(of.element, m.StructType)
            inner = {field.name: field.type for field in of.element.fields} if is_struct else of.element  # type: ignore[union-attr, assignment]
        found: list[tuple[Longs, Read]] = []
        self._items(rows, lambda some: self.read(items, inner, some, depth + 1), found)
        if of is None:
            return _unread(wanted, len(rows))
        places = np.concatenate([place for place, _ in found]) if found else np.zeros(0, dtype=np.int64)
        elements = _elements(of, _concatenated([read for _, read in found], inner))
        # items of a row were read in their order, which a stable sort keeps
        order = np.argsort(places, kind="stable")
        values, trusted = elements.values.take(pa.array(order)), elements.trusted
        whole = np.ones(len(rows), dtype=np.bool_)
        whole[places[~trusted]] = False
        offsets = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(np.bincount(places, minlength=len(rows)), out=offsets[1:])
        arrays = pa.ListArray.from_arrays(pa.array(offsets), values, type=schema.arrow_type(of))
        return {(): FieldColumn(arrays, whole)}

    def _map_entry(self, values: AvroType, rows: Rows, depth: int) -> Read:
        self._sized(rows)
        return self.read(values, None, rows, depth + 1)

    def _items(self, rows: Rows, read: Callable[[Rows], Read], found: list[tuple[Longs, Read]] | None = None) -> None:
        """Read blocks of items, one item of each row that has another in each round.

        `found` gets what was read of them, with the places of their rows among all.
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
                # the least of all numbers has no opposite
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

    def _primitive(  # noqa: PLR0911 - a case each
        self, type_: AvroPrimitive, wanted: Wanted | None, rows: Rows
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
                return None if wanted is None else number_column(wanted, unzigzag(given), type_.nanos)
            case "float" | "double":
                size = 4 if type_.kind == "float" else 8
                words = cursors.words(cursors.skip(rows, size))
                if not isinstance(wanted, m.DoubleType):
                    return None
                words = words.astype(np.uint32) if size == 4 else words  # noqa: PLR2004 - bytes of a float
                return doubles_column(words.view(np.float32 if size == 4 else np.float64))  # noqa: PLR2004 - the same
            case "bytes":
                at, sizes = self._sized(rows)
                return self._bytes(wanted, at, sizes, type_.scale)
            case "string":
                at, sizes = self._sized(rows)
                return None if wanted is None else self._text(wanted, valid_text(cursors.texts(at, sizes)))
            case _:
                assert_never(type_.kind)

    def _text(self, wanted: Wanted | None, texts: pa.Array) -> FieldColumn | None:
        return None if wanted is None or isinstance(wanted, Mapping) else self.texts.convert(wanted, texts)

    def _index(self, rows: Rows, count: int) -> Longs:
        """Read which one of some branches or symbols each row has; that of a row that failed is 0."""
        index = unzigzag(self.cursors.varint(rows))
        wrong = (index < 0) | (index >= count)
        self.cursors.fail(rows, wrong)
        return np.where(wrong, 0, index)

    def _sized(self, rows: Rows) -> tuple[Longs, Longs]:
        """Move over bytes behind their number; return where they begin and how many they are, 0 of failed rows."""
        sizes = unzigzag(self.cursors.varint(rows))
        self.cursors.fail(rows, sizes < 0)
        at = self.cursors.skip(rows, np.maximum(sizes, 0))
        return at, self.cursors.at[rows] - at

    def _bytes(self, wanted: Wanted | None, at: Longs, sizes: Longs, scale: int | None) -> FieldColumn | None:
        """Return decimals of at most 64 bits, the first byte of each being the most significant."""
        if scale is None or not isinstance(wanted, m.DecimalType):
            return None
        words = self.cursors.words(at + sizes - _LONG_BYTES).byteswap().view(np.int64)
        spare = (8 * (_LONG_BYTES - np.clip(sizes, 1, _LONG_BYTES))).astype(np.int64)
        column = decimals_column(wanted, (words << spare) >> spare, scale)
        return FieldColumn(column.values, column.trusted & (sizes >= 1) & (sizes <= _LONG_BYTES))


def _elements(of: m.ArrayType, read: Read) -> FieldColumn:
    """Return the items of arrays as their elements."""
    if not isinstance(of.element, m.StructType):
        column = read[()]
        return column if of.optional else FieldColumn(column.values, column.trusted & valid_mask(column.values))
    trusted = read[_IS_RECORD].trusted
    members = []
    for field in of.element.fields:
        column = read[field.name,]
        members.append(column.values)
        trusted = trusted & column.trusted & (np.True_ if field.optional else valid_mask(column.values))
    arrow = schema.arrow_type(of).value_type
    return FieldColumn(pa.StructArray.from_arrays(members, fields=list(arrow)), trusted)


def _is_tree(wanted: Wanted | None) -> bool:
    return isinstance(wanted, Mapping)


def _where(mask: Mask) -> FieldColumn:
    """Return the column that says where there is a record."""
    return FieldColumn(pa.nulls(len(mask)), mask)


def _unread(wanted: Wanted | None, count: int) -> Read:
    """Return values that the exact decoder must read, as they are of another kind than what is wanted."""
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        return {(): nothing_trusted(wanted, count)}
    columns = {path: nothing_trusted(type_, count) for path, type_ in leaves(wanted)}
    return columns | {_IS_RECORD: _where(np.zeros(count, dtype=np.bool_))}


def _absent(wanted: Wanted | None, count: int) -> Read:
    """Return what is read of null."""
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        return {(): nothing_there(wanted, count)}
    columns = {path: nothing_there(type_, count) for path, type_ in leaves(wanted)}
    return columns | {_IS_RECORD: _where(np.zeros(count, dtype=np.bool_))}


def _leaf(wanted: Wanted | None, count: int, column: FieldColumn | None) -> Read:
    return _unread(wanted, count) if column is None or wanted is None else {(): column}


def _concatenated(parts: Sequence[Read], wanted: Wanted | None) -> Read:
    """Return the values of several reads, one after the other."""
    empty = _unread(wanted, 0)
    return {
        path: FieldColumn(
            pa.concat_arrays([none.values, *(part[path].values for part in parts)]),
            np.concatenate([none.trusted, *(part[path].trusted for part in parts)]),
        )
        for path, none in empty.items()
    }


def _joined(parts: Sequence[tuple[Longs, Read]], wanted: Wanted | None, count: int) -> Read:
    """Bring values to their places among `count` rows; where there is none, the exact decoder must read."""
    whole = _concatenated([part for _, part in parts], wanted)
    places = np.concatenate([own for own, _ in parts]) if parts else np.zeros(0, dtype=np.int64)
    index = np.full(count, -1)
    index[places] = np.arange(len(places))
    taken = pa.array(index, mask=index < 0)
    found = {}
    for path, column in whole.items():
        trusted = np.zeros(count, dtype=np.bool_)
        trusted[places] = column.trusted
        found[path] = FieldColumn(column.values.take(taken), trusted)
    return found
