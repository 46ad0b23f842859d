"""Fast decoder: accepts the records of a batch that are clearly good, and leaves all others to the exact decoder.

DuckDB reads JSON leniently, and casts leniently: it takes a comma before a closing bracket, NaN and infinities, true as
the number 1, 5 as the text "5", 12.345 as decimal(12,2), and it reads every fraction as a double. So one regular
expression is matched against the record's own text, before any parsing, and a record that it matches is decoded
exactly. The expression may match too much (a nested object with a field of the same name), which costs time; it must
never match too little.

What it relies on: a field's name is written plainly in the record, because a record with an escape that could spell a
character of it is matched too.

Records of other formats are read by the columns of their own readers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.decode import debezium
from windrow.engine.decode.acceptance import Acceptance
from windrow.engine.decode.exact import (
    LOG_TIME_TYPE,
    VALUE,
    ExactDecoder,
    GoodRows,
    Rows,
    decode_exactly,
    is_optional,
    paths_of,
)
from windrow.engine.decode.field_columns import (
    FieldColumn,
    Mask,
    ReadColumns,
    holds_mask,
    times_column,
    to_mask,
    valid_mask,
    valid_text,
)
from windrow.engine.decode.formats import RecordReader
from windrow.engine.decode.text_columns import iso_micros
from windrow.engine.decode.values import MAX_DEPTH, MICROS_PER_UNIT

_BRACKET = r"[\[{]"


class FastDecoder:
    """Reads all fields of a batch in one pass of DuckDB's JSON parser, behind one regular expression."""

    def __init__(self, exact: ExactDecoder) -> None:
        self._exact = exact
        self._acceptance = Acceptance(exact)
        self._duck = duckdb_sql.Connection()
        if exact.is_debezium:
            self._reads = _envelope_fields(exact)
            self._suspicion = envelope_pattern(self._reads)
        else:
            self._reads = _json_fields(exact)
            has_tombstones = exact.log_time_inside and exact.tombstones is not None
            self._suspicion = exact_path_pattern(self._reads, has_tombstones=has_tombstones)

    @staticmethod
    def reads(exact: ExactDecoder) -> bool:
        """Return whether the fast path can read these fields.

        It cannot if two names in an object differ in case only or one is empty, which DuckDB does not take, or if a
        path is that of two fields of different types (one of them perhaps the log's time or the mark), or leads through
        another field. Of an envelope, it cannot if none of the fields is a column, or one is no part of the envelope.
        """
        types: dict[tuple[str, ...], set[m.DataType]] = {}
        for path, type_ in _all_reads(exact):
            types.setdefault(path, set()).add(type_)
        if any(len(of) > 1 for of in types.values()):
            return False
        if exact.is_debezium and (
            not any(path[0] == debezium.AFTER for path in types)
            or any(field.path[:1] in {(m.LOG_TIME,), (debezium.PAYLOAD,)} for field in exact.declared)
        ):
            return False
        inner = {path[:depth] for path in types for depth in range(1, len(path))}
        members = [member for path, of in types.items() for type_ in of for member in _member_paths(type_, path)]
        names = [*inner, *types, *members]
        folded = {tuple(name.casefold() for name in path) for path in names}
        return len(folded) == len(names) and all("" not in path for path in names)

    def decode(self, raw: pa.RecordBatch) -> GoodRows:
        """Decode the clearly good rows of a batch in `schema.RAW`; all other rows need the exact decoder."""
        value = valid_text(raw.column("value"))
        plain = self._plain(value)
        if not self._exact.is_debezium:
            good, key = self._decode(raw, value, plain), self._exact.tombstones
            return good if key is None else GoodRows.merge(good, self._acceptance.tombstones(raw, key))
        is_wrapped = pc.fill_null(pc.match_substring_regex(value, _WRAPPED), fill_value=False)
        parts = {(): pc.and_not(plain, is_wrapped), (debezium.PAYLOAD,): pc.and_(plain, is_wrapped)}
        none, *others = [self._decode(raw, value, mask, at) for at, mask in parts.items() if pc.any(mask).as_py()] or [
            self._decode(raw, value, plain)
        ]
        return GoodRows.merge(none, others[0]) if others else none

    def _decode(self, raw: pa.RecordBatch, value: pa.Array, plain: pa.Array, within: tuple[str, ...] = ()) -> GoodRows:
        """Decode the clearly good of some rows, of which all but the log's time is in the object at `within`."""
        paths = {read.path: read.path if read.path == (m.LOG_TIME,) else (*within, *read.path) for read in self._reads}
        structure = json.dumps(_structure({paths[read.path]: read.type for read in self._reads} | _outside(within)))
        found = duckdb_sql.query(
            self._duck,
            f"SELECT row, json_transform(value, {duckdb_sql.literal(structure)}) AS fields "
            "FROM raw WHERE plain AND json_valid(value)",
            raw=pa.table({"row": np.arange(raw.num_rows), "value": value, "plain": plain}),
        ).combine_chunks()
        rows: Rows = found.column("row").to_numpy()
        read = found.column("fields").combine_chunks()
        at = {one.path: self._column(one, _values_at(read, paths[one.path])) for one in self._reads}
        trusted = np.logical_and.reduce([column.trusted for column in at.values()])
        if self._exact.is_debezium:
            columns, is_envelope = self._columns_of_rows(at, read, within)
            trusted &= is_envelope
        else:
            columns = self._acceptance.columns(at)
        return self._acceptance.judge(raw, rows, at, columns, trusted)

    def _columns_of_rows(
        self, at: Mapping[tuple[str, ...], FieldColumn], read: pa.StructArray, within: tuple[str, ...]
    ) -> tuple[dict[str, FieldColumn], Mask]:
        """Return the fields of envelopes, and a mask of those that surely are of a row that is there.

        One whose key in a table is another than before is left to the exact decoder.
        """
        operations = at[debezium.OPERATION,].values
        is_deleted = holds_mask(pc.equal(operations, debezium.DELETE))
        is_row = {
            side: to_mask(_values_at(read, (*within, side)).is_valid()) for side in (debezium.BEFORE, debezium.AFTER)
        }
        is_envelope = to_mask(pc.is_in(operations, pa.array(debezium.ROW_OPERATIONS)))
        # what is no object has no members, but DuckDB makes a struct of it
        is_envelope &= to_mask(_values_at(read, (*within, *debezium.TIME_OF_CHANGE)).is_valid())
        is_envelope &= np.where(is_deleted, is_row[debezium.BEFORE], is_row[debezium.AFTER])
        for path in _outside(within):
            is_envelope &= to_mask(_values_at(read, path).is_null())
        may_replace = is_row[debezium.BEFORE] & holds_mask(pc.equal(operations, debezium.UPDATE))
        columns = {}
        for field in self._exact.declared:
            here, before = (paths_of(field, side) for side in (debezium.AFTER, debezium.BEFORE))
            kept = self._acceptance.one_of(at, here, self._acceptance.least(field))
            if field.name == self._exact.time.field and not field.path:
                old = at[debezium.TIME_OF_CHANGE]
                old = FieldColumn(old.values, old.trusted & valid_mask(old.values))
            elif here != before:
                old = self._acceptance.one_of(at, before, 0 if self._exact.may_lack(field) else 1)
            else:
                old = kept
            if field.name in self._exact.table_keys:
                is_same = pc.or_kleene(
                    pc.equal(kept.values, old.values), pc.and_(kept.values.is_null(), old.values.is_null())
                )
                is_envelope &= ~may_replace | holds_mask(is_same)
            if old is not kept:
                kept = FieldColumn(
                    pc.if_else(pa.array(is_deleted), old.values, kept.values),
                    np.where(is_deleted, old.trusted, kept.trusted),
                )
            columns[field.name] = kept
        if self._exact.tells_deleted:
            columns[schema.DELETED] = FieldColumn(pa.array(is_deleted), np.ones(len(is_deleted), dtype=np.bool_))
        return columns, is_envelope

    def _plain(self, value: pa.Array) -> pa.Array:
        """Return a mask of the values that DuckDB reads as the exact decoder does; it is false for nulls."""
        plain = pc.invert(pc.match_substring_regex(value, self._suspicion))
        deep = pc.greater(pc.binary_length(value), 2 * MAX_DEPTH)
        if pc.any(deep).as_py():
            # only a long text can be nested deeply, so brackets are counted in those alone
            brackets = pc.count_substring_regex(pc.if_else(deep, value, ""), _BRACKET)
            plain = pc.and_(plain, pc.less_equal(brackets, MAX_DEPTH))
        return pc.fill_null(plain, fill_value=False)

    def _column(self, read: JsonField, values: pa.Array) -> FieldColumn:
        """Return a field's values; those of an optional field are null where the record has none."""
        column = self._present(read, values)
        if not read.optional or not values.null_count:
            return column
        if isinstance(read.type, m.ArrayType):
            return FieldColumn(column.values, column.trusted | to_mask(values.is_null()))
        absent = to_mask(values.is_null())
        return FieldColumn(pc.if_else(pa.array(absent), None, column.values), column.trusted | absent)

    def _present(self, read: JsonField, values: pa.Array) -> FieldColumn:
        match read.type:
            case m.StringType() | m.BooleanType() | m.LongType():
                return FieldColumn(values, valid_mask(values))
            case m.DoubleType():
                doubles = values.fill_null(np.nan).to_numpy() + 0.0  # there is one zero, not two
                return FieldColumn(pa.array(doubles), np.isfinite(doubles))
            case m.DecimalType():
                return _decimals(values, read.type)
            case m.ArrayType():
                return self._array(read.type, values)
            case m.TimestampType(unit="iso"):
                micros, factor = iso_micros(self._duck, values), 1
            case m.TimestampType(unit):
                micros, factor = values, MICROS_PER_UNIT[unit]
            case _:
                assert_never(read.type)
        return times_column(micros, factor)

    def _array(self, type_: m.ArrayType, values: pa.Array) -> FieldColumn:
        """Return arrays; one is surely right if all of its elements are."""
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        elements = self._elements(type_, values.flatten())
        wrong = np.repeat(np.arange(len(values)), lengths)[~elements.trusted]
        trusted = valid_mask(values)
        trusted[wrong] = False
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        absent = values.is_null() if values.null_count else None
        arrow = schema.arrow_type(type_)
        return FieldColumn(pa.ListArray.from_arrays(offsets, elements.values, type=arrow, mask=absent), trusted)

    def _elements(self, of: m.ArrayType, values: pa.Array) -> FieldColumn:
        """Return elements; a struct that is null may be of any kind, so it is left to the exact decoder."""
        if not isinstance(of.element, m.StructType):
            return self._column(JsonField((), of.element, of.optional), values)
        fields, members = of.element.fields, values.flatten()
        columns = [
            self._column(JsonField((), one.type, one.optional), member)
            for one, member in zip(fields, members, strict=True)
        ]
        trusted = np.logical_and.reduce([valid_mask(values), *(column.trusted for column in columns)])
        arrow = schema.arrow_type(of).value_type
        return FieldColumn(
            pa.StructArray.from_arrays([column.values for column in columns], fields=list(arrow)), trusted
        )


class FastReader:
    """Has the reader of a format that is not JSON make the columns, and accepts the clearly good rows."""

    def __init__(self, exact: ExactDecoder, reader: RecordReader) -> None:
        self._exact = exact
        self._acceptance = Acceptance(exact)
        self._columns = reader.columns({json_field.path: json_field.type for json_field in _json_fields(exact)})

    def decode(self, raw: pa.RecordBatch) -> GoodRows:
        """Decode the clearly good rows of a batch in `schema.RAW`; all other rows need the exact decoder."""
        good = [decode_exactly(self._exact, raw, np.zeros(0, dtype=np.int64))[0]]
        good += [self._accepted(raw, read) for read in self._columns.read(raw.column("value"))]
        if self._exact.tombstones is not None:
            good.append(self._acceptance.tombstones(raw, self._exact.tombstones))
        return reduce(GoodRows.merge, good)

    def _accepted(self, raw: pa.RecordBatch, read: ReadColumns) -> GoodRows:
        at = read.columns
        trusted = np.logical_and.reduce([read.is_record, *(column.trusted for column in at.values())])
        return self._acceptance.judge(raw, read.rows, at, self._acceptance.columns(at), trusted)


def _json_fields(exact: ExactDecoder) -> list[JsonField]:
    """Return what to read from the JSON: declared fields with aliases, the mark and the log time, each path once."""
    reads: dict[tuple[str, ...], JsonField] = {}
    for field in exact.fields:
        optional = bool(field.alias) or is_optional(field, exact.mark, exact.time, exact.key)
        for path in field.paths:
            # of two fields at one path, what one of them needs is there
            also = optional and (path not in reads or reads[path].optional)
            reads[path] = JsonField(path, field.type, also)
    for path, type_ in _extra_reads(exact):
        reads.setdefault(path, JsonField(path, type_, optional=True))
    return list(reads.values())


def _envelope_fields(exact: ExactDecoder) -> list[JsonField]:
    """Return what to read from an envelope: the columns of both rows, other fields at their paths, and what it is."""
    reads: dict[tuple[str, ...], JsonField] = {}
    for field in exact.declared:
        for side in (debezium.AFTER, debezium.BEFORE):
            for path in paths_of(field, side):
                optional = path != field.path or bool(field.alias) or exact.may_lack(field)
                reads[path] = JsonField(path, field.type, optional and (path not in reads or reads[path].optional))
    for path, type_ in _extra_reads(exact):
        reads.setdefault(path, JsonField(path, type_, optional=path != (debezium.OPERATION,)))
    return list(reads.values())


def _all_reads(exact: ExactDecoder) -> Iterator[tuple[tuple[str, ...], m.DataType]]:
    sides = (debezium.AFTER, debezium.BEFORE) if exact.is_debezium else (None,)
    yield from ((path, field.type) for field in exact.declared for side in sides for path in paths_of(field, side))
    yield from _extra_reads(exact)


def _extra_reads(exact: ExactDecoder) -> Iterator[tuple[tuple[str, ...], m.DataType]]:
    """Yield paths and types of the mark and the log time, which may be declared as fields, too."""
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
    """Yield a path for each name in the structs of an array."""
    if isinstance(type_, m.ArrayType) and isinstance(type_.element, m.StructType):
        for field in type_.element.fields:
            yield (*path, field.name)
            yield from _member_paths(field.type, (*path, field.name))


def _values_at(read: pa.StructArray, path: tuple[str, ...]) -> pa.Array:
    """Return what is at a path, null where an object on the way is."""
    for name in path:
        read = read.flatten()[read.type.get_field_index(name)]
    return read


def _structure(reads: Mapping[tuple[str, ...], m.DataType]) -> Mapping[str, object]:
    """Return what DuckDB is to read, in the form of `json_transform`."""
    found: dict[str, Any] = {}
    for path, type_ in reads.items():
        inner = found
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = _form(type_)
    return found


def _outside(within: tuple[str, ...]) -> dict[tuple[str, ...], m.DataType]:
    """Return what must not be outside the object at `within`: a record that has an operation is an envelope itself."""
    return {(debezium.OPERATION,): m.StringType()} if within else {}


def _form(type_: m.DataType) -> object:
    if not isinstance(type_, m.ArrayType):
        return _sql_type(type_)
    if isinstance(type_.element, m.StructType):
        return [{field.name: _form(field.type) for field in type_.element.fields}]
    return [_sql_type(type_.element)]


def _sql_type(type_: m.SimpleType) -> str:
    match type_:
        case m.StringType() | m.TimestampType(unit="iso"):
            return "VARCHAR"
        case m.BooleanType():
            return "BOOLEAN"
        case m.LongType() | m.TimestampType():
            return "BIGINT"
        case m.DoubleType() | m.DecimalType():
            return "DOUBLE"
        case _:
            assert_never(type_)


def _decimals(values: pa.Array, type_: m.DecimalType) -> FieldColumn:
    """Convert doubles that were read from at most 15 digits to decimals, exactly."""
    scale = working_scale(type_)
    scaled = np.rint(np.clip(values.fill_null(0.0).to_numpy(), -_BEYOND, _BEYOND) * 10.0**scale)
    most = min(10.0 ** (type_.precision - type_.scale + scale), _BEYOND)
    trusted = valid_mask(values) & (np.abs(scaled) < most)
    unscaled = np.where(trusted, scaled, 0.0).astype(np.int64)
    words = np.empty((len(unscaled), 2), dtype=np.int64)  # 128 bits, the lower half first
    words[:, 0] = unscaled
    words[:, 1] = unscaled >> 63
    exact_type = schema.arrow_type(type_)
    working_type = exact_type if scale == type_.scale else pa.decimal128(DOUBLE_DIGITS, scale)
    decimals = pa.Array.from_buffers(working_type, len(unscaled), [None, pa.py_buffer(words)])
    return FieldColumn(decimals if working_type == exact_type else decimals.cast(exact_type), trusted)


DOUBLE_DIGITS = 15
"""Decimals of this many digits and their nearest doubles are one to one."""
_WORKING_SCALE = 6
_BEYOND = 10.0**18
"""More than the decimals that are read from doubles have, and less than 64 bits do."""
_WRAPPED = r'^\s*\{\s*"schema"'
"""A pattern of records in which the converter has put a schema, and then the envelope, into an object."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")

_NOT_STRICT = (
    r",\s*[}\]]",
    r"(?i:[:,\[]\s*-?(?:nan|inf|infinity)\s*[,}\]])",
)
_BAD_NUMBER_TEXT = r'"(?:[^0-9-]|-[^0-9]|-?(?:0[0-9]|[0-9]+(?:[^0-9."]|\.(?:[^0-9]|[0-9]+[^0-9"]))))'
_BAD_WHOLE_TEXT = r'"(?:[^0-9-]|-[^0-9]|-?(?:0[0-9]|[0-9]+[^0-9"]))'


@dataclass(frozen=True)
class JsonField:
    """What is read at a path of a record's JSON (of an element of an array, without one); optional: it may be null."""

    path: tuple[str, ...]
    type: m.DataType
    optional: bool = False


def exact_path_pattern(fields: Iterable[JsonField], *, has_tombstones: bool = False) -> str:
    """Return an RE2 expression that matches every record whose fields must be read by the exact decoder.

    Of a record without a match it remains to check that DuckDB takes it for JSON, that it is not nested too deeply,
    that the fields are there and in range, and the form of ISO times; nothing else. With `has_tombstones` a record
    whose `_value` is null is a tombstone.
    """
    bad = [bad_value for field in fields for bad_value in _bad_values(field.path, field.type, optional=field.optional)]
    parts = [*_NOT_STRICT, _escapes([*(name for name, _ in bad), *([VALUE] if has_tombstones else [])])]
    if has_tombstones:
        parts.append(rf'"{VALUE}"\s*:\s*n')
    return "|".join([*parts, _any_of(bad)])


def envelope_pattern(fields: Iterable[JsonField]) -> str:
    """Return an RE2 expression as `exact_path_pattern` does, for Debezium's envelopes whose `source` is an object.

    Columns of a row have names as other parts of the envelope do (`id`), so their values are only looked at before the
    source, and those of all other fields behind it. A record is matched if the rows are not before its only source, or
    one of the other fields is. It remains to check that the source is where it belongs, as a column can have its name.
    """
    source, anything = rf'"{debezium.SOURCE}"\s*:\s*\{{', "(?s:.*)"
    of_rows: dict[tuple[str, str], None] = {}
    others: dict[tuple[str, str], None] = {}
    tops: set[str] = set()
    for field in fields:
        is_of_row = field.path[0] in {debezium.BEFORE, debezium.AFTER}
        found = list(_bad_values(field.path, field.type, optional=field.optional))
        if debezium.has_point(field.type):
            found.append((field.path[-1], r'"[^".]*"'))
        (of_rows if is_of_row else others).update(dict.fromkeys(found))
        if not is_of_row and field.path[0] not in {debezium.SOURCE, m.LOG_TIME}:
            tops.add(field.path[0])
    log_times = [other for other in others if other[0] == m.LOG_TIME]
    names = [name for name, _ in (*of_rows, *others)]
    names += [debezium.BEFORE, debezium.AFTER, debezium.SOURCE, debezium.OPERATION, debezium.PAYLOAD]
    sides = rf'"(?:{debezium.BEFORE}|{debezium.AFTER})"'
    parts = [
        *_NOT_STRICT,
        _escapes(names),
        debezium.UNAVAILABLE,
        rf'"{debezium.OPERATION}"\s*:\s*n',
        rf"(?:{_any_of(of_rows)}){anything}{source}",
        rf"{source}{anything}(?:{_any_of(other for other in others if other not in log_times)}|{sides}|{source})",
        rf'"(?:{"|".join(sorted(map(_literal, tops)))})"\s*:{anything}{source}',
    ]
    return "|".join([*parts, *([_any_of(log_times)] if log_times else [])])


def _any_of(bad: Iterable[tuple[str, str]]) -> str:
    return "|".join(rf'"{_literal(name)}"\s*:\s*(?:{value})' for name, value in dict.fromkeys(bad))


def _bad_values(path: tuple[str, ...], type_: m.DataType, *, optional: bool) -> Iterator[tuple[str, str]]:
    """Yield names, and of each a pattern of the values that the exact decoder must read."""
    *above, name = path
    yield from ((one, r"[^{\sn]") for one in above)  # without an object, nothing is there
    if not isinstance(type_, m.ArrayType):
        yield name, _bad_value(type_, "n" if optional else "")
    elif isinstance(type_.element, m.StructType):
        yield name, r"[^\[\sn]"
        for field in type_.element.fields:
            yield from _bad_values((field.name,), field.type, optional=field.optional)
    else:
        # a bad element behind others; one that is not there at all is in an empty array
        bad = _bad_value(type_.element, r"\]n" if type_.optional else r"\]")
        yield name, rf"[^\[\sn]|\[\s*(?:{_SCALAR}\s*,\s*)*(?:{bad})"


_SCALAR = r'(?:"(?:[^"\\]|\\.)*"|[^\[\]{}",\s]+)'


def working_scale(type_: m.DecimalType) -> int:
    """Return how many digits behind the point the fast decoder reads: all, or 6 if all could be more than 15 digits."""
    return type_.scale if type_.precision <= DOUBLE_DIGITS else min(type_.scale, _WORKING_SCALE)


def _bad_value(type_: m.SimpleType, others: str) -> str:
    """Return a pattern of the bad values of a type; `others` are first characters of what may stand in its place."""
    number = rf'[^-"0-9\s{others}]'
    optional = "n" in others
    match type_:
        case m.StringType() | m.TimestampType(unit="iso"):
            bad = rf'[^"\s{others}]'
        case m.BooleanType():
            bad = rf"[^tf\s{others}]"
        case m.TimestampType():
            bad = rf'{number}|{_BAD_WHOLE_TEXT}|-?[0-9]+[.eE]|"?-?[0-9]{{19}}'
        case m.LongType():
            # 20 digits if required: a number out of range reads as null, which only an optional field may be
            digits = 19 if optional else 20
            bad = rf'{number}|{_BAD_WHOLE_TEXT}|-?[0-9]+[.eE]|"?[0-9]{{{digits}}}|"?-[0-9]{{19}}'
        case m.DoubleType():
            bad = rf"{number}|{_BAD_NUMBER_TEXT}"
            if optional:
                bad += r'|-?[0-9.]+[eE]|"?-?[0-9]{300}'
        case m.DecimalType():
            behind = working_scale(type_)
            before = max(1, min(type_.precision - type_.scale, DOUBLE_DIGITS - behind))
            too_much = rf"[0-9]{{{before + 1}}}|[0-9]+\.[0-9]{{{behind + 1}}}|[0-9]+(?:\.[0-9]+)?[eE]"
            bad = rf'{number}|{_BAD_NUMBER_TEXT}|"?-?(?:{too_much})'
        case _:
            assert_never(type_)
    return bad


def _escapes(names: Iterable[str]) -> str:
    """Return a pattern of U+0000 and of every escape that could stand for a character of a name."""
    names = list(names)
    if not all(_PLAIN_NAME.fullmatch(name) for name in names):
        return r"\\"
    codes = "|".join(sorted({f"{ord(character):02x}" for name in names for character in name}))
    return rf"(?i:\\u00(?:00|{codes}))"


def _literal(name: str) -> str:
    return "".join(rf"\x{{{ord(character):x}}}" for character in name)
