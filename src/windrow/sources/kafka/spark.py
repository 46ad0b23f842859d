"""A Kafka topic as a streaming source of Spark: planned by one librdkafka client, read by one in each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from windrow.errors import RecordsLostError
from windrow.sources.base import Offset, Stage
from windrow.sources.kafka.client import Admin
from windrow.sources.kafka.read import reader
from windrow.sources.kafka.steps import up_to

_TIMEOUT = 10.0
"""Seconds that a broker is asked for."""


class RangePartition(InputPartition):
    """What a step reads of one partition: the offsets from `begin` up to `end`, which is not read."""

    def __init__(self, partition: int, begin: int, end: int) -> None:
        super().__init__(partition)
        self.partition = partition
        self.begin = begin
        self.end = end


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tails a topic; Spark keeps one in a process of its own for a query's life, and one a task to read.

    `settings` are librdkafka's, secrets too. An offset is {topic: {partition: next offset}}.
    """

    def __init__(
        self, topic: str, settings: Mapping[str, str], stage: Stage, begin: Offset, max_records: int | None = None
    ) -> None:
        self._topic = topic
        self._settings = tuple(sorted(settings.items()))
        self._stage = stage
        self._begin = begin
        self._max_records = max_records
        self._target: dict[int, int] | None = None

    @cached_property
    def _admin(self) -> Admin:
        return Admin(self._topic, dict(self._settings), _TIMEOUT)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the run begins; a partition that comes later is read from its offset 0 on."""
        return dict(self._begin)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return what `max_records` says."""
        return ReadAllAvailable() if self._max_records is None else ReadMaxRows(self._max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take where the partitions end now as the end of the input."""
        self._target = self._admin.ends()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the next step ends; `start` itself if there is nothing to read."""
        begin = _next(start, self._topic)
        ends = self._admin.ends() if self._target is None else self._target
        for partition, at in begin.items():
            if ends.get(partition, -1) < at:
                msg = f"the topic lost records: partition {partition} of {self._topic} was read up to offset {at}"
                raise RecordsLostError(msg)
        reached = up_to(begin, ends, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        return {self._topic: {str(partition): at for partition, at in sorted(reached.items())}}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return one input partition for each partition of the topic that has offsets in the step."""
        begin = _next(start, self._topic)
        return [
            RangePartition(partition, begin.get(partition, 0), at)
            for partition, at in _next(end, self._topic).items()
            if begin.get(partition, 0) < at
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield what the stage makes of a step's records of a partition."""
        if not isinstance(partition, RangePartition):
            raise TypeError(partition)
        kept = reader(self._topic, self._settings)
        return self._stage(kept.read(partition.partition, partition.begin, partition.end))


def range_reader(topic: str, settings: Mapping[str, str]) -> Callable[[int, int, int], Iterator[pa.RecordBatch]]:
    """Return the function that reads a range (partition, offset, next offset) in a worker."""
    kept = tuple(sorted(settings.items()))

    def read(partition: int, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        return reader(topic, kept).read(partition, begin, end)

    return read


def _next(offset: Offset, topic: str) -> dict[int, int]:
    return {int(partition): int(at) for partition, at in offset.get(topic, {}).items()}
