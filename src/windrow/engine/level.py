"""Levels: the parts of a graph between exchanges, and the step of one key group at a level.

A node with state is at the level after all nodes with state that it reads; the local aggregates of salted keys are at
the level before their node. All operators of a level run in the same task. The clocks of partitions advance once for
all of them, and in the same way in every key group and at every level, because each receives the same messages about
partitions.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.changelog import StepOutput, empty_by_sink, late_output, source_numbers, with_labels
from windrow.engine.columns import MAX_TIME, concat, pack, to_micros, unpack
from windrow.engine.keys import place_groups
from windrow.engine.messages import Message, Observation, Packet, PartialPanes, Records, Results, TickDue, TimersEnded
from windrow.engine.operators import base
from windrow.engine.operators.base import Judged, OperatorOutput, StepInput
from windrow.engine.operators.dead_letters import ResultDeadLetters
from windrow.engine.operators.local_aggregate import LocalAggregate
from windrow.engine.operators.registry import build_operator
from windrow.engine.operators.route import Router, input_schema
from windrow.engine.probe import NodeStep, NoProbe, OpenProbe
from windrow.engine.schema import END, ID, PARTITION, REVISION, TIME, WATERMARK, WINDOW
from windrow.engine.state.store import MemoryState, OperatorState, State, blobs_of, scoped_kind
from windrow.engine.state.widening import StateChange
from windrow.engine.truncations import are_truncations
from windrow.engine.watermarks.clocks import PartitionClocks
from windrow.engine.watermarks.sources import SourceTimes, sources_of
from windrow.engine.watermarks.tracker import ClockAdvance, ClockSteps
from windrow.expressions import is_window_spec, spec_of, stream_of


def open_levels(
    graph: m.Graph,
    partitions: Iterable[int],
    packed: Callable[[pa.Table], bytes] = pack,
    probe: OpenProbe = NoProbe,
) -> tuple[LevelRunner, ...]:
    """Return the levels of a pipeline; `partitions` are the partitions that its sources had when it was first started.

    The function `packed` packs the records that a level sends to the next one. `probe` opens a probe for a step of a
    key group.
    """
    levels, known = graph.levels, tuple(partitions)
    return tuple(LevelRunner(graph, places, known, packed, probe, is_last=places is levels[-1]) for places in levels)


def number_of_levels(graph: m.Graph) -> int:
    """Return the number of levels that `open_levels` opens."""
    return len(graph.levels)


def levels_with_state(graph: m.Graph) -> tuple[int, ...]:
    """Return the numbers of the levels that have state besides the clocks; level 0 is the last one."""
    levels = enumerate(reversed(graph.levels))
    return tuple(number for number, places in levels if not all(place.is_local for place in places))


_CLOCKS, _OPERATORS = '{"clocks": ', ', "operators": '


@dataclass
class LevelSummary:
    """The summary of a key group's state at a level.

    It has the clocks as JSON text, and the summary of each node's operator as plain JSON values.
    """

    clocks: str
    operators: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode the summary as JSON."""
        return f"{_CLOCKS}{self.clocks}{_OPERATORS}{json.dumps(self.operators)}}}".encode()

    @staticmethod
    def decode(blob: bytes) -> LevelSummary:
        """Decode the output of `encode`."""
        # names in the clocks are JSON strings, so the separator does not occur in them
        clocks, _, operators = blob.decode().removeprefix(_CLOCKS).partition(_OPERATORS)
        return LevelSummary(clocks, json.loads(operators[:-1]))


def join_levels(states: Iterable[MemoryState]) -> MemoryState:
    """Merge the states of a key group at all levels into one state.

    The clocks are the same at every level, except that only the last level has all `timers`.
    """
    first, *others = states
    if not others:
        return first
    joined = MemoryState()
    summaries: list[LevelSummary] = []
    for state in (first, *others):
        if (blob := state.summary()) is not None:
            summaries.append(LevelSummary.decode(blob))
        for (kind, bucket), data in state.items():
            joined.set(kind, bucket, data)
    if summaries:
        operators = {name: own for summary in summaries for name, own in summary.operators.items()}
        joined.set_summary(LevelSummary(summaries[-1].clocks, operators).encode())
    return joined


def migrate(graph: m.Graph, changes: Mapping[str, StateChange], states: Iterable[MemoryState]) -> list[MemoryState]:
    """Return the initial state of each key group (for all levels), in order, from the states of an earlier run.

    For each node that keeps its state, `changes` says how the node differed in that run; all other nodes start without
    state. Clocks are the same in every key group, so those of the first group are used.
    """
    known = [(LevelSummary.decode(blob), state) for state in states if (blob := state.summary()) is not None]
    new = [MemoryState() for _ in range(graph.key_groups)]
    if not known:
        return new
    clocks = PartitionClocks.decode(json.loads(known[0][0].clocks))
    summaries: list[dict[str, Any]] = [{} for _ in new]
    for node in graph.computed:
        name = node.name
        if name not in changes:
            continue
        # a node that the run did not have state for, such as a new table of a stream, has no summary
        stored = [
            (summary.operators[name], blobs_of(name, state)) for summary, state in known if name in summary.operators
        ]
        low = clocks.low(sources_of(graph, node))
        migrated = build_operator(graph, node).migrate(changes[name], low, stored)
        for state, summary, (own, blobs) in zip(new, summaries, migrated, strict=True):
            summary[name] = own
            for (kind, bucket), blob in blobs.items():
                state.set(scoped_kind(name, kind), bucket, blob)
    for state, summary in zip(new, summaries, strict=True):
        state.set_summary(LevelSummary(json.dumps(clocks.encode()), summary).encode())
    return new


class _NodeRunner:
    """A node at a level: its operator, and the router for its output."""

    def __init__(
        self, graph: m.Graph, place: m.LevelNode, packed: Callable[[pa.Table], bytes], local: Container[str]
    ) -> None:
        self._graph = graph
        node = self.node = place.node
        spec = self.spec = spec_of(graph, node)
        self.name = node.name
        self.is_local = place.is_local
        self.operator: base.Operator = (
            LocalAggregate(node.name, spec) if place.is_local and is_window_spec(spec) else build_operator(graph, node)
        )
        self.input = base.NodeInput.of(spec, input_schema(graph, node))
        self.sources = sources_of(graph, node)
        # by the number of the source
        self.is_limited = np.array([source.lateness is not None for source in graph.sources])
        self.lateness = np.array([source.lateness or 0 for source in graph.sources])
        self.outputs = m.operator_outputs(node)
        self.router: Router | None = None
        if isinstance(node, m.KeyedNode) and not place.is_local:
            router = Router(graph, node, packed, local)
            self.router = None if router.is_idle else router
            self.dead_letters = ResultDeadLetters(graph, node)
        self._duck = duckdb_sql.Connection()

    def step(
        self, group: int, given: StepInput, advance: ClockAdvance, local: Sequence[pa.Table], state: OperatorState
    ) -> NodeStep:
        """Run the operator's step; `local` has the records from nodes of the same level."""
        raw = records = given.raw[self.name]
        late, expired = schema.NO_LATE, tuple[Judged, ...]()
        if raw.num_rows:
            raw = advance.with_watermarks(raw)
            records, late, expired = self.split_expired(raw, group)
        records = self.input.join([records, given.records[self.name], *local])
        time = advance.time(self.sources, self.node.inputs)
        output = self.operator.process(base.OperatorStep(group, time, records, given.parts[self.name]), state)
        if late.num_rows:
            output = replace(output, late=pa.concat_tables([late, output.late]))
        return NodeStep(group, self.name, given, advance, raw, records, (*expired, *output.judged), output)

    def split_expired(self, records: pa.Table, group: int) -> tuple[pa.Table, pa.Table, tuple[Judged, ...]]:
        """Return the records within their source's lateness, and the late output and verdicts for expired records.

        All key groups have truncations and the versions of a broadcast lookup, but only one key group adds an expired
        one to the late output.
        """
        if not self.is_limited.any():
            return records, schema.NO_LATE, ()
        times, watermarks = (to_micros(records.column(name)) for name in (TIME, WATERMARK))
        sources = source_numbers(self._graph, records.column(PARTITION))
        is_expired = self.is_limited[sources] & (watermarks >= times + self.lateness[sources])
        if not is_expired.any():
            return records, schema.NO_LATE, ()
        records, expired = records.filter(pa.array(~is_expired)), records.filter(pa.array(is_expired))
        is_broadcast = isinstance(self.node, m.LookupNode) and self.node.broadcast
        truncations = are_truncations(expired)
        if is_broadcast or truncations is not None:
            is_here = pa.array(place_groups(self._duck, expired, self.spec.key_groups) == group)
            is_elsewhere = pc.invert(is_here) if is_broadcast else pc.and_(truncations, pc.invert(is_here))
            expired = expired.filter(pc.invert(is_elsewhere))
        # the window that they missed is their own microsecond
        times = to_micros(expired.column(TIME))
        expired = expired.append_column(WINDOW, pa.array(times)).append_column(END, pa.array(times + 1))
        return records, late_output(self._duck, self.spec, expired), (Judged.of_all(expired, expired=True),)

    def packets(self, output: OperatorOutput) -> Iterator[Packet]:
        """Yield packets for the downstream nodes."""
        yield from output.packets
        if self.router is not None:
            streams = dict(zip(self.outputs, output.records, strict=True))
            if REVISION in output.records[0].column_names:
                streams = {name: with_window_ids(name, self.spec.key, table) for name, table in streams.items()}
            streams, dead_letters = self.dead_letters.numbered(streams)
            yield from self.router.add(streams, dead_letters)
            yield from self.router.close()

    def timer_packets(self, output: OperatorOutput, advance: ClockAdvance) -> Iterator[Packet]:
        """Yield a packet for each key group if timers fired by the end of the input emitted rows later than the input.

        The packet has the latest time of these rows.
        """
        if advance.is_end and isinstance(self.node, m.ProcessNode) and output.records and output.records[0].num_rows:
            time = int(to_micros(output.records[0].column(TIME)).max())
            if time > advance.end_of(self.node.input):
                for group in range(self._graph.key_groups):
                    yield Packet(group, TimersEnded(self.name, time))

    def results(self, group: int, output: OperatorOutput) -> Iterator[Packet]:
        """Yield packets with changes and late output for the sinks, which are at the last level."""
        if self.is_local:
            return
        counts = output.late_records, output.duplicates
        if output.changes.num_rows or any(counts):
            yield Packet(group, Results(self.name, "changes", pack(output.changes), *counts))
        if output.late.num_rows:
            yield Packet(group, Results(self.name, "late", pack(output.late)))


def with_window_ids(name: str, key: Sequence[str], rows: pa.Table) -> pa.Table:
    """Add an `ID` to rows of windows, made of the stream's name, the window, the key and the revision."""
    window = [rows.column(name).cast(pa.string()) for name in m.WINDOW_BOUNDS]
    keys = [rows.column(name).cast(pa.string()) for name in key]
    # the keys (a/b, c) and (a, b/c) differ
    for plain, escaped in (("\\", "\\\\"), ("/", "\\/")):
        keys = [pc.replace_substring(key, plain, escaped) for key in keys]
    parts = [pa.scalar(name), *window, *keys, rows.column(REVISION).cast(pa.string())]
    return rows.append_column(ID, pc.binary_join_element_wise(*parts, "/"))


class LevelRunner:
    """Runs the steps of a level for its key groups.

    Between steps it keeps only the last advance of the clocks, which is the same in all key groups. Unless `is_last` is
    set, it forwards all messages that are not for its operators to the same key group at the next level.
    """

    def __init__(
        self,
        graph: m.Graph,
        places: Iterable[m.LevelNode],
        partitions: tuple[int, ...],
        packed: Callable[[pa.Table], bytes],
        probe: OpenProbe,
        *,
        is_last: bool,
    ) -> None:
        self._graph = graph
        self._probe = probe
        self.is_last = is_last
        # sinks come last: they read the rows of the other nodes of the level
        ordered = sorted(places, key=lambda place: isinstance(place.node, m.SinkNode))
        local = {place.node.name for place in ordered if not place.is_local}
        self._nodes = [_NodeRunner(graph, place, packed, local) for place in ordered]
        self._names = frozenset(node.name for node in self._nodes)
        self._inputs = {node.name: node.input for node in self._nodes}
        self._nothing = empty_by_sink(graph)
        self._first_clocks = json.dumps(PartitionClocks.start(partitions).encode())
        self._clocks = ClockSteps(SourceTimes.of(graph))
        self._makers = {sink.name: _maker(graph, sink) for sink in graph.sinks}
        # the rows of these sinks have a partition, as its number among those of all sources
        self._with_places = {
            sink.name
            for sink in graph.sinks
            if self._makers[sink.name] == sink.name and not stream_of(graph, sink.input).has_id
        }
        self._above_sink = {sink.name: _all_above(graph, sink) for sink in graph.sinks}

    def begin(self, known: MemoryState, state: State) -> None:
        """Restore a key group's state at this level from a savepoint, which has the state of all levels."""
        blob = known.summary()
        if blob is None:
            return
        summary = LevelSummary.decode(blob)
        own = {node.name: summary.operators.get(node.name) for node in self._nodes if not node.is_local}
        state.set_summary(LevelSummary(summary.clocks, own).encode())
        for name in own:
            for (kind, bucket), data in blobs_of(name, known).items():
                state.set(scoped_kind(name, kind), bucket, data)

    def change_lists(self, changes: Sequence[m.ListChange]) -> None:
        """Change the lists that rules use for all later records."""
        from windrow.engine.operators.rules.operator import RulesOperator  # noqa: PLC0415 - only pipelines with rules need it

        for node in self._nodes:
            if isinstance(node.operator, RulesOperator):
                node.operator.change_lists(changes)

    def takes(self, message: Message) -> bool:
        """Return True if a message is for an operator of this level."""
        return isinstance(message, Records | PartialPanes) and message.to in self._names

    def step(self, group: int, messages: Iterable[Message], state: State) -> base.GroupOutput:
        """Run one step of one key group."""
        taken = list(messages)
        given = StepInput.of(self._inputs, taken)
        blob = state.summary()
        summary = LevelSummary(self._first_clocks) if blob is None else LevelSummary.decode(blob)
        advance, summary.clocks = self._clocks.advance(summary.clocks, given)
        probe = self._probe()
        outputs: dict[str, OperatorOutput] = {}
        packets: list[Packet] = []
        local: defaultdict[str, list[pa.Table]] = defaultdict(list)
        for node in self._nodes:
            own = OperatorState(node.name, state, summary.operators.get(node.name))
            step = node.step(group, given, advance, local[node.name], own)
            outputs[node.name] = step.made
            probe.step(step)
            summary.operators[node.name] = own.summary
            packets += node.packets(step.made)
            if node.router is not None:
                for name, table in node.router.hand_over():
                    local[name].append(table)
            if not self.is_last:
                packets += (*node.results(group, step.made), *node.timer_packets(step.made, advance))
        state.set_summary(summary.encode())
        if not self.is_last:
            own_data = (Packet(group, message) for message in taken if not self.takes(message))
            if (seen := probe.blob()) is not None:
                packets.append(Packet(group, Observation(seen)))
            stats = _count_step(group, outputs.values(), given, advance)
            due = min((output.due for output in outputs.values()), default=MAX_TIME)
            if due < MAX_TIME:
                packets.append(Packet(group, TickDue(due)))
            return base.GroupOutput(self._nothing, stats, (*own_data, *packets))
        given = given.with_dead(packet.message for packet in packets)
        # clocks are identical in every key group, so only group 0 writes the journal
        journal = advance.journal if group == 0 else schema.NO_CLOCKS
        rows = {name: self._output(name, outputs, given, journal) for name in self._nothing}
        probe.output(group, given, rows)
        observed = [bytes(message.blob) for message in taken if isinstance(message, Observation)]
        if (seen := probe.blob()) is not None:
            observed.append(seen)
        stats = _count_step(group, outputs.values(), given, advance)
        return base.GroupOutput(rows, stats, observed=tuple(observed))

    def _output(
        self, sink: str, outputs: Mapping[str, OperatorOutput], given: StepInput, journal: pa.Table
    ) -> StepOutput:
        """Return the rows of a sink: those of this level, and those sent by earlier levels."""
        maker, above = self._makers[sink], self._above_sink[sink]
        changes = _tables("changes", given.results.get(maker, ()))
        late = _tables("late", (result for name in above for result in given.results.get(name, ())))
        if maker in outputs:
            changes.append(outputs[maker].changes)
        late += [outputs[name].late for name in above if name in outputs]
        dead = [given.dead[name] for name in (None, *above) if name in given.dead]
        rows = concat(self._nothing[sink].changes, changes)
        return StepOutput(
            with_labels(self._graph, rows) if sink in self._with_places else rows,
            with_labels(self._graph, concat(schema.NO_LATE, late)),
            with_labels(self._graph, concat(schema.NO_DEAD, dead)),
            with_labels(self._graph, journal),
        )


def _tables(kind: Literal["changes", "late"], results: Iterable[Results]) -> list[pa.Table]:
    return [unpack(result.blob) for result in results if result.table == kind]


def _maker(graph: m.Graph, sink: m.SinkNode) -> str:
    """Return the name of the node whose operator produces the rows of a sink."""
    return sink.input if isinstance(graph.producer(sink.input), m.ResultNode) else sink.name


def _all_above(graph: m.Graph, sink: m.SinkNode) -> tuple[str, ...]:
    """Return the names of a sink and of all nodes that it depends on.

    A table's versions have their own name, because a lookup reads the versions and not the output of the table's
    operator.
    """
    found, stack = {sink.name: None}, [*sink.inputs]
    while stack:
        stream = stack.pop()
        node = graph.producer(stream)
        is_table = isinstance(node, m.TableNode)
        name = stream if is_table else node.name
        if name not in found:
            found[name] = None
            stack += [m.versions_of(node.name)] if is_table and stream == node.name else node.inputs
    return tuple(found)


def _count_step(
    group: int, outputs: Iterable[OperatorOutput], given: StepInput, advance: ClockAdvance
) -> base.GroupStats:
    """Count a step of a key group.

    Records are counted only in group 0, because every key group receives the messages about partitions that have the
    counts.
    """
    own, clocks = list(outputs), advance.clocks
    sent = [result for results in given.results.values() for result in results]
    counted: list[OperatorOutput | Results] = [*own, *sent]
    changes = [*(output.changes for output in own), *_tables("changes", sent)]
    late = [*(output.late for output in own), *_tables("late", sent)]
    return base.GroupStats(
        records=sum(progress.records for progress in given.progress) if group == 0 else 0,
        late=sum(output.late_records for output in counted),
        expired=sum(table.num_rows for table in late),
        dead=given.dead[None].num_rows,
        inserts=_count(changes, "insert"),
        revisions=_count(changes, "update_after"),
        watermarks={} if group else dict(clocks.watermarks),
        offsets={} if group else dict(clocks.next),
        low=clocks.low(),
        idle=[] if group else sorted(clocks.idle),
        rejected=sum(table.num_rows for name, table in given.dead.items() if name is not None),
        duplicates=sum(output.duplicates for output in counted),
        due=min(given.due, *(output.due for output in own), MAX_TIME if group else clocks.due(advance.sources)),
    )


def _count(changes: Iterable[pa.Table], operation: str) -> int:
    counts = (pc.sum(pc.equal(change.column("op"), operation)).as_py() for change in changes if change.num_rows)
    return sum(count or 0 for count in counts)
