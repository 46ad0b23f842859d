"""The trigger of a live stream: when its next step begins.

A step costs something by itself (0.2 s of processor time), whatever it reads. So while few records come, one begins
with each new multiple of `every`, and a step reads what came since; when `WORTH` records wait, which cost more than
that, the next one begins at once. Latency falls as the load rises, and what steps cost by themselves is never the
greater part. Spark looks as often as `poll` says; a look asks the source for its end, and starts no step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

WORTH: Final = 8_000
"""Records that are worth a step of their own."""
_LOOKS: Final = 4
_LEAST, _MOST = 100_000, 1_000_000
"""Microseconds between two looks, at the least and at the most."""


@dataclass(frozen=True)
class Trigger:
    """Begins a step every `every` microseconds if there is input, and earlier if there is much.

    `clock` returns nanoseconds since the epoch.
    """

    every: int
    clock: Callable[[], int] = field(default=time.time_ns, repr=False)

    @property
    def poll(self) -> int:
        """Microseconds between two looks."""
        return min(self.every, max(self.every // _LOOKS, _LEAST), _MOST)

    def turn(self) -> int:
        """Return which multiple of `every` has passed; a second step in the same turn must be worth it."""
        return self.clock() // (1_000 * max(self.every, 1))

    def intervals(self, rate: float) -> list[float]:
        """Return the seconds that may be between two starts at so many records a second, from the shortest.

        The first is that of short steps; longer ones begin at a later look.
        """
        looks, most = WORTH * 1_000_000 / max(rate, 1.0) // max(self.poll, 1) + 1, self.every // max(self.poll, 1)
        return [one * self.poll / 1_000_000 for one in range(int(min(looks, most)), most)] + [self.every / 1_000_000]
