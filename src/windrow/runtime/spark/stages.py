"""Stages: the code that runs in Spark's Python workers, for streams and for batch runs.

Ingest decodes the records of a step and splits them by key group. Then each level of the pipeline runs in the key
groups, with their state.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext

from windrow import model as m
from windrow.engine.columns import to_micros
from windrow.engine.level import LevelRunner, join_levels, open_levels
from windrow.engine.messages import EndOfInput, LevelState, Message, Observation, Packet, PartitionIdle
from windrow.engine.operators.base import GroupOutput
from windrow.engine.operators.ingest import NO_OFFSETS, Ingest
from windrow.engine.state.store import MemoryState, State
from windrow.engine.tick import Tick
from windrow.engine.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.runtime.batch.plan import StepPlan, ending_after
from windrow.runtime.savepoint import Savepoint
from windrow.runtime.spark import rows as r
from windrow.runtime.spark.transport import PIPELINES, TableTransport, pickle_pipeline, unpickle_pipeline
from windrow.telemetry.folders import folder_of
from windrow.telemetry.part_times import PartTime, timing
from windrow.telemetry.probe import observe_times, step_probe
from windrow.telemetry.reports import now_micros


# a worker process serves many steps, so it builds the operators of a pipeline once
@lru_cache(maxsize=PIPELINES)
def _ingest(
    graph: m.Graph,
    partitions: tuple[int, ...],
    bounds: WatermarkBounds,
    transport: TableTransport,
    since: tuple[tuple[int, int], ...],
) -> Ingest:
    return _lasting(Ingest(graph, bounds, transport.pack, dict(since), step_probe(graph), partitions=partitions))


@lru_cache(maxsize=PIPELINES)
def _levels(graph: m.Graph, partitions: tuple[int, ...], transport: TableTransport) -> tuple[LevelRunner, ...]:
    return _lasting(open_levels(graph, partitions, transport.pack, step_probe(graph)))


T = TypeVar("T")


def _lasting(built: T) -> T:
    """Exclude what has been built from the garbage collection after each task, which would search it each time."""
    gc.collect()
    gc.freeze()
    return built


def stream_ingest(
    graph: m.Graph,
    partitions: tuple[int, ...],
    transport: TableTransport,
    bounds: WatermarkBounds = NO_BOUNDS,
    *,
    ticks: int | None = None,
    decoded_since: Mapping[int, int] = NO_OFFSETS,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` that turns the raw records of a partition into packets.

    `partitions` are those that the source had when the pipeline was first started. `transport` packs the records. The
    records of the partition `ticks`, if given, are ticks: microseconds as decimal digits. `decoded_since` is taken from
    the savepoint that the run resumes from.
    """
    sent, since = pickle_pipeline(graph), tuple(sorted(decoded_since.items()))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        graph = unpickle_pipeline(sent)
        times: list[int] = []
        reading, decoding = _Timer(), _Timer()
        has_records = False

        def records() -> Iterator[pa.RecordBatch]:
            nonlocal has_records
            for batch in reading.each(batches):
                has_records |= batch.num_rows > 0
                # only an embedded log has ticks, and each of its batches is of one partition
                if ticks is not None and batch.column("partition")[:1].to_pylist() == [ticks]:
                    times.extend(map(int, batch.column("value").to_pylist()))
                else:
                    yield batch

        for packet in decoding.each(_ingest(graph, partitions, bounds, transport, since).run(records())):
            yield r.packet_batch(packet)
        for group in range(graph.key_groups if times else 0):
            yield r.packet_batch(Packet(group, Tick(max(times))))
        if has_records:
            yield r.packet_batch(_ingest_times(reading, decoding))

    return run


class _Timer:
    """Adds up the seconds that an iterator takes to produce its items."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = now_micros()
        self._ended = self._began

    def each(self, items: Iterable[T]) -> Iterator[T]:
        coming = iter(items)
        while True:
            since = time.monotonic()
            item = next(coming, _NO_ITEM)
            self.seconds += time.monotonic() - since
            if item is _NO_ITEM:
                self._ended = now_micros()
                return
            yield item

    def time(self, part: str, seconds: float) -> PartTime:
        """Return the part's time, from the creation of the timer to the end of the items."""
        return PartTime(part, seconds, self._began, self._ended)


_NO_ITEM: Any = object()


def _ingest_times(reading: _Timer, decoding: _Timer) -> Packet:
    """Return the times of an ingest as a packet; the decoding timer includes reading, which is subtracted."""
    times = (
        reading.time("read", reading.seconds),
        decoding.time("decode", decoding.seconds - reading.seconds),
    )
    return Packet(0, Observation(observe_times(times)))


class LevelStep:
    """Runs the steps of one level in a key group, for `KeyGroupProcessor`.

    The last level passes its output to the transport; the other levels return packets for the next level. A key group
    without state starts from the savepoint `start`, if given. This happens in its first step, including when that step
    runs again. (Spark's own initial state would pass through a data frame, with a row for each blob.)
    """

    def __init__(
        self,
        graph: m.Graph,
        level: int,
        partitions: tuple[int, ...],
        start: str | None,
        transport: TableTransport,
    ) -> None:
        self._sent = pickle_pipeline(graph)
        self._slots = balanced_key_groups(graph.key_groups)
        self._level = level
        self._partitions = partitions
        self._start = start
        self._transport = transport

    def __call__(self, slot: int, rows: Iterator[pd.DataFrame], state: State) -> Iterator[pd.DataFrame]:
        """Run one step of one key group."""
        group = self._slots.index(slot)
        level = _levels(unpickle_pipeline(self._sent), self._partitions, self._transport)[self._level]
        if self._start is not None and state.summary() is None:
            level.begin(Savepoint.state(folder_of(self._start), group), state)
        messages = (packet.message for packet in r.read_packets(rows))
        # records for a later level stay packed, in a file if they are large
        unpacked = (r.with_records(message) if level.takes(message) else message for message in messages)
        output = _run_timed(level, self._level, group, unpacked, state)
        if level.is_last:
            yield r.output_frame(group, output, self._transport)
        else:
            yield r.packet_frame(output.packets)


def _run_timed(runner: LevelRunner, level: int, group: int, messages: Iterable[Message], state: State) -> GroupOutput:
    """Run a step of a key group at a level; its time is added to the output, for the report of the step."""
    times: list[PartTime] = []
    with timing(times, "operate", level):
        output = runner.step(group, messages, state)
    blob = observe_times(times)
    if runner.is_last:
        return replace(output, observed=(*output.observed, blob))
    return replace(output, packets=(*output.packets, Packet(group, Observation(blob))))


def touch_state(slot: int, rows: Iterator[pd.DataFrame], state: State) -> Iterator[pd.DataFrame]:  # noqa: ARG001 - a step's
    """Read and write state as a step does, and return the rows unchanged."""
    state.set_summary(state.summary() or b"")
    state.set("none", 0, state.get("none", 0) or b"")
    yield from rows


Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for `mapInArrow`."""

_CONTROL = (Tick, PartitionIdle, EndOfInput)


def batch_ingest(graph: m.Graph, partitions: tuple[int, ...], bounds: WatermarkBounds, cut: StepPlan) -> Stage:
    """Return a function that turns the raw records of a partition into packets with the number of their step.

    All steps are read before the first is computed, and the times of reading are attributed to the partition's first
    step.
    """
    sent = pickle_pipeline(graph)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pipeline = unpickle_pipeline(sent)
        stage = Ingest(pipeline, bounds, probe=step_probe(pipeline), partitions=partitions)
        reading, decoding = _Timer(), _Timer()

        def packets() -> Iterator[tuple[int, Packet]]:
            for number, pieces in groupby(_pieces(reading.each(batches), cut), lambda piece: piece[0]):
                for packet in stage.run(batch for _, batch in pieces):
                    yield number, packet

        first: int | None = None
        for number, packet in decoding.each(packets()):
            first = number if first is None else first
            yield r.numbered(number, packet)
        if first is not None:
            yield r.numbered(first, _ingest_times(reading, decoding))

    return run


def _pieces(batches: Iterable[pa.RecordBatch], cut: StepPlan) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Divide a partition's batches where its steps end; yield each piece with the number of its step."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        ends = np.array(cut.ends_of(batch.column("partition")[0].as_py()))
        numbers = np.searchsorted(ends, to_micros(batch.column("offset")), side="right")
        found, firsts = np.unique(numbers, return_index=True)
        lengths = np.diff(firsts, append=batch.num_rows)
        for number, first, length in zip(found.tolist(), firsts.tolist(), lengths.tolist(), strict=True):
            yield number, batch.slice(first, length)


def batch_level(
    graph: m.Graph,
    level: int,
    partitions: tuple[int, ...],
    cut: StepPlan,
    *,
    since: int | None,
    transport: TableTransport,
    keeps_state: bool,
) -> Stage:
    """Return the function of a key group at a level, which maps packets to packets or, at the last level, to results.

    A result is a row for each step and sink, whose tables go to the transport. With `keeps_state`, the state of the key
    group at all levels follows, at the number of steps plus the number of the key group.
    """
    sent = pickle_pipeline(graph)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pipeline = unpickle_pipeline(sent)
        runner = open_levels(pipeline, partitions, probe=step_probe(pipeline))[level]
        state, group = MemoryState(), _key_group()
        earlier: list[LevelState] = []
        for number, messages in _steps(batches, cut):
            if number == len(cut):
                earlier = [message for message in messages if isinstance(message, LevelState)]
                break
            output = _run_timed(runner, level, group, messages, state)
            if runner.is_last:
                output = output if since is None else ending_after(since, output)
                yield from r.output_rows(number, group, output, transport)
                continue
            for packet in output.packets:
                if not isinstance(packet.message, _CONTROL):  # each level has these from the plan
                    yield r.numbered(number, packet)
        if keeps_state and runner.is_last:
            states = [*(r.state_of([message.blob]) for message in earlier), state]
            yield from r.state_rows(len(cut) + group, group, join_levels(states))
        elif keeps_state:
            for message in (*earlier, *map(LevelState, r.packed_state(state))):
                yield r.numbered(len(cut), Packet(group, message))

    return run


def _key_group() -> int:
    """Return the number of the current task, which is the number of its key group."""
    context = TaskContext.get()
    if context is None:
        msg = "this code only runs in Spark's workers"
        raise RuntimeError(msg)
    return context.partitionId()


def _steps(batches: Iterable[pa.RecordBatch], cut: StepPlan) -> Iterator[tuple[int, list[Message]]]:
    """Yield the messages of each step that has messages, including the control messages of the plan."""
    coming = sorted(cut.control, reverse=True)
    for number, messages in r.by_slice(batches):
        while coming and coming[-1] < number:
            earlier = coming.pop()
            yield earlier, list(cut.control[earlier])
        has_control = bool(coming) and coming[-1] == number
        yield number, [*messages, *cut.control[coming.pop()]] if has_control else messages
    for number in reversed(coming):
        yield number, list(cut.control[number])


_SEED = 42
_TASKS = 5040
"""Groups are spread evenly over this number of tasks and any of its divisors: 1 to 10, 12, 14 to 16 and more."""


@lru_cache(maxsize=8)
def balanced_key_groups(groups: int) -> tuple[int, ...]:
    """Return a distinct number for each key group, such that Spark's hash distributes the groups evenly over tasks.

    With the groups' own numbers, five of eight groups might be in one task and three in another, and a step would take
    as long as the five. The numbers are the same everywhere, because the state of a group is stored under its number.
    """
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
    """Return the hash that Spark partitions by (Murmur3 of a 32-bit number), modulo `_TASKS`."""
    with np.errstate(over="ignore"):
        mixed = _rotate(numbers * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashed = _rotate(np.uint32(_SEED) ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        hashed ^= np.uint32(4)  # bytes
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            hashed = (hashed ^ (hashed >> np.uint32(shift))) * np.uint32(factor)
        hashed ^= hashed >> np.uint32(16)
    return hashed.view(np.int32).astype(np.int64) % _TASKS


def _rotate(numbers: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))
