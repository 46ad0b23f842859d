"""A delay that follows the lateness which a partition has seen.

The delay is set anew at every offset that is a multiple of `RENEWED`, from the latenesses of all good records with
smaller offsets. They are counted in buckets with whole bounds, eight to each doubling, so it depends on no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np

from windrow.core.micros import BEFORE_ALL, Micros
from windrow.core.times import unpack_times
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


@dataclass(frozen=True)
class Lateness:
    """What is known of a partition up to an offset in block `block` (an offset divided by `RENEWED`).

    `clock` is the greatest event time, `counts` are the records by bucket, `delay` is that of the block.
    """

    block: int
    delay: int
    clock: int = BEFORE_ALL
    counts: tuple[int, ...] = (0,) * len(BOUNDS)

    @staticmethod
    def start(adaptive: Adaptive) -> Lateness:
        """Return what is known before the first record."""
        return Lateness(block=0, delay=adaptive.most)

    def encode(self) -> dict[str, Any]:
        """Return plain JSON."""
        counts = [[bucket, count] for bucket, count in enumerate(self.counts) if count]
        return {"block": self.block, "delay": self.delay, "clock": self.clock, "counts": counts}

    @staticmethod
    def decode(fields: Any) -> Lateness:  # noqa: ANN401 - plain JSON
        """Read what `encode` returned."""
        counts = dict(fields["counts"])
        dense = tuple(counts.get(bucket, 0) for bucket in range(len(BOUNDS)))
        return Lateness(fields["block"], fields["delay"], fields["clock"], dense)


@dataclass(frozen=True)
class Stretch:
    """A partition's records of a step: all good ones in `times` (`windrow.core.times`), and where it is before them.

    `following` is the offset after the last record that was read.
    """

    partition: int
    lateness: Lateness
    watermark: int
    times: tuple[bytes, ...]
    following: int


@dataclass(frozen=True)
class Reached:
    """Where a partition is after a stretch, and the watermarks at the offsets of the stretch's good records."""

    lateness: Lateness
    watermark: int
    offsets: Micros
    watermarks: Micros


@lru_cache(maxsize=1)
def follow(adaptive: Adaptive, stretches: tuple[Stretch, ...]) -> dict[int, Reached]:
    """Go through a step's stretches; return where each partition is then.

    All key groups are told the same, so those that one process serves share the work.
    """
    return {stretch.partition: _follow(adaptive, stretch) for stretch in stretches}


def _follow(adaptive: Adaptive, stretch: Stretch) -> Reached:
    known = stretch.lateness
    unpacked = [(_NONE, _NONE), *map(unpack_times, stretch.times)]
    offsets, times = (np.concatenate(columns) for columns in zip(*unpacked, strict=True))
    clocks = np.maximum.accumulate(np.concatenate(([known.clock], times)))
    latenesses = np.maximum(clocks[:-1], times) - times
    blocks, places = np.unique(np.append(offsets, stretch.following) // RENEWED, return_inverse=True)
    # a row for each block: how many records of each bucket it has
    size = len(BOUNDS)
    cells = places[:-1] * size + np.searchsorted(BOUNDS, latenesses)
    counts = np.bincount(cells, minlength=len(blocks) * size).reshape(-1, size)
    sums = np.cumsum(np.concatenate(([known.counts], counts)), axis=0)
    delays = _delays(adaptive, sums[:-1])
    if blocks[0] == known.block:
        delays[0] = known.delay
    # within a block the watermark only rises: what counts of the blocks before is the clock at their last offset
    closing = clocks[np.searchsorted(offsets, blocks * RENEWED + RENEWED - 1)]
    start = _behind(np.array([known.clock]), np.array([known.delay]))
    before = np.maximum.accumulate(np.concatenate((start, _behind(closing, delays)[:-1])))
    at = np.maximum(np.maximum(before[places], _behind(clocks, delays[places])), stretch.watermark)
    after = Lateness(int(blocks[-1]), int(delays[-1]), int(clocks[-1]), tuple(sums[-1].tolist()))
    return Reached(after, int(at[-1]), offsets, at[:-1])


_NONE: Micros = np.array([], dtype=np.int64)


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
