"""Decoded rows on their way to `Decoded`; a row is a position in the raw table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GoodRows:
    """Records with data: event times, the declared fields in order, and marks (null: none); times in microseconds."""

    rows: Rows
    times: pa.Array
    columns: list[pa.Array]
    marks: pa.Array

    @staticmethod
    def merge(left: GoodRows, right: GoodRows) -> GoodRows:
        """Bring two disjoint sets of rows into the order of the input; each is in it already."""
        if not len(left.rows) or not len(right.rows):
            return left if len(left.rows) else right
        rows = np.concatenate([left.rows, right.rows])
        order = np.argsort(rows, kind="stable")
        pairs = zip(left._arrays(), right._arrays(), strict=True)
        times, marks, *columns = [pa.concat_arrays(pair).take(pa.array(order)) for pair in pairs]
        return GoodRows(rows[order], times, columns, marks)

    def keep(self, mask: npt.NDArray[np.bool_]) -> GoodRows:
        """Return the rows for which the mask is true."""
        times, marks, *columns = [array.filter(pa.array(mask)) for array in self._arrays()]
        return GoodRows(self.rows[mask], times, columns, marks)

    def _arrays(self) -> list[pa.Array]:
        return [self.times, self.marks, *self.columns]


@dataclass(frozen=True)
class MarkRows:
    """Punctuation marks, in microseconds."""

    rows: Rows
    marks: pa.Array

    @staticmethod
    def merge(good: GoodRows, pure: MarkRows) -> MarkRows:
        """Return the marks with data and the pure ones, in the order of the input."""
        if good.marks.null_count == len(good.rows):
            return pure
        marked = good.marks.is_valid()
        return pure.join(MarkRows(good.rows[marked.to_numpy(zero_copy_only=False)], good.marks.filter(marked)))

    def join(self, other: MarkRows) -> MarkRows:
        """Bring two disjoint sets of marks into the order of the input."""
        rows = np.concatenate([self.rows, other.rows])
        order = np.argsort(rows, kind="stable")
        return MarkRows(rows[order], pa.concat_arrays([self.marks, other.marks]).take(pa.array(order)))


@dataclass(frozen=True)
class DeadRows:
    """Dead letters: the log's timestamp, as far as it is known, and the reason."""

    rows: Rows
    log_times: pa.Array
    reasons: pa.Array

    def join(self, other: DeadRows) -> DeadRows:
        """Bring two disjoint sets of dead letters into the order of the input."""
        rows = np.concatenate([self.rows, other.rows])
        order = np.argsort(rows, kind="stable")
        places = pa.array(order)
        return DeadRows(
            rows[order],
            pa.concat_arrays([self.log_times, other.log_times]).take(places),
            pa.concat_arrays([self.reasons, other.reasons]).take(places),
        )
