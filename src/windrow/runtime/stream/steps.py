"""Steps of a stream: the offsets at which a step ends, as stored in a checkpoint, and when the next step begins.

This module is separate because the process in which Spark plans the steps of a query loads it, and should load little.

A step has a fixed cost (0.2 s of processor time), however much it reads. While few records arrive, a step therefore
begins at each new multiple of `every` and reads the records since the last one. When `WORTH` records are waiting, which
cost more than that, the next step begins immediately. Latency falls as the load rises, and the fixed cost is never the
greater part. Spark polls every `poll` microseconds; a poll asks the source for its end, and does not start a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from windrow.connectors.cuts import Offset
from windrow.connectors.source import Loss
from windrow.errors import ClockSetBackError

WORTH: Final = 8_000
"""Number of records that are worth a step of their own."""
_POLLS: Final = 4
_LEAST, _MOST = 100_000, 1_000_000
"""Minimum and maximum microseconds between two polls."""
_SET_BACK = 5.0
"""Seconds by which the clock may be set back before the query is restarted: a shorter wait is not worth it."""


@dataclass(frozen=True)
class StepOffsets:
    """The end of a step, as Spark records it: an offset of the source, and the number of ends of the input before it.

    `lost` is added later if the records that follow were lost. The next step reports them. `tick` is the last tick, in
    microseconds since the epoch, or None if there has been none.
    """

    at: Offset
    ends: int = 0
    lost: tuple[Loss, ...] = ()
    tick: int | None = None

    @staticmethod
    def of(kept: Any) -> StepOffsets:  # noqa: ANN401 - plain JSON
        """Read the offsets from plain JSON."""
        lost = tuple(Loss(**loss) for loss in kept["lost"])
        return StepOffsets(dict(kept["at"]), int(kept["ends"]), lost, kept.get("tick"))

    def to_json(self) -> dict[str, Any]:
        """Return the offsets as plain JSON."""
        tick = {} if self.tick is None else {"tick": self.tick}
        return {"at": dict(self.at), "ends": self.ends, "lost": [vars(loss) for loss in self.lost], **tick}


@dataclass(frozen=True)
class Trigger:
    """Begins a step every `every` microseconds if there is input, or earlier if there is a lot of it.

    `clock` returns nanoseconds since the epoch.
    """

    every: int
    clock: Callable[[], int] = field(default=time.time_ns, repr=False)

    @property
    def poll(self) -> int:
        """Microseconds between two polls."""
        return min(self.every, max(self.every // _POLLS, _LEAST), _MOST)

    def turn(self) -> int:
        """Return the number of the current interval; a second step in the same interval must be worth its cost."""
        return self.clock() // (1_000 * max(self.every, 1))

    def intervals(self, rate: float) -> list[float]:
        """Return the possible seconds between the starts of two steps at `rate` records a second, shortest first.

        The first applies to short steps; after a longer step, the next one begins at a later poll.
        """
        polls, most = WORTH * 1_000_000 / max(rate, 1.0) // max(self.poll, 1) + 1, self.every // max(self.poll, 1)
        shorter = range(int(min(polls, most)), most)
        return [number * self.poll / 1_000_000 for number in shorter] + [self.every / 1_000_000]


class ClockGuard:
    """Notices that the machine's clock was set back.

    Spark begins the next poll when the clock reaches a time. If the clock is set back by an hour before that, the
    query sleeps for an hour; a new query does not. `clock` and `steady` return seconds; only `clock` can be set.
    """

    def __init__(self, clock: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._steady = clock, steady
        self._lead = clock() - steady()

    def check(self) -> None:
        """Raise ClockSetBackError if the clock is more than `_SET_BACK` behind the latest time that it has shown."""
        lead = self._clock() - self._steady()
        self._lead = max(self._lead, lead)
        if self._lead - lead > _SET_BACK:
            msg = f"the clock of this machine was set back by {self._lead - lead:,.0f} s"
            raise ClockSetBackError(msg)
