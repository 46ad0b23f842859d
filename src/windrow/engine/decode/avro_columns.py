"""Avro records to columns: each field is read from all records at once, by a cursor in each (`cursors`).

The schema is traversed once, in its order. A branch of a union is read for the records that have it, an item of arrays
and maps for the records that have another one. So each record is read as `avro.read_record` reads it, and is trusted if
its cursor ends at its end; a malformed record has no effect on others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import schema
from windrow.engine.decode import field_columns as fc
from windrow.engine.decode.avro import read_record
from windrow.engine.decode.cursors import Cursors, Longs, Rows, unzigzag
from windrow.engine.decode.field_columns import FieldColumn, Mask, Path, Read, ReadColumns, TextColumns, Wanted
from windrow.engine.decode.registry import PREFIX, RegisteredSchema, Schemas
from windrow.model import avro_schema as avro

_MOST_ITEMS: Final = 1000
"""A record with a longer array is left to the exact decoder: each item takes a round."""
_DEEPEST: Final = 50
"""Levels of nesting that are read by columns: each takes frames of Python's stack."""
_LONG_BYTES: Final = 8
_IS_RECORD: Final[Path] = ()
"""The path of the column whose mask is true where a value is a record."""


def registered_type(schema: RegisteredSchema) -> avro.AvroType:
    """Return the type of a registered schema; raise InputError if it is no Avro schema."""
    return avro.parse_schema(schema.text, schema.called, [text for _, text in schema.references])


class AvroReader:
    """Reads Avro with one schema or those of a registry, as `RecordReader` says."""

    def __init__(self, schemas: avro.AvroType | Schemas[avro.AvroType]) -> None:
        self._schemas = schemas

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Return the fields of a record by their names."""
        if isinstance(self._schemas, Schemas):
            return read_record(self._schemas.of(raw), raw, PREFIX)
        return read_record(self._schemas, raw)

    def columns(self, types: Mapping[Path, m.DataType]) -> _AvroColumns:
        """Return the reader of the fields at these paths for many records."""
        return _AvroColumns(self._schemas, fc.wanted_tree(types))


class _AvroColumns:
    """Reads columns of Avro, by schema, as `ColumnReader` says."""

    def __init__(self, schemas: avro.AvroType | Schemas[avro.AvroType], wanted: Mapping[str, Wanted]) -> None:
        self._schemas = schemas
        self._wanted = wanted
        self._texts = TextColumns()

    def read(self, values: pa.Array) -> Iterator[ReadColumns]:
        """Read binary values, some of them null."""
        groups: Iterable[tuple[Rows, avro.AvroType]]
        if isinstance(self._schemas, Schemas):
            groups, skip = self._schemas.groups(values), PREFIX
        else:
            groups, skip = [(np.flatnonzero(values.is_valid()), self._schemas)], 0
        for rows, type_ in groups:
            own = values if len(rows) == len(values) else values.take(pa.array(rows))
            columns, is_record = read_columns(type_, self._wanted, own, skip, self._texts)
            yield ReadColumns(rows, columns, is_record)


def read_columns(
    type_: avro.AvroType, wanted: Mapping[str, Wanted], values: pa.Array, skip: int, texts: TextColumns
) -> tuple[Read, Mask]:
    """Return the wanted columns of binary values without nulls, and the mask of the values that are whole records.

    The datum of a value begins at its byte `skip`.
    """
    cursors = Cursors(values, skip)
    columns = _Reading(cursors, texts).read(type_, wanted, np.arange(len(values)), 1)
    is_record = columns.pop(_IS_RECORD).trusted
    return columns, is_record & cursors.at_end()


@dataclass(frozen=True)
class _Reading:
    """One pass over some records."""

    cursors: Cursors
    texts: TextColumns

    def read(self, type_: avro.AvroType, wanted: Wanted | None, rows: Rows, depth: int) -> Read:  # noqa: PLR0911 - a case for each type
        """Read a value of each row, or skip it if `wanted` is None; `depth` is as in `avro.read_record`."""
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
        # items of a row were read in their order, which a stable sort keeps
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
        """Read blocks of items in rounds: in each one item of every row that has another.

        The columns of each round are appended to `found`, with the indexes of their rows.
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
                # the least number has no opposite
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
        """Read the index of a branch or symbol of each row; it is 0 for failed rows."""
        index = unzigzag(self.cursors.varint(rows))
        wrong = (index < 0) | (index >= count)
        self.cursors.fail(rows, wrong)
        return np.where(wrong, 0, index)

    def _skip_bytes(self, rows: Rows) -> tuple[Longs, Longs]:
        """Skip bytes behind their number; return their positions and sizes, which are 0 for failed rows."""
        sizes = unzigzag(self.cursors.varint(rows))
        self.cursors.fail(rows, sizes < 0)
        at = self.cursors.skip(rows, np.maximum(sizes, 0))
        return at, self.cursors.at[rows] - at

    def _bytes(self, wanted: Wanted | None, at: Longs, sizes: Longs, scale: int | None) -> FieldColumn | None:
        """Return decimals of at most 64 bits from big-endian bytes."""
        if scale is None or not isinstance(wanted, m.DecimalType):
            return None
        words = self.cursors.words(at + sizes - _LONG_BYTES).byteswap().view(np.int64)
        spare = (8 * (_LONG_BYTES - np.clip(sizes, 1, _LONG_BYTES))).astype(np.int64)
        column = fc.decimals_column(wanted, (words << spare) >> spare, scale)
        return FieldColumn(column.values, column.trusted & (sizes >= 1) & (sizes <= _LONG_BYTES))


def _elements(of: m.ArrayType, read: Read) -> FieldColumn:
    """Return the elements of arrays from the columns of their items."""
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
    """Return the column at `_IS_RECORD`."""
    return FieldColumn(pa.nulls(len(mask)), mask)


def _nulls(wanted: Wanted | None, count: int, *, trusted: bool) -> Read:
    """Return nulls: trusted where the records have null, untrusted where a value is of another kind than wanted."""
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        return {(): fc.nulls_column(wanted, count, trusted=trusted)}
    is_record = _where(np.zeros(count, dtype=np.bool_))
    return fc.nulls_columns(wanted, count, trusted=trusted) | {_IS_RECORD: is_record}


def _leaf(wanted: Wanted | None, count: int, column: FieldColumn | None) -> Read:
    return _nulls(wanted, count, trusted=False) if column is None or wanted is None else {(): column}
