"""The memory host: runs a pipeline in this process, one step at a time, with the same result in every run.

`MemoryRun` runs over a log into tables, and `play` over a log given as steps. `tables_as_of` and `tables_of_first` run
a pipeline into a temporary database: up to an event time, or over the first records of the log.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.connectors.log.source import LogFolder
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.open_sources import followers, open_sources, with_lists
from windrow.connectors.sink import Run, Sink, SinkGroup
from windrow.connectors.source import Source
from windrow.engine.changelog import StepOutput, concat_by_sink, empty_by_sink
from windrow.engine.columns import distinct, pack, split_by_bytes, to_micros, unpack
from windrow.engine.level import join_levels, open_levels
from windrow.engine.messages import EndOfInput, Message, Packet, PartitionIdle, Records, RecordsLost
from windrow.engine.operators.base import GroupOutput
from windrow.engine.operators.ingest import NO_OFFSETS, Ingest
from windrow.engine.probe import NoProbe, OpenProbe
from windrow.engine.schema import RAW, TIME, raw_table
from windrow.engine.state.store import MemoryState
from windrow.engine.tick import Crash, PlayStep, Tick, with_crashes
from windrow.engine.watermarks.journal import NO_BOUNDS, IdleAtEnd, WatermarkBounds
from windrow.runtime.batch.plan import BatchPlan, BatchSettings, batch_plan, ending_after, first_outputs
from windrow.runtime.run import MAX_BYTES, Ended
from windrow.runtime.savepoint import require_new_folder
from windrow.telemetry.part_times import Stopwatch, ending_now, timing
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import OnStep, StepReport, Totals

_STEP = 500_000
"""Default number of records in a step."""
FIRST = 10_000
"""Default number of records in a preview."""


class MemoryHost:
    """Runs the stages of a pipeline over tables of raw records (`windrow.engine.schema.RAW`).

    `bounds` are watermarks from the clock journal of a run to repeat. `decoded_since` is taken from the savepoint that
    this host resumes from. `probe` opens the probe of a task's step. `others` are partitions of the sources that other
    hosts run.
    """

    def __init__(
        self,
        graph: m.Graph,
        partitions: Iterable[int],
        bounds: WatermarkBounds = NO_BOUNDS,
        decoded_since: Mapping[int, int] = NO_OFFSETS,
        probe: OpenProbe = NoProbe,
        *,
        others: Iterable[int] = (),
    ) -> None:
        known = tuple(partitions)
        self._stage = Ingest(graph, bounds, decoded_since=decoded_since, probe=probe, partitions={*known, *others})
        self._levels = open_levels(graph, known, probe=probe)
        self._key_groups = graph.key_groups
        self._states = [[MemoryState() for _ in range(graph.key_groups)] for _ in self._levels]

    @property
    def states(self) -> list[MemoryState]:
        """The state of each key group, with all levels joined."""
        return [join_levels(states) for states in zip(*self._states, strict=True)]

    def copy_states(self) -> list[MemoryState]:
        """Return a copy of the state of each key group, with all levels joined."""
        copies = [MemoryState() for _ in range(self._key_groups)]
        for state, copy in zip(self.states, copies, strict=True):
            state.copy_to(copy)
        return copies

    def begin(self, states: Iterable[MemoryState]) -> None:
        """Resume from the states of another host's key groups; call this before the first step."""
        for group, known in enumerate(states):
            for level, own in zip(self._levels, self._states, strict=True):
                level.begin(known, own[group])

    def change_lists(self, changes: Sequence[m.ListChange]) -> None:
        """Change the lists used by rules, for the records that follow."""
        for level in self._levels:
            level.change_lists(changes)

    @property
    def state_by_level(self) -> list[tuple[int, int]]:
        """For each level, the number of blobs in the states of the key groups, and their total size in bytes."""
        return [(sum(state.rows for state in states), sum(state.size for state in states)) for states in self._states]

    @property
    def state_size(self) -> int:
        """The total size of the key groups' states in bytes."""
        return sum(size for _, size in self.state_by_level)

    def step(self, raw: pa.Table) -> list[GroupOutput]:
        """Run one step over the records after those of the last step; each partition's records are in offset order."""
        return self._run(self._stage.run(raw.to_batches()))

    def tick(self, micros: int) -> list[GroupOutput]:
        """Run a step without records at the processing time `micros` (since the epoch, UTC)."""
        return self._control(Tick(micros))

    def rest(self, idle_at_end: IdleAtEnd) -> list[GroupOutput]:
        """Run a step without records in which partitions become idle, as they did in the replayed run."""
        return self._control(*(PartitionIdle(*low) for low in idle_at_end.lows))

    def lose(self, *losses: RecordsLost) -> list[GroupOutput]:
        """Run a step without records, after which partitions resume beyond the lost records."""
        return self._control(*losses)

    def end(self) -> list[GroupOutput]:
        """Run the step at the end of the input, in which every open window fires."""
        return self._control(EndOfInput())

    def kept(self, packets: Iterable[Packet]) -> Iterable[Packet]:
        """Return the packets that a level receives. A subclass may remove records from them."""
        return packets

    def _control(self, *messages: Message) -> list[GroupOutput]:
        """Run a step in which every key group receives the given control messages."""
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
    """Omits source records after an event time; watermarks and verdicts are still those of the whole log."""

    def __init__(self, graph: m.Graph, partitions: Iterable[int], until: int) -> None:
        super().__init__(graph, partitions, probe=step_probe(graph))
        self._until = until

    def kept(self, packets: Iterable[Packet]) -> Iterable[Packet]:
        """Remove the later records from the packets; the packets themselves stay."""
        for packet in packets:
            message = packet.message
            if isinstance(message, Records) and message.is_raw:
                records = unpack(message.blob)
                own = records.filter(pa.array(to_micros(records.column(TIME)) <= self._until))
                yield Packet(packet.key_group, replace(message, blob=pack(own)))
            else:
                yield packet


class MemoryRun:
    """Runs a pipeline in this process and commits each step as an epoch; the sink's tables must be empty.

    It reads everything that the source holds now, from its beginning, in steps of up to `max_records` records and
    `max_bytes` bytes. With `until` (microseconds), records of a later event time are left out of the results. `read`
    yields the records of the source, with each partition's records in offset order. With a `batch`, it computes what
    `BatchRun` computes, for logs that fit in memory.
    """

    def __init__(
        self,
        graph: m.Graph,
        sink: Sink | SinkGroup,
        max_records: int | None = None,
        *,
        max_bytes: int = MAX_BYTES,
        batch: BatchSettings | None = None,
        until: int | None = None,
        read: Callable[[Source], Iterator[pa.RecordBatch]] = lambda source: source.read_all(),
    ) -> None:
        self._pipeline = graph
        self._sinks = SinkGroup.of(sink)
        self._max_records = max_records or _STEP
        self._max_bytes = max_bytes
        self._batch = batch
        self._until = until
        self._read = read
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the run to finish its current step and return; can be called from any thread."""
        self._stop.set()

    def run(self, on_step: OnStep) -> Ended:
        """Run, and return why the run ended. Raise a WindrowError if it fails; steps already committed remain."""
        source = open_sources(self._pipeline, None if self._batch is None else self._batch.read_as)
        if self._batch is None:
            host = self._host(source.partitions())
            self._sinks.open(Run.new(self._pipeline.name))
            epochs = self._commit(host, self._steps(host, source), None, on_step)
            return "asked" if epochs is None else "end"
        return self._run_batch(source, self._batch, on_step)

    def _run_batch(self, source: Source, batch: BatchSettings, on_step: OnStep) -> Ended:
        if batch.savepoint is not None:
            require_new_folder(batch.savepoint)
        plan, run = batch_plan(self._pipeline, source, batch), batch.run or Run.new(self._pipeline.name)
        host = MemoryHost(self._pipeline, plan.partitions, batch.bounds, probe=step_probe(self._pipeline))
        self._sinks.open(run)
        epochs = self._commit(host, _planned_steps(host, source, plan, batch), batch.journal, on_step)
        if epochs is None:
            return "asked"
        if not epochs:
            self._sinks.commit(0, first_outputs(empty_by_sink(self._pipeline), batch.journal))
        if batch.savepoint is not None:
            last = max(0, epochs - 1)
            plan.savepoint(self._pipeline, run, last).write(batch.savepoint, enumerate(host.states))
        return "end"

    def _host(self, partitions: Iterable[int]) -> MemoryHost:
        if self._until is None:
            return MemoryHost(self._pipeline, partitions, probe=step_probe(self._pipeline))
        return _HostUntil(self._pipeline, partitions, self._until)

    def _steps(self, host: MemoryHost, source: Source) -> Iterator[_Step]:
        for raw in _tables(self._read(source), self._max_records, self._max_bytes):
            yield partial(host.step, raw)
        if self._pipeline.at_end == "fire":
            yield host.end

    def _commit(
        self, host: MemoryHost, steps: Iterable[_Step], journal: pa.Table | None, on_step: OnStep
    ) -> int | None:
        """Compute and commit steps, writing journal rows with the first; return their number, or None if stopped."""
        nothing = empty_by_sink(self._pipeline)
        before, watch, epochs = first_outputs(nothing, journal), Stopwatch(), 0
        for epoch, step in enumerate(steps):
            if epoch and self._stop.is_set():
                return None
            groups = step()
            rows = concat_by_sink(before, (group.by_sink for group in groups))
            computed = watch.lap()
            parts = [ending_now("compute", computed)]
            with timing(parts, "commit"):
                refused = self._sinks.commit(epoch, rows)
            report = StepReport.of(epoch, groups, computed + watch.lap(), parts=parts, refused=refused)
            is_batch = self._batch is not None
            on_step(report if is_batch else report.with_state(self._pipeline, host.state_by_level))
            before, epochs = nothing, epoch + 1
        return epochs


_Step = Callable[[], list[GroupOutput]]
"""Computes a step."""


def _tables(batches: Iterable[pa.RecordBatch], max_records: int, max_bytes: int) -> Iterator[pa.Table]:
    """Divide batches into tables of `max_records` records, or fewer if these have more than `max_bytes`."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in chain.from_iterable(split_by_bytes(batch, max_bytes) for batch in batches):
        rest = batch
        while rest.num_rows:
            if held and (rows == max_records or size + rest.nbytes > max_bytes):
                yield raw_table(held)
                held, rows, size = [], 0, 0
            part = rest.slice(0, max_records - rows)
            held.append(part)
            rows, size, rest = rows + part.num_rows, size + part.nbytes, rest.slice(part.num_rows)
    if held:
        yield raw_table(held)


def play(
    graph: m.Graph, steps: Sequence[PlayStep | Crash], at_end: Literal["fire", "hold"]
) -> list[dict[str, StepOutput]]:
    """Run a log given as steps; return the output by sink of each step and of the end of the input.

    All partitions exist from the start, and their offsets start at 0.
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
    """Return the records of a step, grouped by source, and advance the next offset of each partition."""
    rows: list[list[tuple[Any, ...]]] = [[] for _ in graph.sources]
    for partition, value in step:
        offset = offsets.get(partition, 0)
        offsets[partition] = offset + 1
        rows[graph.source_number(partition)].append((partition, offset, None, None, value))
    return pa.concat_tables(map(_raw, rows))


def _raw(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(RAW)
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, RAW, strict=True)], schema=RAW)


def _planned_steps(host: MemoryHost, source: Source, plan: BatchPlan, batch: BatchSettings) -> Iterator[_Step]:
    """Yield the steps of a plan: records, then partitions that become idle, then the end of the input."""

    def after_since(step: _Step) -> list[GroupOutput]:
        return step() if batch.since is None else [ending_after(batch.since, group) for group in step()]

    raw, at = _read(source, plan), plan.begin
    for number, upto in enumerate(plan.cut.upto):
        parts = [raw[partition].slice(*_range(raw[partition], at[partition], upto[partition])) for partition in at]
        yield partial(after_since, partial(host.step, pa.concat_tables(parts, promote_options="default")))
        control = plan.cut.control.get(number, ())
        if any(isinstance(message, PartitionIdle) for message in control):
            yield partial(after_since, partial(host.rest, batch.idle_at_end))
        if EndOfInput() in control:
            yield partial(after_since, host.end)
        at = upto


def _read(source: Source, plan: BatchPlan) -> dict[int, pa.Table]:
    """Return the log as one table for each partition of the plan; other partitions are ignored."""
    found: dict[int, list[pa.RecordBatch]] = {partition: [] for partition in plan.begin}
    for batch in source.read_all():
        numbers = distinct(batch.column("partition").to_numpy())
        for number in numbers:
            if number in found:
                found[number].append(batch if len(numbers) == 1 else _only(batch, number))
    return {number: raw_table(batches) for number, batches in found.items()}


def _only(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    return batch.filter(pa.array(batch.column("partition").to_numpy() == partition))


def _range(raw: pa.Table, begin: int, end: int) -> tuple[int, int]:
    """Return the first row and the number of rows of an offset range in a partition's table."""
    first, last = np.searchsorted(to_micros(raw.column("offset")), [begin, end]).tolist()
    return first, last - first


@contextmanager
def tables_as_of(graph: m.Graph, until: int) -> Iterator[m.Graph]:
    """Run the pipeline into a temporary database, over records up to `until` (microseconds, inclusive), and yield it.

    The log is read from its first record. Watermarks are those of the whole log, so verdicts are the same as in a
    replay without the clock journal. Raise a WindrowError if the log cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="windrow-") as folder:
        past = _into_own(with_lists(graph, lambda _: None), Path(folder))
        with closing(open_sinks(past)) as sinks:
            MemoryRun(past, sinks, until=until).run(lambda _: None)
        yield past


@dataclass(frozen=True)
class FirstTables:
    """A pipeline that has run over the first records of its log into a temporary database.

    `totals` are the counts of these records. `share` is the maximum number of records read from each partition, or None
    if the whole log was read. `notes` are warnings about the lists used by its rules.
    """

    pipeline: m.Graph
    totals: Totals
    share: int | None
    notes: tuple[str, ...]


@contextmanager
def tables_of_first(graph: m.Graph, most: int = FIRST) -> Iterator[FirstTables]:
    """Yield the tables of about the first `most` records, as if the log ended there, so that all windows fire.

    Each partition contributes an equal share. A followed file that no run has read yet is read as it is now. Raise a
    WindrowError if the log cannot be read.
    """
    notes: list[str] = []
    totals, share = Totals(), None

    def read(source: Source) -> Iterator[pa.RecordBatch]:
        nonlocal share
        share = yield from read_first(source, most)

    with tempfile.TemporaryDirectory(prefix="windrow-") as folder:
        past = _into_own(with_lists(graph, notes.append), Path(folder)).ending("fire")
        past, own = _with_own_logs(past, Path(folder))
        for name, follower in followers(past).items():
            if name in own:
                follower.update()
        with closing(open_sinks(past)) as sinks:
            MemoryRun(past, sinks, read=read).run(totals.add)
        yield FirstTables(past, totals, share, tuple(notes))


def read_first(source: Source, most: int) -> Generator[pa.RecordBatch, None, int | None]:
    """Yield about the first `most` records, an equal share from each partition.

    Return this share if a partition has more records, else None.
    """
    partitions = source.partitions()
    share = -(-most // max(1, len(partitions)))
    has_more = False
    for partition in partitions:
        left = share
        for batch in source.read_from(partition, 0):
            yield batch.slice(0, left)
            has_more |= batch.num_rows > left
            left -= min(left, batch.num_rows)
            if has_more and not left:
                break
    return share if has_more else None


def _with_own_logs(graph: m.Graph, folder: Path) -> tuple[m.Graph, set[str]]:
    """Return the pipeline with a new log in `folder` for each followed file without one, and these sources' names."""
    own: set[str] = set()

    def log_of(name: str, source: m.Source) -> m.Source:
        if not isinstance(source, m.FileSource) or Path(source.log).exists():
            return source
        own.add(name)
        return replace(source, log=str(folder / f"log-{len(own)}"))

    following = graph.map_nodes(
        lambda node: replace(node, source=log_of(node.name, node.source)) if isinstance(node, m.SourceNode) else node
    )
    return following, own


def missing_of(graph: m.Graph) -> list[str]:
    """Return warnings about partitions whose beginning was lost, or whose older records were removed by compaction."""
    found = []
    for partition, (first, _) in sorted(open_sources(graph).ends().items()):
        folder, name = graph.source_of(partition).source.folder, graph.partition_name(partition)
        if first:
            found.append(f"partition {name} begins at offset {first:,}: the table lacks what came before")
        elif folder is not None and LogFolder(folder).retained(partition % m.MAX_PARTITIONS).segment is not None:
            found.append(f"partition {name} was compacted: the table lacks records of keys that have newer ones")
    return found


def _into_own(graph: m.Graph, folder: Path) -> m.Graph:
    """Return the pipeline with each table in a separate SQLite database in the folder."""
    own = {
        node.name: replace(node, sink=m.SqliteSink(str(folder / f"{number}.db"), node.sink.table))
        for number, node in enumerate(graph.sinks)
    }
    moved = graph.map_nodes(lambda node: own[node.name] if isinstance(node, m.SinkNode) else node)
    return replace(moved, mode="micro-batch")
