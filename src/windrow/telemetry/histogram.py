"""Histograms of durations with fixed bounds: merging is addition, and counts at a bound are exact.

All times are microseconds. The bounds are about evenly spaced on a log scale, and are values that people write as
delays and limits (10s, 1m, 5m, 1h), so counts at these are exact. (The finer bounds of an adaptive delay,
`windrow.engine.watermarks.adaptive`, are part of the state.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from windrow.engine.columns import Micros

_UNITS: Final = (
    (1_000, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    (1_000_000, (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    (60_000_000, (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    (3_600_000_000, (1, 2, 3, 6, 12)),
    (86_400_000_000, (1, 2, 3, 7, 14, 30)),
)
"""Milliseconds, seconds, minutes, hours and days."""

BOUNDS: Final = (0, *(unit * number for unit, numbers in _UNITS for number in numbers))
"""The upper bounds of the buckets in microseconds, inclusive; a last bucket has greater durations."""


@dataclass(frozen=True)
class Histogram:
    """The number of durations in each bucket, without empty buckets at the end; those below 0 are in the first."""

    counts: tuple[int, ...] = ()

    @staticmethod
    def of(durations: Micros) -> Histogram:
        """Count durations in microseconds."""
        import numpy as np  # noqa: PLC0415 - reading counts needs no numpy

        (counts,) = count_by_row(durations, np.zeros(len(durations), dtype=np.int64), 1)
        return Histogram.of_counts(counts)

    @staticmethod
    def of_one(micros: int) -> Histogram:
        """Count one duration."""
        return Histogram((*[0] * bisect_left(BOUNDS, micros), 1))

    @staticmethod
    def of_counts(counts: Iterable[int]) -> Histogram:
        """Return the histogram with these counts of the buckets, in order."""
        kept = tuple(counts)
        end = len(kept)
        while end and not kept[end - 1]:
            end -= 1
        return Histogram(kept[:end])

    @staticmethod
    def sum(histograms: Iterable[Histogram]) -> Histogram:
        """Add up histograms."""
        return reduce(Histogram.__add__, histograms, Histogram())

    def __add__(self, other: Histogram) -> Histogram:
        if not self.counts or not other.counts:
            return other if other.counts else self
        return Histogram(tuple(map(sum, zip_longest(self.counts, other.counts, fillvalue=0))))

    @property
    def total(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    def above(self, micros: int) -> int:
        """Return how many durations are above a bound of `BOUNDS`; others are rounded down to one of these."""
        return sum(self.counts[bisect_right(BOUNDS, micros) :])

    def quantile(self, share: float) -> float | None:
        """Return a quantile in microseconds, None if there are no durations.

        It is interpolated within its bucket, and at most the greatest bound.
        """
        if not self.total:
            return None
        wanted, below = share * self.total, 0
        for bucket, count in enumerate(self.counts):
            if count and below + count >= wanted:
                if bucket in {0, len(BOUNDS)}:
                    return float(BOUNDS[min(bucket, len(BOUNDS) - 1)])
                lower, upper = BOUNDS[bucket - 1 : bucket + 1]
                return lower + (upper - lower) * max(0.0, wanted - below) / count
            below += count
        return float(BOUNDS[-1])

    def shift(self, micros: int) -> Histogram:
        """Add `micros` to all durations, each taken to be its bucket's bound."""
        shifted = Counter[int]()
        for bound, count in zip((*BOUNDS, BOUNDS[-1] + 1), self.counts, strict=False):
            shifted[bisect_left(BOUNDS, bound + micros)] += count
        return Histogram.of_counts(shifted[bucket] for bucket in range(len(BOUNDS) + 1))


def count_by_row(durations: Micros, rows: Sequence[int] | Micros, number: int) -> list[list[int]]:
    """Count durations by row and bucket; `rows` has the row of each duration, below `number`."""
    import numpy as np  # noqa: PLC0415 - as above

    size = len(BOUNDS) + 1
    cells = np.asarray(rows) * size + np.searchsorted(np.array(BOUNDS, dtype=np.int64), durations)
    counts: list[list[int]] = np.bincount(cells, minlength=number * size).reshape(number, size).tolist()
    return counts
