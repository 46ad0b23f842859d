"""A streaming data source for Spark that reads a Kafka topic.

One librdkafka client plans the steps, and one in each worker reads the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from windrow.connectors.cuts import Cut, Offset, StreamPlan, portions
from windrow.connectors.kafka.client import Admin
from windrow.connectors.kafka.options import TIMEOUT
from windrow.connectors.kafka.read import Range, reader
from windrow.connectors.kafka.sizes import RecordSizes
from windrow.connectors.stream_reader import WORTH_RECORDS, StreamReader, share_partitions
from windrow.errors import RecordsLostError


class KafkaStreamReader(StreamReader[Range]):
    """Follows a topic. An offset is {topic: {partition: next offset}}.

    `settings` are librdkafka settings, including secrets.
    """

    def __init__(self, topic: str, settings: Mapping[str, str], plan: StreamPlan, *, has_headers: bool) -> None:
        super().__init__(plan)
        self._topic = topic
        self._has_headers = has_headers
        self._settings = tuple(sorted(settings.items()))

    @cached_property
    def _admin(self) -> Admin:
        return Admin(self._topic, dict(self._settings), TIMEOUT)

    @cached_property
    def _sizes(self) -> RecordSizes:
        return RecordSizes(self._topic, dict(self._settings))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Set the reader to stop at the current ends of the partitions."""
        self._target = self._admin.ends()

    def step_from(self, start: dict[str, Any], max_records: int | None) -> dict[str, Any]:
        begin = _next(start, self._topic)
        ends = self._admin.ends() if self._target is None else self._target
        for partition, at in begin.items():
            if ends.get(partition, -1) < at:
                msg = f"the topic lost records: partition {partition} of {self._topic} was read up to offset {at}"
                raise RecordsLostError(msg)
        reached = up_to(begin, ends, max_records)
        if self.max_bytes is not None:
            reached = self._sizes.limit(begin, reached, self.max_bytes)
        return {self._topic: {str(partition): at for partition, at in sorted(reached.items())}}

    def waiting(self, start: Offset) -> int:
        begin = _next(start, self._topic)
        ends = self._admin.ends() if self._target is None else self._target
        return sum(max(0, end - begin.get(partition, 0)) for partition, end in ends.items())

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        begin = _next(start, self._topic)
        ends = _next(end, self._topic)
        ranges = {partition: (begin.get(partition, 0), at) for partition, at in ends.items()}
        for partition, (first, last) in ranges.items():
            if first > last:
                msg = f"the topic lost records: partition {partition} of {self._topic} ends at {last}, before {first}"
                raise RecordsLostError(msg)
        ranges = {partition: pair for partition, pair in ranges.items() if pair[0] < pair[1]}
        return share_partitions(ranges, lambda pair: pair[1] - pair[0], self._tasks, WORTH_RECORDS)

    def read_parts(self, parts: Mapping[int, Range]) -> Iterable[pa.RecordBatch]:
        return reader(self._topic, self._settings, has_headers=self._has_headers).read(parts)


def range_reader(
    topic: str, settings: Mapping[str, str], *, has_headers: bool
) -> Callable[[int, int, int], Iterator[pa.RecordBatch]]:
    """Return a function (partition, offset, next offset) that reads a range in a worker."""
    pairs = tuple(sorted(settings.items()))

    def read(partition: int, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        return reader(topic, pairs, has_headers=has_headers).read({partition: (begin, end)})

    return read


def _next(offset: Offset, topic: str) -> dict[int, int]:
    return {int(partition): int(at) for partition, at in offset.get(topic, {}).items()}


def up_to(begin: Cut, ends: Cut, max_records: int | None) -> dict[int, int]:
    """Return where a step of at most `max_records` records ends, if it starts at `begin` and the log ends at `ends`.

    The limit is divided as by `portions`, and each partition with records contributes at least one, even if that
    exceeds the limit. Partitions missing in `begin` are read from offset 0.
    """
    if max_records is None:
        return dict(ends)
    reached = {partition: begin.get(partition, 0) for partition in ends}
    waiting = {partition: end - reached[partition] for partition, end in ends.items() if end > reached[partition]}
    taken = portions(waiting, max(max_records, len(waiting)))
    return {partition: at + taken.get(partition, 0) for partition, at in reached.items()}
