"""Levels: the parts of a graph between exchanges, and the step of one key group at a level.

All operators of a level run in the same task. The clocks of partitions advance once for all of them, in the same way in
every key group, since each receives the same messages about partitions. A graph has one level, or two if keys are
salted: local aggregates before the exchange by key, then all operators.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import schema
from windrow.core.changelog import StepOutput, empty_by_sink
from windrow.core.messages import Message, Packet, PartialPanes, Records
from windrow.core.operators.base import (
    GroupOutput,
    GroupStats,
    Operator,
    OperatorOutput,
    OperatorStep,
    StepInput,
)
from windrow.core.operators.local_aggregate import LocalAggregate
from windrow.core.operators.process.operator import ProcessOperator
from windrow.core.operators.session.operator import SessionOperator
from windrow.core.operators.window.operator import WindowOperator
from windrow.core.schema import WATERMARK
from windrow.core.state.store import MemoryState, OperatorState, State, blobs_of, scoped_kind
from windrow.core.state.widening import StateChange
from windrow.core.watermarks.clocks import PartitionClocks
from windrow.core.watermarks.tracker import advance_clocks
from windrow.model import (
    AnyPipeline,
    Graph,
    Pipeline,
    ProcessPipeline,
    Runnable,
    Session,
    as_graph,
    keyed_pipelines,
)


def open_levels(pipeline: Runnable, partitions: Iterable[int]) -> tuple[LevelRunner, ...]:
    """Return the levels of a pipeline; `partitions` are those that the source had when it was first started."""
    graph, known = as_graph(pipeline), tuple(partitions)
    keyed = keyed_pipelines(graph)
    salted = {
        name: LocalAggregate(name, one) for name, one in keyed.items() if isinstance(one, Pipeline) and one.salt > 1
    }
    last = LevelRunner(graph, {name: open_operator(one) for name, one in keyed.items()}, known)
    return (LevelRunner(graph, salted, known, is_last=False), last) if salted else (last,)


def number_of_levels(pipeline: Runnable) -> int:
    """Return how many levels `open_levels` opens."""
    return 2 if any(node.salt > 1 for node in as_graph(pipeline).keyed) else 1


def open_operator(pipeline: AnyPipeline) -> Operator:
    """Return the operator of a keyed node."""
    if isinstance(pipeline, ProcessPipeline):
        return ProcessOperator(pipeline)
    return SessionOperator(pipeline) if isinstance(pipeline.window, Session) else WindowOperator(pipeline)


@dataclass
class LevelSummary:
    """The summary of a key group at a level: the clocks, and the operators' own parts by node (plain JSON)."""

    clocks: PartitionClocks
    operators: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Write as JSON."""
        return json.dumps({"clocks": self.clocks.encode(), "operators": self.operators}).encode()

    @staticmethod
    def decode(blob: bytes) -> LevelSummary:
        """Read what `encode` wrote."""
        fields = json.loads(blob)
        return LevelSummary(PartitionClocks.decode(fields["clocks"]), fields["operators"])


def migrate(pipeline: Runnable, changes: Mapping[str, StateChange], states: Iterable[MemoryState]) -> list[MemoryState]:
    """Return the initial states of the pipeline's key groups (of the last level), in their order, from those of a run.

    `changes` says by node how the run's differed; a node that it does not have starts without state. Clocks are the
    same in every key group, so any of them gives the clocks of all.
    """
    graph = as_graph(pipeline)
    known = [(LevelSummary.decode(blob), state) for state in states if (blob := state.summary()) is not None]
    made = [MemoryState() for _ in range(graph.key_groups)]
    if not known:
        return made
    clocks = known[0][0].clocks
    summaries: list[dict[str, Any]] = [{} for _ in made]
    for name, one in keyed_pipelines(graph).items():
        if name not in changes:
            continue
        stored = [(summary.operators[name], blobs_of(name, state)) for summary, state in known]
        migrated = open_operator(one).migrate(changes[name], clocks, stored)
        for state, summary, (own, blobs) in zip(made, summaries, migrated, strict=True):
            summary[name] = own
            for (kind, bucket), blob in blobs.items():
                state.set(scoped_kind(name, kind), bucket, blob)
    for state, summary in zip(made, summaries, strict=True):
        state.set_summary(LevelSummary(clocks, summary).encode())
    return made


class LevelRunner:
    """Runs the steps of a level in its key groups.

    It keeps nothing between steps. Unless the level `is_last`, it forwards all messages that are not for its operators
    to the key group of the same number at the next level, since every key group receives those.
    """

    def __init__(
        self, graph: Graph, operators: Mapping[str, Operator], partitions: tuple[int, ...], *, is_last: bool = True
    ) -> None:
        self._graph = graph
        self._operators = operators
        self._partitions = partitions
        self.is_last = is_last
        self._keyed = {name: one for name, one in keyed_pipelines(graph).items() if name in operators}
        self._nothing = empty_by_sink(graph)

    def begin(self, known: MemoryState, state: State) -> None:
        """Restore the state of a key group from that of the last level in a savepoint.

        Levels before the last keep nothing but the clocks, which are the same at all levels.
        """
        blob = known.summary()
        if self.is_last:
            known.copy_to(state)
        elif blob is not None:
            state.set_summary(LevelSummary(LevelSummary.decode(blob).clocks).encode())

    def step(self, group: int, messages: Iterable[Message], state: State) -> GroupOutput:
        """Run one step of one key group."""
        taken = list(messages)
        given = StepInput.of(self._keyed, taken)
        blob = state.summary()
        summary = LevelSummary(PartitionClocks.start(self._partitions)) if blob is None else LevelSummary.decode(blob)
        advance = advance_clocks(self._graph.origin, summary.clocks, given)
        outputs: dict[str, OperatorOutput] = {}
        for name, operator in self._operators.items():
            records = given.records[name]
            place = records.column_names.index(WATERMARK)
            records = records.set_column(place, WATERMARK, pa.array(advance.watermarks(records)))
            own = OperatorState(name, state, summary.operators.get(name))
            outputs[name] = operator.process(OperatorStep(group, advance.time, records, given.parts[name]), own)
            summary.operators[name] = own.summary
        state.set_summary(summary.encode())
        stats = _stats(group, outputs.values(), given, summary.clocks)
        if not self.is_last:
            own_data = (one for one in taken if not self._is_own(one))
            packets = (packet for output in outputs.values() for packet in output.packets)
            return GroupOutput(self._nothing, stats, (*(Packet(group, one) for one in own_data), *packets))
        # clocks are identical in every key group, so only group 0 writes the journal
        journal = advance.journal if group == 0 else schema.CLOCKS.empty_table()
        rows = {
            sink.name: StepOutput(
                outputs[sink.input].changes,
                outputs[sink.input].late,
                pa.concat_tables([given.dead[None], given.dead[sink.input]]),
                journal,
            )
            for sink in self._graph.sinks
        }
        return GroupOutput(rows, stats)

    def _is_own(self, message: Message) -> bool:
        return isinstance(message, Records | PartialPanes) and message.to in self._operators


def _stats(group: int, outputs: Iterable[OperatorOutput], given: StepInput, clocks: PartitionClocks) -> GroupStats:
    """Count a step; records by the messages about partitions, which every key group receives."""
    made = list(outputs)
    operations = pa.chunked_array([chunk for one in made for chunk in one.changes.column("op").chunks], pa.string())
    return GroupStats(
        records=sum(one.records for one in given.progress) if group == 0 else 0,
        late=sum(one.late_records for one in made),
        expired=sum(one.late.num_rows for one in made),
        dead=given.dead[None].num_rows,
        inserts=pc.sum(pc.equal(operations, "insert")).as_py() or 0,
        revisions=pc.sum(pc.equal(operations, "update_after")).as_py() or 0,
        open_windows=sum(one.open_windows for one in made),
        watermarks=dict(clocks.watermarks),
        offsets=dict(clocks.next),
        low=clocks.low,
        idle=sorted(clocks.idle),
        rejected=sum(table.num_rows for name, table in given.dead.items() if name is not None),
    )
