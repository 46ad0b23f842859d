"""Raw records to good records, punctuation marks and dead letters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.core import schema
from windrow.core.decode.exact import ExactDecoder, is_optional
from windrow.core.decode.rows import Found, decode_exactly
from windrow.model import Pipeline

MARKS = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("watermark", pa.int64(), nullable=False),
    ]
)
"""Punctuation marks; `watermark` is in microseconds."""


@dataclass(frozen=True)
class Decoded:
    """What became of a table of raw records, each kind in the order of the input.

    `good` has partition, offset, time (the event time in microseconds) and the declared fields, in that order; take
    columns by position where a field may be named like one of the first three. `marks` is in `MARKS`, `dead` in
    `schema.DEAD`. Every raw record is in `good` or in `dead`, unless it is a pure mark; one with data and a mark is
    in both `good` and `marks`.
    """

    good: pa.Table
    marks: pa.Table
    dead: pa.Table


class Decoder:
    """Decodes a pipeline's records: the fast path accepts, the exact path explains."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._exact = ExactDecoder.of(pipeline)
        self._source = pipeline.source.label
        self._good_schema = _good_schema(self._exact)

    def decode(self, raw: pa.RecordBatch | pa.Table) -> Decoded:
        """Decode records in `schema.RAW`, of any partitions, with offsets ascending within each."""
        table = pa.Table.from_batches([raw]) if isinstance(raw, pa.RecordBatch) else raw
        found = decode_exactly(self._exact, table, np.arange(table.num_rows))
        return self._decoded(table, found)

    def _decoded(self, raw: pa.Table, found: Found) -> Decoded:
        good = raw.select(["partition", "offset"]).take(pa.array(found.good_rows))
        marks = raw.select(["partition", "offset"]).take(pa.array(found.mark_rows))
        dead = raw.select(["partition", "offset", "value"]).take(pa.array(found.dead_rows))
        source = pa.repeat(pa.scalar(self._source, pa.string()), dead.num_rows)
        return Decoded(
            good=pa.table([*good.columns, found.times, *found.columns], schema=self._good_schema),
            marks=pa.table([*marks.columns, found.marks], schema=MARKS),
            dead=pa.table(
                [source, dead.column(0), dead.column(1), found.log_times, found.reasons, dead.column(2)],
                schema=schema.DEAD,
            ),
        )


def _good_schema(exact: ExactDecoder) -> pa.Schema:
    return pa.schema(
        [
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("time", pa.int64(), nullable=False),
            *(
                pa.field(
                    field.name,
                    schema.arrow_type(field.type),
                    nullable=is_optional(field.name, exact.mark, exact.time, exact.key),
                )
                for field in exact.fields
            ),
        ]
    )
