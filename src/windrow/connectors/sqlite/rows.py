"""Rows of SQLite: Arrow columns as stored values, checked to come back unchanged, and stored rows as Arrow columns."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import chain
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.connectors.database import Condition, Value
from windrow.connectors.misfits import NotUtf8, exact_array, fitted, with_misfits
from windrow.connectors.tables import Table, decimal_text, quote, quote_all, significant_digits, unscaled, utc_text
from windrow.engine.schema import MICROS

Decimals = Literal["numeric", "text"]

EXACT_DIGITS = 15
"""Digits that SQLite keeps of a number that is not a 64-bit integer (https://sqlite.org/datatype3.html, section 3)."""
_ROWS = 50_000
_BYTES = 16 << 20
"""So much is gathered at the most before it becomes Python's values."""
LONG = np.iinfo(np.int64)
_DIGITS_OF_LONG = 19


def sql_types(table: Table, decimals: Decimals) -> dict[str, str]:
    """Return SQLite's type of each column; the types decide the affinity."""
    return {field.name: _sql_type(field.type, decimals) for field in table.schema}


def _sql_type(type_: pa.DataType, decimals: Decimals) -> str:
    if pa.types.is_decimal(type_):
        # without a type a column has no affinity, and keeps what it is given
        return "" if decimals == "numeric" and _is_wide(type_) else decimals.upper()
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return "INTEGER"
    if pa.types.is_floating(type_):
        return "REAL"
    return "BLOB" if pa.types.is_binary(type_) else "TEXT"


def _is_wide(type_: pa.DataType) -> bool:
    """Whether a type has whole numbers alone, and some of more than 64 bits."""
    return bool(pa.types.is_decimal(type_) and type_.scale == 0 and type_.precision >= _DIGITS_OF_LONG)


def values(rows: pa.Table, decimals: Decimals) -> Iterator[tuple[Any, ...]]:
    """Yield the rows, which fit (`unfit`), as what sqlite3 binds, of which only some are in memory at a time."""
    return chain.from_iterable(zip(*_columns(batch, decimals), strict=True) for batch in _batches(rows))


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Cut rows into batches of some size, and join what is in many small ones.

    A whole column may be more than the 2 GiB that one array of texts or bytes can hold.
    """
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in rows.to_batches(max_chunksize=_ROWS):
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count >= _ROWS or size >= _BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, count, size = [], 0, 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _columns(rows: pa.RecordBatch, decimals: Decimals) -> list[list[Any]]:
    return [_stored_column(column, decimals) for column in rows.columns]


def _stored_column(column: pa.Array, decimals: Decimals) -> list[Any]:
    type_ = column.type
    if pa.types.is_timestamp(type_):
        column = utc_text(column)
    elif pa.types.is_boolean(type_):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(type_):
        if decimals == "numeric":
            return _numeric(column)
        column = decimal_text(column)
    result: list[Any] = column.to_pylist() if column.null_count else column.to_numpy(zero_copy_only=False).tolist()
    return result


def _numeric(column: pa.Array) -> list[Any]:
    if column.null_count:
        known = _numeric(column.fill_null(pa.scalar(Decimal(0), column.type)))
        valid = column.is_valid().to_pylist()
        return [number if is_valid else None for number, is_valid in zip(known, valid, strict=True)]
    if _is_wide(column.type):
        integers = _integers(column)
        if not integers.null_count:
            return cast("list[Any]", integers.to_numpy().tolist())
        mixed = np.array(decimal_text(column).to_pylist(), dtype=object)
    else:
        # Arrow's cast of decimals to doubles is a bit off (0.1 gives 0.09999999999999999); through text it is exact.
        floats = column.cast(pa.string()).cast(pa.float64()).to_numpy()
        if _has_few_digits(column):
            return cast("list[Any]", floats.tolist())
        integers, mixed = _integers(column), floats.astype(object)
    mixed[integers.is_valid().to_numpy(zero_copy_only=False)] = integers.drop_null().to_numpy().astype(object)
    return cast("list[Any]", mixed.tolist())


def unfit(decimals: pa.Table) -> pa.Array | None:
    """Return why a NUMERIC column would change a decimal of a row, null of rows of which it changes none.

    None if that are all of them.
    """
    found: pa.Array | None = None
    for name, column in zip(decimals.column_names, decimals.columns, strict=True):
        if all(_has_few_digits(chunk) for chunk in column.chunks):
            continue
        whole = column.combine_chunks()
        exact = pc.or_(_integers(whole).is_valid(), pc.less_equal(significant_digits(whole), EXACT_DIGITS))
        if pc.all(exact).as_py() is not False:
            continue
        why = f"SQLite's NUMERIC keeps {EXACT_DIGITS} digits: let the sink have `decimals: text` in a new table"
        texts = pc.binary_join_element_wise(f"out of range: {name}: ", decimal_text(whole), f": {why}", "")
        reasons = pc.if_else(exact.fill_null(True), pa.scalar(None, pa.string()), texts)  # noqa: FBT003 - Arrow's
        found = reasons if found is None else pc.coalesce(found, reasons)
    return found


def _has_few_digits(column: pa.Array) -> bool:
    """Whether all decimals have so few digits that a double keeps them."""
    bounds = pc.min_max(unscaled(column)).as_py()
    return bounds["min"] is None or max(-bounds["min"], bounds["max"]) < 10**EXACT_DIGITS


def _integers(column: pa.Array) -> pa.Array:
    """Return the decimals that are 64-bit integers as int64, and null for the others."""
    scale = column.type.scale
    text = decimal_text(column)
    whole = pa.scalar(value=True)
    if scale:
        whole = pc.ends_with(text, "." + "0" * scale)
        text = pc.utf8_slice_codeunits(text, 0, -scale - 1)
    number = text.cast(pa.decimal128(38, 0))
    fits = pc.and_(pc.less_equal(number, LONG.max), pc.greater_equal(number, LONG.min))
    chosen = pc.if_else(pc.and_(fits, whole), number, pa.scalar(None, number.type))
    return chosen.cast(pa.int64())


"""Number of rows that are in memory at a time."""
_EXACT = 10**EXACT_DIGITS


def _compared_by_value(one: str, other: str) -> int:
    """Compare decimals that are text; a text that is none is greater than all of them."""
    a, b = (_decimal_order(text) for text in (one, other))
    return (a > b) - (a < b)


def _decimal_order(text: str) -> tuple[bool, Decimal, str]:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return True, Decimal(0), text
    return (False, number, "") if number.is_finite() else (True, Decimal(0), text)


def _read_text(stored: bytes) -> str | NotUtf8:
    """Read a text, which SQLite keeps as it was given, whether it is UTF-8 or not."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return NotUtf8(stored)


class SqliteSnapshot:
    """The tables in a transaction that is open; see `windrow.connectors.database.Snapshot`."""

    def __init__(self, db: sqlite3.Connection, decimals: Decimals) -> None:
        self._db = db
        self._decimals = decimals
        db.text_factory = _read_text
        db.create_collation("windrow_decimal", _compared_by_value)

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns; none if there is no such table."""
        return [name for (name,) in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))]

    def rows(
        self,
        table: Table,
        order: Sequence[str],
        where: Sequence[Condition] = (),
        *,
        descending: Collection[str] = (),
        limit: int | None = None,
        misfits: bool = False,
    ) -> Iterator[pa.Table]:
        """Read columns of a table, ordered; see `windrow.connectors.database.Snapshot`."""
        by = ", ".join(self._ordered(table.schema.field(name), name in descending) for name in order)
        within, values = self._within(table, where)
        cursor = self._db.execute(
            f"SELECT {quote_all(table.columns)} FROM {quote(table.name)} WHERE {within} ORDER BY {by} LIMIT ?",
            [*values, -1 if limit is None else limit],
        )
        while rows := cursor.fetchmany(_ROWS):
            columns = [
                fitted(values, partial(_column, type_=field.type))
                for values, field in zip(zip(*rows, strict=True), table.schema, strict=True)
            ]
            yield with_misfits(table, columns, keep=misfits)

    def count(self, table: Table, where: Sequence[Condition] = ()) -> int:
        """Return the number of rows that meet all conditions."""
        within, values = self._within(table, where)
        return int(self._db.execute(f"SELECT count(*) FROM {quote(table.name)} WHERE {within}", values).fetchone()[0])

    def _within(self, table: Table, where: Sequence[Condition]) -> tuple[str, list[Any]]:
        """Write conditions as SQL with parameters, and return these too."""
        fields = [table.schema.field(one.column) for one in where]
        sides = [f"{self._compared(field)} {one.operator} ?" for field, one in zip(fields, where, strict=True)]
        values = [_bound(one.value, field.type, self._decimals) for field, one in zip(fields, where, strict=True)]
        return " AND ".join(sides) or "true", values

    def _ordered(self, field: pa.Field, descending: bool) -> str:  # noqa: FBT001 - a column of a list
        # only where there can be nulls: with NULLS LAST, SQLite would sort what its index has in order
        return self._compared(field) + (" DESC" if descending else "") + (" NULLS LAST" if field.nullable else "")

    def _compared(self, field: pa.Field) -> str:
        if self._decimals == "numeric" and _is_wide(field.type):
            return f"CAST({quote(field.name)} AS TEXT) COLLATE windrow_decimal"
        is_text = self._decimals == "text" and pa.types.is_decimal(field.type)
        return quote(field.name) + (" COLLATE windrow_decimal" if is_text else "")


def _bound(value: Value, type_: pa.DataType, decimals: Decimals) -> str | float | None:
    """Return a value as the file has it; None, which equals nothing, for a number that NUMERIC cannot hold."""
    if pa.types.is_timestamp(type_):
        return text(int(value))
    if not isinstance(value, Decimal):
        return value
    if decimals == "text" or _is_wide(type_):
        return f"{value:f}"
    if value == int(value) and LONG.min <= value <= LONG.max:
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else None


def times(values: Sequence[str | None]) -> pa.Array:
    """Read times as text, of any year."""
    # unlike Arrow, numpy reads what is before the year 1 and after the year 9999
    return pa.array(np.array(values, dtype="datetime64[us]")).cast(MICROS)


def text(micros: int | None) -> str | None:
    """Write a time as the file has it."""
    return None if micros is None else str(utc_text(pa.array([micros], pa.int64()).cast(MICROS))[0])


def _column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Read the stored values of a column; raise an error as `windrow.connectors.misfits.fitted` has it."""
    if pa.types.is_timestamp(type_):
        numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
        return _times_as_written(list(numbers)).take(pa.array([numbers[value] for value in values]))
    if pa.types.is_boolean(type_):
        stored = exact_array(values, pa.int64())
        if not set(values) <= {0, 1, None}:
            msg = "a boolean is stored as 0 or 1"
            raise ValueError(msg)
        return stored.cast(pa.bool_())
    if pa.types.is_decimal(type_):
        return _decimals(values, type_)
    return exact_array(values, type_)


def _times_as_written(distinct: list[Any]) -> pa.Array:
    """Read times; raise ValueError or TypeError if they are not as windrow writes them, which is how they sort."""
    written = exact_array(distinct, pa.string())
    # numpy warns of a time zone, and reads "NaT"
    if pc.all(pc.match_substring_regex(written, r"^[+-]?[0-9]+-[0-9]{2}-[0-9]{2} [0-9:.]+$")).as_py() is not False:
        read = times(distinct)
        if utc_text(read).equals(written):
            return read
    msg = "not all are times as windrow writes them"
    raise ValueError(msg)


def _decimals(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Read decimals that are text, whole numbers or doubles, of which each stands for the shortest decimal.

    Raise ValueError for anything else.
    """
    kinds = {type(value) for value in values}
    if kinds <= {float, int}:
        numbers = np.array(values, dtype=np.float64)
        scaled = np.rint(numbers * 10.0**type_.scale)
        # a quotient of two exact doubles is the double that is nearest to it, and so what was written
        if np.all(np.abs(scaled) < _EXACT) and np.array_equal(scaled / 10.0**type_.scale, numbers):
            whole = pa.array(scaled.astype(np.int64)).cast(pa.decimal128(38, 0))
            return pa.Array.from_buffers(pa.decimal128(38, type_.scale), len(whole), whole.buffers())
    exact = [None if value is None else _decimal(value) for value in values]
    scale = max((-int(number.as_tuple().exponent) for number in exact if number is not None), default=0)
    return pa.array(exact, pa.decimal128(38, min(38, max(scale, type_.scale))))


_PLAIN = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def _decimal(value: object) -> Decimal:
    if not isinstance(value, (int, float)) and not (isinstance(value, str) and _PLAIN.fullmatch(value)):
        msg = f"{value!r} is not a decimal"
        raise ValueError(msg)
    return Decimal(str(value))
