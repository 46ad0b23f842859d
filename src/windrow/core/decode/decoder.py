"""Decoder: raw records to good records, punctuation marks and dead letters.

Large batches go through the fast decoder first; what it does not accept, and small batches, go through the exact one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from windrow.core import schema
from windrow.core.decode.derived import Deriver, dead_rows
from windrow.core.decode.exact import DeadRows, ExactDecoder, GoodRows, MarkRows, Rows, decode_exactly, is_optional
from windrow.core.decode.fast import FastDecoder
from windrow.core.keys import MAX_KEY_BYTES, text_bytes
from windrow.expressions import Computed, computed
from windrow.model import AnyPipeline

MARKS = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("watermark", pa.int64(), nullable=False),
    ]
)
"""Punctuation marks; `watermark` is in microseconds."""

_COORDINATES = 3
"""Columns of good records before the fields: partition, offset and time."""
SMALL_BATCH = 256
"""A batch with fewer records is decoded faster one by one than by a query."""


@dataclass(frozen=True)
class DecodedBatch:
    """The outcome of decoding a table of raw records, each kind in the order of the input.

    `good` has partition, offset, time (the event time in microseconds), the declared fields and the computed ones,
    in that order; take columns by position where a field may be named like one of the first three. `marks` is
    in `MARKS`, `dead` in `schema.DEAD`. Every raw record is in `good` or in `dead`, unless it is a pure mark; one with
    data and a mark is in both `good` and `marks`.
    """

    good: pa.Table
    marks: pa.Table
    dead: pa.Table


class Decoder:
    """Decodes a pipeline's records: the fast path accepts, the exact path explains."""

    def __init__(self, pipeline: AnyPipeline) -> None:
        exact = ExactDecoder.of(pipeline)
        # of the key, a record must have the decoded fields; the derived ones come later
        decoded = tuple(field.name for field in exact.fields)
        self._exact = replace(exact, key=tuple(name for name in exact.key if name in decoded))
        self._deriver = Deriver.of(pipeline, self._exact)
        self._source = pipeline.source.label
        self._good_schema = _good_schema(self._exact, computed(pipeline))
        names = self._good_schema.names[_COORDINATES:]
        types = self._good_schema.types[_COORDINATES:]
        self._key_texts = [names.index(name) for name in pipeline.key if pa.types.is_string(types[names.index(name)])]
        self._key_text_names = ", ".join(names[place] for place in self._key_texts)

    def decode(self, raw: pa.RecordBatch | pa.Table) -> DecodedBatch:
        """Decode records in `schema.RAW`, of any partitions, with offsets ascending within each."""
        if isinstance(raw, pa.RecordBatch):
            return self._batch(raw)
        batches = raw.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=schema.RAW)]
        parts = [self._batch(batch) for batch in batches]
        if len(parts) == 1:
            return parts[0]
        return DecodedBatch(
            good=pa.concat_tables([part.good for part in parts]),
            marks=pa.concat_tables([part.marks for part in parts]),
            dead=pa.concat_tables([part.dead for part in parts]),
        )

    @cached_property
    def _fast(self) -> FastDecoder | None:
        return FastDecoder(self._exact) if FastDecoder.reads(self._exact) else None

    def _batch(self, raw: pa.RecordBatch) -> DecodedBatch:
        if raw.num_rows < SMALL_BATCH or self._fast is None:
            good, pure, dead = decode_exactly(self._exact, raw, np.arange(raw.num_rows))
        else:
            accepted = self._fast.decode(raw)
            others = np.ones(raw.num_rows, dtype=bool)
            others[accepted.rows] = False
            good, pure, dead = decode_exactly(self._exact, raw, np.flatnonzero(others))
            good = GoodRows.merge(accepted, good)
        if self._deriver is not None:
            derived = self._deriver.derive(raw, good)
            good, pure, dead = derived.good, pure.join(derived.pure), dead.join(derived.dead)
        good, too_long = self._without_long_keys(raw, good)
        if too_long is not None:
            dead = dead.join(too_long)
        return self._decoded(raw, good, MarkRows.merge(good, pure), dead)

    def _without_long_keys(self, raw: pa.RecordBatch, good: GoodRows) -> tuple[GoodRows, DeadRows | None]:
        """Return the good records whose keys are within the limit, and dead letters of the others, if there are any."""
        if not self._key_texts or not len(good.rows):
            return good, None
        bytes_ = text_bytes([good.columns[place] for place in self._key_texts])
        long = bytes_ > MAX_KEY_BYTES
        if not long.any():
            return good, None
        reasons = [
            f"long key: {self._key_text_names}: {count} bytes of text; the limit is {MAX_KEY_BYTES}"
            for count in bytes_[long].tolist()
        ]
        return good.keep(~long), dead_rows(self._exact, raw, good.rows[long], reasons)

    def _decoded(self, raw: pa.RecordBatch, good: GoodRows, marks: MarkRows, dead: DeadRows) -> DecodedBatch:
        source = pa.repeat(pa.scalar(self._source, pa.string()), len(dead.rows))
        value = raw.column("value").take(pa.array(dead.rows))
        return DecodedBatch(
            good=pa.table([*_coordinates(raw, good.rows), good.times, *good.columns], schema=self._good_schema),
            marks=pa.table([*_coordinates(raw, marks.rows), marks.marks], schema=MARKS),
            dead=pa.table(
                [source, *_coordinates(raw, dead.rows), dead.log_times, dead.reasons, value], schema=schema.DEAD
            ),
        )


def _coordinates(raw: pa.RecordBatch, rows: Rows) -> list[pa.Array]:
    columns = [raw.column("partition"), raw.column("offset")]
    if len(rows) == raw.num_rows:
        return columns  # rows ascend, so these are all of them
    return [column.take(pa.array(rows)) for column in columns]


def _good_schema(exact: ExactDecoder, columns: tuple[Computed, ...]) -> pa.Schema:
    return pa.schema(
        [
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("time", pa.int64(), nullable=False),
            *(
                pa.field(
                    field.name,
                    schema.arrow_type(field.type),
                    nullable=is_optional(field, exact.mark, exact.time, exact.key),
                )
                for field in exact.fields
            ),
            *(pa.field(one.name, schema.arrow_type(one.expression.type)) for one in columns),
        ]
    )
