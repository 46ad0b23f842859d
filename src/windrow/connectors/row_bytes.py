"""Estimate the size of a row in a database from the types of its columns, with `text_bytes` for an average text."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from windrow.connectors.tables import Table

_TEXTS: Final = {"op": 8.0, "pane": 7.0, "row": 30.0, "source": 8.0, "reason": 7.0}
"""Mean lengths of the texts in windrow's own columns."""
SQLITE_FILL: Final = 1.2
POSTGRES_INDEX_FILL: Final = 1.4
PARQUET_FILL: Final = 0.4


def sqlite(table: Table, text_bytes: float) -> float:
    """Return the bytes of a row in SQLite, including the overhead of its primary key."""
    # https://www.sqlite.org/fileformat.html: a header byte a column and the values, in pages that are not full
    values = sum(_sqlite(field, text_bytes) for field in table.schema)
    return (values + len(table.schema) + 6) * SQLITE_FILL


def postgres(table: Table, text_bytes: float) -> float:
    """Return the bytes of a row in PostgreSQL, including its entry in the primary key's index."""
    # 24 bytes of header and 4 of a pointer to it; the index has the key, 8 of header and 4 of a pointer again
    values = sum(_postgres(field, text_bytes) for field in table.schema)
    key = sum(_postgres(table.schema.field(name), text_bytes) for name in table.key if "epoch" not in table.key)
    return 28 + _aligned(values) + ((12 + _aligned(key)) * POSTGRES_INDEX_FILL if key else 0)


def columnar(table: Table, text_bytes: float) -> float:
    """Return the bytes of a row in a compressed columnar format."""
    return sum(_arrow(field.type, _text(field, text_bytes)) for field in table.schema) * PARQUET_FILL


def json(table: Table, text_bytes: float) -> float:
    """Return the bytes of a row as a JSON object."""
    return sum(_json(field, text_bytes) for field in table.schema) + 20


def arrow_bytes(fields: pa.Schema, text_bytes: float) -> float:
    """Return the bytes of a row in Arrow columns, including the offsets of texts but no validity bitmaps."""
    return sum(_arrow(field.type, text_bytes) for field in fields)


def _arrow(type_: pa.DataType, text_bytes: float) -> float:
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return 4 + text_bytes
    if pa.types.is_list(type_):
        return 4 + 2 * _arrow(type_.value_type, text_bytes)
    if pa.types.is_struct(type_):
        return sum(_arrow(type_.field(number).type, text_bytes) for number in range(type_.num_fields))
    if pa.types.is_boolean(type_):
        return 1 / 8
    return float(type_.bit_width) / 8


def _text(field: pa.Field, text_bytes: float) -> float:
    return _TEXTS.get(field.name, text_bytes)


def _sqlite(field: pa.Field, text_bytes: float) -> float:
    type_ = field.type
    if pa.types.is_timestamp(type_):
        return 19
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return _text(field, text_bytes)
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return 8
    return 0 if field.name in {"revision", "epoch"} or pa.types.is_boolean(type_) else 2


def _postgres(field: pa.Field, text_bytes: float) -> float:
    type_ = field.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return 1 + _text(field, text_bytes)
    if pa.types.is_decimal(type_):
        return 9
    return 1 if pa.types.is_boolean(type_) else float(type_.bit_width) / 8


def _json(field: pa.Field, text_bytes: float) -> float:
    value = (
        20 if pa.types.is_timestamp(field.type) else _text(field, text_bytes) if pa.types.is_string(field.type) else 6
    )
    return len(field.name) + 6 + value


def _aligned(size: float) -> float:
    return -(-size // 8) * 8
