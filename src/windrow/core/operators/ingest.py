"""Ingest: raw records in; packets for the key groups out, with watermarks in band.

It is stateless between steps. A step's packets of records come first, then for each partition and key group one
packet that says where the partition's clock stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.core import duckdb_sql
from windrow.core.columns import MIN_TIME, pack, to_micros
from windrow.core.decode import DecodedBatch, Decoder
from windrow.core.keys import key_groups
from windrow.core.messages import DeadLetters, EventTimes, Message, Packet, PartitionProgress, Records, pack_times
from windrow.core.schema import OFFSET, PARTITION, TIME, WATERMARK, record_schema
from windrow.core.watermarks.clocks import StepWatermark
from windrow.core.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.model import Adaptive, AnyPipeline, is_salted

CHUNK_RECORDS = 1 << 18
CHUNK_BYTES = 64 << 20
"""Limits of the records that are gathered before they are split by key group."""


@dataclass
class _Partition:
    """Progress of one partition in this step."""

    watermark: StepWatermark
    first: int
    next: int
    reached: int = MIN_TIME


class Ingest:
    """Decodes one step's records of some partitions, in offset order, and splits them by key group.

    `bounds` are lower bounds of watermarks, from the clock journal of the run that is replayed. `packed` packs records.
    """

    def __init__(
        self, pipeline: AnyPipeline, bounds: WatermarkBounds = NO_BOUNDS, packed: Callable[[pa.Table], bytes] = pack
    ) -> None:
        self._pipeline = pipeline
        self._floors = bounds
        self._packed = packed
        self._schema = record_schema(pipeline)
        self._decoder = Decoder(pipeline)
        self._duck = duckdb_sql.connect()

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        """Yield the step's packets; those of the clocks come last."""
        partitions: dict[int, _Partition] = {}
        waiting: list[pa.Table] = []
        for batch in batches:
            if batch.num_rows == 0:
                continue
            decoded = self._decoder.decode(batch)
            waiting.append(self._with_watermarks(batch, decoded, partitions))
            yield from self._dead_letters(decoded.dead)
            if (
                sum(table.num_rows for table in waiting) >= CHUNK_RECORDS
                or sum(table.nbytes for table in waiting) >= CHUNK_BYTES
            ):
                yield from self._split(waiting)
                waiting = []
        yield from self._split(waiting)
        for number, partition in sorted(partitions.items()):
            floor = int(self._floors.at(number, np.array([partition.next - 1]))[0])
            yield from self._to_all(
                PartitionProgress(
                    partition=number,
                    watermark=max(partition.watermark.value, floor),
                    first=partition.first,
                    next=partition.next,
                    reached=partition.reached,
                )
            )

    def _with_watermarks(
        self, batch: pa.RecordBatch, decoded: DecodedBatch, partitions: dict[int, _Partition]
    ) -> pa.Table:
        """Return the good records with the watermark at each, and update the progress of their partitions."""
        numbers = batch.column("partition").to_numpy(zero_copy_only=False)
        # by position: a field may have any name
        good = decoded.good.rename_columns([PARTITION, OFFSET, TIME, *decoded.good.column_names[3:]])
        marks = decoded.marks.rename_columns([PARTITION, OFFSET, WATERMARK])
        good_numbers = good.column(PARTITION).to_numpy()
        mark_numbers = marks.column(PARTITION).to_numpy()
        offsets = to_micros(batch.column("offset"))
        watermarks = np.empty(good.num_rows, dtype=np.int64)
        for number in np.unique(numbers).tolist():
            read = offsets[numbers == number]
            partition = partitions.setdefault(
                number, _Partition(StepWatermark(self._pipeline.time.watermark), int(read[0]), 0)
            )
            partition.next = int(read[-1]) + 1
            its_own = good_numbers == number
            records = good.filter(pa.array(its_own))
            partition.reached = int(to_micros(records.column(TIME)).max(initial=partition.reached))
            watermarks[its_own] = np.maximum(
                partition.watermark.advance(records, marks.filter(pa.array(mark_numbers == number))),
                self._floors.at(number, to_micros(records.column(OFFSET))),
            )
        return good.append_column(WATERMARK, pa.array(watermarks)).select(self._schema.names).cast(self._schema)

    def _split(self, tables: list[pa.Table]) -> Iterator[Packet]:
        """Pack the records of each key group that has some."""
        if sum(table.num_rows for table in tables) == 0:
            return
        records = pa.concat_tables(tables)
        if isinstance(self._pipeline.time.watermark, Adaptive):
            yield from self._times(records)
        groups = key_groups(self._duck, records.select(list(self._pipeline.key)), self._pipeline.key_groups)
        if is_salted(self._pipeline):
            salt = to_micros(records.column(OFFSET)) % self._pipeline.salt
            groups = (groups + salt) % self._pipeline.key_groups
        order = np.argsort(groups.astype(np.uint16), kind="stable")
        records = records.take(pa.array(order))
        ends = np.cumsum(np.bincount(groups, minlength=self._pipeline.key_groups)).tolist()
        for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if start < end:
                yield Packet(group, Records(self._packed(records.slice(start, end - start))))

    def _times(self, records: pa.Table) -> Iterator[Packet]:
        """Pack the event times of each partition, for every key group."""
        numbers = records.column(PARTITION).to_numpy()
        offsets, times = (to_micros(records.column(name)) for name in (OFFSET, TIME))
        for number in np.unique(numbers).tolist():
            its_own = numbers == number
            blob = pack_times(offsets[its_own], times[its_own])
            first = int(offsets[its_own][0])
            yield from self._to_all(EventTimes(number, first, blob))

    def _to_all(self, message: Message) -> Iterator[Packet]:
        return (Packet(group, message) for group in range(self._pipeline.key_groups))

    def _dead_letters(self, dead: pa.Table) -> Iterator[Packet]:
        """Pack the dead letters; they have no key, so any key group may have them."""
        if dead.num_rows:
            group = dead.column("partition")[0].as_py() % self._pipeline.key_groups
            yield Packet(group, DeadLetters(pack(dead)))
