"""Conversion of Arrow data: times to microseconds, tables to bytes, and decimals to whole numbers.

A time is an int64 of microseconds since the epoch, UTC; `MIN_TIME` and `MAX_TIME` stand for minus and plus infinity. A
packed table is an Arrow IPC stream, so that Spark moves one row instead of thousands of records. A decimal column is
viewed as its unscaled whole numbers (12.34 as 1234), without copying its buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Micros = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MIN_TIME: Final = -(2**63)
"""Minus infinity: the clock of a partition without a record."""

MAX_TIME: Final = 2**63 - 1
"""Plus infinity: the watermark at the end of the input."""

FIRST_TIME: Final = MIN_TIME + 2
"""The first time after minus infinity, which both `MIN_TIME` and `-MAX_TIME` represent."""


def to_micros(column: pa.ChunkedArray | pa.Array) -> Micros:
    """Return a column of int64 or timestamp[us] without nulls as a numpy array of int64."""
    array = whole(column)
    if not pa.types.is_int64(array.type):
        array = array.cast(pa.int64())
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as a single array, without a copy if it has only one chunk."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def distinct(numbers: Micros | npt.NDArray[np.int32]) -> list[int]:
    """Return the distinct numbers in ascending order; faster than numpy if equal numbers are mostly adjacent."""
    begins = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    return sorted({*numbers[:1].tolist(), *numbers[begins].tolist()})


def concat(nothing: pa.Table, tables: Iterable[pa.Table]) -> pa.Table:
    """Concatenate tables of the same schema; `nothing` is the table without rows."""
    some = [table for table in tables if table.num_rows]
    # in a small step, the time of each call of Arrow matters
    return (some or [nothing])[0] if len(some) <= 1 else pa.concat_tables(some)


def split_by_bytes(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Divide a batch of raw records into slices of at most `most` bytes; a larger record is a slice of its own."""
    if batch.nbytes <= most:
        yield batch
        return
    key, value = (pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy() for name in ("key", "value"))
    yield from slices(batch, np.add(key, value, dtype=np.int64), most)


def slices(batch: pa.RecordBatch, sizes: npt.NDArray[np.int64], most: int) -> Iterator[pa.RecordBatch]:
    """Divide a batch into slices of at most `most` bytes, given those of each row; a larger row stands alone."""
    ends = np.cumsum(sizes)
    at = 0
    while at < batch.num_rows:
        before = int(ends[at - 1]) if at else 0
        end = max(at + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield batch.slice(at, end - at)
        at = end


def are_before(places: Sequence[Micros], others: Sequence[Micros | int]) -> npt.NDArray[np.bool_]:
    """Return the mask of places that come before the corresponding `others`.

    A place is a row of several columns, the most significant first.
    """
    is_before: npt.NDArray[np.bool_] = np.zeros(len(places[0]), dtype=np.bool_)
    for column, other in zip(reversed(places), reversed(others), strict=True):
        is_before = (column < other) | ((column == other) & is_before)
    return is_before


def with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a schema, casting the columns whose types differ."""
    columns = map(table.column, schema.names)
    return pa.Table.from_arrays(
        [
            column if column.type == type_ else column.cast(type_)
            for column, type_ in zip(columns, schema.types, strict=True)
        ],
        schema=schema,
    )


Blob: TypeAlias = "bytes | pa.Buffer"
"""A packed table."""


def pack(table: pa.Table) -> bytes:
    """Write a table as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def unpack(blob: Blob) -> pa.Table:
    """Read a table that `pack` wrote."""
    with pa.ipc.open_stream(blob) as reader:
        return reader.read_all()


def unscale(table: pa.Table) -> pa.Table:
    """View every decimal column of a table as unscaled whole numbers."""
    fields = [field.with_type(_unscaled_type(field.type)) for field in table.schema]
    return _view(table, pa.schema(fields))


def unscale_array(array: pa.Array) -> pa.Array:
    """View an array of decimals as unscaled whole numbers; return any other array unchanged."""
    return reinterpret(array, _unscaled_type(array.type))


def rescale(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """View unscaled decimals with the scales of `schema`, and cast other columns; the column order must be the same."""
    fields = [
        target if pa.types.is_decimal(target.type) and target.type.precision == field.type.precision else field
        for field, target in zip(table.schema, schema, strict=True)
    ]
    return cast_table(_view(table, pa.schema(fields)), schema)


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table to a schema, allowing nulls in columns that are not nullable.

    An aggregate that was added to a running pipeline is null for older windows, even if it is otherwise never null.
    """
    return pa.table(table.cast(nullable(schema)).columns, schema=schema)


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with every column nullable."""
    return pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - Arrow's signature


def reinterpret(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """View an array of decimals as a decimal type with a different scale."""
    return (
        array if array.type == type_ else pa.Array.from_buffers(type_, len(array), array.buffers(), offset=array.offset)
    )


def _unscaled_type(type_: pa.DataType) -> pa.DataType:
    return pa.decimal128(type_.precision, 0) if pa.types.is_decimal(type_) else type_


def _view(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        pa.chunked_array([reinterpret(chunk, field.type) for chunk in column.chunks], type=field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)
