"""Expressions over many records at once, and for which records they fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duck
from windrow.core.decode.rows import Rows
from windrow.core.decode.values import MAX_TIME, MIN_TIME
from windrow.core.duck import identifier, literal
from windrow.core.schema import arrow_type
from windrow.errors import RunError
from windrow.expressions import Computed, Expression, said_by
from windrow.model import BooleanType, DataType, DecimalType, DoubleType, LongType, StringType, TimestampType

Mask = npt.NDArray[np.bool_]

_ROW, _ONE = "__row", "__one"
_FEW = 8
_SQL_TYPES = {pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}


class Evaluator:
    """Computes columns of tables of fields, one column after the other; a column sees those before it."""

    def __init__(self, columns: tuple[Computed, ...]) -> None:
        self._columns = columns
        self._duck = duck.connect()
        self._all = _nested([(one.name, one.expression.sql) for one in columns])

    def compute(self, fields: pa.Table) -> tuple[list[pa.Array], dict[int, str]]:
        """Return the columns, and why rows have none, by row; what stands in the columns of those rows is nothing."""
        failed: dict[int, str] = {}
        try:
            found = duck.query(self._duck, self._all, fields=fields)
            columns = [_whole(found.column(one.name)) for one in self._columns]
        except RunError:
            columns = self._one_by_one(fields, failed)
        for place, one in enumerate(self._columns):
            columns[place], bad = _fit(columns[place], one.expression.type)
            for row in np.flatnonzero(bad).tolist():
                failed.setdefault(row, f"expression: {one.label}: {_unfit(one.expression.type)}")
        return columns, failed

    def _one_by_one(self, fields: pa.Table, failed: dict[int, str]) -> list[pa.Array]:
        """Compute each column where it can be; say where it cannot."""
        columns = []
        for one in self._columns:
            sql = f"SELECT TRY({one.expression.sql}) AS value FROM fields"
            values = _whole(duck.query(self._duck, sql, fields=fields).column("value"))
            nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
            for row, why in self._blame(one.expression, fields, nulls):
                failed.setdefault(row, f"expression: {one.label}: {why}")
            columns.append(values)
            fields = fields.append_column(one.name, values)
        return columns

    def _blame(self, expression: Expression, fields: pa.Table, rows: Rows) -> Iterator[tuple[int, str]]:
        """Yield those of the rows for which an expression fails, with what DuckDB says; it is null for all of them.

        Equal inputs fail alike, so each is tried once. Where the expression may well be null, they are halved until few
        are left that one of fails.
        """
        # there is a column whatever the expression is of
        among = pa.table({_ROW: rows, _ONE: np.zeros(len(rows), dtype=np.int8)})
        for name in expression.columns:
            among = among.append_column(name, fields.column(name).take(pa.array(rows)))
        inputs = among.group_by([_ONE, *expression.columns], use_threads=False).aggregate([(_ROW, "list")])
        stack = [inputs]
        while stack:
            some = stack.pop()
            if not expression.nullable or some.num_rows <= _FEW:
                yield from self._alone(expression, some)
            elif self._fails(expression, some):
                half = some.num_rows // 2
                stack += [some.slice(0, half), some.slice(half)]

    def _fails(self, expression: Expression, inputs: pa.Table) -> bool:
        try:
            duck.query(self._duck, f"SELECT {expression.sql} AS value FROM fields", fields=inputs)
        except RunError:
            return True
        return False

    def _alone(self, expression: Expression, inputs: pa.Table) -> Iterator[tuple[int, str]]:
        """Try inputs one by one, by a query that is planned once."""
        columns = [inputs.column(name) for name in expression.columns]
        given = [
            _from_text(f"${number}", column.type) + f" AS {identifier(name)}"
            for number, (name, column) in enumerate(zip(expression.columns, columns, strict=True), start=1)
        ]
        of = f"FROM (SELECT {', '.join(given)})" if given else ""
        self._duck.execute(f"PREPARE alone AS SELECT {expression.sql} {of}")
        for rows, *values in zip(inputs.column(f"{_ROW}_list"), *map(_texts, columns), strict=True):
            try:
                self._duck.execute(f"EXECUTE alone({', '.join(values)})" if values else "EXECUTE alone").fetchall()
            except duckdb.Error as exc:
                why = said_by(exc)
                yield from ((row, why) for row in rows.as_py())
        self._duck.execute("DEALLOCATE alone")


def _texts(column: pa.ChunkedArray) -> list[str]:
    """Return values as SQL's texts, which `_from_text` reads."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return ["NULL" if value is None else literal(str(value)) for value in column.to_pylist()]


def _from_text(text: str, type_: pa.DataType) -> str:
    if pa.types.is_timestamp(type_):
        return f"make_timestamptz({text}::VARCHAR::BIGINT)"
    return f"{text}::VARCHAR::{_SQL_TYPES.get(type_) or f'DECIMAL({type_.precision},{type_.scale})'}"


def _fit(values: pa.Array, type_: DataType) -> tuple[pa.Array, Mask]:
    """Return values in the Arrow type of a field, and which of them no field can have."""
    values = values.cast(arrow_type(type_))
    match type_:
        case DoubleType():
            values = pc.add(values, 0.0)  # there is one zero, not two
            bad = pc.invert(pc.is_finite(values))
        case TimestampType():
            micros = values.cast(pa.int64())
            bad = pc.or_(pc.less(micros, MIN_TIME), pc.greater(micros, MAX_TIME))
        case StringType():
            bad = pc.match_substring(values, "\0")
        case BooleanType() | LongType() | DecimalType():
            return values, np.zeros(len(values), dtype=np.bool_)
        case _:
            assert_never(type_)
    return values, pc.fill_null(bad, fill_value=False).to_numpy(zero_copy_only=False)


def _unfit(type_: DataType) -> str:
    """Say why a field cannot have a value that `_fit` refused."""
    match type_:
        case DoubleType():
            return "the result is not a finite number"
        case TimestampType():
            return "the result is a time outside the years 1 to 9999"
        case _:
            return "the result holds U+0000"


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _nested(columns: list[tuple[str, str]]) -> str:
    """Return the query that computes columns of others and of themselves."""
    query = "fields"
    for name, sql in columns:
        query = f"(SELECT *, {sql} AS {identifier(name)} FROM {query})"
    return f"SELECT {', '.join(identifier(name) for name, _ in columns)} FROM {query}"
