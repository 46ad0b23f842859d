"""Columns of JSON objects, read by DuckDB, and patterns of the objects that DuckDB reads otherwise than JSON requires.

DuckDB reads and casts JSON leniently: it accepts a comma before a closing bracket, NaN and infinities, true as the
number 1, 5 as the text "5", and 12.345 as decimal(12,2), and it reads every fraction as a double. Therefore one regular
expression is matched against the record's own text before any parsing, and the exact decoder decodes every record that
matches. The expression may match too much (a nested object with a field of the same name), which costs time; it must
never match too little.

It relies on the names of fields being written plainly in the record. A record with an escape that could spell a
character of a name is matched, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.decode import debezium
from windrow.engine.decode.field_columns import (
    FieldColumn,
    Path,
    Rows,
    decimals_of,
    iso_micros,
    times_column,
    to_mask,
    valid_mask,
    wanted_tree,
)
from windrow.engine.decode.values import MAX_DEPTH, MICROS_PER_UNIT

_BRACKET = r"[\[{]"


class JsonColumns:
    """Reads values at paths of JSON objects in one pass of DuckDB's JSON parser, after one regular expression.

    The expression `suspicion` matches every object that DuckDB may read otherwise than the exact decoder.
    """

    def __init__(self, suspicion: str) -> None:
        self._suspicion = suspicion
        self._duck = duckdb_sql.Connection()

    def read(self, texts: pa.Array, plain: pa.Array, types: Mapping[Path, m.DataType]) -> tuple[Rows, pa.StructArray]:
        """Parse the texts where `plain` is true; return the rows of those that are JSON, and a struct of each.

        Values of other kinds are null. A value at a path is returned by `values_at`.
        """
        structure = json.dumps(wanted_tree({path: _json_form(type_) for path, type_ in types.items()}))
        found = duckdb_sql.query(
            self._duck,
            f"SELECT row, json_transform(value, {duckdb_sql.literal(structure)}) AS fields "
            "FROM raw WHERE plain AND json_valid(value)",
            raw=pa.table({"row": np.arange(len(texts)), "value": texts, "plain": plain}),
        ).combine_chunks()
        return found.column("row").to_numpy(), found.column("fields").combine_chunks()

    def plain(self, value: pa.Array) -> pa.Array:
        """Return the mask of values that DuckDB reads as the exact decoder does; it is false for nulls."""
        plain = pc.invert(pc.match_substring_regex(value, self._suspicion))
        deep = pc.greater(pc.binary_length(value), 2 * MAX_DEPTH)
        if pc.any(deep).as_py():
            # only long texts can be nested deeply, so brackets are counted only in these
            brackets = pc.count_substring_regex(pc.if_else(deep, value, ""), _BRACKET)
            plain = pc.and_(plain, pc.less_equal(brackets, MAX_DEPTH))
        return pc.fill_null(plain, fill_value=False)

    def column(self, read: JsonField, values: pa.Array) -> FieldColumn:
        """Return the column of a field, with null where a record lacks an optional field."""
        column = self._present(read, values)
        if not read.optional or not values.null_count:
            return column
        absent = values.is_null()
        is_array = isinstance(read.type, m.ArrayType)
        present = column.values if is_array else pc.if_else(absent, None, column.values)
        return FieldColumn(present, column.trusted | to_mask(absent))

    def _present(self, read: JsonField, values: pa.Array) -> FieldColumn:
        match read.type:
            case m.StringType() | m.BooleanType() | m.LongType():
                return FieldColumn(values, valid_mask(values))
            case m.DoubleType():
                doubles = values.fill_null(np.nan).to_numpy() + 0.0  # one zero, not two
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
        """Return arrays; an array is trusted if all of its elements are trusted."""
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        elements = self._elements(type_, values.flatten())
        trusted = valid_mask(values)
        trusted[np.repeat(np.arange(len(values)), lengths)[~elements.trusted]] = False
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        absent = values.is_null() if values.null_count else None
        arrow = schema.arrow_type(type_)
        return FieldColumn(pa.ListArray.from_arrays(offsets, elements.values, type=arrow, mask=absent), trusted)

    def _elements(self, of: m.ArrayType, values: pa.Array) -> FieldColumn:
        """Return the elements of arrays.

        A null struct may stand for a value of any kind, so it is left to the exact decoder.
        """
        if not isinstance(of.element, m.StructType):
            return self.column(JsonField((), of.element, of.optional), values)
        fields, members = of.element.fields, values.flatten()
        columns = [
            self.column(JsonField((), field.type, field.optional), member)
            for field, member in zip(fields, members, strict=True)
        ]
        # DuckDB reads an array as a struct without members
        has_members = np.logical_or.reduce([valid_mask(member) for member in members])
        trusted = np.logical_and.reduce([valid_mask(values), has_members, *(column.trusted for column in columns)])
        arrays, arrow = [column.values for column in columns], schema.arrow_type(of).value_type
        return FieldColumn(pa.StructArray.from_arrays(arrays, fields=list(arrow)), trusted)


def values_at(read: pa.StructArray, path: tuple[str, ...]) -> pa.Array:
    """Return the values at a path, with null where an object on the path is null."""
    for name in path:
        read = read.flatten()[read.type.get_field_index(name)]
    return read


def _json_form(type_: m.DataType | m.StructType) -> object:
    """Return a type in the notation that DuckDB's `json_transform` expects."""
    match type_:
        case m.StructType(fields):
            return {field.name: _json_form(field.type) for field in fields}
        case m.ArrayType(element):
            return [_json_form(element)]
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
    """Convert doubles that were read from at most 15 digits to decimals without loss."""
    scale = working_scale(type_)
    scaled = np.rint(np.clip(values.fill_null(0.0).to_numpy(), -_BEYOND, _BEYOND) * 10.0**scale)
    most = min(10.0 ** (type_.precision - type_.scale + scale), _BEYOND)
    trusted = valid_mask(values) & (np.abs(scaled) < most)
    unscaled = np.where(trusted, scaled, 0.0).astype(np.int64)
    exact_type = schema.arrow_type(type_)
    working_type = exact_type if scale == type_.scale else pa.decimal128(DOUBLE_DIGITS, scale)
    decimals = decimals_of(working_type, unscaled)
    return FieldColumn(decimals if working_type == exact_type else decimals.cast(exact_type), trusted)


DOUBLE_DIGITS = 15
"""Up to this number of digits, different decimals have different nearest doubles."""
_WORKING_SCALE = 6
_BEYOND = 10.0**18
"""Greater than all unscaled decimals that are read from doubles, and within 64 bits."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")

_NOT_STRICT = (r",\s*[}\]]", r"(?i:[:,\[]\s*-?(?:nan|inf|infinity)\s*[,}\]])")
_BAD_NUMBER_TEXT = r'"(?:[^0-9-]|-[^0-9]|-?(?:0[0-9]|[0-9]+(?:[^0-9."]|\.(?:[^0-9]|[0-9]+[^0-9"]))))'
_BAD_WHOLE_TEXT = r'"(?:[^0-9-]|-[^0-9]|-?(?:0[0-9]|[0-9]+[^0-9"]))'


@dataclass(frozen=True)
class JsonField:
    """A value to read at a path of a record's JSON; it may be null if optional.

    The elements of arrays have an empty path.
    """

    path: tuple[str, ...]
    type: m.DataType
    optional: bool = False


def exact_path_pattern(fields: Iterable[JsonField], *, has_tombstones: bool = False) -> str:
    """Return an RE2 expression that matches every record whose fields the exact decoder must read.

    If a record does not match, only the following must still be checked: whether DuckDB finds it to be valid JSON, its
    depth, fields that are missing or out of range, and the form of ISO times. With `has_tombstones`, a record whose
    `_value` is null is a tombstone.
    """
    bad = [bad_value for field in fields for bad_value in _bad_values(field.path, field.type, optional=field.optional)]
    parts = [*_NOT_STRICT, _escapes([*(name for name, _ in bad), *([m.VALUE] if has_tombstones else [])])]
    if has_tombstones:
        parts.append(rf'"{m.VALUE}"\s*:\s*n')
    return "|".join([*parts, _any_of(bad)])


def envelope_pattern(fields: Iterable[JsonField]) -> str:
    """Return an expression like that of `exact_path_pattern`, for Debezium's envelopes whose `source` is an object.

    Columns of a row and other parts of the envelope can have the same names (such as `id`). Therefore the values of
    columns are tested only before the source, and the values of all other fields only after it. A record is matched if
    its rows are not before its only source, or if another field is. The position of the source must still be checked,
    because a column can have its name.
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
    """Yield (name, pattern) pairs; the exact decoder must read a record in which a value of the name matches."""
    *above, name = path
    yield from ((parent, r"[^{\sn]") for parent in above)  # without an object, the field is missing
    if not isinstance(type_, m.ArrayType):
        yield name, _bad_value(type_, "n" if optional else "")
    elif isinstance(type_.element, m.StructType):
        yield name, r"[^\[\sn]"
        for field in type_.element.fields:
            yield from _bad_values((field.name,), field.type, optional=field.optional)
    else:
        # a bad element, perhaps after others; an empty array has no element
        bad = _bad_value(type_.element, r"\]n" if type_.optional else r"\]")
        yield name, rf"[^\[\sn]|\[\s*(?:{_SCALAR}\s*,\s*)*(?:{bad})"


_SCALAR = r'(?:"(?:[^"\\]|\\.)*"|[^\[\]{}",\s]+)'


def working_scale(type_: m.DecimalType) -> int:
    """Return the number of digits after the decimal point that the fast decoder reads.

    This is the scale of the type, but at most 6 if the precision exceeds 15 digits.
    """
    return type_.scale if type_.precision <= DOUBLE_DIGITS else min(type_.scale, _WORKING_SCALE)


def _bad_value(type_: m.SimpleType, others: str) -> str:
    """Return a pattern of the bad values of a type.

    `others` are the first characters of values of other kinds that are allowed.
    """
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
            # 20 digits if required: a number out of range is read as null, which only an optional field may be
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
    """Return a pattern for U+0000 and every escape that could spell a character of a name."""
    names = list(names)
    if not all(_PLAIN_NAME.fullmatch(name) for name in names):
        return r"\\"
    codes = "|".join(sorted({f"{ord(character):02x}" for name in names for character in name}))
    return rf"(?i:\\u00(?:00|{codes}))"


def _literal(name: str) -> str:
    return "".join(rf"\x{{{ord(character):x}}}" for character in name)
