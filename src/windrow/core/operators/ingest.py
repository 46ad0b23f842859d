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
from windrow.core.decode import DecodedBatch, Decoder, KeyedDecoder
from windrow.core.keys import key_groups
from windrow.core.messages import DeadLetters, EventTimes, Message, Packet, PartitionProgress, Records, pack_times
from windrow.core.schema import OFFSET, PARTITION, TIME, WATERMARK, record_schema
from windrow.core.watermarks.clocks import StepWatermark
from windrow.core.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.model import Adaptive, AnyPipeline, Pipeline, Runnable, as_graph, keyed_pipelines

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
    records: int = 0


class Ingest:
    """Decodes one step's records of some partitions, in offset order, and splits them by node and key group.

    `bounds` are lower bounds of watermarks, from the clock journal of the run that is replayed. `packed` packs records.
    """

    def __init__(
        self,
        pipeline: Runnable,
        bounds: WatermarkBounds = NO_BOUNDS,
        packed: Callable[[pa.Table], bytes] = pack,
    ) -> None:
        graph = as_graph(pipeline)
        keyed = keyed_pipelines(graph)
        self._time = graph.origin.time
        self._key_groups = graph.key_groups
        self._floors = bounds
        # in a short form, a record must be valid for its one node to count for the clock
        spec = keyed[""] if graph.is_short else graph.origin
        self._schema = record_schema(spec)
        self._decoder = Decoder(spec)
        given = None if graph.is_short else frozenset(one.name for one in graph.origin.derive)
        self._routes = [_Route(name, one, packed, self._decoder, given) for name, one in keyed.items()]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        """Yield the step's packets; those about partitions come last."""
        partitions: dict[int, _Partition] = {}
        for batch in batches:
            if batch.num_rows == 0:
                continue
            decoded = self._decoder.decode(batch)
            records = self._with_watermarks(batch, decoded, partitions)
            yield from _dead_letters(None, decoded.dead, self._key_groups)
            if isinstance(self._time.watermark, Adaptive):
                yield from self._times(records)
            for route in self._routes:
                yield from route.add(batch, records)
        for route in self._routes:
            yield from route.close()
        for number, partition in sorted(partitions.items()):
            floor = int(self._floors.at(number, np.array([partition.next - 1]))[0])
            yield from self._to_all(
                PartitionProgress(
                    partition=number,
                    watermark=max(partition.watermark.value, floor),
                    first=partition.first,
                    next=partition.next,
                    reached=partition.reached,
                    records=partition.records,
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
            partition = partitions.setdefault(number, _Partition(StepWatermark(self._time.watermark), int(read[0]), 0))
            partition.next = int(read[-1]) + 1
            its_own = good_numbers == number
            records = good.filter(pa.array(its_own))
            partition.records += records.num_rows
            partition.reached = int(to_micros(records.column(TIME)).max(initial=partition.reached))
            watermarks[its_own] = np.maximum(
                partition.watermark.advance(records, marks.filter(pa.array(mark_numbers == number))),
                self._floors.at(number, to_micros(records.column(OFFSET))),
            )
        return good.append_column(WATERMARK, pa.array(watermarks)).select(self._schema.names).cast(self._schema)

    def _times(self, records: pa.Table) -> Iterator[Packet]:
        """Pack the event times of each partition, for every key group."""
        numbers = records.column(PARTITION).to_numpy()
        offsets, times = (to_micros(records.column(name)) for name in (OFFSET, TIME))
        for number in np.unique(numbers).tolist():
            its_own = numbers == number
            blob = pack_times(offsets[its_own], times[its_own])
            yield from self._to_all(EventTimes(number, int(offsets[its_own][0]), blob))

    def _to_all(self, message: Message) -> Iterator[Packet]:
        return (Packet(group, message) for group in range(self._key_groups))


class _Route:
    """The way of a source's records to a keyed node: its own columns, its key, and its key groups.

    A record for which one of the columns cannot be computed, or whose key is null or too long, is a dead letter of the
    node. In a short form (`given`, the source's derived fields, is None) the decoder has done all this.
    """

    def __init__(
        self,
        name: str,
        pipeline: AnyPipeline,
        packed: Callable[[pa.Table], bytes],
        decoder: Decoder,
        given: frozenset[str] | None,
    ) -> None:
        self._name = name
        self._pipeline = pipeline
        self._packed = packed
        self._schema = record_schema(pipeline)
        self._selector = None if given is None else KeyedDecoder(decoder, pipeline, given)
        self._duck = duckdb_sql.connect()
        self._salt = pipeline.salt if isinstance(pipeline, Pipeline) else 1
        self._waiting: list[pa.Table] = []

    def add(self, raw: pa.RecordBatch, records: pa.Table) -> Iterator[Packet]:
        """Take a batch and its records; yield packets of dead letters, and of records if there are many by now."""
        if self._selector is not None:
            records, dead = self._selector.select(raw, records)
            yield from _dead_letters(self._name, dead, self._pipeline.key_groups)
        self._waiting.append(records)
        if (
            sum(table.num_rows for table in self._waiting) >= CHUNK_RECORDS
            or sum(table.nbytes for table in self._waiting) >= CHUNK_BYTES
        ):
            yield from self.close()

    def close(self) -> Iterator[Packet]:
        """Pack the records of each key group that has some."""
        tables, self._waiting = self._waiting, []
        if sum(table.num_rows for table in tables) == 0:
            return
        records, count = pa.concat_tables(tables), self._pipeline.key_groups
        groups = key_groups(self._duck, records.select(list(self._pipeline.key)), count)
        if self._salt > 1:
            groups = (groups + to_micros(records.column(OFFSET)) % self._salt) % count
        order = np.argsort(groups.astype(np.uint16), kind="stable")
        records = records.take(pa.array(order))
        ends = np.cumsum(np.bincount(groups, minlength=count)).tolist()
        for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if start < end:
                yield Packet(group, Records(self._name, self._packed(records.slice(start, end - start))))


def _dead_letters(to: str | None, dead: pa.Table, key_groups: int) -> Iterator[Packet]:
    """Pack dead letters; they have no key, so any key group may have them."""
    if dead.num_rows:
        yield Packet(dead.column("partition")[0].as_py() % key_groups, DeadLetters(to, pack(dead)))
