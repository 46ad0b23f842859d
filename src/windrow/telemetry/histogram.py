"""Histograms of durations with fixed bucket bounds: merging is addition, and counts up to a bound are exact.

All times are in microseconds. The bounds are about evenly spaced on a logarithmic scale. They are the values that
people typically choose for delays and limits (10s, 1m, 5m, 1h), so counts up to such values are exact. (Adaptive delays
have finer bounds of their own, which are part of the state: `windrow.engine.watermarks.adaptive`.)
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
"""The inclusive upper bounds of the buckets in microseconds. One more bucket holds greater durations."""


@dataclass(frozen=True)
class Histogram:
    """The number of durations in each bucket, without trailing empty buckets.

    Negative durations are in the first bucket.
    """

    counts: tuple[int, ...] = ()

    @staticmethod
    def of(durations: Micros) -> Histogram:
        """Return the histogram of an array of durations in microseconds."""
        import numpy as np  # noqa: PLC0415 - reading counts needs no numpy

        (counts,) = count_by_row(durations, np.zeros(len(durations), dtype=np.int64), 1)
        return Histogram.of_counts(counts)

    @staticmethod
    def of_one(micros: int) -> Histogram:
        """Return the histogram of a single duration."""
        return Histogram((*[0] * bisect_left(BOUNDS, micros), 1))

    @staticmethod
    def of_counts(counts: Iterable[int]) -> Histogram:
        """Return the histogram with the given bucket counts, in order."""
        kept = tuple(counts)
        end = len(kept)
        while end and not kept[end - 1]:
            end -= 1
        return Histogram(kept[:end])

    @staticmethod
    def sum(histograms: Iterable[Histogram]) -> Histogram:
        """Return the sum of several histograms."""
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
        """Return the number of durations above a bound of `BOUNDS`; any other value is rounded down to a bound."""
        return sum(self.counts[bisect_right(BOUNDS, micros) :])

    def quantile(self, share: float) -> float | None:
        """Return a quantile in microseconds, or None if there are no durations.

        The value is interpolated within its bucket and never exceeds the greatest bound.
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
        """Add `micros` to all durations, taking each duration to be the upper bound of its bucket."""
        shifted = Counter[int]()
        for bound, count in zip((*BOUNDS, BOUNDS[-1] + 1), self.counts, strict=False):
            shifted[bisect_left(BOUNDS, bound + micros)] += count
        return Histogram.of_counts(shifted[bucket] for bucket in range(len(BOUNDS) + 1))


def count_by_row(durations: Micros, rows: Sequence[int] | Micros, number: int) -> list[list[int]]:
    """Count durations in each bucket, separately for each row.

    `rows` assigns each duration to a row from 0 to `number` - 1. The result has a list of bucket counts for each row.
    """
    import numpy as np  # noqa: PLC0415 - as above

    size = len(BOUNDS) + 1
    cells = np.asarray(rows) * size + np.searchsorted(np.array(BOUNDS, dtype=np.int64), durations)
    counts: list[list[int]] = np.bincount(cells, minlength=number * size).reshape(number, size).tolist()
    return counts
