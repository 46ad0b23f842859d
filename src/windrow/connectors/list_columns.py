"""Columns of lists: JSON text in the rows of a step, and arrays in the tables of a sink with ``lists: array``.

Both forms hold the same values: decimals with all digits, times to the microsecond, nulls, and empty lists.
"""

from __future__ import annotations

import pyarrow as pa

from windrow import model as m
from windrow.connectors.tables import Table, quote
from windrow.engine.changelog import json_value
from windrow.engine.duckdb_sql import Connection, query


def _array_sql(name: str, type_: pa.ListType) -> str:
    """Return DuckDB's SQL that converts a column of JSON text to arrays of a type."""
    element = type_.value_type
    known = {pa.bool_(): "BOOLEAN", pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}.get(element, "VARCHAR")
    values = f"from_json_strict({quote(name)}, '[\"{known}\"]')"
    if pa.types.is_decimal(element):
        return f"CAST({values} AS DECIMAL({element.precision},{element.scale})[])"
    return f"CAST({values} AS TIMESTAMPTZ[])" if pa.types.is_timestamp(element) else values


def stored_sql(table: Table) -> str:
    """Return DuckDB's SQL for the columns of a table, as the table stores them, over rows with JSON text."""
    types = {field.name: field.type for field in table.lists}
    return ", ".join(
        f"{_array_sql(name, types[name])} AS {quote(name)}" if name in types else quote(name) for name in table.columns
    )


def stored_rows(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows with the columns of a table, as the table stores them."""
    return with_arrays(rows.select(list(table.columns)), table.lists)


def with_arrays(rows: pa.Table, lists: pa.Schema) -> pa.Table:
    """Convert the columns in `lists` from JSON text to arrays of these types; columns that are arrays stay."""
    texts = {
        field.name: field.type
        for field in lists
        if field.name in rows.column_names and not is_array(rows.schema.field(field.name).type)
    }
    if not texts:
        return rows
    sql = ", ".join(f"{_array_sql(name, type_)} AS {quote(name)}" for name, type_ in texts.items())
    found = query(Connection(), f"SELECT {sql} FROM rows", rows=rows.select(list(texts)))
    for name, type_ in texts.items():
        at = rows.schema.get_field_index(name)
        field = rows.schema.field(at).with_type(type_)
        rows = rows.set_column(at, field, found.column(name).cast(type_))
    return rows


def is_array(type_: pa.DataType) -> bool:
    """Whether a column of this type has arrays."""
    return any(is_(type_) for is_ in (pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view))


def list_texts(arrays: pa.Array, *, times: bool = False) -> pa.Array:
    """Return each array of a column as JSON text, as it is in the rows of a step; null stays null.

    If `times` is true, the elements are texts of times.
    """
    element = arrays.type.value_type
    type_: m.SimpleType = m.StringType()
    if pa.types.is_decimal(element):
        type_ = m.DecimalType(element.precision, element.scale)
    elif times or pa.types.is_timestamp(element):
        type_ = m.TimestampType("micros")
    value = json_value("a::TIMESTAMPTZ[]" if times else "a", m.ArrayType(type_))
    text = f"CASE WHEN a IS NOT NULL THEN to_json({value})::VARCHAR END"
    found = query(Connection(), f"SELECT {text} AS t FROM rows", rows=pa.table({"a": arrays}))
    return found.column("t").combine_chunks()
