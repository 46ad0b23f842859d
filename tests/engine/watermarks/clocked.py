"""The clocks of a run, step by step, without an operator behind them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from tests.graphs import as_graph
from tests.short_forms import Pipeline, operator_spec

from windrow.engine import schema
from windrow.engine.messages import Message, Packet, RecordsLost
from windrow.engine.operators.base import NodeInput, StepInput
from windrow.engine.operators.ingest import Ingest
from windrow.engine.schema import OFFSET, PARTITION, record_schema
from windrow.engine.tick import PlayStep, Tick
from windrow.engine.watermarks.clocks import PartitionClocks
from windrow.engine.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.engine.watermarks.sources import SourceTimes
from windrow.engine.watermarks.tracker import ClockAdvance, advance_clocks


@dataclass
class Clocked:
    """A pipeline's clock stage and the clocks of each key group; `watermarks` are those at each (partition, offset)."""

    pipeline: Pipeline
    partitions: Iterable[int]
    bounds: WatermarkBounds = NO_BOUNDS
    watermarks: dict[tuple[int, int], int] = field(default_factory=dict)
    journal: list[pa.Table] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stage = Ingest(as_graph(self.pipeline), self.bounds)
        self._clocks = [PartitionClocks.start(self.partitions) for _ in range(self.pipeline.key_groups)]

    def resume(self, clocks: str, offsets: dict[int, int]) -> None:
        """Go on from clocks, as JSON, at some offsets."""
        self._clocks = [PartitionClocks.decode(json.loads(clocks)) for _ in self._clocks]
        self.offsets = offsets

    def play(self, steps: Iterable[PlayStep]) -> None:
        for step in steps:
            if isinstance(step, Tick):
                self.tick(step.micros)
            else:
                self.feed(step)

    def feed(self, records: Sequence[tuple[int, bytes]], tick: int | None = None) -> ClockAdvance:
        """Take a step of (partition, value), with a tick in the same step if there is one."""
        batches = []
        for partition in sorted({partition for partition, _ in records}):
            values = [value for number, value in records if number == partition]
            first = self.offsets.get(partition, 0)
            self.offsets[partition] = first + len(values)
            rows = [(partition, first + number, None, None, value) for number, value in enumerate(values)]
            columns = zip(*rows, strict=True)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, schema.RAW, strict=True)]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema.RAW))
        return self._step([*self._stage.run(batches), *self._ticks(tick)])

    def tick(self, micros: int) -> ClockAdvance:
        return self._step(self._ticks(micros))

    def lose(self, partition: int, goes_on: int) -> ClockAdvance:
        """Take a step in which a partition is told to go on at an offset."""
        self.offsets[partition] = goes_on
        return self._step(self._to_all(RecordsLost(partition, goes_on, "they are gone")))

    def _ticks(self, micros: int | None) -> list[Packet]:
        return [] if micros is None else self._to_all(Tick(micros))

    def _to_all(self, message: Message) -> list[Packet]:
        return [Packet(group, message) for group in range(self.pipeline.key_groups)]

    def _step(self, packets: Sequence[Packet]) -> ClockAdvance:
        """Take a step in each key group; what they know of the clocks must be the same."""
        taken = []
        for group in range(self.pipeline.key_groups):
            given = StepInput.of(
                {"": NodeInput.of(operator_spec(self.pipeline), record_schema(operator_spec(self.pipeline)))},
                [packet.message for packet in packets if packet.key_group == group],
            )
            clocks = PartitionClocks.decode(json.loads(json.dumps(self._clocks[group].encode())))
            step = advance_clocks(SourceTimes.of(as_graph(self.pipeline)), clocks, given)
            self._clocks[group] = clocks
            records = given.raw[""]
            columns = (records.column(name).to_pylist() for name in (PARTITION, OFFSET))
            self.watermarks |= dict(zip(zip(*columns, strict=True), step.watermarks(records).tolist(), strict=True))
            taken.append(step)
        assert all(clocks.encode() == self._clocks[0].encode() for clocks in self._clocks[1:])
        assert all(step.journal == taken[0].journal and step.time([0]) == taken[0].time([0]) for step in taken)
        self.journal.append(taken[0].journal)
        return taken[0]

    @property
    def clocks(self) -> PartitionClocks:
        return self._clocks[0]

    @property
    def journal_rows(self) -> list[tuple[int, int, str]]:
        """(partition, offset, reason) of all rows so far."""
        rows = pa.concat_tables(self.journal).to_pylist()
        return [(row["partition"], row["offset"], row["reason"]) for row in rows]
