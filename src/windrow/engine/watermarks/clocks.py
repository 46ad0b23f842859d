"""Partition clocks: the watermark of every partition in a key group, and the low watermark of each source.

Watermarks are kept in two places. A `StepWatermark` is the running watermark of a partition within a step; ingest
stores it with each record. `PartitionClocks` are the clocks after earlier steps. They are part of the state of every
key group, and identical in all key groups, because each receives the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine.columns import MAX_TIME, MIN_TIME, Blob, Mask, Micros, to_micros
from windrow.engine.messages import (
    EventTimes,
    PackedTimes,
    PartitionIdle,
    PartitionProgress,
    RecordsLost,
    join_times,
    unpack_times,
)
from windrow.engine.schema import LAST_PARTITION, OFFSET, TIME, WATERMARK
from windrow.engine.watermarks.adaptive import (
    AdaptiveProgress,
    Lateness,
    PartitionSlice,
    advance_adaptive,
    watermarks_of,
)
from windrow.engine.watermarks.guard import NO_CLOCK, GuardedClock, TimesOfStep, follow_clock, group_ordinary
from windrow.engine.watermarks.readings import ends_reading, reading_watermarks
from windrow.engine.watermarks.sources import SourceTimes

RaiseReason = Literal["joined", "active"]


@dataclass(frozen=True)
class RaisedPartition:
    """A partition whose watermark was raised to at least `low` from the offset `first` on, and its `clock` there."""

    partition: int
    first: int
    clock: int
    low: int
    reason: RaiseReason


@dataclass(frozen=True)
class LostRecords:
    """Lost records of a partition, as described by `what`.

    The partition resumes at the offset `first`, with this clock and watermark.
    """

    partition: int
    first: int
    clock: int
    watermark: int
    what: str


@dataclass
class PartitionClocks:
    """Each known partition's watermark and next offset, and each source's low watermark, which never decreases.

    The low watermark of a source (in `lows`, by the number of the source) is the least watermark of its partitions, and
    the low watermark of an operator is the least of its sources. Partitions that exist at the start hold the low
    watermark back until their first record. A partition that joins later starts with its watermark at the low
    watermark, because its records cannot be on time for windows that have fired.

    The last tick is `now`, and `active` has the tick at which each partition last had a record. The `idle` partitions
    do not hold the low watermark back. A source whose partitions are all idle keeps up with the furthest of the sources
    that it is connected with, so that an operator never falls behind the readers of its output. For each source,
    `still` has the tick at which all partitions connected with it had become idle, and the low watermark at that tick.
    `lateness` determines adaptive delays. `guarded` has the guarded clocks of partitions with a fixed delay; these are
    never raised to the low watermark, so that leaps depend only on the partition. For each source, `reached` is the
    greatest event time so far, and `ended` is the event time reached at the last end of the input. For each process
    node, `timers` has the time of the last row that a timer emitted at an end of the input, if it was later than the
    event time; only the levels after the node have it.
    """

    watermarks: dict[int, int] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    lows: dict[int, int] = field(default_factory=dict)
    now: int | None = None
    active: dict[int, int] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    still: dict[int, tuple[int, int]] = field(default_factory=dict)
    lateness: dict[int, Lateness] = field(default_factory=dict)
    guarded: dict[int, GuardedClock] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    timers: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def start(partitions: Iterable[int]) -> PartitionClocks:
        """Return the clocks of partitions before their first record."""
        return PartitionClocks(dict.fromkeys(partitions, MIN_TIME), dict.fromkeys(partitions, 0))

    def low(self, sources: Iterable[int] | None = None) -> int:
        """Return the joint low watermark of some sources, or of all; `MIN_TIME` as long as one of them has none."""
        numbers = self.lows.keys() if sources is None else sources
        return min((self.lows.get(number, MIN_TIME) for number in numbers), default=MIN_TIME)

    def clock(self, sources: SourceTimes, partition: int) -> int:
        """Return the clock that a partition's watermark follows; a punctuated watermark is its own clock."""
        value, watermark = self.watermarks[partition], sources.watermark(partition)
        match watermark:
            case m.Delay(micros) | m.Readings(micros):
                return MIN_TIME if value == MIN_TIME else value + micros
            case m.Adaptive():
                return self.lateness[partition].clock if partition in self.lateness else MIN_TIME
            case m.Punctuated():
                return value
            case _:
                assert_never(watermark)

    def tick(self, micros: int) -> int:
        """Advance the processing time and return it; it never decreases."""
        self.now = micros if self.now is None else max(self.now, micros)
        for partition in self.watermarks:
            self.active.setdefault(partition, self.now)
        return self.now

    def last_settled(self, times: SourceTimes, sources: Collection[int]) -> int:
        """Return the greatest partition of the sources up to which records at the low watermark are settled.

        No partition up to this one can have another record at the low watermark. Before the first low watermark the
        result is -1, because the records of a partition that joins would come first.
        """
        low = self.low(sources)
        if low == MIN_TIME:
            return -1
        return min(
            (
                number
                for number, at in self.watermarks.items()
                if number not in self.idle and at <= low and times.source(number) in sources
            ),
            default=LAST_PARTITION,
        )

    def raise_to_low(self, sources: SourceTimes, progress: Iterable[PartitionProgress]) -> list[RaisedPartition]:
        """Raise the watermarks of the step's partitions that were unknown or idle to the low watermark or above."""
        raised = []
        for step in progress:
            partition = step.partition
            known = partition in self.watermarks
            if known and partition not in self.idle:
                continue
            source = sources.source(partition)
            low = self.lows.get(source, MIN_TIME)
            low = low if low == MIN_TIME else low + sources.above[source]
            self.watermarks[partition] = max(self.watermarks.get(partition, MIN_TIME), low)
            reason: RaiseReason = "active" if known else "joined"
            raised.append(RaisedPartition(partition, step.first, self.clock(sources, partition), low, reason))
            self.idle.discard(partition)
            for other in sources.connected_with(source):
                self.still.pop(other, None)
        return raised

    def skip(self, sources: SourceTimes, losses: Iterable[RecordsLost]) -> list[LostRecords]:
        """Resume after lost records.

        The clocks are not changed, because it is unknown how the lost records would have moved them.
        """
        lost = []
        for loss in losses:
            partition, at, clock = loss.partition, MIN_TIME, MIN_TIME
            if partition in self.watermarks:
                at, clock = self.watermarks[partition], self.clock(sources, partition)
                if not 0 < loss.first <= self.next.get(partition, 0):
                    # no record that was read exists any longer: what depends on them starts again, as in a replay
                    self.lateness.pop(partition, None)
                    self.guarded.pop(partition, None)
                self.next[partition] = loss.first
            lost.append(LostRecords(partition, loss.first, clock, at, loss.what))
        return lost

    def guard(
        self, sources: SourceTimes, progress: Iterable[PartitionProgress], times: Iterable[EventTimes]
    ) -> dict[int, GuardedProgress]:
        """Advance guarded clocks with a fixed delay through the step's records; map each partition to its progress."""
        blobs, found = _by_partition(times), dict[int, GuardedProgress]()
        for step in progress:
            partition, watermark = step.partition, sources.watermark(step.partition)
            jump = sources.time(partition).jump
            if jump is None or not isinstance(watermark, m.Delay):
                self.guarded.pop(partition, None)
                continue
            offsets, clocks, ordinary = join_times(map(unpack_times, blobs.get(partition, ())))
            moved = follow_clock(jump, self.guarded.get(partition, NO_CLOCK), clocks, ordinary)
            self.guarded[partition] = moved.after
            low = watermarks_of(np.append(moved.seen, moved.after.clock), watermark.micros)
            self.watermarks[partition] = max(self.watermarks[partition], int(low[-1]))
            found[partition] = GuardedProgress(offsets, low[:-1], moved.leaps)
        return found

    def adapt(
        self,
        sources: SourceTimes,
        adaptive: m.Adaptive,
        progress: Iterable[PartitionProgress],
        times: Iterable[EventTimes],
    ) -> dict[int, AdaptiveProgress]:
        """Advance watermarks with an adaptive delay through the step's records; map each partition to its progress."""
        blobs = _by_partition(times)
        slices = (
            PartitionSlice(
                partition=step.partition,
                lateness=self.lateness.get(step.partition, Lateness.start(adaptive)),
                watermark=self.watermarks[step.partition],
                times=tuple(blobs.get(step.partition, ())),
                following=step.next,
                jump=sources.time(step.partition).jump or 0,
            )
            for step in progress
        )
        found = advance_adaptive(adaptive, tuple(slices))
        for partition, reached in found.items():
            self.lateness[partition] = reached.lateness
            self.watermarks[partition] = reached.watermark
        return found

    def reading_ended(self, sources: SourceTimes, partition: int, time: int) -> int:
        """Return the watermark after a file's readings before the step, or `MIN_TIME` if `time` is not after them."""
        watermark, reached = sources.watermark(partition), self.reached.get(sources.source(partition), MIN_TIME)
        if not isinstance(watermark, m.Readings) or not MIN_TIME < reached < time:
            return MIN_TIME
        return reached - watermark.micros

    def advance(self, sources: SourceTimes, progress: Iterable[PartitionProgress]) -> None:
        """Advance the clocks of partitions to the end of the step."""
        for step in progress:
            source = sources.source(step.partition)
            known = self.reading_ended(sources, step.partition, step.reached)
            self.watermarks[step.partition] = max(self.watermarks[step.partition], step.watermark, known)
            self.next[step.partition] = step.next
            self.reached[source] = max(self.reached.get(source, MIN_TIME), step.reached)
            if self.now is not None:
                self.active[step.partition] = self.now
        self._advance_lows(sources)

    def end(self, sources: SourceTimes) -> None:
        """Record the event time that each source has reached at the end of the input."""
        for number in range(len(sources.times)):
            at = (times.get(number, MIN_TIME) for times in (self.ended, self.lows, self.reached))
            self.ended[number] = max(at)

    def end_timers(self, timers: Mapping[str, int]) -> None:
        """Record, for each process node, the time of the rows that timers have emitted at the end of the input."""
        for node, time in timers.items():
            self.timers[node] = max(time, self.timers.get(node, MIN_TIME))

    def mark_idle(self, sources: SourceTimes) -> list[int]:
        """Mark partitions as idle that had no record for their idle time; return the newly idle partitions.

        When all connected partitions are idle, their low watermarks stop (hold). If all of these partitions are set to
        advance, the low watermarks advance with processing time from then on.
        """
        now, fallen = self.now, []
        if now is None:
            return []
        for group in sources.connected:
            times = {
                watermark: sources.time(watermark)
                for watermark in self.watermarks
                if sources.source(watermark) in group
            }
            idle_now = {
                partition
                for partition, time in times.items()
                if time.idle is not None and now - self.active[partition] >= time.idle
            }
            if idle_now == times.keys():
                if any(time.all_idle == "hold" for time in times.values()):
                    continue
                for source in group:
                    since, low = self.still.setdefault(source, (now, self.lows.get(source, MIN_TIME)))
                    if low != MIN_TIME:
                        self.lows[source] = max(self.lows[source], low + now - since)
            fallen += sorted(idle_now - self.idle)
            self.idle = (self.idle - times.keys()) | idle_now
        self._advance_lows(sources)
        return sorted(fallen)

    def due(self, sources: SourceTimes) -> int:
        """Return the processing time before which ticks change nothing (`mark_idle`) if no records come.

        The result is `MAX_TIME` if no tick changes anything, such as when all partitions are idle and their low
        watermarks stop.
        """
        return min(self._due(sources, group) for group in sources.connected)

    def _due(self, sources: SourceTimes, group: Collection[int]) -> int:
        """Return the processing time at which a partition of connected sources becomes idle, or time advances."""
        times = {
            partition: sources.time(partition) for partition in self.watermarks if sources.source(partition) in group
        }
        if all(time.idle is None for time in times.values()):
            return MAX_TIME
        if self.now is None:
            return MIN_TIME
        idle_at = {
            partition: MAX_TIME if time.idle is None else self.active[partition] + time.idle
            for partition, time in times.items()
        }
        last = max(idle_at.values())
        # as long as another partition is active
        first = min((at for partition, at in idle_at.items() if partition not in self.idle), default=last)
        if first < last and self.now < last:
            return first
        if any(time.all_idle == "hold" for time in times.values()):
            return MAX_TIME
        if self.now < last:
            return last
        return self.now + 1 if any(self.lows.get(source, MIN_TIME) != MIN_TIME for source in group) else MAX_TIME

    def replay_idle(self, sources: SourceTimes, idle: Iterable[PartitionIdle]) -> None:
        """Mark partitions as idle that were idle in the replayed run, whose processing time is unknown."""
        for message in idle:
            self.idle.add(message.partition)
            # they have been idle since before any later tick
            self.active[message.partition] = MIN_TIME
            source = sources.source(message.partition)
            self.lows[source] = max(self.lows.get(source, MIN_TIME), message.low)
        self._advance_lows(sources)

    def _advance_lows(self, sources: SourceTimes) -> None:
        holding: dict[int, int] = {}
        for partition, watermark in self.watermarks.items():
            if partition not in self.idle:
                source = sources.source(partition)
                holding[source] = min(holding.get(source, watermark), watermark)
        for source, watermark in holding.items():
            self.lows[source] = max(self.lows.get(source, MIN_TIME), watermark)
        for group in sources.connected:
            furthest = max(self.lows.get(source, MIN_TIME) for source in group)
            self.lows.update((source, furthest) for source in group if source not in holding)

    def encode(self) -> dict[str, Any]:
        """Encode the clocks as plain JSON values."""
        return {
            "partitions": [
                [partition, watermark, self.next.get(partition, 0), self.active.get(partition), partition in self.idle]
                for partition, watermark in self.watermarks.items()
            ],
            "lows": list(self.lows.items()),
            "now": self.now,
            "still": [[source, *still] for source, still in self.still.items()],
            "lateness": [[partition, lateness.encode()] for partition, lateness in self.lateness.items()],
            "reached": list(self.reached.items()),
            "ended": list(self.ended.items()),
            **({"timers": list(self.timers.items())} if self.timers else {}),
            **(
                {"guarded": [[number, *clock.encode()] for number, clock in self.guarded.items()]}
                if self.guarded
                else {}
            ),
        }

    @staticmethod
    def decode(fields: Any) -> PartitionClocks:  # noqa: ANN401 - plain JSON
        """Decode the output of `encode`."""
        rows: Sequence[tuple[int, int, int, int | None, bool]] = fields["partitions"]
        return PartitionClocks(
            watermarks={partition: watermark for partition, watermark, *_ in rows},
            next={partition: offset for partition, _, offset, *_ in rows},
            lows=dict(fields["lows"]),
            now=fields["now"],
            active={partition: active for partition, _, _, active, _ in rows if active is not None},
            idle={partition for partition, *_, idle in rows if idle},
            still={source: (since, low) for source, since, low in fields["still"]},
            lateness={partition: Lateness.decode(lateness) for partition, lateness in fields["lateness"]},
            reached=dict(fields["reached"]),
            ended=dict(fields["ended"]),
            timers=dict(fields.get("timers", ())),
            guarded={partition: GuardedClock.decode(clock) for partition, *clock in fields.get("guarded", ())},
        )


def _by_partition(times: Iterable[EventTimes]) -> dict[int, list[Blob]]:
    blobs: dict[int, list[Blob]] = {}
    for time in times:
        blobs.setdefault(time.partition, []).append(time.blob)
    return blobs


@dataclass(frozen=True)
class GuardedProgress:
    """The watermarks that a guarded clock gives to a partition's records from each of the `offsets` on.

    `leaps` is the number of leaps among the records.
    """

    offsets: Micros
    watermarks: Micros
    leaps: int

    def at(self, offsets: Micros) -> Micros:
        """Return the watermarks at some of the records."""
        return self.watermarks[np.searchsorted(self.offsets, offsets, side="right") - 1]


def _unchecked(rows: Micros) -> Mask:
    return np.zeros(len(rows), dtype=np.bool_)


class StepWatermark:
    """The running watermark of a partition in a step.

    The watermark before the step is part of the state of the key groups, and the watermark at a record is the greater
    of the two. The key groups also compute what depends on earlier records in another way: an adaptive delay, a clock
    that is guarded by `jump`, and the end of a reading that began in an earlier step. For the first two they receive
    event times of the step (`pop_times`). If the step `is_whole`, that is, no records came before it, watermarks with a
    fixed delay are final.
    """

    def __init__(self, watermark: m.PartitionWatermark, jump: int | None = None, *, is_whole: bool = False) -> None:
        self._watermark = watermark
        self._reached: int = MIN_TIME
        self.value: int = MIN_TIME
        self._jump = jump
        self._guard = None if jump is None else TimesOfStep(jump)
        self._whole = NO_CLOCK if is_whole else None
        self._times: list[PackedTimes] = []

    def advance(self, good: pa.Table, marks: pa.Table, is_checked: Callable[[Micros], Mask] = _unchecked) -> Micros:
        """Advance through the partition's next good records and marks; return the watermark at each record.

        A record's own time or mark advances the watermark only for the records after it. `is_checked` returns which of
        the records with the given numbers have passed `future`; only a guarded clock needs it.
        """
        match self._watermark:
            case m.Delay(micros) if self._guard is not None:
                return self._advance_guarded(micros, self._times_of(good, is_checked))
            case m.Delay(micros):
                moves = to_micros(good.column(TIME)) - micros
                before = np.arange(len(moves))
            case m.Punctuated():
                moves = to_micros(marks.column(WATERMARK))
                before = np.searchsorted(to_micros(marks.column(OFFSET)), to_micros(good.column(OFFSET)))
            case m.Adaptive():
                self._times.append(self._times_of(good, is_checked))
                return np.full(good.num_rows, MIN_TIME, dtype=np.int64)
            case m.Readings(micros):
                times = to_micros(good.column(TIME))
                found = reading_watermarks(times, micros, self._reached, self.value)
                self.value = int(found.max(initial=self.value))
                self._reached = int(times.max(initial=self._reached))
                return found
            case _:
                assert_never(self._watermark)
        reached = np.maximum.accumulate(np.concatenate(([self.value], moves)))
        self.value = int(reached[-1])
        return reached[before]

    def _times_of(self, good: pa.Table, is_checked: Callable[[Micros], Mask]) -> PackedTimes:
        times = to_micros(good.column(TIME))
        is_free = np.ones(len(times), dtype=np.bool_)
        ordinary = is_free if self._guard is None else self._guard.ordinary(times, is_checked)
        return PackedTimes(to_micros(good.column(OFFSET)), times, ordinary)

    def _advance_guarded(self, delay: int, given: PackedTimes) -> Micros:
        """Return the watermark at each record, as far as it is known without the records before the step."""
        if self._whole is not None:
            moved = follow_clock(self._jump or 0, self._whole, given.times, given.ordinary)
            self._whole = moved.after
            return watermarks_of(moved.seen, delay)
        grouped, reached = group_ordinary(given)
        self._times.append(grouped)
        return watermarks_of(reached, delay)

    def pop_times(self) -> PackedTimes | None:
        """Return the event times that key groups need since the last call, or None if they need none."""
        found = [times for times in self._times if len(times.times)]
        self._times = []
        return join_times(found) if found else None

    def close(self, values: pa.Array) -> None:
        """Advance past the end of a reading if the last record that was read, good or not, ends the reading."""
        if isinstance(self._watermark, m.Readings) and self._reached != MIN_TIME and ends_reading(values[-1].as_py()):
            self.value = max(self.value, self._reached - self._watermark.micros)
