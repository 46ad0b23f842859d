"""Evaluation of expressions over many records at once, and the reasons for failures.

The query that computes all columns fails as a whole. Only then are the columns computed one by one to find the records
that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine.columns import whole
from windrow.engine.decode.field_columns import Mask, Rows, all_but, holds_mask, to_mask
from windrow.engine.decode.values import MAX_TIMESTAMP, MIN_TIMESTAMP
from windrow.engine.duckdb_sql import EvaluationError, Projection, identifier
from windrow.engine.halving import compute_rows, evaluate_in_halves
from windrow.engine.schema import arrow_type
from windrow.expressions import Computed, Expression

Evaluated = tuple[list[pa.Array], dict[int, str]]
"""The computed columns, and the reason for each row that failed."""


class Evaluator:
    """Computes columns of expressions in order; a column may use the columns before it.

    With the name of a `step`, which is then in the reason, an unexpected failure is one of its row (`compute_rows`).
    """

    def __init__(self, columns: tuple[Computed, ...], step: str | None = None) -> None:
        self._columns = columns
        self._step = step
        computed = [column.name for column in columns]
        used = [name for column in columns for name in column.expression.columns if name not in computed]
        grows = any(column.expression.grows for column in columns)
        self._all = Projection(
            _nested_query([(column.name, column.expression.sql) for column in columns]), used, grows=grows
        )
        self._each = [_ColumnEvaluator(column.expression) for column in columns]

    def compute(self, fields: pa.Table) -> Evaluated:
        """Return the columns, and the reason for each row that failed; the values of failed rows are undefined."""
        return self._compute(fields) if self._step is None else self.with_failures(self._step, self._compute, fields)

    def with_failures(self, step: str, compute: Callable[[pa.Table], Evaluated], fields: pa.Table) -> Evaluated:
        """Return what a method of this evaluator computes; an unexpected failure in a step is one of its row."""
        parts = compute_rows(step, compute, fields, self._dead)
        if len(parts) == 1:
            return parts[0]
        failed: dict[int, str] = {}
        first = 0
        for columns, reasons in parts:
            failed |= {first + row: why for row, why in reasons.items()}
            first += len(columns[0])
        return [pa.concat_arrays(arrays) for arrays in zip(*(columns for columns, _ in parts), strict=True)], failed

    def _dead(self, _: pa.Table, reason: str) -> Evaluated:
        """Return nulls for a row that failed, and its reason."""
        return [pa.nulls(1, arrow_type(column.expression.type)) for column in self._columns], {0: reason}

    def _compute(self, fields: pa.Table) -> Evaluated:
        failed: dict[int, str] = {}
        columns = []
        for column, values, unfit, reasons in self._compute_fitted(fields):
            found = reasons | _unfit_reasons(column.expression.type, unfit)
            if column.most is not None:
                found = dict(_bad_spans(values, column.most)) | found
            _add_reasons(failed, column, found)
            columns.append(values)
        return columns, failed

    def compute_nulls(self, fields: pa.Table) -> Evaluated:
        """Return the columns, with null where an expression failed, and the reason for each row that failed.

        A double that is not finite, such as the result of a division by zero, also becomes null but does not count as a
        failure.
        """
        failed: dict[int, str] = {}
        columns = []
        for column, values, unfit, reasons in self._compute_fitted(fields):
            type_ = column.expression.type
            is_double = isinstance(type_, m.DoubleType)
            _add_reasons(failed, column, reasons if is_double else reasons | _unfit_reasons(type_, unfit))
            columns.append(pc.if_else(pa.array(unfit), pa.scalar(None, values.type), values) if unfit.any() else values)
        return columns, failed

    def _compute_fitted(self, fields: pa.Table) -> Iterator[tuple[Computed, pa.Array, Mask, dict[int, str]]]:
        """Yield each column, its values, the mask of values that no field can hold, and the reasons for failed rows."""
        try:
            found = self._all.table(fields)
        except EvaluationError:
            computed = self._compute_each(fields)
        else:
            computed = [(whole(found.column(column.name)), {}) for column in self._columns]
        for column, (values, reasons) in zip(self._columns, computed, strict=True):
            yield column, *_fit(values, column.expression.type), reasons

    def _compute_each(self, fields: pa.Table) -> list[tuple[pa.Array, dict[int, str]]]:
        """Compute each column by itself, with null where it failed; also return the reason for each row that failed."""
        columns = []
        for column, each in zip(self._columns, self._each, strict=True):
            columns.append(each.compute(fields))
            fields = fields.append_column(column.name, columns[-1][0])
        return columns


class _ColumnEvaluator:
    """Evaluates an expression that fails for some of its inputs."""

    def __init__(self, expression: Expression) -> None:
        self._expression = expression
        self._plain = Projection.of([expression.sql], expression.columns, grows=expression.grows)
        self._tried = Projection.of([f"TRY({expression.sql})"], expression.columns, grows=expression.grows)

    def compute(self, fields: pa.Table) -> tuple[pa.Array, dict[int, str]]:
        """Return the values, with null where the expression failed, and the reason for each row that failed.

        Rows with equal inputs fail for the same reason.
        """
        failed: dict[int, str] = {}
        try:
            values = whole(self._tried.table(fields).column(0))
        except EvaluationError:
            # TRY catches most errors, but not all
            inputs = _distinct_inputs(self._expression, fields, np.arange(fields.num_rows))
            parts, why = evaluate_in_halves(self._tried.table, inputs)
            values = self._spread(parts, inputs, why)
            failed = _by_row(inputs, why)
        nulls = np.flatnonzero(to_mask(values.is_null()))
        return values, failed | self._blame(fields, nulls[~np.isin(nulls, list(failed))])

    def _spread(self, parts: list[pa.Table], inputs: pa.Table, failed: Collection[int]) -> pa.Array:
        """Return the values of all rows from the values of the distinct inputs, with null for inputs that failed."""
        computed = [whole(part.column(0)) for part in parts] or [pa.nulls(0, arrow_type(self._expression.type))]
        is_computed = all_but(inputs.num_rows, failed)
        place_of_input = np.where(is_computed, np.cumsum(is_computed) - 1, -1)
        rows = whole(inputs.column(_ROWS))
        places = np.empty(len(rows.flatten()), dtype=np.int64)
        places[rows.flatten().to_numpy()] = np.repeat(place_of_input, rows.value_lengths().to_numpy())
        return pa.concat_arrays(computed).take(pa.array(places, mask=places < 0))

    def _blame(self, fields: pa.Table, rows: Rows) -> dict[int, str]:
        """Return the reason for each row that failed, among rows for which TRY returned null.

        If the expression cannot return null by itself, all of these rows failed.
        """
        failed: dict[int, str] = {}
        inputs = _distinct_inputs(self._expression, fields, rows)
        several = self._expression.nullable
        for some in [inputs] if several else [inputs.slice(place, 1) for place in range(inputs.num_rows)]:
            _, why = evaluate_in_halves(self._plain.table, some)
            failed |= _by_row(some, why)
        return failed


_ROWS, _CONSTANT = "__row_list", "__constant"


def _distinct_inputs(expression: Expression, fields: pa.Table, rows: Rows) -> pa.Table:
    """Return the distinct inputs of an expression among some rows, each with the list of its rows."""
    # group by a constant, too: the expression may have no columns
    among = pa.table({"__row": rows, _CONSTANT: np.zeros(len(rows), dtype=np.int8)})
    for name in expression.columns:
        among = among.append_column(name, fields.column(name).take(pa.array(rows)))
    return among.group_by([_CONSTANT, *expression.columns], use_threads=False).aggregate([("__row", "list")])


def _by_row(inputs: pa.Table, failed: Mapping[int, str]) -> dict[int, str]:
    """Return the reason for each row, given the reasons for the distinct inputs."""
    rows = inputs.column(_ROWS)
    return {row: why for place, why in failed.items() for row in rows[place].as_py()}


def _fit(values: pa.Array, type_: m.DataType) -> tuple[pa.Array, Mask]:
    """Cast values to the Arrow type of a field; also return the mask of values that no field can hold."""
    values = values.cast(arrow_type(type_))
    match type_:
        case m.DoubleType():
            values = pc.add(values, 0.0)  # one zero, not two
            bad = pc.invert(pc.is_finite(values))
        case m.TimestampType():
            micros = values.cast(pa.int64())
            bad = pc.or_(pc.less(micros, MIN_TIMESTAMP), pc.greater(micros, MAX_TIMESTAMP))
        case m.StringType():
            bad = pc.match_substring(values, "\0")
        case m.BooleanType() | m.LongType() | m.DecimalType() | m.ArrayType():
            return values, np.zeros(len(values), dtype=np.bool_)
        case _:
            assert_never(type_)
    return values, holds_mask(bad)


def _bad_spans(spans: pa.Array, most: int) -> Iterator[tuple[int, str]]:
    """Yield (row, reason) for each span (microseconds) that is null, not longer than 0, or longer than `most`."""
    micros = pc.fill_null(spans, 0).to_numpy()
    for row in np.flatnonzero((micros < 1) | (micros > most)).tolist():
        why = f"it is longer than {m.format_duration(most)}" if micros[row] > most else "it is not longer than 0"
        yield row, why if spans[row].is_valid else "it is null"


def _unfit_reasons(type_: m.DataType, rows: Mask) -> dict[int, str]:
    """Return, for each row that `_fit` masks, the reason why the field cannot hold its value."""
    reasons = {m.DoubleType: "is not a finite number", m.TimestampType: "is a time outside the years 1 to 9999"}
    why = reasons.get(type(type_), "holds U+0000")
    return dict.fromkeys(np.flatnonzero(rows).tolist(), f"the result {why}")


def _add_reasons(failed: dict[int, str], column: Computed, reasons: Mapping[int, str]) -> None:
    """Add the reasons of a column to the reasons of the rows; a row keeps its first reason."""
    for row, why in reasons.items():
        failed.setdefault(row, f"expression: {column.label}: {why}")


def _nested_query(columns: list[tuple[str, str]]) -> str:
    """Return a query that computes columns in order, each in a subquery that has the columns before it."""
    query = "rows"
    for name, sql in columns:
        query = f"(SELECT *, {sql} AS {identifier(name)} FROM {query})"
    return f"SELECT {', '.join(identifier(name) for name, _ in columns)} FROM {query}"
