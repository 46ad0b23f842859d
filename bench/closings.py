"""When windows close in a live log, and how long after that their rows are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]


@dataclass
class Edges:
    """Finds the records that bring a partition's watermark to the end of a window; all times in milliseconds.

    Windows are tumbling, `size` long, from the epoch; the watermark is `delay` behind the greatest event time.
    """

    size: int
    delay: int
    _clocks: dict[int, int] = field(default_factory=dict)

    def passed(self, partition: int, times: Longs) -> Iterator[tuple[int, int]]:
        """Yield (row, window start) for each window whose end a record of the next ones of a partition reaches.

        The windows that end before the partition's first record are not told.
        """
        if not len(times):
            return
        known = partition in self._clocks
        clock = self._clocks[partition] if known else int(times[0])
        clocks = np.maximum.accumulate(np.maximum(times, clock))
        self._clocks[partition] = int(clocks[-1])
        ended = (np.concatenate([[clock], clocks]) - self.delay) // self.size
        for row in np.flatnonzero(np.diff(ended)):
            for number in range(int(ended[row]), int(ended[row + 1])):
                yield int(row), number * self.size


def closed(passed: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return when each window closed: when the last partition got there, of those that all partitions got to."""
    if not passed:
        return {}
    starts = set.intersection(*(set(one) for one in passed))
    return {start: max(one[start] for one in passed) for start in sorted(starts)}


def latencies(closings: Mapping[int, float], seen: Sequence[tuple[float, int]], since: float) -> dict[int, float]:
    """Return how long after each closing its window was seen, for those that closed at `since` or later.

    `seen` are moments, in order, and the newest window that was there. One that was not seen took for ever.
    """
    found: dict[int, float] = {}
    moments = iter(seen)
    at, newest = inf, -1
    for start, moment in sorted(closings.items()):
        while newest < start:
            at, newest = next(moments, (inf, start))
        if moment >= since:
            found[start] = at - moment
    return found


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value that `part` percent of them are at or below: the nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * part / 100) - 1)] if ordered else float("nan")
