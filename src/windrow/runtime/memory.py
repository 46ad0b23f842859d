"""The memory host: runs a pipeline in this process, one step at a time, the same in every run.

`MemoryRun` reads a source from its beginning; `InProcessRun` makes the steps of a batch run without Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.connectors.open_sources import open_sources
from windrow.connectors.sink import Run, Sink, SinkGroup
from windrow.connectors.source import Source
from windrow.engine.changelog import StepOutput, concat_by_sink, empty_by_sink
from windrow.engine.columns import distinct, pack, to_micros, unpack
from windrow.engine.level import join_levels, open_levels
from windrow.engine.messages import EndOfInput, Message, Packet, PartitionIdle, Records, RecordsLost
from windrow.engine.operators.base import GroupOutput
from windrow.engine.operators.ingest import NO_OFFSETS, Ingest
from windrow.engine.probe import NoProbe, OpenProbe
from windrow.engine.schema import RAW, TIME
from windrow.engine.state.store import MemoryState
from windrow.engine.tick import Crash, PlayStep, Tick, with_crashes
from windrow.engine.watermarks.journal import NO_BOUNDS, IdleAtEnd, WatermarkBounds
from windrow.runtime.batch.plan import BatchPlan, BatchSettings, batch_plan, ending_after, first_outputs
from windrow.runtime.savepoint import require_new_folder
from windrow.telemetry.part_times import Stopwatch, ending_now, timing
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import OnStep, StepReport

_STEP = 500_000
"""Records in a step, if nothing else is said."""


class MemoryHost:
    """Runs a pipeline's stages over tables of raw records (`windrow.engine.schema.RAW`).

    `bounds` are what the clock journal of another run says, which this one repeats. `decoded_since` is that of the
    savepoint that it resumes from. `probe` opens what observes a step of a task.
    """

    def __init__(
        self,
        graph: m.Graph,
        partitions: Iterable[int],
        bounds: WatermarkBounds = NO_BOUNDS,
        decoded_since: Mapping[int, int] = NO_OFFSETS,
        probe: OpenProbe = NoProbe,
    ) -> None:
        self._stage = Ingest(graph, bounds, decoded_since=decoded_since, probe=probe)
        self._levels = open_levels(graph, partitions, probe=probe)
        self._key_groups = graph.key_groups
        self._states = [[MemoryState() for _ in range(graph.key_groups)] for _ in self._levels]

    @property
    def states(self) -> list[MemoryState]:
        """The states of the key groups, of all levels."""
        return [join_levels(states) for states in zip(*self._states, strict=True)]

    def copy_states(self) -> list[MemoryState]:
        """Return copies of the states of the key groups, of all levels."""
        copies = [MemoryState() for _ in range(self._key_groups)]
        for state, copy in zip(self.states, copies, strict=True):
            state.copy_to(copy)
        return copies

    def begin(self, states: Iterable[MemoryState]) -> None:
        """Resume from the states of another host's key groups; call it before the first step."""
        for group, known in enumerate(states):
            for level, own in zip(self._levels, self._states, strict=True):
                level.begin(known, own[group])

    def change_lists(self, changes: Sequence[m.ListChange]) -> None:
        """Have the lists of rules change for records that are still to come."""
        for level in self._levels:
            level.change_lists(changes)

    @property
    def state_by_level(self) -> list[tuple[int, int]]:
        """The number of blobs and bytes in the key groups' states by level."""
        return [(sum(state.rows for state in states), sum(state.size for state in states)) for states in self._states]

    @property
    def state_size(self) -> int:
        """The size of the key groups' states in bytes."""
        return sum(size for _, size in self.state_by_level)

    def step(self, raw: pa.Table) -> list[GroupOutput]:
        """Run one step over the records that follow those of the last step, in offset order by partition."""
        return self._run(self._stage.run(raw.to_batches()))

    def tick(self, micros: int) -> list[GroupOutput]:
        """Run a step without records at the processing time `micros` (since the epoch, UTC)."""
        return self._control(Tick(micros))

    def rest(self, idle_at_end: IdleAtEnd) -> list[GroupOutput]:
        """Run a step without records that makes partitions idle, as the run that is replayed did."""
        return self._control(*(PartitionIdle(*low) for low in idle_at_end.lows))

    def lose(self, *losses: RecordsLost) -> list[GroupOutput]:
        """Run a step without records after which partitions resume behind lost records."""
        return self._control(*losses)

    def end(self) -> list[GroupOutput]:
        """Run the step at the end of the input: every open window fires."""
        return self._control(EndOfInput())

    def kept(self, packets: Iterable[Packet]) -> Iterable[Packet]:
        """Return the packets that a level is given: all of them; a subclass may leave out records."""
        return packets

    def _control(self, *messages: Message) -> list[GroupOutput]:
        """Run a step of control messages, which every key group receives."""
        return self._run(Packet(group, message) for group in range(self._key_groups) for message in messages)

    def _run(self, packets: Iterable[Packet]) -> list[GroupOutput]:
        outputs: list[GroupOutput] = []
        for level, states in zip(self._levels, self._states, strict=True):
            messages: list[list[Message]] = [[] for _ in states]
            for group, message in self.kept(packets):
                messages[group].append(message)
            outputs = [level.step(group, messages[group], state) for group, state in enumerate(states)]
            packets = [packet for output in outputs for packet in output.packets]
        return outputs


class _HostUntil(MemoryHost):
    """Leaves out records of the sources after an event time; watermarks and verdicts are those of the whole log."""

    def __init__(self, graph: m.Graph, partitions: Iterable[int], bounds: WatermarkBounds, until: int) -> None:
        super().__init__(graph, partitions, bounds, probe=step_probe(graph))
        self._until = until

    def kept(self, packets: Iterable[Packet]) -> Iterable[Packet]:
        """Leave the records out; the packets themselves stay."""
        for packet in packets:
            message = packet.message
            if isinstance(message, Records) and message.is_raw:
                records = unpack(message.blob)
                own = records.filter(pa.array(to_micros(records.column(TIME)) <= self._until))
                yield Packet(packet.key_group, replace(message, blob=pack(own)))
            else:
                yield packet


class MemoryRun:
    """Runs a pipeline over all that its source holds now, from the beginning; the sink's tables must be empty.

    With `until` (microseconds), no record of a later event time is in the results. `read` gives the records of the
    source, each partition's in the order of its offsets.
    """

    def __init__(
        self,
        graph: m.Graph,
        sink: Sink | SinkGroup,
        max_records: int | None,
        bounds: WatermarkBounds = NO_BOUNDS,
        *,
        until: int | None = None,
        read: Callable[[Source], Iterator[pa.RecordBatch]] = lambda source: source.read_all(),
    ) -> None:
        self._pipeline = graph
        self._read = read
        self._until = until
        self._sinks = SinkGroup.of(sink)
        self._nothing = empty_by_sink(graph)
        self._floors = bounds
        self._max_records = max_records
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the run to finish its step and return; from any thread."""
        self._stop.set()

    def run(self, on_step: OnStep) -> Literal["end", "asked"]:
        """Run; return why it ended. Raise a WindrowError if it failed; what was committed stays."""
        source = open_sources(self._pipeline)
        host = self._host(source.partitions())
        self._sinks.open(Run.new(self._pipeline.name))
        watch, epoch = Stopwatch(), 0
        for raw in _steps(self._read(source), self._max_records or _STEP):
            self._commit(epoch, host, host.step(raw), watch, on_step)
            epoch += 1
            if self._stop.is_set():
                return "asked"
        if self._pipeline.at_end == "fire":
            self._commit(epoch, host, host.end(), watch, on_step)
        return "end"

    def _host(self, partitions: Iterable[int]) -> MemoryHost:
        if self._until is None:
            return MemoryHost(self._pipeline, partitions, self._floors, probe=step_probe(self._pipeline))
        return _HostUntil(self._pipeline, partitions, self._floors, self._until)

    def _commit(
        self, epoch: int, host: MemoryHost, groups: list[GroupOutput], watch: Stopwatch, on_step: OnStep
    ) -> None:
        report = _commit(self._sinks, self._nothing, epoch, groups, watch)
        on_step(report.with_state(self._pipeline, host.state_by_level))


def _commit(
    sinks: SinkGroup, nothing: Mapping[str, StepOutput], epoch: int, groups: Sequence[GroupOutput], watch: Stopwatch
) -> StepReport:
    """Commit a step that was computed since the last lap, behind the rows of `nothing`; return its report."""
    rows = concat_by_sink(nothing, (group.by_sink for group in groups))
    computed = watch.lap()
    parts = [ending_now("compute", computed)]
    with timing(parts, "commit"):
        refused = sinks.commit(epoch, rows)
    return StepReport.of(epoch, groups, computed + watch.lap(), parts=parts, refused=refused)


def _steps(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Cut batches into tables of that many records."""
    held = RAW.empty_table()
    for batch in batches:
        held = pa.concat_tables([held, pa.Table.from_batches([batch], schema=RAW)])
        while held.num_rows >= size:
            yield held.slice(0, size)
            held = held.slice(size)
    if held.num_rows:
        yield held


def play(
    graph: m.Graph, steps: Sequence[PlayStep | Crash], at_end: Literal["fire", "hold"]
) -> list[dict[str, StepOutput]]:
    """Run a log that is given in steps; return each step's output by sink, and the end's as the last.

    All partitions that occur are there from the start. Offsets count from 0.
    """
    fed = [step for step in steps if not isinstance(step, Tick | Crash)]
    partitions = sorted({partition for step in fed for partition, _ in step})
    host = MemoryHost(graph, partitions)
    offsets: dict[int, int] = {}
    outputs: list[list[GroupOutput]] = []
    given: Tick | pa.Table = RAW.empty_table()
    checkpoint: list[MemoryState] = []
    for step, following in zip_longest(steps, steps[1:]):
        if isinstance(step, Crash):
            host = MemoryHost(graph, partitions)
            host.begin(checkpoint)
            outputs.pop()
        else:
            given = step if isinstance(step, Tick) else _raw_step(graph, step, offsets)
        if isinstance(following, Crash):
            checkpoint = host.copy_states()
        outputs.append(host.tick(given.micros) if isinstance(given, Tick) else host.step(given))
    outputs.append(host.end() if at_end == "fire" else host.step(RAW.empty_table()))
    nothing = empty_by_sink(graph)
    found = [concat_by_sink(nothing, (group.by_sink for group in output)) for output in outputs]
    return with_crashes(steps, found, nothing)


def _raw_step(graph: m.Graph, step: Sequence[tuple[int, bytes]], offsets: dict[int, int]) -> pa.Table:
    """Return the records of a step in the order of the sources, and move the next offset of each partition."""
    rows: list[list[tuple[Any, ...]]] = [[] for _ in graph.sources]
    for partition, value in step:
        offset = offsets.get(partition, 0)
        offsets[partition] = offset + 1
        rows[graph.source_number(partition)].append((partition, offset, None, None, value))
    return pa.concat_tables(map(_raw, rows))


def _raw(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(RAW)
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, RAW, strict=True)], schema=RAW)


class InProcessRun:
    """Does what `BatchRun` does, for logs that fit in memory. The sink is given a step an epoch."""

    def __init__(self, graph: m.Graph, sink: Sink | SinkGroup, settings: BatchSettings) -> None:
        self._pipeline = graph
        self._sinks = SinkGroup.of(sink)
        self._settings = settings
        self._source = open_sources(graph)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the run to finish its step and return; from any thread."""
        self._stop.set()

    def run(self, on_step: OnStep) -> Literal["end", "asked"]:
        """Run; return why it ended. Raise a WindrowError if it failed; what was committed stays."""
        settings = self._settings
        if settings.savepoint is not None:
            require_new_folder(settings.savepoint)
        plan = batch_plan(self._pipeline, self._source, settings)
        run = settings.run or Run.new(self._pipeline.name)
        host = MemoryHost(self._pipeline, plan.partitions, settings.bounds, probe=step_probe(self._pipeline))
        self._sinks.open(run)
        nothing = empty_by_sink(self._pipeline)
        first = first_outputs(nothing, settings.journal)
        watch, epoch = Stopwatch(), -1
        for groups in self._steps(host, plan):
            epoch += 1
            on_step(_commit(self._sinks, nothing if epoch else first, epoch, groups, watch))
            if self._stop.is_set():
                return "asked"
        if epoch < 0:
            epoch = 0
            self._sinks.commit(epoch, first)
        if settings.savepoint is not None:
            plan.savepoint(self._pipeline, run, epoch).write(settings.savepoint, enumerate(host.states))
        return "end"

    def _steps(self, host: MemoryHost, plan: BatchPlan) -> Iterator[list[GroupOutput]]:
        since = self._settings.since
        for groups in self._all_steps(host, plan):
            yield groups if since is None else [ending_after(since, group) for group in groups]

    def _all_steps(self, host: MemoryHost, plan: BatchPlan) -> Iterator[list[GroupOutput]]:
        raw = _read(self._source, plan)
        at = plan.begin
        for number, upto in enumerate(plan.cut.upto):
            parts = [raw[partition].slice(*_range(raw[partition], at[partition], upto[partition])) for partition in at]
            yield host.step(pa.concat_tables(parts))
            control = plan.cut.control.get(number, ())
            if any(isinstance(message, PartitionIdle) for message in control):
                yield host.rest(self._settings.idle_at_end)
            if EndOfInput() in control:
                yield host.end()
            at = upto


def _read(source: Source, plan: BatchPlan) -> dict[int, pa.Table]:
    """Read the log, partition by partition; what was not there when the plan was made is not used."""
    found: dict[int, list[pa.RecordBatch]] = {partition: [] for partition in plan.begin}
    for batch in source.read_all():
        numbers = distinct(batch.column("partition").to_numpy())
        for number in numbers:
            if number in found:
                found[number].append(batch if len(numbers) == 1 else _only(batch, number))
    return {number: pa.Table.from_batches(batches, schema=RAW) for number, batches in found.items()}


def _only(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    return batch.filter(pa.array(batch.column("partition").to_numpy() == partition))


def _range(raw: pa.Table, begin: int, end: int) -> tuple[int, int]:
    """Return where the offsets of a range begin in a table, and how many there are."""
    first, last = np.searchsorted(to_micros(raw.column("offset")), [begin, end]).tolist()
    return first, last - first
