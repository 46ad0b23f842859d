"""Stored values that do not have the type of their column.

They occur if another program wrote them or changed the column. SQLite accepts any value in any column, and every
database lets users change the type of a column. A value is read as the pipeline's type only if that is lossless.
Otherwise it is a misfit, which either raises an error or is kept as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from types import NoneType
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from windrow.connectors.list_columns import is_array, list_texts
from windrow.connectors.tables import Table
from windrow.errors import SinkError

MISFITS = pa.field("windrow misfits", pa.string())
"""A row's misfits as a JSON object that maps column names to values as written in SQL; null if there are none."""

_ERRORS: Final = (ValueError, TypeError, ArithmeticError, NotImplementedError)
"""Errors that Arrow, numpy and decimal raise for a value that does not have the required type."""
_KINDS: Final[tuple[tuple[tuple[Callable[[pa.DataType], bool], ...], str, set[type]], ...]] = (
    ((pa.types.is_boolean,), "true or false", {bool}),
    ((pa.types.is_integer,), "a whole number of its size", {int}),
    ((pa.types.is_floating,), "a number", {float, int}),
    ((pa.types.is_decimal,), "a decimal", {Decimal}),
    ((pa.types.is_timestamp,), "a time as windrow writes it", {datetime}),
    ((pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view), "text in UTF-8", {str}),
    ((pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view), "bytes", {bytes}),
)
"""Predicates for kinds of types, with a description and the Python types of their values."""


class NotUtf8(bytes):
    """The bytes of a text that is not UTF-8."""


class Fitted(NamedTuple):
    """The values of a column, null in rows with a misfit, and the misfits as text, keyed by row number."""

    values: pa.Array
    misfits: Mapping[int, str]


def kind_of(type_: pa.DataType) -> str:
    """Describe the kind of a type in words."""
    return next((words for kinds, words, _ in _KINDS if any(is_(type_) for is_ in kinds)), str(type_))


def fit_column(values: Sequence[Any], read: Callable[[Sequence[Any]], pa.Array]) -> Fitted:
    """Convert the values of a column with `read`, which raises an error if a value does not have the column's type."""
    try:
        return Fitted(read(values), {})
    except _ERRORS:
        misfits = {row: _literal(value) for row, value in enumerate(values) if not _fits(value, read)}
    return Fitted(read([None if row in misfits else value for row, value in enumerate(values)]), misfits)


def _fits(value: object, read: Callable[[Sequence[Any]], pa.Array]) -> bool:
    try:
        read([value])
    except _ERRORS:
        return False
    return True


def exact_array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Convert values to an array; raise an error for a value of a different type, even if Arrow could convert it.

    A float or decimal without a fraction counts as a whole number.
    """
    known = next((known for kinds, _, known in _KINDS if any(is_(type_) for is_ in kinds)), None)
    others = set[type]() if known is None else set(map(type, values)) - known - {NoneType}
    if others and pa.types.is_integer(type_) and others <= {float, Decimal}:
        whole = [None if value is None else int(value) for value in values]
        if whole == list(values):
            return pa.array(whole, type_)
    if others:
        msg = f"values of {others} in a column of {type_}"
        raise TypeError(msg)
    return pa.array(values, type_)


def exact_decimals(values: Sequence[Decimal | None], type_: pa.DataType) -> pa.Array:
    """Convert decimals to an array that keeps all their fractional digits, even if the type declares fewer."""
    scale = max((-int(number.as_tuple().exponent) for number in values if number is not None), default=0)
    return pa.array(values, pa.decimal128(38, min(38, max(scale, type_.scale))))


def exact_cast(column: pa.Array, type_: pa.DataType) -> Fitted:
    """Cast a column read from a database. Arrays become JSON text; a value that the cast would change is a misfit."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_array(column.type) and pa.types.is_string(type_):
        column = list_texts(column)
    try:
        return Fitted(_cast(column, type_), {})
    except _ERRORS:
        stored = column.type
    return fit_column(column.to_pylist(), lambda values: _cast(pa.array(values, stored), type_))


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    cast = column.cast(type_)
    # within a kind, a cast that loses something is an error
    if kind_of(column.type) != kind_of(type_) and pc.all(pc.equal(cast.cast(column.type), column)).as_py() is False:
        msg = f"{column.type} is not {type_}"
        raise ValueError(msg)
    return cast


def fit_rows(rows: Sequence[tuple[Any, ...]], schema: pa.Schema, read: Callable[..., pa.Array]) -> list[Fitted]:
    """Convert rows to columns with `read(values, type_=...)`, which raises errors as described in `fit_column`."""
    return [
        fit_column(values, partial(read, type_=type_))
        for values, type_ in zip(zip(*rows, strict=True), schema.types, strict=True)
    ]


def fit_batch(batch: pa.RecordBatch, schema: pa.Schema) -> list[Fitted]:
    """Cast the columns of a batch to the types of a schema, with `exact_cast`."""
    return [exact_cast(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]


def with_misfits(table: Table, columns: Sequence[Fitted], *, keep: bool) -> pa.Table:
    """Return columns as rows of a table, adding the column `MISFITS` if there are any misfits.

    Unless `keep` is set, raise SinkError for the first misfit.
    """
    rows = pa.table([column.values for column in columns], names=table.schema.names)
    texts: dict[int, dict[str, str]] = {}
    for field, column in zip(table.schema, columns, strict=True):
        for row, text in column.misfits.items():
            if not keep:
                msg = (
                    f"column {field.name!r} of table {table.name!r} holds {text}, which is not {kind_of(field.type)}: "
                    f"another program wrote it; correct it, or rewrite the table (windrow replay, windrow promote)"
                )
                raise SinkError(msg)
            texts.setdefault(row, {})[field.name] = text
    if not texts:
        return rows
    found = [json.dumps(texts[row], ensure_ascii=False) if row in texts else None for row in range(rows.num_rows)]
    return rows.append_column(MISFITS, pa.array(found, pa.string()))


def _literal(value: object) -> str:
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case NotUtf8():
            return f"CAST(x'{value.hex()}' AS TEXT)"
        case bytes():
            return f"x'{value.hex()}'"
        case _:
            return str(value)
