"""Processing time as a streaming data source of Spark, named ``windrow_ticks``.

A tick is an offset: Spark writes it down before the step that sees it, so a step that is run again after a crash sees
the same one, whether the run that takes it up is live or bounded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from windrow.core.messages import Packet
from windrow.hosts.stream.wire import PACKET_DDL, packet_batch

EVERY = 1_000_000
"""Ticks are multiples of so many microseconds."""

Offset = dict[str, int]
"""The last tick, in microseconds since the epoch."""


class TickDataSource(DataSource):
    """Option `key_groups`: how many of them are told."""

    @classmethod
    def name(cls) -> str:
        """Return what `spark.readStream.format` calls it."""
        return "windrow_ticks"

    def schema(self) -> str:
        """Return the schema of packets."""
        return PACKET_DDL

    def streamReader(self, schema: StructType) -> TickStreamReader:  # noqa: ARG002, N802 - Spark's name and parameter
        """Return the reader."""
        return TickStreamReader(int(self.options["key_groups"]))


class TickPartition(InputPartition):
    """The tick of a step."""

    def __init__(self, tick: int) -> None:
        super().__init__(tick)
        self.tick = tick


class TickStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives every key group the time at which a step is planned; a bounded run has none."""

    def __init__(self, key_groups: int) -> None:
        self._key_groups = key_groups
        self._bounded = False

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the tick before all."""
        return {"tick": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Let time stand still: the input has an end."""
        self._bounded = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802 - Spark's name and parameter
        """Return the time, or `start` where time stands still."""
        now = time.time_ns() // 1000 // EVERY * EVERY
        return start if self._bounded else {"tick": max(now, start["tick"])}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return one input partition, as of all ticks of a step the last one counts, or none where no time passed.

        Spark asks for the first step of a bounded run too, which goes from the tick before all to itself.
        """
        return [TickPartition(end["tick"])] if end != start else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a step's tick, a packet for each key group."""
        if not isinstance(partition, TickPartition):
            raise TypeError(partition)
        for group in range(self._key_groups):
            yield packet_batch(Packet(key_group=group, kind="tick", watermark=partition.tick))
