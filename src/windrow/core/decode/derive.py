"""Fields that expressions make of the decoded ones; records of which they cannot be made are no good."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.core import schema
from windrow.core.decode.evaluate import Evaluator
from windrow.core.decode.exact import LOG_TIME, LOG_TIME_TYPE, ExactDecoder, parse_object
from windrow.core.decode.rows import DeadRows, GoodRows, MarkRows, Rows
from windrow.core.decode.values import convert
from windrow.expressions import Computed, computed
from windrow.model import AnyPipeline


@dataclass(frozen=True)
class DerivedRows:
    """Good records with all their columns, and what became of the others."""

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
    def of(pipeline: AnyPipeline, exact: ExactDecoder) -> Deriver | None:
        """Return a pipeline's, None if it computes nothing."""
        columns = computed(pipeline)
        return Deriver(exact, columns) if columns else None

    def derive(self, raw: pa.RecordBatch, good: GoodRows) -> DerivedRows:
        """Add the columns to good records; a record with a mark that lacks a key only is a pure mark."""
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
            dead=DeadRows(good.rows[bad], self._log_times(raw, good.rows[bad]), pa.array(reasons, pa.string())),
        )

    def _log_times(self, raw: pa.RecordBatch, rows: Rows) -> pa.Array:
        """Return the log's timestamps of some records, which are all good JSON."""
        log_times = raw.column("log_time").take(pa.array(rows))
        if not self._exact.log_time_inside or not len(rows):
            return log_times
        told = []
        for value, log_time in zip(raw.column("value").take(pa.array(rows)), log_times.cast(pa.int64()), strict=True):
            inside = parse_object(value.as_py()).get(LOG_TIME)
            told.append(log_time.as_py() if inside is None else convert(LOG_TIME, LOG_TIME_TYPE, inside))
        return pa.array(told, pa.int64()).cast(schema.MICROS)
