"""Steps of a stream: the offsets at which a step ends, as a checkpoint has them, and when the next step begins.

A room of its own, as the process in which Spark plans the steps of a query loads it, and should load little.

A step has a fixed cost (0.2 s of processor time), whatever it reads. So while few records come, a step begins with each
new multiple of `every` and reads the records since the last one; when `WORTH` records wait, which cost more than that,
the next step begins at once. Latency falls as the load rises, and the fixed cost is never the greater part. Spark polls
every `poll` microseconds; a poll asks the source for its end, and starts no step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from windrow.connectors.cuts import Offset
from windrow.connectors.source import Loss

WORTH: Final = 8_000
"""Records that are worth a step of their own."""
_POLLS: Final = 4
_LEAST, _MOST = 100_000, 1_000_000
"""Minimum and maximum microseconds between two polls."""


@dataclass(frozen=True)
class StepOffsets:
    """The end of a step, as Spark records it: an offset of the source, after a number of ends of the input.

    `lost` is added later if the records that follow were lost: the next step reports it.
    """

    at: Offset
    ends: int = 0
    lost: tuple[Loss, ...] = ()

    @staticmethod
    def of(kept: Any) -> StepOffsets:  # noqa: ANN401 - plain JSON
        """Read it from plain JSON."""
        return StepOffsets(dict(kept["at"]), int(kept["ends"]), tuple(Loss(**loss) for loss in kept["lost"]))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"at": dict(self.at), "ends": self.ends, "lost": [vars(loss) for loss in self.lost]}


@dataclass(frozen=True)
class Trigger:
    """Begins a step every `every` microseconds if there is input, and earlier if there is much.

    `clock` returns nanoseconds since the epoch.
    """

    every: int
    clock: Callable[[], int] = field(default=time.time_ns, repr=False)

    @property
    def poll(self) -> int:
        """Microseconds between two polls."""
        return min(self.every, max(self.every // _POLLS, _LEAST), _MOST)

    def turn(self) -> int:
        """Return the number of the last multiple of `every`; a second step in the same turn must be worth it."""
        return self.clock() // (1_000 * max(self.every, 1))

    def intervals(self, rate: float) -> list[float]:
        """Return the possible seconds between two starts at `rate` records a second, the shortest first.

        The first is that of short steps; longer steps begin at a later poll.
        """
        polls, most = WORTH * 1_000_000 / max(rate, 1.0) // max(self.poll, 1) + 1, self.every // max(self.poll, 1)
        shorter = range(int(min(polls, most)), most)
        return [number * self.poll / 1_000_000 for number in shorter] + [self.every / 1_000_000]
