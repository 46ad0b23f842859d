"""The decoder, which turns raw records into good records, punctuation marks and dead letters.

Large batches go through the fast decoder first. The records that it rejects, and small batches, go through the exact
decoder. Derived fields are columns that expressions compute from decoded fields; a record for which an expression fails
becomes a dead letter with DuckDB's error as the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import schema
from windrow.engine.columns import to_micros
from windrow.engine.decode.evaluation import Evaluator
from windrow.engine.decode.exact import LOG_TIME_TYPE, ExactDecoder, Truncations, decode_exactly, no_window_reason
from windrow.engine.decode.fast import FastDecoder, FastReader
from windrow.engine.decode.field_columns import DeadRows, GoodRows, MarkRows, Mask, Rows, all_but, holds_mask, to_mask
from windrow.engine.decode.json_text import parse_object
from windrow.engine.decode.registry import UnknownSchemaError
from windrow.engine.decode.values import MAX_TIMESTAMP, MIN_TIMESTAMP, convert
from windrow.engine.halving import compute_rows
from windrow.engine.keys import MAX_KEY_BYTES, text_bytes
from windrow.engine.windows import times_with_windows
from windrow.expressions import AnySpec, Computed, computed, is_window_spec

_PLACE = [pa.field("partition", pa.int32(), nullable=False), pa.field("offset", pa.int64(), nullable=False)]
MARKS = pa.schema([*_PLACE, pa.field("watermark", pa.int64(), nullable=False)])
"""Punctuation marks; `watermark` is in microseconds."""
_NO_MARKS = MARKS.empty_table()

_COORDINATES = 3
"""Number of columns before the fields of good records: partition, offset and time."""
SMALL_BATCH, SMALL_BYTES = 256, 1 << 18
"""A batch with fewer records, of fewer bytes in all, is decoded faster one record at a time than with a query."""


@dataclass(frozen=True)
class DecodedBatch:
    """The result of decoding a table of raw records, each kind in the order of the input.

    The table `good` has partition, offset, time (the event time in microseconds), the declared fields and the computed
    fields, in that order; select columns by position, because a field may have the name of one of the first three.
    A truncation is in `good`, with null in all fields.
    `marks` is in `MARKS`, and `dead` in `schema.DEAD`. Every raw record is in `good` or in `dead`, unless it is a pure
    mark; a record with data and a mark is in both `good` and `marks`. `replaced` has the rows that some of the good
    records replace under a different key. They are deletions with the columns of `good`, at the places and times of
    these records.
    """

    good: pa.Table
    marks: pa.Table
    dead: pa.Table
    replaced: pa.Table


class Decoder:
    """Decodes a pipeline's records: the fast path accepts records, and the exact path explains rejections.

    `table_keys` are the names of the fields in the keys of tables, and `truncations` is the outcome of truncations.
    """

    def __init__(
        self, spec: AnySpec | m.SourceNode, table_keys: Iterable[str] = (), truncations: Truncations = "refused"
    ) -> None:
        exact = ExactDecoder.of(spec, table_keys, truncations)
        # a record must have the decoded fields of the key; the derived ones come later
        decoded = tuple(field.name for field in exact.fields)
        self._exact = replace(exact, key=tuple(name for name in exact.key if name in decoded))
        columns = computed(spec)
        self._deriver = Deriver(self._exact, columns) if columns else None
        self._source = spec.source.label
        self._has_places = isinstance(spec.source, m.FilesSource)
        self._good_schema = _good_schema(self._exact, columns)
        self._no_good = self._good_schema.empty_table()
        names = self._good_schema.names[_COORDINATES:]
        types = self._good_schema.types[_COORDINATES:]
        self._key_texts = [names.index(name) for name in spec.key if pa.types.is_string(types[names.index(name)])]
        self._key_text_names = ", ".join(names[place] for place in self._key_texts)

    def decode(self, raw: pa.RecordBatch | pa.Table) -> DecodedBatch:
        """Decode records in `schema.RAW`, from any partitions, with offsets ascending in each partition."""
        if isinstance(raw, pa.RecordBatch):
            batches = [raw]
        else:
            batches = raw.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=schema.RAW)]
        parts = [part for batch in batches for part in compute_rows("decode", self._decode, batch, self._dead)]
        if len(parts) == 1:
            return parts[0]
        return DecodedBatch(
            good=pa.concat_tables([part.good for part in parts]),
            marks=pa.concat_tables([part.marks for part in parts]),
            dead=pa.concat_tables([part.dead for part in parts]),
            replaced=pa.concat_tables([part.replaced for part in parts]),
        )

    def have_log_time(self, raw: pa.RecordBatch) -> Mask:
        """Return the mask of records that have a log timestamp, given good records."""
        rows = zip(*(raw.column(name).to_pylist() for name in ("value", "log_time")), strict=True)
        return np.array([self._exact.has_log_time(*row) for row in rows], dtype=np.bool_)

    @cached_property
    def _fast(self) -> FastDecoder | FastReader | None:
        if not FastDecoder.reads(self._exact):
            return None
        return FastDecoder(self._exact) if self._exact.reader is None else FastReader(self._exact, self._exact.reader)

    def _decode(self, raw: pa.RecordBatch) -> DecodedBatch:
        try:
            good, pure, dead = self._decode_fields(raw)
        except UnknownSchemaError as exc:
            raise exc.first_of(self._source, raw) from exc
        replaced = good.replaced
        if self._deriver is not None:
            good, new_marks, failed = self._derive(self._deriver, raw, good)
            pure, dead = pure.join(new_marks), dead.join(failed)
        if self._key_texts and len(good.rows):
            texts = [good.columns[place] for place in self._key_texts]
            if too_long := dict(long_keys(self._key_text_names, texts)):
                is_short = all_but(len(good.rows), too_long)
                dead = dead.join(dead_rows(self._exact, raw, good.rows[~is_short], list(too_long.values())))
                good = good.keep(is_short)
        if replaced is not None:
            if self._deriver is not None:
                # a row whose columns cannot be computed has been in no table
                replaced, _, _ = self._deriver.derive(raw, replaced)
            replaced = replaced.keep(np.isin(replaced.rows, good.rows))
        marks = MarkRows.merge(good, pure)
        return DecodedBatch(
            good=self._good_table(raw, good),
            marks=pa.table([*_coordinates(raw, marks.rows), marks.marks], schema=MARKS)
            if len(marks.rows)
            else _NO_MARKS,
            dead=self._dead_table(raw, dead),
            replaced=self._no_good if replaced is None else self._good_table(raw, replaced),
        )

    def _derive(self, deriver: Deriver, raw: pa.RecordBatch, good: GoodRows) -> tuple[GoodRows, MarkRows, DeadRows]:
        """Add the derived columns to good records; those of truncations are null."""
        deleted = good.columns[-1] if self._exact.has_deleted else None
        if deleted is None or not deleted.null_count:
            return deriver.derive(raw, good)
        is_row = to_mask(deleted.is_valid())
        made, marks, failed = deriver.derive(raw, good.keep(is_row))
        truncations = good.keep(~is_row)
        more = [pa.nulls(len(truncations.rows), column.type) for column in made.columns[len(good.columns) :]]
        return GoodRows.merge(made, replace(truncations, columns=[*truncations.columns, *more])), marks, failed

    def _dead(self, raw: pa.RecordBatch, reason: str) -> DecodedBatch:
        """Return the result for a record that cannot be decoded."""
        dead = DeadRows(np.zeros(1, dtype=np.int64), raw.column("log_time"), pa.array([reason]))
        return DecodedBatch(self._no_good, _NO_MARKS, self._dead_table(raw, dead), self._no_good)

    def _decode_fields(self, raw: pa.RecordBatch) -> tuple[GoodRows, MarkRows, DeadRows]:
        is_small = raw.num_rows < SMALL_BATCH and raw.nbytes < SMALL_BYTES
        if is_small or self._fast is None:
            return decode_exactly(self._exact, raw, np.arange(raw.num_rows))
        accepted = self._fast.decode(raw)
        others = np.ones(raw.num_rows, dtype=np.bool_)
        others[accepted.rows] = False
        good, pure, dead = decode_exactly(self._exact, raw, np.flatnonzero(others))
        return replace(GoodRows.merge(accepted, good), replaced=good.replaced), pure, dead

    def dead_letters(self, raw: pa.RecordBatch, rows: Rows, reasons: Sequence[str]) -> pa.Table:
        """Return dead letters for rows that were decoded, with the given reasons."""
        return self._dead_table(raw, dead_rows(self._exact, raw, rows, reasons))

    def _good_table(self, raw: pa.RecordBatch, good: GoodRows) -> pa.Table:
        columns = [*_coordinates(raw, good.rows), good.times, *good.columns]
        return pa.table(columns, schema=self._good_schema)

    def _dead_table(self, raw: pa.RecordBatch, dead: DeadRows) -> pa.Table:
        if not len(dead.rows):
            return schema.NO_DEAD
        source = pa.repeat(pa.scalar(self._source, pa.string()), len(dead.rows))
        # after selections, rows can be in any order and repeated
        partitions, offsets, keys, values = (
            raw.column(name).take(pa.array(dead.rows)) for name in ("partition", "offset", "key", "value")
        )
        reasons = dead.reasons
        if self._has_places:
            # in files, the key of a record is its place
            reasons = pc.binary_join_element_wise(reasons, keys.cast(pa.string()), ": at ")
        # a producer can give a record any log timestamp, but tables hold the years 1 to 9999
        micros = dead.log_times.cast(pa.int64())
        has_year = pc.and_(pc.greater_equal(micros, MIN_TIMESTAMP), pc.less_equal(micros, MAX_TIMESTAMP))
        log_times = pc.if_else(has_year, dead.log_times, pa.scalar(None, schema.MICROS))
        return pa.table([source, partitions, offsets, log_times, reasons, values], schema=schema.DEAD)


class Deriver:
    """Computes the columns that a pipeline adds to its records."""

    def __init__(self, exact: ExactDecoder, columns: tuple[Computed, ...]) -> None:
        self._exact = exact
        self._columns = columns
        self._keys = [place for place, column in enumerate(columns) if column.key]
        self._evaluator = Evaluator(columns, "derive")

    def derive(self, raw: pa.RecordBatch, good: GoodRows) -> tuple[GoodRows, MarkRows, DeadRows]:
        """Add the columns to good records; also return pure marks, and dead letters for records that fail.

        A record with a mark whose derived key is null becomes a pure mark.
        """
        names = [field.name for field in self._exact.fields]
        columns, failed = self._evaluator.compute(pa.table(good.columns, names=names))
        marked = to_mask(good.marks.is_valid())
        pure = np.zeros(len(good.rows), dtype=np.bool_)
        for place in self._keys:
            for row in np.flatnonzero(to_mask(columns[place].is_null())).tolist():
                if row in failed:
                    continue
                if marked[row]:
                    pure[row] = True
                else:
                    failed[row] = f"null key: {self._columns[place].name}"
        whole = GoodRows(good.rows, good.times, [*good.columns, *columns], good.marks)
        is_made = all_but(len(good.rows), failed)
        reasons = [failed[row] for row in sorted(failed)]
        return (
            whole.keep(is_made & ~pure) if failed or pure.any() else whole,
            MarkRows(good.rows[pure], good.marks.filter(pa.array(pure))),
            dead_rows(self._exact, raw, good.rows[~is_made], reasons),
        )


def dead_rows(exact: ExactDecoder, raw: pa.RecordBatch, rows: Rows, reasons: Sequence[str]) -> DeadRows:
    """Return dead letters, with their log timestamps, for records that can be decoded."""
    log_times = raw.column("log_time").take(pa.array(rows))
    if exact.log_time_inside and len(rows):
        values = raw.column("value").take(pa.array(rows))
        log_times = log_times_inside(values, log_times.cast(pa.int64()), exact.parse).cast(schema.MICROS)
    return DeadRows(rows, log_times, pa.array(reasons, pa.string()))


def log_times_inside(
    values: pa.Array, log_times: pa.Array, parse: Callable[[bytes], Mapping[str, object]] = parse_object
) -> pa.Array:
    """Return the log timestamps of good records in microseconds.

    A timestamp in a record, which the function `parse` reads, takes precedence over the one in `log_times`.
    """
    found = log_times.to_pylist()
    for row in np.flatnonzero(holds_mask(pc.match_substring(values, m.LOG_TIME))):
        inside = parse(values[row].as_py()).get(m.LOG_TIME)
        if inside is not None:
            found[row] = convert(m.LOG_TIME, LOG_TIME_TYPE, inside)
    return pa.array(found, pa.int64())


class KeyedDecoder:
    """Adds the columns of a node to the records of its input.

    These are its derived fields, except for those that the stream already has (`given` are their names), and the
    columns of its aggregates. A record is rejected if a column fails for it, if its key is null or too long, or if one
    of its windows is outside the years 1 to 9999.
    """

    def __init__(self, spec: AnySpec, given: Collection[str], records: pa.Schema) -> None:
        self._key = spec.key
        self._time = spec.time.field
        self._times = times_with_windows(spec.node.window if is_window_spec(spec) else m.Global())
        self._columns = tuple(column for column in computed(spec) if column.name not in given)
        self._evaluator = Evaluator(self._columns, "derive") if self._columns else None
        self._schema = records

    def select(self, records: pa.Table) -> tuple[pa.Table, pa.Table, list[str]]:
        """Return the accepted records with the node's columns, the rejected records, and the reasons."""
        failed: dict[int, str] = {}
        if self._evaluator is not None:
            arrays, failed = self._evaluator.compute(records)
            for column, values in zip(self._columns, arrays, strict=True):
                records = records.append_column(column.name, values)
        reasons = dict(self._problems(records)) | failed
        if not reasons:
            return records.select(self._schema.names).cast(self._schema), records.slice(0, 0), []
        is_good = all_but(records.num_rows, reasons)
        good = records.filter(pa.array(is_good)).select(self._schema.names).cast(self._schema)
        return good, records.filter(pa.array(~is_good)), [reasons[row] for row in sorted(reasons)]

    def _problems(self, records: pa.Table) -> Iterator[tuple[int, str]]:
        """Yield (row, reason) for each problem; if a row has several, the last reason counts."""
        times = to_micros(records.column(schema.TIME))
        least, greatest = self._times
        for row in np.flatnonzero((times < least) | (times > greatest)).tolist():
            yield row, no_window_reason(self._time, begins_early=times[row] < least)
        texts = [name for name in self._key if pa.types.is_string(records.schema.field(name).type)]
        if texts and records.num_rows:
            yield from long_keys(", ".join(texts), [records.column(name).combine_chunks() for name in texts])
        for name in self._key:
            nulls = records.column(name).is_null().to_numpy()
            yield from ((row, f"null key: {name}") for row in np.flatnonzero(nulls).tolist())


def long_keys(names: str, texts: Sequence[pa.Array]) -> Iterator[tuple[int, str]]:
    """Yield (row, reason) for each key whose texts are too long; `names` has the names of the columns."""
    bytes_ = text_bytes(texts)
    for row in np.flatnonzero(bytes_ > MAX_KEY_BYTES).tolist():
        yield row, f"long key: {names}: {bytes_[row]} bytes of text; the limit is {MAX_KEY_BYTES}"


def _coordinates(raw: pa.RecordBatch, rows: Rows) -> list[pa.Array]:
    """Return the partitions and offsets of rows, which must be in ascending order."""
    columns = [raw.column("partition"), raw.column("offset")]
    is_all = len(rows) == raw.num_rows
    return columns if is_all else [column.take(pa.array(rows)) for column in columns]


def _good_schema(exact: ExactDecoder, columns: tuple[Computed, ...]) -> pa.Schema:
    fields = [
        pa.field(field.name, schema.arrow_type(field.type), nullable=exact.may_lack(field)) for field in exact.fields
    ]
    derived = [pa.field(column.name, schema.arrow_type(column.expression.type)) for column in columns]
    return pa.schema([*_PLACE, pa.field("time", pa.int64(), nullable=False), *fields, *derived])
