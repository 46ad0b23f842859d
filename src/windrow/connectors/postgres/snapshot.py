"""Read the tables of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from windrow.connectors.database import Condition, Snapshot
from windrow.connectors.list_columns import list_texts
from windrow.connectors.misfits import Fitted, exact_array, exact_decimals, fit_rows
from windrow.connectors.postgres.client import Connection, first_value, qualified
from windrow.connectors.tables import Table, quote
from windrow.engine.schema import MICROS

_ROWS = 50_000
"""Number of rows that are in memory at a time."""


class PostgresSnapshot(Snapshot):
    """The tables of a database, read in an open repeatable-read transaction."""

    _numbers = count()
    """Numbers of cursors, whose names must differ within a transaction, which several snapshots can read."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def columns(self, table: str) -> list[str]:
        rows = self._connection.execute(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum",
            (qualified(self._schema, table),),
        )
        return [name for (name,) in rows]

    def fetch(self, table: Table, sql: str, values: Sequence[object]) -> Iterator[list[Fitted]]:
        cursor = f"windrow_rows_{next(self._numbers)}"
        # all rows are wanted, however soon the first come
        self._connection.execute("SET LOCAL cursor_tuple_fraction = 1")
        self._connection.execute(f"DECLARE {cursor} NO SCROLL CURSOR FOR {sql}", values)
        fetching = self._connection.cursor()
        fetching.adapters.register_loader("timestamptz", _TimeLoader)
        while rows := fetching.execute(f"FETCH {_ROWS} FROM {cursor}").fetchall():
            yield fit_rows(rows, table.schema, _read_column)

    def fetch_number(self, table: Table, sql: str, values: Sequence[object]) -> int:  # noqa: ARG002 - the contract's
        return int(first_value(self._connection, sql, *values))

    def source(self, table: Table) -> str:
        return f"{qualified(self._schema, table.name)} AS r"

    def select(self, field: pa.Field) -> str:
        name = quote(field.name)
        if pa.types.is_timestamp(field.type):
            return f"(extract(epoch FROM {name}) * 1000000)::bigint"
        return f"{name}::text" if pa.types.is_decimal(field.type) else name

    def order(self, field: pa.Field, *, is_descending: bool) -> str:
        # without the table, the name of a decimal would be that of its text
        name = f"r.{quote(field.name)}" + (' COLLATE "C"' if pa.types.is_string(field.type) else "")
        return f"{name} DESC NULLS LAST" if is_descending else name

    def compare(self, field: pa.Field, condition: Condition, number: int) -> str:
        value = f"${number}"
        if pa.types.is_timestamp(field.type):
            # an interval is multiplied in double precision, which does not hold the microseconds of all years
            value = (
                f"timestamptz 'epoch' + (${number}::bigint / 1000000) * interval '1 second'"
                f" + (${number}::bigint % 1000000) * interval '1 microsecond'"
            )
        return f"{quote(field.name)} {condition.operator} {value}"


def _read_column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Convert the values of a column to an array; raise an error if one does not have the column's type."""
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(MICROS)
    if pa.types.is_string(type_) and any(isinstance(value, list) for value in values):
        return _list_texts(values)
    if not pa.types.is_decimal(type_):
        return exact_array(values, type_)
    text = pa.array(values, pa.string())
    try:
        return text.cast(pa.decimal128(38, type_.scale))
    except pa.ArrowInvalid:  # more digits than the type declares
        return exact_decimals([None if value is None else Decimal(value) for value in values], type_)


class _TimeText(str):
    """A time in an array as text, because Python has no times before the year 1 or after 9999."""

    __slots__ = ()


_BC = " BC"


class _TimeLoader(Loader):
    def load(self, data: Buffer) -> _TimeText:
        text = bytes(data).decode()
        if text.endswith(_BC):
            year, _, rest = text.removesuffix(_BC).partition("-")
            text = f"{1 - int(year):04}-{rest}"
        return _TimeText(text)


def _list_texts(values: Sequence[Any]) -> pa.Array:
    """Convert arrays to JSON text."""
    element = next((item for value in values for item in value or () if item is not None), None)
    if isinstance(element, _TimeText):
        return list_texts(pa.array(values, pa.list_(pa.string())), times=True)
    return list_texts(pa.array(values, None if element is not None else pa.list_(pa.string())))
