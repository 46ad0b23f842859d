"""The operator contract: what an operator receives and returns in a step of one key group, and its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow import model as m
from windrow.engine import schema
from windrow.engine.changelog import StepOutput
from windrow.engine.columns import MAX_TIME, MIN_TIME, Blob, Micros, are_before, concat, to_micros, unpack
from windrow.engine.merged_order import in_log_order
from windrow.engine.messages import (
    DeadLetters,
    EndOfInput,
    EventTimes,
    Message,
    Packet,
    PartialPanes,
    PartitionIdle,
    PartitionProgress,
    Progress,
    Records,
    RecordsLost,
    Results,
    TickDue,
    TimersEnded,
    unpack_progress,
)
from windrow.engine.schema import END, OFFSET, PARTITION, TIME, WINDOW
from windrow.engine.state.migrate import StoredState
from windrow.engine.state.store import OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.engine.tick import Tick
from windrow.expressions import AnySpec, is_window_spec

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class StepTime:
    """Time in a step of an operator, identical in every key group. Event times are in microseconds.

    The low watermark of the operator's sources is `before` before the step and `low` after it. `now` is the processing
    time after the step if the step had a tick; `latest` is the processing time of the latest tick so far. Both are None
    if there was no tick. `reached` is the greatest event time in any partition of the sources, or the low watermark if
    that is greater. `end` is true if the input ended with the step.

    `ended` is the greatest event time at the last end of the input before the step (`MIN_TIME` if the input has not
    ended before). `fired_until` is the same for the input of the operator itself, which can be ahead: a window that
    starts at or before this time has fired, whether or not the key group had records in it. Records whose watermark is
    `low` are settled in the partitions up to `last_settled`.
    """

    before: int
    low: int
    now: int | None
    latest: int | None
    reached: int
    end: bool = False
    ended: int = MIN_TIME
    fired_until: int = MIN_TIME
    last_settled: int = -1


@dataclass(frozen=True)
class StepInput:
    """The unpacked messages that a key group receives in one step; `progress` is ordered by partition.

    The following are dictionaries by node: `records` from operators, `raw` records from sources, `parts` (panes of the
    node's records that other key groups aggregated, if keys are salted), `dead` letters (under None if they belong to
    no node), and `results` of earlier levels. `times` remain packed, ordered by partition and offset. `tick` is the
    processing time at the end of the step, or None if there was no tick. `timers` maps each process node to the time of
    the last row that a timer emitted at the end of the input. At ticks before `due`, earlier levels have nothing to do.
    """

    records: dict[str, pa.Table]
    raw: dict[str, pa.Table]
    parts: dict[str, tuple[pa.Table, ...]]
    dead: dict[str | None, pa.Table]
    results: dict[str, list[Results]]
    progress: tuple[PartitionProgress, ...]
    times: tuple[EventTimes, ...]
    end: bool
    tick: int | None = None
    idle: tuple[PartitionIdle, ...] = ()
    lost: tuple[RecordsLost, ...] = ()
    timers: Mapping[str, int] = field(default_factory=dict)
    due: int = MAX_TIME

    @staticmethod
    def of(nodes: Mapping[str, NodeInput], messages: Iterable[Message]) -> StepInput:
        """Group messages by kind; `nodes` are the nodes of the level."""
        received = list(messages)

        def all_of(kind: type[M]) -> list[M]:
            return [message for message in received if isinstance(message, kind)]

        def records_of(name: str, *, is_raw: bool) -> pa.Table:
            own = (message.blob for message in records if message.to == name and message.is_raw == is_raw)
            return nodes[name].join(map(unpack, own))

        # in a fixed order: sums of doubles depend on it
        partial = sorted(all_of(PartialPanes), key=lambda panes: panes.sender)
        records, dead, results = all_of(Records), all_of(DeadLetters), all_of(Results)
        return StepInput(
            records={name: records_of(name, is_raw=False) for name in nodes},
            raw={name: records_of(name, is_raw=True) for name in nodes},
            parts={name: tuple(unpack(panes.blob) for panes in partial if panes.to == name) for name in nodes},
            dead={
                name: concat(schema.NO_DEAD, (unpack(letters.blob) for letters in dead if letters.to == name))
                for name in dict.fromkeys([None, *(letters.to for letters in dead)])
            },
            results={
                name: [result for result in results if result.of == name]
                for name in dict.fromkeys(result.of for result in results)
            },
            progress=unpack_progress(tuple(sorted(bytes(progress.blob) for progress in all_of(Progress)))),
            times=tuple(sorted(all_of(EventTimes), key=lambda times: (times.partition, times.first))),
            end=bool(all_of(EndOfInput)),
            tick=max((tick.micros for tick in all_of(Tick)), default=None),
            idle=tuple(all_of(PartitionIdle)),
            lost=tuple(sorted(all_of(RecordsLost), key=lambda lost: (lost.partition, lost.first))),
            timers=dict(sorted((timers.of, timers.time) for timers in all_of(TimersEnded))),
            due=min((due.micros for due in all_of(TickDue)), default=MAX_TIME),
        )

    def with_dead(self, messages: Iterable[Message]) -> StepInput:
        """Return the input, extended by the dead letters that its own level produced."""
        dead = dict(self.dead)
        for letters in messages:
            if isinstance(letters, DeadLetters):
                dead[letters.to] = pa.concat_tables([dead.get(letters.to, schema.NO_DEAD), unpack(letters.blob)])
        return replace(self, dead=dead)


@dataclass(frozen=True)
class NodeInput:
    """The schema of a node's records, and whether the node's results depend on their order."""

    schema: pa.Schema
    is_ordered: bool

    @cached_property
    def _nothing(self) -> pa.Table:
        return self.schema.empty_table()

    @staticmethod
    def of(spec: AnySpec, records: pa.Schema) -> NodeInput:
        """Return the input of a node. Order matters to sums of doubles, and it may matter to Python code."""
        has_code = is_window_spec(spec) and any(
            isinstance(aggregate.function, m.Custom) for aggregate in spec.node.aggregates
        )
        has_doubles = any(pa.types.is_floating(type_) for type_ in records.types)
        return NodeInput(records, has_code or (has_doubles and isinstance(spec.node, m.ResultNode)))

    def join(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Concatenate tables of records, in log order if results depend on the order.

        Columns that a table lacks are null, such as the fields of the other side of a join.
        """
        # most calls come from small steps without records, so they must be cheap
        given = [table for table in tables if table.num_rows]
        if len(given) == 1 and given[0].schema.equals(self.schema):
            (records,) = given
        elif given:
            records = pa.concat_tables([self._nothing, *given], promote_options="default")
        else:
            return self._nothing
        if self.is_ordered and records.num_rows > 1 and not _ascends(records):
            # messages come in any order, but a step that is run again must see the same order
            return in_log_order(records)
        return records


def _ascends(records: pa.Table) -> bool:
    """Return True if records are strictly ascending by partition and offset."""
    columns = [to_micros(records.column(name)) for name in (PARTITION, OFFSET)]
    return bool(are_before([column[:-1] for column in columns], [column[1:] for column in columns]).all())


@dataclass(frozen=True)
class GroupStats:
    """Counts of a step in one key group, and the clocks after the step.

    `watermarks` and `offsets` (the next offset to read) are by partition, and `idle` lists the partitions that no
    longer hold back the low watermark `low`. These clocks are set in key group 0 only, because they are identical in
    all groups. If no records come, ticks before the processing time `due` have no effect.
    """

    records: int
    late: int
    expired: int
    dead: int
    inserts: int
    revisions: int
    watermarks: dict[int, int]
    offsets: dict[int, int]
    low: int
    idle: list[int]
    rejected: int = 0
    duplicates: int = 0
    due: int = MAX_TIME


@dataclass(frozen=True)
class GroupOutput:
    """The output of a key group in a step: rows by sink, and packets for the next level if there is one.

    `observed` are the blobs of probes from this level and earlier ones.
    """

    by_sink: Mapping[str, StepOutput]
    stats: GroupStats
    packets: tuple[Packet, ...] = ()
    observed: tuple[Blob, ...] = ()

    @property
    def rows(self) -> StepOutput:
        """The rows of the sink, in a pipeline with a single sink."""
        (rows,) = self.by_sink.values()
        return rows


@dataclass(frozen=True)
class OperatorStep:
    """The input of an operator in a step of key group `group`. WATERMARK is the final watermark at each record.

    `parts` are panes of the operator's records that other key groups aggregated, if keys are salted.
    """

    group: int
    time: StepTime
    records: pa.Table
    parts: tuple[pa.Table, ...] = ()


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Judged:
    """Records with an operator's verdicts, one row per record or per record and window. All other rows are late.

    `records` have at least PARTITION, OFFSET, TIME and WATERMARK, which is the watermark that the verdict is based on.
    If they have WINDOW (a window number) and END, the verdict applies to that window; otherwise it applies to all
    windows of the record.
    """

    records: pa.Table
    on_time: Mask
    expired: Mask

    @staticmethod
    def of_all(records: pa.Table, *, expired: bool) -> Judged:
        """Return records that are all on time, or all expired."""
        mask = np.full(records.num_rows, expired)
        return Judged(records, ~mask, mask)

    @property
    def places(self) -> tuple[Micros, Micros]:
        """The partitions and offsets of the records."""
        return to_micros(self.records.column(PARTITION)), to_micros(self.records.column(OFFSET))


def add_own_windows(expired: pa.Table) -> pa.Table:
    """Add WINDOW and END to expired records that have no windows: each gets a window of one microsecond."""
    times = to_micros(expired.column(TIME))
    return expired.append_column(WINDOW, pa.array(times)).append_column(END, pa.array(times + 1))


@dataclass(frozen=True)
class OperatorOutput:
    """The output of an operator in a step: rows for its sinks, or packets for the key groups of the next level.

    `records` holds one table for each stream of the operator, in the order of `windrow.model.operator_outputs`, if
    other nodes read the streams. `late_records` and `duplicates` count records with these verdicts. `open_windows` is
    the number of open windows after the step; `fired_windows` and `closed_windows` count windows that fired and closed
    in the step. `judged` holds the operator's records if it judges records by their time. If no records come, the
    operator does nothing at ticks before the processing time `due`.
    """

    changes: pa.Table = field(default_factory=lambda: schema.NO_CHANGES)
    late: pa.Table = field(default_factory=lambda: schema.NO_LATE)
    late_records: int = 0
    open_windows: int = 0
    fired_windows: int = 0
    closed_windows: int = 0
    duplicates: int = 0
    records: tuple[pa.Table, ...] = ()
    packets: tuple[Packet, ...] = ()
    judged: tuple[Judged, ...] = ()
    due: int = MAX_TIME


class Operator(Protocol):
    """A computation in a key group.

    An operator object is stateless: everything that later steps need is in the state passed to a step, so one object
    serves all key groups. The output does not depend on how the log is cut into steps, except for the order of rows
    from different partitions. An operator never reads a clock, because time is part of the step.
    """

    @property
    def state(self) -> Mapping[str, StoreKind]:
        """Maps each kind of blob that the operator stores to the way it is stored."""
        ...

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        ...

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:
        """Return the initial states of all key groups, given the states of a run whose pipeline differed by `change`.

        `low` is the low watermark of that run.
        """
        ...
