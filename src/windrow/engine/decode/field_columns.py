"""Columns of decoded fields with masks of trusted values, as read by fast readers, and rows by outcome.

A trusted value equals the value of the exact decoder, which decodes rows with an untrusted value again. A row is a
position in the raw table; its outcome is in `GoodRows`, `MarkRows` or `DeadRows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import columns, duckdb_sql, schema
from windrow.engine.decode.cursors import Longs
from windrow.engine.decode.values import MAX_TIMESTAMP, MICROS_PER_UNIT, MIN_TIMESTAMP
from windrow.engine.halving import Failure, compute_in_halves

Mask = columns.Mask
Rows = npt.NDArray[np.int64]
Path = tuple[str, ...]
Wanted: TypeAlias = "Mapping[str, Wanted] | m.DataType"
"""What to read under a name of a record: a value of a type, or a nested record's values by name."""
_LONG_DIGITS: Final = 18
"""Decimals with up to 18 digits fit in 64 bits."""
_ISO = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|\+00:00)?$"
_WHOLE = "^-?(?:0|[1-9][0-9]{0,17})$"
_NUMBER = r"^-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?$"


@dataclass(frozen=True)
class FieldColumn:
    """The values of a field, and the mask of trusted values."""

    values: pa.Array
    trusted: Mask


Read: TypeAlias = "dict[Path, FieldColumn]"
"""Columns by path, with a value for each row that was read; the column of a single value has the path ()."""


@dataclass(frozen=True)
class ReadColumns:
    """The columns of some rows by path, and the mask of rows whose bytes are exactly one record."""

    rows: Rows
    columns: Mapping[Path, FieldColumn]
    is_record: Mask


class RecordReader(Protocol):
    """Reads the records of a format other than JSON, either one by one or in columns."""

    def parse(self, raw: bytes) -> Mapping[str, object]:
        """Map the names of a record's fields to values as JSON has them, with numbers as `values.NumberText`.

        Raise MalformedError if the record is malformed.
        """
        ...

    def read(self, values: pa.Array, types: Mapping[Path, m.DataType], texts: TextColumns) -> Iterator[ReadColumns]:
        """Yield the fields at some paths of binary values, which may be null, in groups of rows.

        Rows that are in no group are left to `parse`.
        """
        ...


class DatumReader(RecordReader, Protocol):
    """Reads a format in which a datum can be a single value."""

    def parse_any(self, raw: bytes) -> object:
        """Return a datum as `parse` does, or its value if it is a single one; raise MalformedError as `parse` does."""
        ...


@dataclass(frozen=True)
class GoodRows:
    """Records with data: event times, the declared fields in order, and marks (null if none); times in microseconds.

    `replaced` has the rows that some of the records replace under a different key, as found by `decode_exactly`.
    """

    rows: Rows
    times: pa.Array
    columns: list[pa.Array]
    marks: pa.Array
    replaced: GoodRows | None = None

    @staticmethod
    def merge(left: GoodRows, right: GoodRows) -> GoodRows:
        """Merge two disjoint sets of rows, each in the order of the input, into that order."""
        if not len(left.rows) or not len(right.rows):
            return left if len(left.rows) else right
        rows, (times, marks, *columns) = _merge_rows((left.rows, right.rows), left._arrays(), right._arrays())
        return GoodRows(rows, times, columns, marks)

    def keep(self, mask: Mask) -> GoodRows:
        """Return the rows for which the mask is true."""
        times, marks, *columns = [array.filter(pa.array(mask)) for array in self._arrays()]
        return GoodRows(self.rows[mask], times, columns, marks)

    def _arrays(self) -> list[pa.Array]:
        return [self.times, self.marks, *self.columns]


@dataclass(frozen=True)
class MarkRows:
    """Punctuation marks, in microseconds."""

    rows: Rows
    marks: pa.Array

    @staticmethod
    def merge(good: GoodRows, pure: MarkRows) -> MarkRows:
        """Return the marks of good records together with the pure marks, in the order of the input."""
        if good.marks.null_count == len(good.rows):
            return pure
        marked = good.marks.is_valid()
        return pure.join(MarkRows(good.rows[to_mask(marked)], good.marks.filter(marked)))

    def join(self, other: MarkRows) -> MarkRows:
        """Merge two disjoint sets of marks in the order of the input."""
        rows, (marks,) = _merge_rows((self.rows, other.rows), [self.marks], [other.marks])
        return MarkRows(rows, marks)


@dataclass(frozen=True)
class DeadRows:
    """Dead letters: their log timestamps (null if unknown) and reasons."""

    rows: Rows
    log_times: pa.Array
    reasons: pa.Array

    def join(self, other: DeadRows) -> DeadRows:
        """Merge two disjoint sets of dead letters in the order of the input."""
        arrays = [self.log_times, self.reasons], [other.log_times, other.reasons]
        rows, (log_times, reasons) = _merge_rows((self.rows, other.rows), *arrays)
        return DeadRows(rows, log_times, reasons)


def _merge_rows(rows: Sequence[Rows], *arrays: Sequence[pa.Array]) -> tuple[Rows, list[pa.Array]]:
    """Concatenate disjoint sets of rows and the arrays of each set, in the order of the input."""
    merged = np.concatenate(rows)
    order = np.argsort(merged, kind="stable")
    return merged[order], [pa.concat_arrays(parts).take(pa.array(order)) for parts in zip(*arrays, strict=True)]


def wanted_tree(types: Mapping[Path, Any]) -> dict[str, Any]:
    """Convert a mapping by path to a tree of names; no path may lead through another one."""
    found: dict[str, Any] = {}
    for path, type_ in types.items():
        inner = found
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = type_
    return found


def leaves(wanted: Mapping[str, Wanted]) -> list[tuple[Path, m.DataType]]:
    """Return the path and type of each value to read within a record."""
    return [
        ((name, *path), type_)
        for name, part in wanted.items()
        for path, type_ in (leaves(part) if isinstance(part, Mapping) else [((), part)])
    ]


def nulls_column(type_: m.DataType, count: int, *, trusted: bool) -> FieldColumn:
    """Return nulls.

    They are trusted if the records lack the field, and untrusted if the exact decoder must read it.
    """
    return FieldColumn(pa.nulls(count, schema.arrow_type(type_)), np.full(count, trusted))


def nulls_columns(wanted: Mapping[str, Wanted], count: int, *, trusted: bool) -> Read:
    """Return `nulls_column` for each value to read within a record."""
    return {path: nulls_column(type_, count, trusted=trusted) for path, type_ in leaves(wanted)}


def concat_reads(empty: Read, parts: Sequence[Read]) -> Read:
    """Concatenate the columns of several reads; `empty` has the same columns without rows."""
    columns = {path: [column, *(part[path] for part in parts)] for path, column in empty.items()}
    return {
        path: FieldColumn(
            pa.concat_arrays([column.values for column in same]), np.concatenate([column.trusted for column in same])
        )
        for path, same in columns.items()
    }


def place_reads(empty: Read, parts: Sequence[tuple[Rows, Read]], trusted: Mask) -> Read:
    """Place the columns of reads at their rows; all other rows are null, and trusted where the given mask is true."""
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *(rows for rows, _ in parts)])
    index = np.full(len(trusted), -1)
    index[rows] = np.arange(len(rows))
    places = pa.array(index, mask=index < 0)
    found = {}
    for path, column in concat_reads(empty, [part for _, part in parts]).items():
        is_trusted = trusted.copy()
        is_trusted[rows] = column.trusted
        found[path] = FieldColumn(column.values.take(places), is_trusted)
    return found


def all_but(count: int, rows: Iterable[int]) -> Mask:
    """Return a mask of `count` rows that is false only for the given rows."""
    mask = np.ones(count, dtype=np.bool_)
    mask[list(rows)] = False
    return mask


def number_column(wanted: Wanted, values: Longs, nanos: int | None) -> FieldColumn | None:
    """Convert whole numbers to values of a type, or return None if the type cannot hold whole numbers.

    For times, the numbers count units of `nanos` nanoseconds, or the unit of the type if it is None.
    """
    match wanted:
        case m.LongType():
            return FieldColumn(pa.array(values), np.ones(len(values), dtype=np.bool_))
        case m.DoubleType():
            return FieldColumn(pa.array(values.astype(np.float64)), np.ones(len(values), dtype=np.bool_))
        case m.DecimalType():
            return decimals_column(wanted, values, 0)
        case m.TimestampType(unit) if nanos is not None or unit != "iso":
            factor = MICROS_PER_UNIT[unit] if nanos is None else nanos // 1000
            return times_column(pa.array(values), factor) if factor else None
        case _:
            return None


def doubles_column(doubles: npt.NDArray[np.floating[Any]]) -> FieldColumn:
    """Convert floats to doubles with a single zero; values that are not finite are not trusted."""
    is_finite = np.isfinite(doubles)
    return FieldColumn(pa.array(np.where(is_finite, doubles, 0).astype(np.float64) + 0.0), is_finite)


def decimals_column(type_: m.DecimalType, unscaled: Longs, scale: int) -> FieldColumn:
    """Convert unscaled decimals of a scale to decimals of a type; values that do not fit are not trusted."""
    more = type_.scale - scale
    if abs(more) > _LONG_DIGITS:
        return nulls_column(type_, len(unscaled), trusted=False)
    most = 10 ** max(min(type_.precision, _LONG_DIGITS) - max(more, 0), 0)
    if more >= 0:
        trusted = (unscaled < most) & (unscaled > -most)
        words = np.where(trusted, unscaled, 0) * 10**more
    else:
        words, rest = np.divmod(unscaled, 10**-more)
        trusted = (rest == 0) & (words < most) & (words > -most)
        words = np.where(trusted, words, 0)
    return FieldColumn(decimals_of(schema.arrow_type(type_), words), trusted)


def decimals_of(type_: pa.DataType, unscaled: Longs) -> pa.Array:
    """Create decimals of an Arrow type from their unscaled values."""
    halves = np.stack([unscaled, unscaled >> 63], axis=1)  # 128 bits, the lower half first
    return pa.Array.from_buffers(type_, len(unscaled), [None, pa.py_buffer(halves)])


def times_column(values: pa.Array, factor: int) -> FieldColumn:
    """Convert numbers of units of `factor` microseconds to times; nulls and times out of range are not trusted."""
    units = values.fill_null(0).to_numpy()
    in_range = (units >= -(-MIN_TIMESTAMP // factor)) & (units <= MAX_TIMESTAMP // factor)
    trusted = valid_mask(values) & in_range
    micros = np.where(in_range, units, 0) * factor
    return FieldColumn(pa.array(micros).cast(schema.MICROS), trusted)


def array_of(values: Sequence[object], type_: m.DataType) -> pa.Array:
    """Return decoded values of a type as an Arrow array; times are in microseconds."""
    if isinstance(type_, m.TimestampType):
        return pa.array(values, pa.int64()).cast(schema.MICROS)
    return pa.array(values, schema.arrow_type(type_))


def valid_mask(values: pa.Array) -> Mask:
    """Return the mask of values that are not null."""
    return to_mask(values.is_valid()) if values.null_count else np.ones(len(values), dtype=bool)


def to_mask(array: pa.Array) -> Mask:
    """Convert an Arrow array of booleans without nulls to a mask."""
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def holds_mask(array: pa.Array) -> Mask:
    """Return the mask of values that are true; it is false for nulls."""
    return to_mask(pc.fill_null(array, fill_value=False))


def valid_text(values: pa.Array) -> pa.Array:
    """Convert binary values to strings; values that are not UTF-8 become null."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        # the error does not say which values are invalid
        found = compute_in_halves(
            lambda some: some.cast(pa.string()), values, lambda exc: isinstance(exc, pa.ArrowInvalid)
        )
        return pa.concat_arrays([pa.nulls(1, pa.string()) if isinstance(text, Failure) else text for _, text in found])


def iso_micros(duck: duckdb_sql.Connection, texts: pa.Array) -> pa.Array:
    """Convert dates and times to microseconds; a text that is not in the usual form becomes null."""
    sql = "SELECT epoch_us(TRY_CAST(text AS TIMESTAMP)) AS micros FROM texts"
    return duckdb_sql.query(duck, sql, texts=pa.table({"text": _like(texts, _ISO)})).column("micros").combine_chunks()


class TextColumns:
    """Converts texts to values as the exact decoder does; a text in an unusual form becomes null and is not trusted."""

    def __init__(self) -> None:
        self._duck = duckdb_sql.Connection()

    def convert(self, type_: m.DataType, texts: pa.Array) -> FieldColumn:
        """Convert texts to values of a type; no text is trusted as a boolean or an array."""
        match type_:
            case m.StringType():
                return FieldColumn(texts, valid_mask(texts) & ~holds_mask(pc.match_substring(texts, "\0")))
            case m.LongType():
                values = _like(texts, _WHOLE).cast(pa.int64())
            case m.TimestampType(unit="iso"):
                return times_column(iso_micros(self._duck, texts), 1)
            case m.TimestampType(unit):
                return times_column(_like(texts, _WHOLE).cast(pa.int64()), MICROS_PER_UNIT[unit])
            case m.DoubleType():
                values = pc.add(_like(texts, _NUMBER).cast(pa.float64()), 0.0)  # one zero, not two
            case m.DecimalType(precision, scale):
                before = f"0|[1-9][0-9]{{0,{precision - scale - 1}}}" if precision > scale else "0"
                behind = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
                values = _like(texts, f"^-?(?:{before}){behind}$").cast(schema.arrow_type(type_))
            case m.BooleanType() | m.ArrayType():
                return nulls_column(type_, len(texts), trusted=False)
            case _:
                assert_never(type_)
        return FieldColumn(values, valid_mask(values))


def _like(texts: pa.Array, pattern: str) -> pa.Array:
    """Return the texts that match a pattern, and null in place of the others."""
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, pa.string()))
