"""Convert Arrow columns to values that SQLite stores unchanged, and stored rows back to Arrow columns."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.connectors.database import Condition, Snapshot, Value
from windrow.connectors.misfits import Fitted, NotUtf8, exact_array, exact_decimals, fit_rows
from windrow.connectors.tables import Table, decimal_text, quote, significant_digits, unscaled, utc_text
from windrow.engine.schema import MICROS

Decimals = Literal["numeric", "text"]

EXACT_DIGITS = 15
"""Digits that SQLite keeps of a number other than a 64-bit integer (https://sqlite.org/datatype3.html, section 3)."""
_ROWS = 50_000
_BYTES = 16 << 20
"""Limits on the rows that are converted to Python values at a time."""
LONG = np.iinfo(np.int64)
_DIGITS_OF_LONG = 19


def sql_types(table: Table, decimals: Decimals) -> dict[str, str]:
    """Map each column to its SQLite type, which determines the column's affinity."""
    return {field.name: _sql_type(field.type, decimals) for field in table.schema}


def _sql_type(type_: pa.DataType, decimals: Decimals) -> str:
    if pa.types.is_decimal(type_):
        # without a type a column has no affinity and keeps values as they are
        return "" if decimals == "numeric" and _is_wide(type_) else decimals.upper()
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return "INTEGER"
    if pa.types.is_floating(type_):
        return "REAL"
    return "BLOB" if pa.types.is_binary(type_) else "TEXT"


def _is_wide(type_: pa.DataType) -> bool:
    """Whether a decimal type has only whole numbers, including some that exceed 64 bits."""
    return bool(pa.types.is_decimal(type_) and type_.scale == 0 and type_.precision >= _DIGITS_OF_LONG)


def values(rows: pa.Table, decimals: Decimals) -> Iterator[tuple[Any, ...]]:
    """Yield rows that fit (see `unfit`) as values for sqlite3, with only a batch in memory at a time."""
    for batch in _batches(rows):
        yield from zip(*(_stored_column(column, decimals) for column in batch.columns), strict=True)


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Split rows into batches of limited size, joining small ones.

    A whole column may exceed the 2 GiB that a single array of texts or bytes can hold.
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
    """Return the reason for each row in which a NUMERIC column would change a decimal; null for unchanged rows.

    Return None if no row would change.
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
    """Whether doubles keep all digits of these decimals."""
    bounds = pc.min_max(unscaled(column)).as_py()
    return bounds["min"] is None or max(-bounds["min"], bounds["max"]) < 10**EXACT_DIGITS


def _integers(column: pa.Array) -> pa.Array:
    """Convert the decimals that are 64-bit integers to int64; others become null."""
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


_EXACT = 10**EXACT_DIGITS


def _compare_by_value(left: str, right: str) -> int:
    """Compare two decimals in text form; a text that is not a decimal is greater than all decimals."""
    a, b = _decimal_order(left), _decimal_order(right)
    return (a > b) - (a < b)


def _decimal_order(text: str) -> tuple[bool, Decimal, str]:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return True, Decimal(0), text
    return (False, number, "") if number.is_finite() else (True, Decimal(0), text)


def _read_text(stored: bytes) -> str | NotUtf8:
    """Decode a stored text, which may not be UTF-8, because SQLite stores any bytes as given."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return NotUtf8(stored)


class SqliteSnapshot(Snapshot):
    """The tables of an SQLite file, read in an open transaction."""

    def __init__(self, db: sqlite3.Connection, decimals: Decimals) -> None:
        self._db = db
        self._decimals = decimals
        db.text_factory = _read_text
        db.create_collation("windrow_decimal", _compare_by_value)

    def columns(self, table: str) -> list[str]:
        return [name for (name,) in self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))]

    def fetch(self, table: Table, sql: str, values: Sequence[object]) -> Iterator[list[Fitted]]:
        cursor = self._db.execute(sql, values)
        while rows := cursor.fetchmany(_ROWS):
            yield fit_rows(rows, table.schema, _read_column)

    def fetch_number(self, table: Table, sql: str, values: Sequence[object]) -> int:  # noqa: ARG002 - the contract's
        return int(self._db.execute(sql, values).fetchone()[0])

    def order(self, field: pa.Field, *, is_descending: bool) -> str:
        # only where there can be nulls: with NULLS LAST, SQLite would sort rows that its index has in order
        return self._compared(field) + (" DESC" if is_descending else "") + (" NULLS LAST" if field.nullable else "")

    def compare(self, field: pa.Field, condition: Condition, number: int) -> str:  # noqa: ARG002 - the contract's
        return f"{self._compared(field)} {condition.operator} ?"

    def bind(self, field: pa.Field, value: Value) -> str | float | None:
        """Convert a value to its stored form; None for a number that a NUMERIC column cannot hold."""
        if pa.types.is_timestamp(field.type):
            return str(utc_text(pa.array([int(value)]).cast(MICROS))[0])
        if not isinstance(value, Decimal):
            return value
        if self._decimals == "text" or _is_wide(field.type):
            return f"{value:f}"
        if value == int(value) and LONG.min <= value <= LONG.max:
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else None

    def _compared(self, field: pa.Field) -> str:
        if self._decimals == "numeric" and _is_wide(field.type):
            return f"CAST({quote(field.name)} AS TEXT) COLLATE windrow_decimal"
        is_text = self._decimals == "text" and pa.types.is_decimal(field.type)
        return quote(field.name) + (" COLLATE windrow_decimal" if is_text else "")


def _read_column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Convert the stored values of a column to an array; raise an error if one does not have the column's type."""
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
    """Parse times; raise ValueError or TypeError unless they are in the sortable form that windrow writes."""
    written = exact_array(distinct, pa.string())
    # numpy warns of a time zone, and reads "NaT"
    if pc.all(pc.match_substring_regex(written, r"^[+-]?[0-9]+-[0-9]{2}-[0-9]{2} [0-9:.]+$")).as_py() is not False:
        # unlike Arrow, numpy reads times before the year 1 and after the year 9999
        read = pa.array(np.array(distinct, dtype="datetime64[us]")).cast(MICROS)
        if utc_text(read).equals(written):
            return read
    msg = "not all values are times as windrow writes them"
    raise ValueError(msg)


def _decimals(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Read decimals that are stored as text, integers or doubles. A double stands for its shortest decimal form.

    Raise ValueError for any other value.
    """
    kinds = {type(value) for value in values}
    if kinds <= {float, int}:
        numbers = np.array(values, dtype=np.float64)
        scaled = np.rint(numbers * 10.0**type_.scale)
        # the quotient of two exact doubles is the double nearest to it, and so the value that was written
        if np.all(np.abs(scaled) < _EXACT) and np.array_equal(scaled / 10.0**type_.scale, numbers):
            whole = pa.array(scaled.astype(np.int64)).cast(pa.decimal128(38, 0))
            return pa.Array.from_buffers(pa.decimal128(38, type_.scale), len(whole), whole.buffers())
    exact = [None if value is None else _decimal(value) for value in values]
    return exact_decimals(exact, type_)


_PLAIN = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def _decimal(value: object) -> Decimal:
    if not isinstance(value, (int, float)) and not (isinstance(value, str) and _PLAIN.fullmatch(value)):
        msg = f"{value!r} is not a decimal"
        raise ValueError(msg)
    return Decimal(str(value))
