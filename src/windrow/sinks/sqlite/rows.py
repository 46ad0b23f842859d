"""Rows of an SQLite file as the Arrow columns that they were."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.core.schema import MICROS
from windrow.sinks.database import Bounds
from windrow.sinks.layout import Table
from windrow.sinks.quote import quote, quote_all
from windrow.sinks.sqlite.values import EXACT_DIGITS, Decimals
from windrow.sinks.text import utc_text

_ROWS = 50_000
"""How many are in memory at a time."""
_EXACT = 10**EXACT_DIGITS


class SqliteSnapshot:
    """The tables in a transaction that is open; see `windrow.sinks.database.Snapshot`."""

    def __init__(self, db: sqlite3.Connection, decimals: Decimals) -> None:
        self._db = db
        self._decimals = decimals
        db.create_collation("windrow_decimal", lambda one, other: int(Decimal(one).compare(Decimal(other))))

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns; none if there is no such table."""
        return [name for (name,) in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))]

    def rows(self, table: Table, order: Sequence[str], bounds: Bounds) -> Iterator[pa.Table]:
        """Read columns of a result table, ordered; see `windrow.sinks.database.Snapshot`."""
        by = ", ".join(self._ordered(table.schema.field(name)) for name in order)
        limits = [text(at) for at in (bounds.after, bounds.before)]
        cursor = self._db.execute(
            f"SELECT {quote_all(table.columns)} FROM {quote(table.name)} "
            f"WHERE (?1 IS NULL OR window_end > ?1) AND (?2 IS NULL OR window_start < ?2) ORDER BY {by}",
            limits,
        )
        while rows := cursor.fetchmany(_ROWS):
            columns = [
                _column(list(values), field.type)
                for values, field in zip(zip(*rows, strict=True), table.schema, strict=True)
            ]
            yield pa.table(columns, names=table.schema.names)

    def _ordered(self, field: pa.Field) -> str:
        is_text = self._decimals == "text" and pa.types.is_decimal(field.type)
        return quote(field.name) + (" COLLATE windrow_decimal" if is_text else "")


def times(values: Sequence[str | None]) -> pa.Array:
    """Read times as text, of any year."""
    # unlike Arrow, numpy reads what is before the year 1 and after the year 9999
    return pa.array(np.array(values, dtype="datetime64[us]")).cast(MICROS)


def text(micros: int | None) -> str | None:
    """Write a time as the file has it."""
    return None if micros is None else str(utc_text(pa.array([micros], pa.int64()).cast(MICROS))[0])


def _column(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):
        distinct = {value: number for number, value in enumerate(dict.fromkeys(values))}
        return times(list(distinct)).take(pa.array([distinct[value] for value in values]))
    if pa.types.is_boolean(type_):
        return pa.array(values, pa.int64()).cast(pa.bool_())
    if pa.types.is_decimal(type_):
        return _decimals(values, type_)
    return pa.array(values, type_)


def _decimals(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Read decimals that are text, whole numbers or doubles, of which each stands for the shortest decimal."""
    kinds = {type(value) for value in values}
    if kinds <= {float, int}:
        numbers = np.array(values, dtype=np.float64)
        scaled = np.rint(numbers * 10.0**type_.scale)
        # a quotient of two exact doubles is the double that is nearest to it, and so what was written
        if np.all(np.abs(scaled) < _EXACT) and np.array_equal(scaled / 10.0**type_.scale, numbers):
            whole = pa.array(scaled.astype(np.int64)).cast(pa.decimal128(38, 0))
            return pa.Array.from_buffers(pa.decimal128(38, type_.scale), len(whole), whole.buffers())
    exact = [None if value is None else Decimal(str(value)) for value in values]
    scale = max((-int(number.as_tuple().exponent) for number in exact if number is not None), default=0)
    return pa.array(exact, pa.decimal128(38, min(38, max(scale, type_.scale))))
