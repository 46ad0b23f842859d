"""Reports of a run: what each committed step did, their sum, and how far the run is behind the log's end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from windrow.core.columns import MIN_TIME
from windrow.core.operators.base import GroupStats
from windrow.errors import WindrowError
from windrow.model import Graph
from windrow.sources import Cut, Source

T = TypeVar("T")

_EVERY = 1.0
"""Seconds between two questions."""
_LEAVE = 2.0
"""Seconds that a question which is being answered may hold up the end of a run."""
_SHARE = 0.02
"""So much of the time at most is spent on asking."""


PartitionName = int | str
"""A partition's number; with several sources ``SOURCE/NUMBER``."""


@dataclass(frozen=True)
class StepReport:
    """A committed step: how much of what, and where the partitions stand after it.

    `watermarks` are microseconds, None before a partition's first record; `low_watermark` is that of them all, None
    before there is one; `idle` are the partitions that do not hold it back. `dead` are records that could not be read,
    `rejected` counts those that single streams of a graph could not take, `duplicates` those that deduplications left
    out. `offsets` are the next to be read; `seconds`
    have passed since the step before it was committed, `took` of them in this step. `lag` is how many offsets each
    partition is behind the log's end, as far as that was known when the step was committed.
    """

    epoch: int
    records: int
    late: int
    expired: int
    dead: int
    inserts: int
    revisions: int
    open_windows: int
    watermarks: dict[PartitionName, int | None]
    offsets: dict[PartitionName, int]
    low_watermark: int | None
    idle: list[PartitionName]
    seconds: float
    took: float = 0.0
    rejected: int = 0
    duplicates: int = 0
    lag: dict[PartitionName, int] | None = None

    @property
    def behind(self) -> int | None:
        """The lag of all partitions together in offsets; None if it is not known."""
        return None if self.lag is None else sum(self.lag.values())

    @property
    def events(self) -> int:
        """All that was read: good records and dead letters."""
        return self.records + self.dead

    @property
    def held_back_by(self) -> list[PartitionName]:
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
            idle=list(stats[0].idle),
            seconds=seconds,
            took=seconds if took is None else took,
            rejected=sum(one.rejected for one in stats),
            duplicates=sum(one.duplicates for one in stats),
        )


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_TIME else watermark


OnStep = Callable[[StepReport], None]


def naming_partitions(graph: Graph, on_step: OnStep) -> OnStep:
    """Return what is called with each step, and calls `on_step` with the names of partitions."""

    def named(values: Mapping[PartitionName, T]) -> dict[PartitionName, T]:
        return {graph.partition_name(int(partition)): value for partition, value in values.items()}

    def name(report: StepReport) -> None:
        on_step(
            replace(
                report,
                watermarks=named(report.watermarks),
                offsets=named(report.offsets),
                idle=list(named(dict.fromkeys(report.idle))),
                lag=None if report.lag is None else named(report.lag),
            )
        )

    return name if len(graph.sources) > 1 else on_step


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: ``1 step``, ``2,000 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Stopwatch:
    """Seconds since it was made or read."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def lap(self) -> float:
        """Return the seconds and start again."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds


@dataclass
class Totals:
    """Adds up a run as its steps are committed."""

    steps: int = 0
    events: int = 0
    late: int = 0
    expired: int = 0
    dead: int = 0
    inserts: int = 0
    revisions: int = 0
    rejected: int = 0
    duplicates: int = 0
    seconds: float = 0.0
    last: StepReport | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The counts of events by outcome, for a summary."""
        return (
            f"{counted(self.inserts, 'insert')}, {counted(self.revisions, 'revision')}, {self.late:,} late, "
            f"{self.expired:,} expired, {counted(self.dead + self.rejected, 'dead letter')}"
            + (f", {counted(self.duplicates, 'duplicate')}" if self.duplicates else "")
        )

    def add(self, report: StepReport) -> None:
        """Count a step."""
        self.steps += 1
        self.events += report.events
        self.late += report.late
        self.expired += report.expired
        self.dead += report.dead
        self.inserts += report.inserts
        self.revisions += report.revisions
        self.rejected += report.rejected
        self.duplicates += report.duplicates
        self.seconds += report.seconds
        self.last = report

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds if self.seconds else 0.0

    def plain(self) -> dict[str, Any]:
        """Return the totals as plain JSON, and where the run stands."""
        fields = asdict(self)
        last = fields.pop("last")
        fields["events_per_second"] = round(self.rate)
        fields["seconds"] = round(self.seconds, 3)
        if last is not None and self.last is not None:
            fields |= {
                "epoch": last["epoch"],
                "offsets": last["offsets"],
                "watermarks": last["watermarks"],
                "low_watermark": last["low_watermark"],
                "held_back_by": self.last.held_back_by,
                "idle": last["idle"],
                "lag": last["lag"],
                "behind": self.last.behind,
            }
        return fields


class LagWatch:
    """Asks a source for its ends in a thread of its own, so that no step waits for the answer.

    `reached` is asked once a step, by its epoch, for the next offset of each partition after it.
    """

    def __init__(self, source: Source, reached: Callable[[int], Cut]) -> None:
        self._source = source
        self._reached = reached
        self._ends: Mapping[int, tuple[int, int]] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="windrow-lag", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join(_LEAVE)

    def telling(self, on_step: OnStep) -> OnStep:
        """Return what is called with each step, and calls `on_step` with the step and its lag."""
        return lambda report: on_step(replace(report, lag=self._lag(report.epoch)))

    def _lag(self, epoch: int) -> dict[PartitionName, int] | None:
        ends = self._ends
        return None if ends is None else lag(ends, self._reached(epoch))

    def _ask(self) -> None:
        wait = 0.0
        while not self._closed.wait(wait):
            began = time.monotonic()
            try:
                self._ends = self._source.ends()
            except WindrowError:
                self._ends = None  # a log that cannot be read ends the run, which says why
            wait = max(_EVERY, (time.monotonic() - began) / _SHARE)


def lag(ends: Mapping[int, tuple[int, int]], reached: Cut) -> dict[PartitionName, int]:
    """Return how many offsets are between what was reached and the end of each partition.

    Where nothing was reached, a partition is behind by all that it holds; an end that is older than what was reached
    is no lag.
    """
    return {partition: max(0, end - reached.get(partition, first)) for partition, (first, end) in sorted(ends.items())}
