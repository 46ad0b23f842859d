"""What a step did, for those who watch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from windrow.core.columns import MIN_TIME
from windrow.core.operators.base import GroupStats


@dataclass(frozen=True)
class StepReport:
    """A committed step: how much of what, and where the partitions stand after it.

    `watermarks` are microseconds, None before a partition's first record; `low_watermark` is that of them all, None
    before there is one; `idle` are the partitions that do not hold it back. `offsets` are the next to be read;
    `seconds` have passed since the step before it was committed, `took` of them in this step. `lag` is how many offsets
    each partition is behind the log's end, as far as that was known when the step was committed.
    """

    epoch: int
    records: int
    late: int
    expired: int
    dead: int
    inserts: int
    revisions: int
    open_windows: int
    watermarks: dict[int, int | None]
    offsets: dict[int, int]
    low_watermark: int | None
    idle: list[int]
    seconds: float
    took: float = 0.0
    lag: dict[int, int] | None = None

    @property
    def behind(self) -> int | None:
        """How many offsets all partitions together are behind the log's end; None if that is not known."""
        return None if self.lag is None else sum(self.lag.values())

    @property
    def events(self) -> int:
        """All that was read: good records and dead letters."""
        return self.records + self.dead

    @property
    def held_back_by(self) -> list[int]:
        """The partitions that would have to go on for the low watermark to do so; none if all are idle."""
        return [
            partition
            for partition, watermark in self.watermarks.items()
            if partition not in self.idle and (watermark is None or watermark == self.low_watermark)
        ]

    @staticmethod
    def of(epoch: int, groups: Iterable[GroupStats], seconds: float, took: float | None = None) -> StepReport:
        """Add up the key groups of a step; there is at least one, and each knows all clocks."""
        stats = list(groups)
        return StepReport(
            epoch=epoch,
            records=sum(one.records for one in stats),
            late=sum(one.late for one in stats),
            expired=sum(one.expired for one in stats),
            dead=sum(one.dead for one in stats),
            inserts=sum(one.inserts for one in stats),
            revisions=sum(one.revisions for one in stats),
            open_windows=max(one.open_windows for one in stats),
            watermarks={partition: _known(watermark) for partition, watermark in sorted(stats[0].watermarks.items())},
            offsets=dict(sorted(stats[0].offsets.items())),
            low_watermark=_known(stats[0].low),
            idle=stats[0].idle,
            seconds=seconds,
            took=seconds if took is None else took,
        )


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_TIME else watermark


OnStep = Callable[[StepReport], None]


class Stopwatch:
    """Seconds since it was made or read."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def lap(self) -> float:
        """Return the seconds and start again."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds
