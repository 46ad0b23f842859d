"""A delay that follows the lateness which a partition has seen.

The delay is set anew at every offset that is a multiple of `RENEWED`, from the latenesses of all good records with
smaller offsets. They are counted in buckets with whole bounds, eight to each doubling, so it depends on no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

from windrow.core.micros import BEFORE_ALL, Micros
from windrow.model import Adaptive

RENEWED = 256
_PER_DOUBLING = 8
_DOUBLINGS = 60
"""No lateness is longer than from year 1 to 9999."""


def _bounds() -> Micros:
    """Return 0 and the whole part of every power of the eighth root of 2, each once."""
    roots = {isqrt(isqrt(isqrt(2**eighths))) for eighths in range(_DOUBLINGS * _PER_DOUBLING)}
    return np.array(sorted({0, *roots}), dtype=np.int64)


BOUNDS = _bounds()
"""The upper bounds of the buckets, in microseconds; the bound itself is in its bucket."""


@dataclass
class Lateness:
    """What is known of a partition up to an offset in block `block` (an offset divided by `RENEWED`).

    `clock` is the greatest event time, `counts` are the records by bucket, `delay` is that of the block.
    """

    block: int
    delay: int
    clock: int = BEFORE_ALL
    counts: Micros = field(default_factory=lambda: np.zeros(len(BOUNDS), dtype=np.int64))

    @staticmethod
    def start(adaptive: Adaptive) -> Lateness:
        """Return what is known before the first record."""
        return Lateness(block=0, delay=adaptive.most)

    def take(
        self, adaptive: Adaptive, watermark: int, offsets: Micros, times: Micros, following: int
    ) -> tuple[Micros, int]:
        """Take the next good records of the partition; go on to the offset `following`, which is after them.

        `watermark` is the one up to here. Return the watermarks at the records, and at `following`.
        """
        clocks = np.maximum.accumulate(np.concatenate(([self.clock], times)))
        latenesses = np.maximum(clocks[:-1], times) - times
        blocks, places = np.unique(np.append(offsets, following) // RENEWED, return_inverse=True)
        seen = self._count(np.searchsorted(BOUNDS, latenesses), places[:-1], len(blocks))
        delays = _delays(adaptive, seen)
        if blocks[0] == self.block:
            delays[0] = self.delay
        # the clock at the last offset of each block: within a block the watermark only rises
        closing = clocks[np.searchsorted(offsets, blocks * RENEWED + RENEWED - 1)]
        start = max(watermark, int(_behind(np.array([self.clock]), np.array([self.delay]))[0]))
        before = np.maximum.accumulate(np.concatenate(([start], _behind(closing, delays)[:-1])))
        at = np.maximum(before[places], _behind(clocks, delays[places]))
        self.block, self.delay, self.clock = int(blocks[-1]), int(delays[-1]), int(clocks[-1])
        return at[:-1], int(at[-1])

    def _count(self, buckets: Micros, places: Micros, blocks: int) -> Micros:
        """Count records by bucket; return the counts before each block, a row each."""
        size = len(BOUNDS)
        counts = np.bincount(places * size + buckets, minlength=blocks * size).reshape(blocks, size)
        sums = self.counts + np.cumsum(counts, axis=0)
        seen = np.concatenate(([self.counts], sums[:-1]))
        self.counts = sums[-1]
        return seen

    def encode(self) -> dict[str, Any]:
        """Return plain JSON."""
        filled = np.flatnonzero(self.counts)
        counts = [filled.tolist(), self.counts[filled].tolist()]
        return {"block": self.block, "delay": self.delay, "clock": self.clock, "counts": counts}

    @staticmethod
    def decode(fields: Any) -> Lateness:  # noqa: ANN401 - plain JSON
        """Read what `encode` returned."""
        lateness = Lateness(fields["block"], fields["delay"], fields["clock"])
        filled, counts = fields["counts"]
        lateness.counts[filled] = counts
        return lateness


def _delays(adaptive: Adaptive, seen: Micros) -> Micros:
    """Return the delay for each row of counts by bucket."""
    sums = np.cumsum(seen, axis=1)
    target = Fraction(str(adaptive.target))
    # the whole number of records that is enough, without a rounding
    enough = np.array([-(-total * target.numerator // target.denominator) for total in sums[:, -1].tolist()])
    bounds = BOUNDS[np.argmax(sums >= enough[:, None], axis=1)]
    delays: Micros = np.where(sums[:, -1] == 0, adaptive.most, np.clip(bounds, adaptive.least, adaptive.most))
    return delays


def _behind(clocks: Micros, delays: Micros) -> Micros:
    """Return clocks less delays; minus infinity stays what it is."""
    behind: Micros = np.where(clocks == BEFORE_ALL, BEFORE_ALL, clocks - delays)
    return behind
