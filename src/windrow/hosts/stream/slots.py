"""Numbers for the key groups that Spark's hash spreads evenly.

Spark puts a group where the hash of its key says, so of eight groups by their own numbers five may be in one task and
three in the other, and a step takes as long as the five.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

_SEED = 42
_TASKS = 5040
"""The groups are spread evenly over so many tasks, and over any number that divides it: all up to 10, 12, 14 to 16."""


@lru_cache(maxsize=8)
def slots(groups: int) -> tuple[int, ...]:
    """Return a number for each key group, another one for each; the same everywhere, as the state is kept under it."""
    found: dict[int, int] = {}
    seen = [0] * _TASKS
    first = 0
    while len(found) < groups:
        numbers = np.arange(first, first + (1 << 16), dtype=np.uint32)
        for number, place in zip(numbers.tolist(), _places(numbers).tolist(), strict=True):
            group = place + _TASKS * seen[place]
            if group < groups:
                found[group] = number
                seen[place] += 1
        first += len(numbers)
    return tuple(found[group] for group in range(groups))


def _places(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return the hash that Spark partitions by (Murmur3 of a 32-bit number) modulo `_TASKS`."""
    with np.errstate(over="ignore"):
        mixed = _rotated(numbers * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashed = _rotated(np.uint32(_SEED) ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        hashed ^= np.uint32(4)  # bytes
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            hashed = (hashed ^ (hashed >> np.uint32(shift))) * np.uint32(factor)
        hashed ^= hashed >> np.uint32(16)
    return hashed.view(np.int32).astype(np.int64) % _TASKS


def _rotated(numbers: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))
