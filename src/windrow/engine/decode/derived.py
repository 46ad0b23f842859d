"""Derived fields: columns that expressions compute from decoded fields, over many records at once.

A record for which an expression fails becomes a dead letter with DuckDB's reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import schema
from windrow.engine.decode.evaluation import Evaluator
from windrow.engine.decode.exact import LOG_TIME_TYPE, ExactDecoder, parse_object
from windrow.engine.decode.field_columns import DeadRows, GoodRows, MarkRows, Rows, all_but, holds_mask, to_mask
from windrow.engine.decode.values import convert
from windrow.expressions import AnySpec, Computed, computed


@dataclass(frozen=True)
class DerivedRows:
    """Good records with all their columns, and the pure marks and dead letters among the others."""

    good: GoodRows
    pure: MarkRows
    dead: DeadRows


class Deriver:
    """Computes the columns that a pipeline adds to its records."""

    def __init__(self, exact: ExactDecoder, columns: tuple[Computed, ...]) -> None:
        self._exact = exact
        self._columns = columns
        self._keys = [place for place, column in enumerate(columns) if column.key]
        self._evaluator = Evaluator(columns)

    @staticmethod
    def of(spec: AnySpec | m.SourceNode, exact: ExactDecoder) -> Deriver | None:
        """Return the deriver of a pipeline, None if the pipeline has no expressions."""
        columns = computed(spec)
        return Deriver(exact, columns) if columns else None

    def derive(self, raw: pa.RecordBatch, good: GoodRows) -> DerivedRows:
        """Add the columns to good records; a record with a mark whose derived key is null becomes a pure mark."""
        names = [field.name for field in self._exact.fields]
        columns, failed = self._evaluator.compute(pa.table(good.columns, names=names))
        marked = to_mask(good.marks.is_valid())
        pure = np.zeros(len(good.rows), dtype=np.bool_)
        for place in self._keys:
            for row in np.flatnonzero(to_mask(columns[place].is_null())).tolist():
                if row in failed:
                    continue
                if marked[row]:
                    pure[row] = True
                else:
                    failed[row] = f"null key: {self._columns[place].name}"
        whole = GoodRows(good.rows, good.times, [*good.columns, *columns], good.marks)
        is_made = all_but(len(good.rows), failed)
        reasons = [failed[row] for row in sorted(failed)]
        return DerivedRows(
            good=whole.keep(is_made & ~pure) if failed or pure.any() else whole,
            pure=MarkRows(good.rows[pure], good.marks.filter(pa.array(pure))),
            dead=dead_rows(self._exact, raw, good.rows[~is_made], reasons),
        )


def dead_rows(exact: ExactDecoder, raw: pa.RecordBatch, rows: Rows, reasons: Sequence[str]) -> DeadRows:
    """Return dead letters, with their log timestamps, of records that are good JSON or tombstones."""
    log_times = raw.column("log_time").take(pa.array(rows))
    if exact.log_time_inside and len(rows):
        values = raw.column("value").take(pa.array(rows))
        log_times = log_times_inside(values, log_times.cast(pa.int64())).cast(schema.MICROS)
    return DeadRows(rows, log_times, pa.array(reasons, pa.string()))


def log_times_inside(values: pa.Array, log_times: pa.Array) -> pa.Array:
    """Return the log timestamps of good records (microseconds): those in the JSON, or else the given ones."""
    found = log_times.to_pylist()
    for row in np.flatnonzero(holds_mask(pc.match_substring(values, m.LOG_TIME))):
        inside = parse_object(values[row].as_py()).get(m.LOG_TIME)
        if inside is not None:
            found[row] = convert(m.LOG_TIME, LOG_TIME_TYPE, inside)
    return pa.array(found, pa.int64())
