"""Stored values as those of a wider type."""

from __future__ import annotations

import pyarrow as pa

from windrow.errors import CheckpointError


def widened(column: pa.ChunkedArray, type_: pa.DataType, shift: int = 0) -> pa.ChunkedArray:
    """Return values, decimals unscaled, as a wider type has them; those of decimals get `shift` zeros behind.

    It goes into lists and structs. Raise CheckpointError for a value that the type cannot hold.
    """
    if column.type == type_ and not shift:
        return column
    table = pa.table({"column": column})
    try:
        # as many digits behind the point more: the unscaled number grows by as many zeros
        grown = table.cast(pa.schema({"column": _with_scale(type_, shift)}))
    except pa.ArrowInvalid as exc:
        msg = f"a number in the savepoint has too many digits to go on with {shift} more behind the point: {exc}"
        raise CheckpointError(msg) from exc
    return _viewed(grown, pa.schema({"column": type_})).column("column")


def _with_scale(type_: pa.DataType, scale: int) -> pa.DataType:
    """Return a type whose decimals, also those in lists and structs, have a scale."""
    if pa.types.is_decimal(type_):
        return pa.decimal128(type_.precision, scale)
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_with_scale(type_.value_type, scale)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_with_scale(field.type, scale)) for field in type_])
    return type_


def _viewed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """View a table with a schema of the same buffers: a message of Arrow's does not say what its buffers are."""
    batches = (pa.ipc.read_record_batch(batch.serialize(), schema) for batch in table.to_batches())
    return pa.Table.from_batches(batches, schema=schema)
