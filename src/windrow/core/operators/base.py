"""The operator contract: the input of a step in one key group, its output, and the protocol between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
    PartialPanes,
    PartitionIdle,
    PartitionProgress,
    Records,
    RecordsLost,
)
from windrow.core.schema import OFFSET, PARTITION, record_schema
from windrow.core.state.store import State
from windrow.core.tick import Tick
from windrow.model import AnyPipeline, Custom, Pipeline

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class StepInput:
    """A key group's messages of one step, unpacked; `progress` is ordered by partition.

    `parts` are panes that other key groups aggregated from `spread` records of this one, where keys are salted.
    `times` stay packed, and are ordered by partition and offset. `tick` is the processing time at the end of the step,
    None if there was no tick.
    """

    records: pa.Table
    dead: pa.Table
    progress: tuple[PartitionProgress, ...]
    times: tuple[EventTimes, ...]
    end: bool
    tick: int | None = None
    parts: tuple[pa.Table, ...] = ()
    spread: int = 0
    idle: tuple[PartitionIdle, ...] = ()
    lost: tuple[RecordsLost, ...] = ()

    @staticmethod
    def of(pipeline: AnyPipeline, messages: Iterable[Message]) -> StepInput:
        """Sort messages by what they carry."""
        given = list(messages)

        def all_of(kind: type[M]) -> list[M]:
            return [message for message in given if isinstance(message, kind)]

        records = pa.concat_tables(
            [record_schema(pipeline).empty_table(), *(unpack(one.blob) for one in all_of(Records))]
        )
        if _depends_on_order(pipeline, records.schema):
            # messages come in any order: a step that is run again must take them in the same
            records = records.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])
        partial = sorted(all_of(PartialPanes), key=lambda one: one.sender)  # for the sums of doubles again
        return StepInput(
            records=records,
            dead=pa.concat_tables([schema.DEAD.empty_table(), *(unpack(one.blob) for one in all_of(DeadLetters))]),
            progress=tuple(sorted(all_of(PartitionProgress), key=lambda one: one.partition)),
            times=tuple(sorted(all_of(EventTimes), key=lambda one: (one.partition, one.first))),
            end=bool(all_of(EndOfInput)),
            tick=max((one.micros for one in all_of(Tick)), default=None),
            parts=tuple(unpack(one.blob) for one in partial),
            spread=sum(one.records for one in partial),
            idle=tuple(all_of(PartitionIdle)),
            lost=tuple(sorted(all_of(RecordsLost), key=lambda one: (one.partition, one.first))),
        )


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


@dataclass(frozen=True)
class GroupOutput:
    """The output of a key group in a step."""

    rows: StepOutput
    stats: GroupStats


class Operator(Protocol):
    """The computation of a pipeline in a key group.

    It keeps nothing between steps: what is to be remembered is in the state that a step is given, so one object serves
    all key groups.
    """

    def step(self, group: int, given: StepInput, state: State) -> GroupOutput:
        """Run one step of one key group."""
        ...


def qualified_name(code: object) -> str:
    """Return how messages name a user's Python code: the module and name of a function, or of an object's class."""
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{named.__module__}.{named.__qualname__}"
