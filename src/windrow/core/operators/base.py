"""The operator contract: what an operator is given in a step of one key group, what it returns, and its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import pyarrow as pa

from windrow.core import schema
from windrow.core.changelog import StepOutput
from windrow.core.columns import unpack
from windrow.core.messages import (
    DeadLetters,
    EndOfInput,
    EventTimes,
    Message,
    Packet,
    PartialPanes,
    PartitionIdle,
    PartitionProgress,
    Records,
    RecordsLost,
)
from windrow.core.schema import OFFSET, PARTITION, record_schema
from windrow.core.state.migrate import StoredState
from windrow.core.state.store import OperatorState
from windrow.core.state.widening import StateChange
from windrow.core.tick import Tick
from windrow.core.watermarks.clocks import PartitionClocks
from windrow.core.watermarks.tracker import StepTime
from windrow.model import AnyPipeline, Custom, Pipeline

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class StepInput:
    """A key group's messages of one step, unpacked; `progress` is ordered by partition.

    By node: `records`, `parts` (panes that other key groups aggregated of its records, where keys are salted), and dead
    letters (`dead`; under None those of all nodes). `times` stay packed, and are ordered by partition and offset.
    `tick` is the processing time at the end of the step, None if there was no tick.
    """

    records: dict[str, pa.Table]
    parts: dict[str, tuple[pa.Table, ...]]
    dead: dict[str | None, pa.Table]
    progress: tuple[PartitionProgress, ...]
    times: tuple[EventTimes, ...]
    end: bool
    tick: int | None = None
    idle: tuple[PartitionIdle, ...] = ()
    lost: tuple[RecordsLost, ...] = ()

    @staticmethod
    def of(pipelines: Mapping[str, AnyPipeline], messages: Iterable[Message]) -> StepInput:
        """Sort messages by what they carry; `pipelines` are the keyed nodes of the graph."""
        given = list(messages)

        def all_of(kind: type[M]) -> list[M]:
            return [message for message in given if isinstance(message, kind)]

        # for the sums of doubles again
        partial = sorted(all_of(PartialPanes), key=lambda one: one.sender)
        records, dead = all_of(Records), all_of(DeadLetters)
        return StepInput(
            records={
                name: _records(pipeline, [unpack(one.blob) for one in records if one.to == name])
                for name, pipeline in pipelines.items()
            },
            parts={name: tuple(unpack(one.blob) for one in partial if one.to == name) for name in pipelines},
            dead={
                name: pa.concat_tables(
                    [schema.DEAD.empty_table(), *(unpack(one.blob) for one in dead if one.to == name)]
                )
                for name in (None, *pipelines)
            },
            progress=tuple(sorted(all_of(PartitionProgress), key=lambda one: one.partition)),
            times=tuple(sorted(all_of(EventTimes), key=lambda one: (one.partition, one.first))),
            end=bool(all_of(EndOfInput)),
            tick=max((one.micros for one in all_of(Tick)), default=None),
            idle=tuple(all_of(PartitionIdle)),
            lost=tuple(sorted(all_of(RecordsLost), key=lambda one: (one.partition, one.first))),
        )


def _records(pipeline: AnyPipeline, tables: Iterable[pa.Table]) -> pa.Table:
    records = pa.concat_tables([record_schema(pipeline).empty_table(), *tables])
    if _depends_on_order(pipeline, records.schema):
        # messages come in any order: a step that is run again must take them in the same
        return records.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])
    return records


def _depends_on_order(pipeline: AnyPipeline, records: pa.Schema) -> bool:
    """Return whether the order of records can be seen in results: in sums of doubles, and by Python code."""
    has_code = isinstance(pipeline, Pipeline) and any(isinstance(one.function, Custom) for one in pipeline.aggregates)
    return has_code or any(pa.types.is_floating(type_) for type_ in records.types)


@dataclass(frozen=True)
class GroupStats:
    """Counts of a step in one key group, and the clocks after it.

    `watermarks` and next `offsets` are those of the partitions, `idle` the partitions that no longer hold the low
    watermark `low` back.
    """

    records: int
    late: int
    expired: int
    dead: int
    inserts: int
    revisions: int
    open_windows: int
    watermarks: dict[int, int]
    offsets: dict[int, int]
    low: int
    idle: list[int]
    rejected: int = 0


@dataclass(frozen=True)
class GroupOutput:
    """The output of a key group in a step: rows by sink, and packets for the next level, if there is one."""

    by_sink: Mapping[str, StepOutput]
    stats: GroupStats
    packets: tuple[Packet, ...] = ()

    @property
    def rows(self) -> StepOutput:
        """The rows of the only sink."""
        (rows,) = self.by_sink.values()
        return rows


@dataclass(frozen=True)
class OperatorStep:
    """The input of an operator in a step of the key group `group`; WATERMARK has the final watermark at each record.

    `parts` are panes that other key groups aggregated of its records, where keys are salted.
    """

    group: int
    time: StepTime
    records: pa.Table
    parts: tuple[pa.Table, ...] = ()


@dataclass(frozen=True)
class OperatorOutput:
    """The output of an operator in a step: rows for its sinks, or packets for the key groups of the next level.

    `late_records` of its records were late; `open_windows` are open after the step.
    """

    changes: pa.Table
    late: pa.Table = field(default_factory=schema.LATE.empty_table)
    late_records: int = 0
    open_windows: int = 0
    packets: tuple[Packet, ...] = ()


class Operator(Protocol):
    """A computation in a key group.

    It keeps nothing between steps: everything that later steps need is in the state that a step is given, so one object
    serves all key groups. The output is the same in every cut of the log into steps, except for the order of rows of
    different partitions. It reads no clock: time comes with the step.
    """

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        ...

    def migrate(self, change: StateChange, clocks: PartitionClocks, states: Sequence[StoredState]) -> list[StoredState]:
        """Return the initial states of all key groups from those of a run whose pipeline differed by `change`.

        `clocks` are those of the run.
        """
        ...


def qualified_name(code: object) -> str:
    """Return how messages name a user's Python code: the module and name of a function, or of an object's class."""
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{named.__module__}.{named.__qualname__}"
