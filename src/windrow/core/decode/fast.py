"""The fast path: accepts the records that are clearly good, a batch at a time, and says nothing of the others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duck, schema
from windrow.core.decode.exact import LOG_TIME, LOG_TIME_TYPE, MAX_DEPTH, ExactDecoder, is_optional
from windrow.core.decode.rows import GoodRows, Rows
from windrow.core.decode.suspicion import DOUBLE_DIGITS, Read, suspicion, working_scale
from windrow.core.decode.text import valid_text
from windrow.core.decode.values import MAX_TIME, MICROS_PER_UNIT, MIN_TIME
from windrow.model import BooleanType, DataType, DecimalType, DoubleType, Field, LongType, StringType, TimestampType

Mask = npt.NDArray[np.bool_]

_ISO = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|\+00:00)?$"
_BRACKET = r"[\[{]"


@dataclass(frozen=True)
class _Column:
    """A field as read: its values, and which of them are to be trusted."""

    values: pa.Array
    trusted: Mask


class FastDecoder:
    """Reads all fields of a batch in one pass of DuckDB's JSON parser, behind one regular expression."""

    def __init__(self, exact: ExactDecoder) -> None:
        self._exact = exact
        self._reads = _reads(exact)
        self._suspicion = suspicion(self._reads)
        structure = json.dumps({read.name: _sql_type(read.type) for read in self._reads})
        self._duck = duck.connect()
        self._query = (
            f"SELECT row, json_transform(value, {duck.literal(structure)}) AS fields "
            "FROM raw WHERE plain AND json_valid(value)"
        )

    @staticmethod
    def reads(exact: ExactDecoder) -> bool:
        """Return whether the fast path can read these fields.

        It cannot if two names differ in case only or one is empty, which DuckDB does not take, or if the log's time or
        the mark is declared as a field of another type.
        """
        reads = {read.name: read.type for read in _reads(exact)}
        one_type = exact.mark is None or reads[exact.mark.name] == exact.mark.type
        if exact.log_time_inside:
            one_type &= reads[LOG_TIME] == LOG_TIME_TYPE
        return one_type and "" not in reads and len({name.casefold() for name in reads}) == len(reads)

    def decode(self, raw: pa.RecordBatch) -> GoodRows:
        """Decode what is clearly good of a batch in `schema.RAW`; all other rows need the exact path."""
        value = valid_text(raw.column("value"))
        found = duck.query(
            self._duck,
            self._query,
            raw=pa.table({"row": np.arange(raw.num_rows), "value": value, "plain": self._plain(value)}),
        ).combine_chunks()
        rows: Rows = found.column("row").to_numpy()
        columns = {
            read.name: self._column(read, values)
            for read, values in zip(self._reads, found.column("fields").combine_chunks().flatten(), strict=True)
        }
        trusted = np.logical_and.reduce([column.trusted for column in columns.values()])
        for field in self._exact.fields:
            if field.alias:
                columns[field.name] = self._one_of([columns[name] for name in field.names], field)
                trusted &= columns[field.name].trusted
        times = columns[self._exact.time.field].values.cast(pa.int64())
        marks = pa.nulls(len(rows), pa.int64())
        if self._exact.mark is not None:
            marks = columns[self._exact.mark.name].values.cast(pa.int64())
        time = self._exact.time
        if time.sent is not None or time.future is not None:
            log_times = self._log_times(raw, rows, columns)
            if time.sent is not None:
                times, corrected = _correct(times, columns[time.sent].values.cast(pa.int64()), log_times)
                trusted &= corrected
            if time.future is not None:
                for guarded in (times, marks):
                    trusted &= _within(guarded, log_times, time.future)
        good = GoodRows(rows, times, [columns[field.name].values for field in self._exact.fields], marks)
        return good if trusted.all() else good.keep(trusted)

    def _plain(self, value: pa.Array) -> pa.Array:
        """Return which values, none of them null, nothing is suspicious in."""
        plain = pc.invert(pc.match_substring_regex(value, self._suspicion))
        deep = pc.greater(pc.binary_length(value), 2 * MAX_DEPTH)
        if pc.any(deep).as_py():
            # only a long text can be nested deeply; the brackets of the others are not counted
            brackets = pc.count_substring_regex(pc.if_else(deep, value, ""), _BRACKET)
            plain = pc.and_(plain, pc.less_equal(brackets, MAX_DEPTH))
        return pc.fill_null(plain, fill_value=False)

    def _one_of(self, columns: list[_Column], field: Field) -> _Column:
        """Return a field's values under whatever name they have; where there are two, the exact path looks at them."""
        there = np.sum([_valid(column.values) for column in columns], axis=0)
        least = 0 if is_optional(field, self._exact.mark, self._exact.time, self._exact.key) else 1
        return _Column(pc.coalesce(*(column.values for column in columns)), (least <= there) & (there <= 1))

    def _column(self, read: Read, values: pa.Array) -> _Column:
        """Return a field's values, null where the record has none if it may lack it."""
        column = self._present(read, values)
        if not read.optional or not values.null_count:
            return column
        absent = _mask(values.is_null())
        return _Column(pc.if_else(pa.array(absent), None, column.values), column.trusted | absent)

    def _present(self, read: Read, values: pa.Array) -> _Column:
        match read.type:
            case StringType() | BooleanType() | LongType():
                return _Column(values, _valid(values))
            case DoubleType():
                doubles = values.fill_null(np.nan).to_numpy() + 0.0  # there is one zero, not two
                return _Column(pa.array(doubles), np.isfinite(doubles))
            case DecimalType():
                return _decimals(values, read.type)
            case TimestampType(unit="iso"):
                micros, factor = self._iso(values), 1
            case TimestampType(unit):
                micros, factor = values, MICROS_PER_UNIT[unit]
            case _:
                assert_never(read.type)
        return _times(micros, factor)

    def _iso(self, texts: pa.Array) -> pa.Array:
        plain = pc.if_else(pc.match_substring_regex(texts, _ISO), texts, pa.scalar(None, pa.string()))
        sql = "SELECT epoch_us(TRY_CAST(text AS TIMESTAMP)) AS micros FROM texts"
        return duck.query(self._duck, sql, texts=pa.table({"text": plain})).column("micros").combine_chunks()

    def _log_times(self, raw: pa.RecordBatch, rows: Rows, columns: dict[str, _Column]) -> pa.Array:
        log_times = raw.column("log_time").cast(pa.int64()).take(pa.array(rows))
        if self._exact.log_time_inside:
            log_times = pc.coalesce(columns[LOG_TIME].values.cast(pa.int64()), log_times)
        return log_times


def _reads(exact: ExactDecoder) -> list[Read]:
    """Return what to read of a record: the declared fields, the mark and the log's time, each once."""
    reads = {
        name: Read(name, field.type, bool(field.alias) or is_optional(field, exact.mark, exact.time, exact.key))
        for field in exact.fields
        for name in field.names
    }
    if exact.mark is not None and exact.mark.name not in reads:
        reads[exact.mark.name] = Read(exact.mark.name, exact.mark.type, optional=True)
    if exact.log_time_inside and LOG_TIME not in reads:
        reads[LOG_TIME] = Read(LOG_TIME, LOG_TIME_TYPE, optional=True)
    return list(reads.values())


def _sql_type(type_: DataType) -> str:
    match type_:
        case StringType() | TimestampType(unit="iso"):
            return "VARCHAR"
        case BooleanType():
            return "BOOLEAN"
        case LongType() | TimestampType():
            return "BIGINT"
        case DoubleType() | DecimalType():
            return "DOUBLE"
        case _:
            assert_never(type_)


def _decimals(values: pa.Array, type_: DecimalType) -> _Column:
    """Turn doubles that were read of at most 15 digits into decimals, exactly."""
    scale = working_scale(type_)
    unscaled = np.rint(values.fill_null(0.0).to_numpy() * 10.0**scale).astype(np.int64)
    trusted = _valid(values) & (np.abs(unscaled) < 10.0 ** (type_.precision - type_.scale + scale))
    unscaled *= trusted  # what does not fit would not be cast
    words = np.empty((len(unscaled), 2), dtype=np.int64)  # 128 bits, the lower half first
    words[:, 0] = unscaled
    words[:, 1] = unscaled >> 63
    exact_type = schema.arrow_type(type_)
    working_type = exact_type if scale == type_.scale else pa.decimal128(DOUBLE_DIGITS, scale)
    decimals = pa.Array.from_buffers(working_type, len(unscaled), [None, pa.py_buffer(words)])
    return _Column(decimals if working_type == exact_type else decimals.cast(exact_type), trusted)


def _times(values: pa.Array, factor: int) -> _Column:
    """Turn whole units into microseconds."""
    units = values.fill_null(0).to_numpy()
    in_range = (units >= -(-MIN_TIME // factor)) & (units <= MAX_TIME // factor)
    trusted = _valid(values) & in_range
    micros = np.where(in_range, units, 0) * factor
    return _Column(pa.array(micros).cast(schema.MICROS), trusted)


def _correct(times: pa.Array, sent: pa.Array, log_times: pa.Array) -> tuple[pa.Array, Mask]:
    """Return event times without the skew of the devices' clocks, and which of them are to be trusted."""
    usual = _mask(pc.fill_null(_usual(log_times), fill_value=False))
    moved = np.where(usual, log_times.fill_null(0).to_numpy(), 0) - sent.fill_null(0).to_numpy()
    corrected = times.fill_null(0).to_numpy() + moved
    return pa.array(corrected), usual & (corrected >= MIN_TIME) & (corrected <= MAX_TIME)


def _usual(log_times: pa.Array) -> pa.Array:
    return pc.and_(pc.greater_equal(log_times, MIN_TIME), pc.less_equal(log_times, MAX_TIME))


def _within(times: pa.Array, log_times: pa.Array, future: int) -> Mask:
    """Return which times are not too far ahead of the log; a null on either side leaves nothing to compare."""
    usual = _usual(log_times)
    ahead = pc.subtract(times, pc.if_else(usual, log_times, 0))
    return _mask(pc.fill_null(pc.and_(usual, pc.less_equal(ahead, future)), fill_value=True))


def _valid(values: pa.Array) -> Mask:
    return _mask(values.is_valid()) if values.null_count else np.ones(len(values), dtype=bool)


def _mask(array: pa.Array) -> Mask:
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask
