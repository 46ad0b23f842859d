"""Clocks in a step: how its input advances them, and the rows that it adds to the clock journal."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import schema
from windrow.engine.columns import FIRST_TIME, MAX_TIME, MIN_TIME, Micros, to_micros
from windrow.engine.operators.base import StepInput, StepTime
from windrow.engine.schema import OFFSET, PARTITION, TIME, WATERMARK
from windrow.engine.watermarks.adaptive import AdaptiveProgress
from windrow.engine.watermarks.clocks import GuardedProgress, LostRecords, PartitionClocks, RaisedPartition
from windrow.engine.watermarks.journal import LOST
from windrow.engine.watermarks.sources import SourceTimes, stream_ends


@dataclass(frozen=True)
class ClockAdvance:
    """The effect of a step on the clocks, and its rows of the clock journal.

    The `clocks` are those after the step, and `before` has the low watermarks and the ends of the input before the
    step. `journal` has the moves that the records do not explain. `known` has the watermarks of the partitions before
    the step, `adaptive` the progress of partitions with an adaptive delay, and `guarded` that of partitions with a
    fixed delay and a guarded clock. For each partition, `readings` has the time of the last reading of a file before
    the step, and the watermark of the records after it.
    """

    sources: SourceTimes
    clocks: PartitionClocks
    before: PartitionClocks
    now: int | None
    is_end: bool
    journal: pa.Table
    known: dict[int, int]
    adaptive: dict[int, AdaptiveProgress]
    guarded: dict[int, GuardedProgress]
    readings: dict[int, tuple[int, int]]

    @property
    def leaps(self) -> dict[int, int]:
        """The number of records in the step that are too far ahead of a guarded clock, for partitions that have any."""
        progress: dict[int, AdaptiveProgress | GuardedProgress] = {**self.adaptive, **self.guarded}
        return {partition: moved.leaps for partition, moved in sorted(progress.items()) if moved.leaps}

    def time(self, sources: Collection[int], streams: Collection[str] = ()) -> StepTime:
        """Return the time of an operator that reads the given streams of the given sources."""
        low = self.clocks.low(sources)
        ended = max(self.before.ended.get(source, MIN_TIME) for source in sources)
        return StepTime(
            before=self.before.low(sources),
            low=low,
            now=self.now,
            latest=self.clocks.now,
            reached=max(low, *(self.clocks.reached.get(source, MIN_TIME) for source in sources)),
            end=self.is_end,
            ended=ended,
            fired_until=max([ended, *(self._ends_before[name] for name in streams)]),
            last_settled=self.clocks.last_settled(self.sources, sources),
        )

    def end_of(self, stream: str) -> int:
        """Return the greatest event time that a stream's rows can have if the input ended with this step."""
        return stream_ends(self.sources.graph, self.clocks.ended, self.clocks.timers)[stream]

    @cached_property
    def _ends_before(self) -> dict[str, int]:
        return stream_ends(self.sources.graph, self.before.ended, self.before.timers)

    def with_watermarks(self, records: pa.Table) -> pa.Table:
        """Return the step's records with their final watermarks, which are at least the watermark before the step."""
        place = records.column_names.index(WATERMARK)
        return records.set_column(place, WATERMARK, pa.array(self.watermarks(records)))

    def watermarks(self, records: pa.Table) -> Micros:
        """Return the final watermark at each record of the step, which is at least the watermark before the step."""
        numbers = records.column(PARTITION).to_numpy()
        watermarks: Micros = to_micros(records.column(WATERMARK))
        # partitions are few, and all partitions with records are known
        known = np.array(sorted(self.known.items()), dtype=np.int64).reshape(-1, 2)
        watermarks = np.maximum(watermarks, known[np.searchsorted(known[:, 0], numbers), 1])
        for partition, progress in self.adaptive.items():
            is_own = numbers == partition
            offsets = to_micros(records.column(OFFSET))[is_own]
            at = progress.watermarks[np.searchsorted(progress.offsets, offsets)]
            watermarks[is_own] = np.maximum(watermarks[is_own], at)
        for partition, guarded in self.guarded.items():
            is_own = numbers == partition
            at = guarded.at(to_micros(records.column(OFFSET))[is_own])
            watermarks[is_own] = np.maximum(watermarks[is_own], at)
        for partition, (reached, at_next) in self.readings.items():
            is_after = (numbers == partition) & (to_micros(records.column(TIME)) > reached)
            watermarks[is_after] = np.maximum(watermarks[is_after], at_next)
        if self.sources.by_reading:
            # the first reading of a file is before all records of other sources
            files = [partition for partition in self.known if self.sources.source(partition) in self.sources.by_reading]
            watermarks[(watermarks == MIN_TIME) & ~np.isin(numbers, files)] = FIRST_TIME
        return watermarks

    def behind(self, records: pa.Table) -> Micros:
        """Return how far each record, given with its final watermark, is behind the clock of its partition.

        With a different fixed delay, a record would be behind the watermark exactly if it is further behind the clock
        than that delay. The first record of a partition is 0 behind.
        """
        numbers = records.column(PARTITION).to_numpy()
        watermarks = to_micros(records.column(WATERMARK))
        partitions, delays = self._delays
        clocks = np.where(watermarks <= FIRST_TIME, MIN_TIME, watermarks + delays[np.searchsorted(partitions, numbers)])
        for partition, progress in self.adaptive.items():
            is_own = numbers == partition
            offsets = to_micros(records.column(OFFSET))[is_own]
            clocks[is_own] = progress.clocks[np.searchsorted(progress.offsets, offsets)]
        behind: Micros = np.where(clocks == MIN_TIME, 0, clocks - to_micros(records.column(TIME)))
        return behind

    @cached_property
    def _delays(self) -> tuple[Micros, Micros]:
        """The known partitions, and the fixed delay of each.

        A punctuated watermark is its own clock, so its delay is 0.
        """
        partitions = sorted(self.known)
        watermarks = (self.sources.watermark(partition) for partition in partitions)
        delays = [watermark.micros if isinstance(watermark, m.Delay | m.Readings) else 0 for watermark in watermarks]
        return np.array(partitions, dtype=np.int64), np.array(delays, dtype=np.int64)


def advance_clocks(sources: SourceTimes, clocks: PartitionClocks, given: StepInput) -> ClockAdvance:
    """Advance the clocks through a step."""
    before = PartitionClocks(lows=dict(clocks.lows), ended=dict(clocks.ended), timers=dict(clocks.timers))
    lost = clocks.skip(sources, given.lost)
    raised = clocks.raise_to_low(sources, given.progress)
    known = dict(clocks.watermarks)
    adaptive: dict[int, AdaptiveProgress] = {}
    for watermark in {time.watermark for time in sources.times}:
        if isinstance(watermark, m.Adaptive):
            adapting = [progress for progress in given.progress if sources.watermark(progress.partition) == watermark]
            adaptive |= clocks.adapt(sources, watermark, adapting, given.times)
    guarded = clocks.guard(sources, given.progress, given.times)
    partitions = [progress.partition for progress in given.progress]
    readings = {
        partition: (clocks.reached[sources.source(partition)], at_next)
        for partition in partitions
        if (at_next := clocks.reading_ended(sources, partition, MAX_TIME)) != MIN_TIME
    }
    now = None if given.tick is None else clocks.tick(given.tick)
    clocks.advance(sources, given.progress)
    clocks.replay_idle(sources, given.idle)
    newly_idle = [] if now is None else clocks.mark_idle(sources)
    if given.end:
        clocks.end(sources)
        clocks.end_timers(given.timers)
    journal = journal_rows(sources, clocks, lost, raised, newly_idle, end=given.end)
    return ClockAdvance(sources, clocks, before, now, given.end, journal, known, adaptive, guarded, readings)


class ClockSteps:
    """Advances clocks through steps, only once for all key groups of a process.

    All key groups have the same clocks and the same input for them.
    """

    def __init__(self, sources: SourceTimes) -> None:
        self._sources = sources
        self._key: tuple[object, ...] = ()
        self._last: tuple[ClockAdvance, str] | None = None

    def advance(self, clocks: str, given: StepInput) -> tuple[ClockAdvance, str]:
        """Return the effect of a step on the clocks (in JSON), and the clocks after the step.

        Callers share the first result and must not change it.
        """
        key = clocks, given.progress, given.times, given.tick, given.idle, given.lost, given.end, given.timers
        if self._last is None or self._key != key:
            moved = advance_clocks(self._sources, PartitionClocks.decode(json.loads(clocks)), given)
            self._key, self._last = key, (moved, json.dumps(moved.clocks.encode()))
        return self._last


def journal_rows(
    sources: SourceTimes,
    clocks: PartitionClocks,
    lost: Iterable[LostRecords],
    raised: Iterable[RaisedPartition],
    newly_idle: Iterable[int],
    *,
    end: bool,
) -> pa.Table:
    """Return the clock moves that the records do not explain, given the clocks after the step.

    There is a row for each partition that lost records, joined late, became active again or became idle, and one for
    every partition at the end of the input. A row has the first offset at which this applies, the partition's clock
    there, and the low watermark of its source, which is also the watermark with which a partition joins or becomes
    active. For lost records, it is the partition's own watermark. Clock and watermark are null as long as no record has
    set them.
    """
    rows = [(loss.partition, loss.first, loss.clock, loss.watermark, f"{LOST}{loss.what}") for loss in lost]
    rows += [
        (partition.partition, partition.first, partition.clock, partition.low, partition.reason)
        for partition in raised
        # before the first low watermark a partition joins as if it had existed at the start
        if partition.reason == "active" or partition.low != MIN_TIME
    ]
    now = [(partition, "idle") for partition in newly_idle]
    if end:
        now += [(partition, "end") for partition in sorted(clocks.watermarks)]
    for partition, reason in now:
        clock, low = clocks.clock(sources, partition), clocks.low([sources.source(partition)])
        rows.append((partition, clocks.next.get(partition, 0), clock, low, reason))
    if not rows:
        return schema.NO_CLOCKS
    partitions, offsets, *times, reasons = zip(*rows, strict=True)
    labels = [sources.graph.source_of(partition).source.label for partition in partitions]
    known = [[None if micros == MIN_TIME else micros for micros in column] for column in times]
    return pa.table([labels, partitions, offsets, *known, reasons], schema=schema.CLOCKS)
