"""Derived fields: columns that expressions compute from decoded fields, over many records at once.

A record for which an expression fails becomes a dead letter with DuckDB's reason. The query that computes all columns
fails as a whole, so only then are its columns computed one by one and the failing records searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duckdb_sql, schema
from windrow.core.decode.exact import (
    LOG_TIME_TYPE,
    DeadRows,
    ExactDecoder,
    GoodRows,
    MarkRows,
    Rows,
    parse_object,
)
from windrow.core.decode.field_columns import holds_mask
from windrow.core.decode.values import MAX_TIMESTAMP, MIN_TIMESTAMP, convert
from windrow.core.duckdb_sql import identifier, literal
from windrow.core.schema import arrow_type
from windrow.errors import RunError
from windrow.expressions import Computed, Expression, computed, duckdb_message
from windrow.model import (
    LOG_TIME,
    AnyPipeline,
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    SourceNode,
    StringType,
    TimestampType,
    format_duration,
)

_FEW = 8
_SQL_TYPES = {pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}


@dataclass(frozen=True)
class DerivedRows:
    """Good records with all their columns, and the pure marks and dead letters that others have become."""

    good: GoodRows
    pure: MarkRows
    dead: DeadRows


class Deriver:
    """Computes the columns that a pipeline adds to its records."""

    def __init__(self, exact: ExactDecoder, columns: tuple[Computed, ...]) -> None:
        self._exact = exact
        self._columns = columns
        self._keys = [place for place, one in enumerate(columns) if one.key]
        self._evaluator = Evaluator(columns)

    @staticmethod
    def of(pipeline: AnyPipeline | SourceNode, exact: ExactDecoder) -> Deriver | None:
        """Return the deriver of a pipeline, None if the pipeline has no expressions."""
        columns = computed(pipeline)
        return Deriver(exact, columns) if columns else None

    def derive(self, raw: pa.RecordBatch, good: GoodRows) -> DerivedRows:
        """Add the columns to good records; a record with a mark whose derived key is null becomes a pure mark."""
        names = [field.name for field in self._exact.fields]
        columns, failed = self._evaluator.compute(pa.table(good.columns, names=names))
        marked = good.marks.is_valid().to_numpy(zero_copy_only=False)
        pure = np.zeros(len(good.rows), dtype=np.bool_)
        for place in self._keys:
            for row in np.flatnonzero(columns[place].is_null().to_numpy(zero_copy_only=False)).tolist():
                if row in failed:
                    continue
                if marked[row]:
                    pure[row] = True
                else:
                    failed[row] = f"null key: {self._columns[place].name}"
        whole = GoodRows(good.rows, good.times, [*good.columns, *columns], good.marks)
        bad = np.zeros(len(good.rows), dtype=np.bool_)
        bad[list(failed)] = True
        reasons = [failed[row] for row in sorted(failed)]
        return DerivedRows(
            good=whole.keep(~bad & ~pure) if failed or pure.any() else whole,
            pure=MarkRows(good.rows[pure], good.marks.filter(pa.array(pure))),
            dead=dead_rows(self._exact, raw, good.rows[bad], reasons),
        )


def dead_rows(exact: ExactDecoder, raw: pa.RecordBatch, rows: Rows, reasons: Sequence[str]) -> DeadRows:
    """Return dead letters of records that are good JSON, or tombstones, with their log timestamps."""
    log_times = raw.column("log_time").take(pa.array(rows))
    if exact.log_time_inside and len(rows):
        found = []
        for value, log_time in zip(raw.column("value").take(pa.array(rows)), log_times.cast(pa.int64()), strict=True):
            inside = parse_object(value.as_py()).get(LOG_TIME) if value.is_valid else None
            found.append(log_time.as_py() if inside is None else convert(LOG_TIME, LOG_TIME_TYPE, inside))
        log_times = pa.array(found, pa.int64()).cast(schema.MICROS)
    return DeadRows(rows, log_times, pa.array(reasons, pa.string()))


Mask = npt.NDArray[np.bool_]

_ROW, _ONE = "__row", "__one"


class Evaluator:
    """Computes columns from tables of fields, in order; a column may use those before it."""

    def __init__(self, columns: tuple[Computed, ...]) -> None:
        self._columns = columns
        self._duck = duckdb_sql.Connection()
        self._all = _nested([(one.name, one.expression.sql) for one in columns])

    def compute(self, fields: pa.Table) -> tuple[list[pa.Array], dict[int, str]]:
        """Return the columns, and by row why it failed; the values of failed rows have no meaning."""
        failed: dict[int, str] = {}
        try:
            found = duckdb_sql.query(self._duck, self._all, fields=fields)
            columns = [_whole(found.column(one.name)) for one in self._columns]
        except RunError:
            columns = self._one_by_one(fields, failed)
        for place, one in enumerate(self._columns):
            columns[place], bad = _fit(columns[place], one.expression.type)
            for row in np.flatnonzero(bad).tolist():
                failed.setdefault(row, f"expression: {one.label}: {_unfit(one.expression.type)}")
            if one.most is not None:
                for row, why in _beyond(columns[place], one.most):
                    failed.setdefault(row, f"expression: {one.label}: {why}")
        return columns, failed

    def _one_by_one(self, fields: pa.Table, failed: dict[int, str]) -> list[pa.Array]:
        """Compute each column by itself, and record in `failed` for which rows it fails."""
        columns = []
        for one in self._columns:
            sql = f"SELECT TRY({one.expression.sql}) AS value FROM fields"
            values = _whole(duckdb_sql.query(self._duck, sql, fields=fields).column("value"))
            nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
            for row, why in self._blame(one.expression, fields, nulls):
                failed.setdefault(row, f"expression: {one.label}: {why}")
            columns.append(values)
            fields = fields.append_column(one.name, values)
        return columns

    def _blame(self, expression: Expression, fields: pa.Table, rows: Rows) -> Iterator[tuple[int, str]]:
        """Yield the rows for which an expression fails, with DuckDB's reason; it is null for all given rows.

        Equal inputs fail alike, so distinct ones are tried. If null may be the expression's right result, inputs are
        halved until few are left, of which at least one fails.
        """
        # group by a constant, too: the expression may have no columns
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
            duckdb_sql.query(self._duck, f"SELECT {expression.sql} AS value FROM fields", fields=inputs)
        except RunError:
            return True
        return False

    def _alone(self, expression: Expression, inputs: pa.Table) -> Iterator[tuple[int, str]]:
        """Try inputs one by one, with a query that is planned once."""
        columns = [inputs.column(name) for name in expression.columns]
        given = [
            _from_text(f"${number}", column.type) + f" AS {identifier(name)}"
            for number, (name, column) in enumerate(zip(expression.columns, columns, strict=True), start=1)
        ]
        of = f"FROM (SELECT {', '.join(given)})" if given else ""
        cursor = self._duck.cursor
        cursor.execute(f"PREPARE alone AS SELECT {expression.sql} {of}")
        for rows, *values in zip(inputs.column(f"{_ROW}_list"), *map(_texts, columns), strict=True):
            try:
                cursor.execute(f"EXECUTE alone({', '.join(values)})" if values else "EXECUTE alone").fetchall()
            except duckdb.Error as exc:
                why = duckdb_message(exc)
                yield from ((row, why) for row in rows.as_py())
        cursor.execute("DEALLOCATE alone")


def _texts(column: pa.ChunkedArray) -> list[str]:
    """Return values as SQL text literals, which `_from_text` reads."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return ["NULL" if value is None else literal(str(value)) for value in column.to_pylist()]


def _from_text(text: str, type_: pa.DataType) -> str:
    if pa.types.is_timestamp(type_):
        return f"make_timestamptz({text}::VARCHAR::BIGINT)"
    return f"{text}::VARCHAR::{_SQL_TYPES.get(type_) or f'DECIMAL({type_.precision},{type_.scale})'}"


def _fit(values: pa.Array, type_: DataType) -> tuple[pa.Array, Mask]:
    """Return values in the Arrow type of a field, and a mask of those that no field can have."""
    values = values.cast(arrow_type(type_))
    match type_:
        case DoubleType():
            values = pc.add(values, 0.0)  # there is one zero, not two
            bad = pc.invert(pc.is_finite(values))
        case TimestampType():
            micros = values.cast(pa.int64())
            bad = pc.or_(pc.less(micros, MIN_TIMESTAMP), pc.greater(micros, MAX_TIMESTAMP))
        case StringType():
            bad = pc.match_substring(values, "\0")
        case BooleanType() | LongType() | DecimalType() | ArrayType():
            return values, np.zeros(len(values), dtype=np.bool_)
        case _:
            assert_never(type_)
    return values, holds_mask(bad)


def _beyond(spans: pa.Array, most: int) -> Iterator[tuple[int, str]]:
    """Yield the rows whose span (microseconds) is null, not longer than 0, or longer than `most`, and which it is."""
    given = pc.fill_null(spans, 0).to_numpy()
    for row in np.flatnonzero((given < 1) | (given > most)).tolist():
        why = f"it is longer than {format_duration(most)}" if given[row] > most else "it is not longer than 0"
        yield row, why if spans[row].is_valid else "it is null"


def _unfit(type_: DataType) -> str:
    """Return why a field cannot have a value that `_fit` masks."""
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
    """Return the query that computes columns in order, each in a subquery that has those before it."""
    query = "fields"
    for name, sql in columns:
        query = f"(SELECT *, {sql} AS {identifier(name)} FROM {query})"
    return f"SELECT {', '.join(identifier(name) for name, _ in columns)} FROM {query}"
