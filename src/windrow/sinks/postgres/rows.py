"""Rows of a PostgreSQL database as the Arrow columns that they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa

from windrow.core.schema import MICROS
from windrow.sinks.database import Bounds
from windrow.sinks.layout import Table
from windrow.sinks.postgres.session import Connection, qualified
from windrow.sinks.quote import quote

_ROWS = 50_000
"""How many are in memory at a time."""


class PostgresSnapshot:
    """The tables in a transaction that is open and repeats its reads; see `windrow.sinks.database.Snapshot`."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._numbers = count()

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns; none if there is no such table."""
        rows = self._connection.execute(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum",
            (qualified(self._schema, table),),
        )
        return [str(name) for (name,) in rows]

    def rows(self, table: Table, order: Sequence[str], bounds: Bounds) -> Iterator[pa.Table]:
        """Read columns of a result table, ordered; see `windrow.sinks.database.Snapshot`."""
        cursor = f"windrow_rows_{next(self._numbers)}"
        columns = ", ".join(_selected(field) for field in table.schema)
        by = ", ".join(_ordered(table.schema.field(name)) for name in order)
        # all rows are wanted, however soon the first come
        self._connection.execute("SET LOCAL cursor_tuple_fraction = 1")
        self._connection.execute(
            f"DECLARE {cursor} NO SCROLL CURSOR FOR "
            f"SELECT {columns} FROM {qualified(self._schema, table.name)} WHERE {_within(bounds)} ORDER BY {by}"
        )
        while rows := self._connection.execute(f"FETCH {_ROWS} FROM {cursor}").fetchall():
            arrays = [
                _column(values, field.type) for values, field in zip(zip(*rows, strict=True), table.schema, strict=True)
            ]
            yield pa.table(arrays, names=table.schema.names)


def _within(bounds: Bounds) -> str:
    limits = (("window_end >", bounds.after), ("window_start <", bounds.before))
    conditions = [
        f"{side} timestamptz 'epoch' + {micros} * interval '1 microsecond'"
        for side, micros in limits
        if micros is not None
    ]
    return " AND ".join(conditions) or "true"


def _selected(field: pa.Field) -> str:
    name = quote(field.name)
    if pa.types.is_timestamp(field.type):
        return f"(extract(epoch FROM {name}) * 1000000)::bigint"
    return f"{name}::text" if pa.types.is_decimal(field.type) else name


def _ordered(field: pa.Field) -> str:
    return quote(field.name) + (' COLLATE "C"' if pa.types.is_string(field.type) else "")


def _column(values: tuple[Any, ...], type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(MICROS)
    if not pa.types.is_decimal(type_):
        return pa.array(values, type_)
    text = pa.array(values, pa.string())
    try:
        return text.cast(pa.decimal128(38, type_.scale))
    except pa.ArrowInvalid:  # more digits than the type says, or none at all: NaN
        exact = [None if value is None else Decimal(value) for value in values]
        scale = max((-int(number.as_tuple().exponent) for number in exact if number is not None), default=0)
        return pa.array(exact, pa.decimal128(38, min(38, max(scale, type_.scale))))
