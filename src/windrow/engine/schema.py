"""Arrow schemas: raw records, records on their way to a key group, and the outputs of a step.

The names of internal columns begin with two underscores, which field names never do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

import pyarrow as pa

from windrow import model as m
from windrow.expressions import AnySpec, Rows, computed

MICROS = pa.timestamp("us", tz="UTC")

RAW = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("log_time", MICROS),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
"""Raw records from a source, in offset order within a partition; `log_time` is null if the log has no timestamps."""

HEADERS = pa.field("headers", pa.map_(pa.string(), pa.binary()))
"""A further column of raw records, which they have only if fields are read from their headers.

It has the headers in order, with repeated names, and is null if the name of a header is not UTF-8.
"""


def raw_table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return batches of raw records as one table, with null in `HEADERS` for those that do not have the column."""
    tables = (pa.Table.from_batches([batch]) for batch in batches)
    return pa.concat_tables([RAW.empty_table(), *tables], promote_options="default")


DEAD = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("log_time", MICROS),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("raw", pa.binary()),
    ]
)
"""Dead letters: records that cannot be decoded; `raw` is the value's bytes, null for a tombstone.

For a row that is not a single record of a log, such as a row of a window, `source` is the name of its stream, partition
and offset are null, and `raw` is the row as a JSON object.
"""

LATE = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("event_time", MICROS, nullable=False),
        pa.field("window_start", MICROS, nullable=False),
        pa.field("window_end", MICROS, nullable=False),
        pa.field("lateness_ms", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("record", pa.string(), nullable=False),
    ]
)
"""Late output: a row for each expired record and window that it missed; `lateness_ms` is how far the watermark was past
the window's end, `record` the decoded fields as a JSON object."""

CLOCKS = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("clock", MICROS),
        pa.field("low_watermark", MICROS),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""The clock journal: every move of a clock that the log's records alone do not explain."""

# without batches, as an array without values would load pandas
_OPERATIONS = pa.schema([pa.field("op", pa.string(), nullable=False)])
NO_DEAD, NO_LATE, NO_CLOCKS, NO_CHANGES = (
    pa.Table.from_batches([], columns) for columns in (DEAD, LATE, CLOCKS, _OPERATIONS)
)
"""Empty tables, created only once because creating a table takes a large part of a small step."""


def arrow_type(type_: m.DataType) -> pa.DataType:  # noqa: PLR0911 - a case for each type
    """Return the Arrow type that holds a decoded field."""
    match type_:
        case m.StringType():
            return pa.string()
        case m.BooleanType():
            return pa.bool_()
        case m.LongType():
            return pa.int64()
        case m.DoubleType():
            return pa.float64()
        case m.DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case m.TimestampType():
            return MICROS
        case m.ArrayType(element):
            return pa.list_(_element_type(element))
        case _:
            assert_never(type_)


def _element_type(type_: m.SimpleType | m.StructType) -> pa.DataType:
    if isinstance(type_, m.StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in type_.fields])
    return arrow_type(type_)


def key_fields(key: Iterable[m.Field]) -> list[pa.Field]:
    """Return the Arrow fields of a key, in order."""
    return [pa.field(field.name, arrow_type(field.type), nullable=False) for field in key]


def value_fields(rows: Rows) -> list[pa.Field]:
    """Return the Arrow fields of the values in a row of the results, in order.

    The values are aggregates, or the fields of a process function's rows, of alerts or of records.
    """
    return [pa.field(field.name, arrow_type(field.type), nullable=field.optional) for field in rows.values]


def row_key(rows: Rows) -> list[pa.Field]:
    """Return the Arrow fields that identify a row of the results.

    A window's row is identified by window and key, a table's row by its key, an alert by its id, and a record by its
    place in the log. Where several rows can have the same place, the field `row` identifies the row as a text. For a
    join, it has the places of both records (``orders/0/17+payments/1/4``); for a flat_map, the place of the record and
    the number of the element (``orders/0/17#2``); and for a union whose branches can have the same row, the branch and
    the place (``returned/orders/0/17``).
    """
    match rows.kind:
        case "alerts":
            return [pa.field("alert_id", pa.string(), nullable=False)]
        case "table":
            return key_fields(rows.key)
        case "records" if rows.has_id:
            return [pa.field("row", pa.string(), nullable=False)]
        case "records":
            return [CLOCKS.field(name) for name in ("source", "partition", "offset")]
        case "windows" | "global" | "process":
            window = [pa.field(name, MICROS, nullable=False) for name in m.WINDOW_BOUNDS]
            return [*window, *key_fields(rows.key)]
        case _:
            assert_never(rows.kind)


def changes(rows: Rows) -> pa.Schema:
    """Return the schema of a changelog: op, pane, revision, window, key..., values...; its rows are in order of effect.

    The operation `op` is insert, update_before, update_after or delete; `pane` is early, on_time or late; `revision`
    counts from 0 for each window and key. A stream of records has source, partition and offset instead of window and
    key.
    """
    return pa.schema(
        [
            pa.field("op", pa.string(), nullable=False),
            pa.field("pane", pa.string(), nullable=False),
            pa.field("revision", pa.int32(), nullable=False),
            *row_key(rows),
            *value_fields(rows),
        ]
    )


PARTITION: Final = "__partition"
OFFSET: Final = "__offset"
TIME: Final = "__time"
WATERMARK: Final = "__watermark"
WINDOW: Final = "__window"
END: Final = "__end"
PLACE: Final = (WATERMARK, PARTITION, OFFSET)
"""A record's place in the merged order of the records of all partitions, which is the same in every run."""
REVISION: Final = "__revision"
LAST_PARTITION: Final = 2**31 - 1
"""The partition of rows without a record, such as panes; it is after all real partitions."""
BEHIND_PARTITIONS: Final = 1 << 30
"""Set in the partition of rows that a record emits later, to sort them after all records with that watermark."""
DIFF: Final = "__diff"
"""In a changelog: 1 for a row that was added, -1 for a row that was retracted."""
DELETED: Final = "__deleted"
"""In versions of a table's rows and in Debezium's changes: whether the record removes the row with its key.

It is null in truncations (`windrow.engine.truncations`), which remove all rows.
"""
REPLACED: Final = "__replaced"
"""In Debezium's changes: whether the next record replaces this row under a different key."""
SIDE: Final = "__side"
"""In the input of a join: 0 for left records, 1 for right records."""
ID: Final = "__id"
"""The identity of a row as text, after a join, flat_map or union, where several rows can have the same place."""


def record_schema(spec: AnySpec | m.SourceNode) -> pa.Schema:
    """Return the schema of good records on their way to a key group.

    Time and watermark are int64 microseconds. The watermark of a source's records takes only the records of the same
    step into account. The decoded fields come first, followed by the computed ones. A source of row changes also has
    `DELETED`.
    """
    are_changes = isinstance(spec, m.SourceNode) and spec.source.format == "debezium"
    return pa.schema(
        [
            pa.field(PARTITION, pa.int32()),
            pa.field(OFFSET, pa.int64()),
            pa.field(TIME, pa.int64()),
            pa.field(WATERMARK, pa.int64()),
            *(pa.field(field.name, arrow_type(field.type)) for field in spec.decode.fields),
            *(pa.field(column.name, arrow_type(column.expression.type)) for column in computed(spec)),
            *([pa.field(DELETED, pa.bool_())] if are_changes else []),
        ]
    )
