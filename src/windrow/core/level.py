"""Levels: the parts of a pipeline between exchanges, and the step of one key group at a level.

All operators of a level run in the same task. The clocks of partitions advance once for all of them, in the same way in
every key group, since each receives the same messages about partitions. A pipeline has one level, or two if its keys
are salted: a local aggregate before the exchange by key, then the operator.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import schema
from windrow.core.changelog import StepOutput
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
from windrow.core.state.store import MemoryState, OperatorState, State
from windrow.core.state.widening import StateChange
from windrow.core.watermarks.clocks import PartitionClocks
from windrow.core.watermarks.tracker import advance_clocks
from windrow.model import AnyPipeline, ProcessPipeline, Session, is_salted


def open_levels(pipeline: AnyPipeline, partitions: Iterable[int]) -> tuple[LevelRunner, ...]:
    """Return the levels of a pipeline; `partitions` are those that the source had when it was first started."""
    known, operator = tuple(partitions), open_operator(pipeline)
    if not is_salted(pipeline):
        return (LevelRunner(pipeline, operator, known),)
    return (
        LevelRunner(pipeline, LocalAggregate(pipeline), known, is_last=False),
        LevelRunner(pipeline, operator, known),
    )


def open_operator(pipeline: AnyPipeline) -> Operator:
    """Return the operator that makes the rows of a pipeline."""
    if isinstance(pipeline, ProcessPipeline):
        return ProcessOperator(pipeline)
    return SessionOperator(pipeline) if isinstance(pipeline.window, Session) else WindowOperator(pipeline)


@dataclass
class LevelSummary:
    """The summary of a key group at a level: the clocks, and the operator's own part (plain JSON)."""

    clocks: PartitionClocks
    operator: Any = field(default=None)

    def encode(self) -> bytes:
        """Write as JSON."""
        return json.dumps({"clocks": self.clocks.encode(), "operator": self.operator}).encode()

    @staticmethod
    def decode(blob: bytes) -> LevelSummary:
        """Read what `encode` wrote."""
        fields = json.loads(blob)
        return LevelSummary(PartitionClocks.decode(fields["clocks"]), fields["operator"])


def migrate(pipeline: AnyPipeline, change: StateChange, states: Iterable[MemoryState]) -> list[MemoryState]:
    """Return the initial states of the pipeline's key groups (of the last level), in their order, from those of a run.

    Clocks are the same in every key group, so any of them gives the clocks of all.
    """
    known = [(LevelSummary.decode(blob), state) for state in states if (blob := state.summary()) is not None]
    if not known:
        return [MemoryState() for _ in range(pipeline.key_groups)]
    clocks = known[0][0].clocks
    made = []
    stored = [(summary.operator, state) for summary, state in known]
    for summary, state in open_operator(pipeline).migrate(change, clocks, stored):
        state.set_summary(LevelSummary(clocks, summary).encode())
        made.append(state)
    return made


class LevelRunner:
    """Runs the steps of a level in its key groups.

    It keeps nothing between steps. Unless the level `is_last`, it forwards all messages that are not for its operator
    to the key group of the same number at the next level, since every key group receives those.
    """

    def __init__(
        self, pipeline: AnyPipeline, operator: Operator, partitions: tuple[int, ...], *, is_last: bool = True
    ) -> None:
        self._pipeline = pipeline
        self._operator = operator
        self._partitions = partitions
        self.is_last = is_last
        self._nothing = StepOutput.empty(pipeline)

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
        given = StepInput.of(self._pipeline, taken)
        blob = state.summary()
        summary = LevelSummary(PartitionClocks.start(self._partitions)) if blob is None else LevelSummary.decode(blob)
        advance = advance_clocks(self._pipeline, summary.clocks, given)
        place = given.records.column_names.index(WATERMARK)
        records = given.records.set_column(place, WATERMARK, pa.array(advance.watermarks))
        own = OperatorState(state, summary.operator)
        output = self._operator.process(OperatorStep(group, advance.time, records, given.parts, given.spread), own)
        state.set_summary(LevelSummary(summary.clocks, own.summary).encode())
        stats = _stats(output, given, summary.clocks)
        if not self.is_last:
            forwarded = (Packet(group, one) for one in taken if not isinstance(one, Records | PartialPanes))
            return GroupOutput(self._nothing, stats, (*forwarded, *output.packets))
        # clocks are identical in every key group, so only group 0 writes the journal
        journal = advance.journal if group == 0 else schema.CLOCKS.empty_table()
        return GroupOutput(StepOutput(output.changes, output.late, given.dead, journal), stats)


def _stats(output: OperatorOutput, given: StepInput, clocks: PartitionClocks) -> GroupStats:
    operations = output.changes.column("op")
    return GroupStats(
        records=output.records,
        late=output.late_records,
        expired=output.late.num_rows,
        dead=given.dead.num_rows,
        inserts=pc.sum(pc.equal(operations, "insert")).as_py() or 0,
        revisions=pc.sum(pc.equal(operations, "update_after")).as_py() or 0,
        open_windows=output.open_windows,
        watermarks=dict(clocks.watermarks),
        offsets=dict(clocks.next),
        low=clocks.low,
        idle=sorted(clocks.idle),
    )
