"""Fast decoder: accepts the clearly good records of a batch, and leaves all others to the exact decoder.

JSON is read by `JsonColumns`. For other formats, the readers of the formats produce the columns themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import schema
from windrow.engine.decode import debezium
from windrow.engine.decode.acceptance import Acceptance
from windrow.engine.decode.exact import LOG_TIME_TYPE, ExactDecoder, paths_of
from windrow.engine.decode.field_columns import (
    FieldColumn,
    GoodRows,
    Mask,
    RecordReader,
    TextColumns,
    holds_mask,
    to_mask,
    valid_mask,
    valid_text,
)
from windrow.engine.decode.json_columns import JsonColumns, JsonField, envelope_pattern, exact_path_pattern, values_at


class FastDecoder:
    """Reads all fields of a batch in one pass of DuckDB's JSON parser, after one regular expression has filtered it."""

    def __init__(self, exact: ExactDecoder) -> None:
        self._exact = exact
        self._acceptance = Acceptance(exact)
        self._reads = _json_fields(exact)
        if exact.is_debezium:
            self._json = JsonColumns(envelope_pattern(self._reads))
        else:
            has_tombstones = exact.log_time_inside and bool(exact.tombstones)
            self._json = JsonColumns(exact_path_pattern(self._reads, has_tombstones=has_tombstones))

    @staticmethod
    def reads(exact: ExactDecoder) -> bool:
        """Return True if the fast path can read these fields.

        It cannot if DuckDB rejects the names in an object (a name is empty, or two names differ only in case), if two
        fields (or the log timestamp or the mark) have the same path and different types, or if a path leads through
        another field. It cannot read an envelope if no field is a column, or if a field is outside the envelope.
        """
        types: dict[tuple[str, ...], set[m.DataType]] = {}
        declared = ((path, field.type) for field in exact.declared for path in _declared_paths(exact, field))
        for path, type_ in (*declared, *_extra_reads(exact)):
            types.setdefault(path, set()).add(type_)
        if any(len(alternatives) > 1 for alternatives in types.values()):
            return False
        if exact.is_debezium and (
            not any(path[0] == debezium.AFTER for path in types)
            or any(field.path[:1] in {(m.LOG_TIME,), (debezium.PAYLOAD,)} for field in exact.declared)
        ):
            return False
        inner = {path[:depth] for path in types for depth in range(1, len(path))}
        members = [member for path, (type_,) in types.items() for member in _member_paths(type_, path)]
        names = [*inner, *types, *members]
        folded = {tuple(name.casefold() for name in path) for path in names}
        return len(folded) == len(names) and all("" not in path for path in names)

    def decode(self, raw: pa.RecordBatch) -> GoodRows:
        """Decode the clearly good rows of a batch in `schema.RAW`; all other rows need the exact decoder."""
        value = valid_text(raw.column("value"))
        plain = self._json.plain(value)
        if not self._exact.is_debezium:
            good = self._decode(raw, value, plain)
            return GoodRows.merge(good, self._acceptance.tombstones(raw)) if self._exact.tombstones else good
        is_wrapped = pc.fill_null(pc.match_substring_regex(value, _WRAPPED), fill_value=False)
        parts = {(): pc.and_not(plain, is_wrapped), (debezium.PAYLOAD,): pc.and_(plain, is_wrapped)}
        decoded = [self._decode(raw, value, mask, at) for at, mask in parts.items() if pc.any(mask).as_py()]
        return reduce(GoodRows.merge, decoded) if decoded else self._decode(raw, value, plain)

    def _decode(self, raw: pa.RecordBatch, value: pa.Array, plain: pa.Array, within: tuple[str, ...] = ()) -> GoodRows:
        """Decode the clearly good rows among those where `plain` is true.

        All values except the log timestamp are in the object at the path `within`.
        """
        paths = {read.path: read.path if read.path == (m.LOG_TIME,) else (*within, *read.path) for read in self._reads}
        types = {paths[read.path]: read.type for read in self._reads} | _outside(within)
        rows, read = self._json.read(value, plain, types)
        at: Mapping[tuple[str, ...], FieldColumn] = {
            field.path: self._json.column(field, values_at(read, paths[field.path])) for field in self._reads
        }
        own = {field.path: field.type for field in self._reads}
        if self._exact.folders is not None:
            at = self._exact.folders.fill(raw, rows, at, own)
        if self._exact.outside is not None:
            at = self._exact.outside.fill(raw, rows, at, own)
        if not self._exact.is_debezium:
            return self._acceptance.judge(raw, rows, at, self._acceptance.columns(at))
        return self._acceptance.judge(raw, rows, at, *self._columns_of_rows(at, read, within))

    def _columns_of_rows(
        self, at: Mapping[tuple[str, ...], FieldColumn], read: pa.StructArray, within: tuple[str, ...]
    ) -> tuple[dict[str, FieldColumn], Mask]:
        """Return the fields of envelopes, and the mask of trusted envelopes, which have the row that `op` requires.

        Envelopes that change the key of a row in a table are left to the exact decoder.
        """
        operations = at[debezium.OPERATION,].values
        is_deleted = holds_mask(pc.equal(operations, debezium.DELETE))
        is_row = {
            side: to_mask(values_at(read, (*within, side)).is_valid()) for side in (debezium.BEFORE, debezium.AFTER)
        }
        is_envelope = to_mask(pc.is_in(operations, pa.array(debezium.ROW_OPERATIONS)))
        # DuckDB reads a value that is not an object as a struct without members
        is_envelope &= to_mask(values_at(read, (*within, *debezium.TIME_OF_CHANGE)).is_valid())
        is_envelope &= np.where(is_deleted, is_row[debezium.BEFORE], is_row[debezium.AFTER])
        for path in _outside(within):
            is_envelope &= to_mask(values_at(read, path).is_null())
        may_replace = is_row[debezium.BEFORE] & holds_mask(pc.equal(operations, debezium.UPDATE))
        columns = {}
        for field in self._exact.declared:
            here, before = (paths_of(field, side) for side in (debezium.AFTER, debezium.BEFORE))
            new = self._acceptance.one_of(at, here, self._acceptance.least(field))
            if field.name == self._exact.time.field and not field.path:
                old = at[debezium.TIME_OF_CHANGE]
                old = FieldColumn(old.values, old.trusted & valid_mask(old.values))
            elif here != before:
                old = self._acceptance.one_of(at, before, 0 if self._exact.may_lack(field) else 1)
            else:
                old = new
            if field.name in self._exact.table_keys:
                is_same = pc.or_kleene(
                    pc.equal(new.values, old.values), pc.and_(new.values.is_null(), old.values.is_null())
                )
                is_envelope &= ~may_replace | holds_mask(is_same)
            if old is not new:
                new = FieldColumn(
                    pc.if_else(pa.array(is_deleted), old.values, new.values),
                    np.where(is_deleted, old.trusted, new.trusted),
                )
            columns[field.name] = new
        if self._exact.has_deleted:
            columns[schema.DELETED] = FieldColumn(pa.array(is_deleted), np.ones(len(is_deleted), dtype=np.bool_))
        return columns, is_envelope


class FastReader:
    """Accepts the clearly good rows of a format other than JSON, based on the columns that its reader has read."""

    def __init__(self, exact: ExactDecoder, reader: RecordReader) -> None:
        self._exact = exact
        self._acceptance = Acceptance(exact)
        self._reader = reader
        self._types = {json_field.path: json_field.type for json_field in _json_fields(exact)}
        self._texts = TextColumns()

    def decode(self, raw: pa.RecordBatch) -> GoodRows:
        """Decode the clearly good rows of a batch in `schema.RAW`; all other rows need the exact decoder."""
        good = [self._exact.no_rows]
        for read in self._reader.read(raw.column("value"), self._types, self._texts):
            at = read.columns
            if self._exact.folders is not None:
                at = self._exact.folders.fill(raw, read.rows, at, self._types)
            if self._exact.outside is not None:
                at = self._exact.outside.fill(raw, read.rows, at, self._types)
            good.append(self._acceptance.judge(raw, read.rows, at, self._acceptance.columns(at), read.is_record))
        if self._exact.tombstones:
            good.append(self._acceptance.tombstones(raw))
        return reduce(GoodRows.merge, good)


def _json_fields(exact: ExactDecoder) -> list[JsonField]:
    """Return the values to read from JSON, with each path only once.

    These are the declared fields with their aliases (in an envelope, the columns of both rows), the mark, the log
    timestamp, and the operation of an envelope.
    """
    reads: dict[tuple[str, ...], JsonField] = {}
    for field in exact.declared:
        for path in _declared_paths(exact, field):
            optional = bool(field.alias) or exact.may_lack(field) or (exact.is_debezium and path != field.path)
            optional |= exact.outside is not None and exact.outside.reads(path)
            # a path shared by two fields is required if one of them requires it
            reads[path] = JsonField(path, field.type, optional and (path not in reads or reads[path].optional))
    for path, type_ in _extra_reads(exact):
        reads.setdefault(path, JsonField(path, type_, not exact.is_debezium or path != (debezium.OPERATION,)))
    return list(reads.values())


def _declared_paths(exact: ExactDecoder, field: m.Field) -> list[tuple[str, ...]]:
    """Return the paths of a declared field; in an envelope, the paths in both rows."""
    sides = (debezium.AFTER, debezium.BEFORE) if exact.is_debezium else (None,)
    return [path for side in sides for path in paths_of(field, side)]


def _extra_reads(exact: ExactDecoder) -> Iterator[tuple[tuple[str, ...], m.DataType]]:
    """Yield (path, type) for the mark, the log timestamp and parts of the envelope.

    These may also be declared fields.
    """
    if exact.mark is not None:
        yield from ((path, exact.mark.type) for path in exact.mark.paths)
    if exact.log_time_inside:
        yield (m.LOG_TIME,), LOG_TIME_TYPE
    if exact.is_debezium:
        yield (debezium.OPERATION,), m.StringType()
        if not any(field.path for field in exact.declared if field.name == exact.time.field):
            yield debezium.TIME_OF_CHANGE, debezium.TIME_OF_CHANGE_TYPE
        elif all(field.path != debezium.TIME_OF_CHANGE for field in exact.declared):
            yield debezium.TIME_OF_CHANGE, m.LongType()


def _member_paths(type_: m.DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path of each name in the structs of an array."""
    if isinstance(type_, m.ArrayType) and isinstance(type_.element, m.StructType):
        for field in type_.element.fields:
            yield (*path, field.name)
            yield from _member_paths(field.type, (*path, field.name))


def _outside(within: tuple[str, ...]) -> dict[tuple[str, ...], m.DataType]:
    """Return the members that records wrapped at `within` must lack; with an operation, they would be envelopes."""
    return {(debezium.OPERATION,): m.StringType()} if within else {}


_WRAPPED = r'^\s*\{\s*"schema"'
"""Matches records in which the converter has wrapped the envelope in an object that begins with a schema."""
