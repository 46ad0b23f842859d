"""Adaptive delay: a watermark whose delay follows the lateness of a partition's records so far.

The delay is computed at every offset that is a multiple of `RENEWAL_OFFSETS`, from the lateness of all good records
with smaller offsets, except leaps of a guarded clock. It therefore depends only on offsets and event times, and not on
where steps end. Records are counted by their lateness in buckets with whole numbers as bounds, eight buckets for each
doubling, so the delay does not depend on rounding either.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np

from windrow import model as m
from windrow.engine.columns import MIN_TIME, Micros
from windrow.engine.messages import join_times, unpack_times
from windrow.engine.watermarks.guard import NO_CLOCK, GuardedClock, follow_clock

RENEWAL_OFFSETS = 256
_PER_DOUBLING = 8
_DOUBLINGS = 60
"""Enough for any lateness, because the years 1 to 9999 have fewer microseconds than 2 to this power."""

# 0 and the whole part of every power of the eighth root of 2
_ROOTS = {0, *(isqrt(isqrt(isqrt(2**eighths))) for eighths in range(_DOUBLINGS * _PER_DOUBLING))}
LATENESS_BOUNDS: Micros = np.array(sorted(_ROOTS), dtype=np.int64)
"""The inclusive upper bounds of the buckets, in microseconds."""


@dataclass(frozen=True)
class Lateness:
    """The lateness of a partition's records up to an offset in the block `block`.

    A block number is an offset divided by `RENEWAL_OFFSETS`. The `guarded` clock is the greatest event time, if it has
    no guard, `counts` has the number of records in each bucket of lateness, and `delay` is the delay in the block.
    """

    block: int
    delay: int
    guarded: GuardedClock = NO_CLOCK
    counts: tuple[int, ...] = (0,) * len(LATENESS_BOUNDS)

    @property
    def clock(self) -> int:
        """The partition's clock."""
        return self.guarded.clock

    @staticmethod
    def start(adaptive: m.Adaptive) -> Lateness:
        """Return the lateness statistics of a partition before its first record."""
        return Lateness(block=0, delay=adaptive.most)

    def encode(self) -> dict[str, Any]:
        """Encode the statistics as plain JSON values."""
        counts = [[bucket, count] for bucket, count in enumerate(self.counts) if count]
        waiting = {"waiting": self.guarded.waiting} if self.guarded.waiting else {}
        return {"block": self.block, "delay": self.delay, "clock": self.clock, "counts": counts, **waiting}

    @staticmethod
    def decode(fields: Any) -> Lateness:  # noqa: ANN401 - plain JSON
        """Decode the output of `encode`."""
        counts = dict(fields["counts"])
        dense = tuple(counts.get(bucket, 0) for bucket in range(len(LATENESS_BOUNDS)))
        guarded = GuardedClock(fields["clock"], tuple(fields.get("waiting", ())))
        return Lateness(fields["block"], fields["delay"], guarded, dense)


@dataclass(frozen=True)
class PartitionSlice:
    """A partition's good records in a step, as packed `times` (`pack_times`), and its clocks before the step.

    `following` is the offset after the last record that was read, and `jump` is that of the guard. Without a guard, all
    times are ordinary.
    """

    partition: int
    lateness: Lateness
    watermark: int
    times: tuple[bytes, ...]
    following: int
    jump: int = 0


@dataclass(frozen=True)
class AdaptiveProgress:
    """The state of a partition after a batch of records, and the watermarks and clocks at its good records.

    The records are identified by their `offsets`; `leaps` is the number of leaps among them.
    """

    lateness: Lateness
    watermark: int
    offsets: Micros
    watermarks: Micros
    clocks: Micros
    leaps: int = 0


@lru_cache(maxsize=1)
def advance_adaptive(adaptive: m.Adaptive, slices: tuple[PartitionSlice, ...]) -> dict[int, AdaptiveProgress]:
    """Advance partitions through their records in a step; map each partition to its progress.

    All key groups receive the same records, so the cache lets the key groups of a process share this work.
    """
    return {slice_.partition: _advance(adaptive, slice_) for slice_ in slices}


def _advance(adaptive: m.Adaptive, slice_: PartitionSlice) -> AdaptiveProgress:
    known = slice_.lateness
    offsets, times, ordinary = join_times(map(unpack_times, slice_.times))
    moved = follow_clock(slice_.jump, known.guarded, times, ordinary)
    clocks = np.append(moved.before, moved.after.clock)
    latenesses = np.maximum(moved.seen, times) - times
    blocks, places = np.unique(np.append(offsets, slice_.following) // RENEWAL_OFFSETS, return_inverse=True)
    # a row for each block: the number of its records in each bucket
    size = len(LATENESS_BOUNDS)
    cells = (places[:-1] * size + np.searchsorted(LATENESS_BOUNDS, latenesses))[~moved.is_leap]
    counts = np.bincount(cells, minlength=len(blocks) * size).reshape(-1, size)
    sums = np.cumsum(np.concatenate(([known.counts], counts)), axis=0)
    delays = _delays(adaptive, sums[:-1])
    if blocks[0] == known.block:
        delays[0] = known.delay
    # the watermark only rises within a block, so only the clock at the last offset of earlier blocks matters
    closing = clocks[np.searchsorted(offsets, blocks * RENEWAL_OFFSETS + RENEWAL_OFFSETS - 1)]
    start = watermarks_of(np.array([known.clock]), np.array([known.delay]))
    before = np.maximum.accumulate(np.concatenate((start, watermarks_of(closing, delays)[:-1])))
    seen = np.append(moved.seen, moved.after.clock)
    at = np.maximum(np.maximum(before[places], watermarks_of(seen, delays[places])), slice_.watermark)
    after = Lateness(int(blocks[-1]), int(delays[-1]), moved.after, tuple(sums[-1].tolist()))
    return AdaptiveProgress(after, int(at[-1]), offsets, at[:-1], moved.seen, moved.leaps)


def _delays(adaptive: m.Adaptive, seen: Micros) -> Micros:
    """Return the delay for each row of record counts, which has a column for each bucket."""
    sums = np.cumsum(seen, axis=1)
    target = Fraction(str(adaptive.target))
    # the number of records that must not be late, as an exact whole number
    enough = np.array([-(-total * target.numerator // target.denominator) for total in sums[:, -1].tolist()])
    bounds = LATENESS_BOUNDS[np.argmax(sums >= enough[:, None], axis=1)]
    delays: Micros = np.where(sums[:, -1] == 0, adaptive.most, np.clip(bounds, adaptive.least, adaptive.most))
    return delays


def watermarks_of(clocks: Micros, delays: Micros | int) -> Micros:
    """Return the watermarks of clocks with some delays; minus infinity stays minus infinity."""
    behind: Micros = np.where(clocks == MIN_TIME, MIN_TIME, clocks - delays)
    return behind
