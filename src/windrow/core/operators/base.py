"""The operator contract: the input of a step in one key group, its output, and the protocol between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from windrow.core import schema
from windrow.core.changelog import StepOutput
from windrow.core.columns import unpack
from windrow.core.messages import Packet, PacketKind
from windrow.core.schema import OFFSET, PARTITION, record_schema
from windrow.core.state.store import State
from windrow.model import AnyPipeline, Custom, Pipeline


@dataclass(frozen=True)
class StepInput:
    """A key group's packets of one step, unpacked; `clocks` are ordered by partition.

    `parts` are panes that other key groups made of `spread` records of this one, where keys are salted.
    `times` stay packed, and are ordered by partition and offset. `tick` is the processing time at the end of the step,
    None if nothing said it. `idle` are the partitions that a journal says are idle after the step, `lost` says where
    records are gone.
    """

    records: pa.Table
    dead: pa.Table
    clocks: tuple[Packet, ...]
    times: tuple[Packet, ...]
    end: bool
    tick: int | None = None
    parts: tuple[pa.Table, ...] = ()
    spread: int = 0
    idle: tuple[Packet, ...] = ()
    lost: tuple[Packet, ...] = ()

    @staticmethod
    def of(pipeline: AnyPipeline, packets: Iterable[Packet]) -> StepInput:
        """Sort packets by what they carry."""
        kinds: defaultdict[PacketKind, list[Packet]] = defaultdict(list)
        for packet in packets:
            kinds[packet.kind].append(packet)
        records = (unpack(packet.blob) for packet in kinds["records"])
        together = pa.concat_tables([record_schema(pipeline).empty_table(), *records])
        if _depends_on_order(pipeline, together.schema):
            # packets come in any order: a step that is run again must take them in the same
            together = together.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])
        dead = (unpack(packet.blob) for packet in kinds["dead"])
        return StepInput(
            records=together,
            dead=pa.concat_tables([schema.DEAD.empty_table(), *dead]),
            clocks=tuple(sorted(kinds["clock"], key=lambda packet: packet.partition)),
            times=tuple(sorted(kinds["times"], key=lambda packet: (packet.partition, packet.first))),
            end=bool(kinds["end"]),
            tick=max((packet.watermark for packet in kinds["tick"]), default=None),
            # sums of doubles again
            parts=tuple(unpack(packet.blob) for packet in sorted(kinds["parts"], key=lambda packet: packet.partition)),
            spread=sum(packet.next for packet in kinds["parts"]),
            idle=tuple(kinds["idle"]),
            lost=tuple(sorted(kinds["lost"], key=lambda packet: (packet.partition, packet.first))),
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
