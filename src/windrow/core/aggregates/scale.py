"""Decimals as their unscaled whole numbers and back, without touching their bytes."""

from __future__ import annotations

import pyarrow as pa


def unscale(table: pa.Table) -> pa.Table:
    """View every decimal column as its unscaled whole numbers."""
    fields = [field.with_type(_whole(field.type)) for field in table.schema]
    return _view(table, pa.schema(fields))


def unscaled(array: pa.Array) -> pa.Array:
    """View an array as its unscaled whole numbers, if it is one of decimals."""
    return reinterpret(array, _whole(array.type))


def rescale(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """View unscaled decimals with the scales of `schema` and cast what else differs; the columns are in its order."""
    fields = [
        target if pa.types.is_decimal(target.type) and target.type.precision == field.type.precision else field
        for field, target in zip(table.schema, schema, strict=True)
    ]
    return fitted(_view(table, pa.schema(fields)), schema)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table to a schema; an aggregate that came to a run on its way can be null where it else is not."""
    return pa.table(table.cast(nullable(schema)).columns, schema=schema)


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return a schema of which every column can be null."""
    return pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 - Arrow's signature


def reinterpret(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """View an array of decimals as one of another scale."""
    return (
        array if array.type == type_ else pa.Array.from_buffers(type_, len(array), array.buffers(), offset=array.offset)
    )


def _whole(type_: pa.DataType) -> pa.DataType:
    return pa.decimal128(type_.precision, 0) if pa.types.is_decimal(type_) else type_


def _view(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        pa.chunked_array([reinterpret(chunk, field.type) for chunk in column.chunks], type=field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)
