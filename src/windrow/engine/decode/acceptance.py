"""Acceptance of a batch's clearly good records, based on the columns that a fast reader has read.

The exact decoder decodes all other records, so a column may be trusted too little, but never too much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import schema
from windrow.engine.decode import field_columns as fc
from windrow.engine.decode.exact import ExactDecoder, is_optional
from windrow.engine.decode.field_columns import FieldColumn, GoodRows, Mask, Path, Rows, to_mask
from windrow.engine.decode.key_columns import KeyColumns
from windrow.engine.decode.values import MAX_TIMESTAMP, MIN_TIMESTAMP


class Acceptance:
    """Selects each field's value from its possible paths, and checks the event times."""

    def __init__(self, exact: ExactDecoder) -> None:
        self._exact = exact
        self._keys = KeyColumns(exact.keys)

    def columns(self, at: Mapping[Path, FieldColumn]) -> dict[str, FieldColumn]:
        """Return a column for each field, given the columns at the fields' paths."""
        return {field.name: self.one_of(at, field.paths, self.least(field)) for field in self._exact.fields}

    def least(self, field: m.Field) -> int:
        """Return the minimum number of values (0 or 1) that a record must have for the field."""
        return 0 if is_optional(field, self._exact.mark, self._exact.time, self._exact.key) else 1

    def one_of(self, at: Mapping[Path, FieldColumn], paths: Sequence[Path], least: int) -> FieldColumn:
        """Combine the columns at a field's paths into one column.

        A record with two values, or with fewer than `least`, is not trusted.
        """
        columns = [at[path] for path in paths]
        if len(columns) == 1:
            (column,) = columns
            if least and column.values.null_count:
                return FieldColumn(column.values, column.trusted & fc.valid_mask(column.values))
            return column
        there = np.sum([fc.valid_mask(column.values) for column in columns], axis=0)
        return FieldColumn(pc.coalesce(*(column.values for column in columns)), (least <= there) & (there <= 1))

    def judge(
        self,
        raw: pa.RecordBatch,
        rows: Rows,
        at: Mapping[Path, FieldColumn],
        columns: Mapping[str, FieldColumn],
        is_record: Mask | None = None,
    ) -> GoodRows:
        """Return the clearly good records among the given rows of a batch in `schema.RAW`.

        The mapping `at` has the columns by path, and `columns` has them by field name. If a mask `is_record` is given,
        only the rows in the mask can be trusted.
        """
        trusted = np.logical_and.reduce([column.trusted for column in (*at.values(), *columns.values())])
        trusted = trusted if is_record is None else trusted & is_record
        times = columns[self._exact.time.field].values.cast(pa.int64())
        marks = pa.nulls(len(rows), pa.int64())
        if self._exact.mark is not None:
            marks = self.one_of(at, self._exact.mark.paths, 0).values.cast(pa.int64())
        time = self._exact.time
        if time.sent is not None or time.future is not None:
            log_times = raw.column("log_time").cast(pa.int64()).take(pa.array(rows))
            if self._exact.log_time_inside:
                log_times = pc.coalesce(at[m.LOG_TIME,].values.cast(pa.int64()), log_times)
            if time.sent is not None:
                times, corrected = _correct(times, columns[time.sent].values.cast(pa.int64()), log_times)
                trusted &= corrected
            if time.future is not None:
                for guarded in (times, marks):
                    trusted &= _within(guarded, log_times, time.future)
        least, greatest = self._exact.times
        moments = times.fill_null(least).to_numpy()
        trusted &= (moments >= least) & (moments <= greatest)
        good = GoodRows(rows, times, [columns[field.name].values for field in self._exact.fields], marks)
        return good if trusted.all() else good.keep(trusted)

    def tombstones(self, raw: pa.RecordBatch) -> GoodRows:
        """Return the clearly good tombstones, which are records with a key and without a value."""
        fields = self._exact.tombstones
        if any(field.alias for field in fields) or (self._exact.outside is not None and self._exact.outside.names):
            return self._exact.no_rows
        rows: Rows = np.flatnonzero(to_mask(pc.and_(raw.column("value").is_null(), raw.column("key").is_valid())))
        keys, times = (raw.column(name).take(pa.array(rows)) for name in ("key", "log_time"))
        times = times.cast(pa.int64())
        least, greatest = self._exact.times
        trusted = fc.holds_mask(pc.and_(pc.greater_equal(times, least), pc.less_equal(times, greatest)))
        filled = {}
        for field in fields:
            column = self._keys.column(keys, (field.paths[0][-1],), field.type, is_single=len(fields) == 1)
            filled[field.name] = column.values
            trusted &= column.trusted & fc.valid_mask(column.values)
        # a time that is not trusted may be one that no timestamp can hold
        moments = pc.if_else(pa.array(trusted), times, least).cast(schema.MICROS)
        filled |= {name: moments for name in (self._exact.time.field, self._exact.time.sent) if name is not None}
        columns = [
            filled.get(field.name, pa.nulls(len(rows), schema.arrow_type(field.type))) for field in self._exact.fields
        ]
        return GoodRows(rows, times, columns, pa.nulls(len(rows), pa.int64())).keep(trusted)


def _correct(times: pa.Array, sent: pa.Array, log_times: pa.Array) -> tuple[pa.Array, Mask]:
    """Correct event times for the skew of the devices' clocks; return the times and the mask of trusted ones."""
    in_range = fc.holds_mask(_in_range(log_times))
    moved = np.where(in_range, log_times.fill_null(0).to_numpy(), 0) - sent.fill_null(0).to_numpy()
    corrected = times.fill_null(0).to_numpy() + moved
    return pa.array(corrected), in_range & (corrected >= MIN_TIMESTAMP) & (corrected <= MAX_TIMESTAMP)


def _in_range(log_times: pa.Array) -> pa.Array:
    return pc.and_(pc.greater_equal(log_times, MIN_TIMESTAMP), pc.less_equal(log_times, MAX_TIMESTAMP))


def _within(times: pa.Array, log_times: pa.Array, future: int) -> Mask:
    """Return the mask of times at most `future` ahead of the log timestamp; it is true where either time is null."""
    in_range = _in_range(log_times)
    ahead = pc.subtract(times, pc.if_else(in_range, log_times, 0))
    return to_mask(pc.fill_null(pc.and_(in_range, pc.less_equal(ahead, future)), fill_value=True))
