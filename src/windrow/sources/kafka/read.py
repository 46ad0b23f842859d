"""The records of a topic, through librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from windrow.core.schema import MICROS, RAW
from windrow.errors import RecordsLostError, SourceError, SourceUnavailableError
from windrow.sources.kafka.client import PASSING, quiet, unreachable

_MESSAGES = 10_000
_WAIT = 0.05
"""Seconds to wait for that many messages; fewer come back then."""
_BATCH_RECORDS = 100_000
_BATCH_BYTES = 16 << 20
"""So much is gathered at the most before it is handed on: a large batch costs less a record."""
_PATIENCE = 30.0
"""Seconds without a record after which a broker is given up."""
_LAST_MILLI = 253_402_300_799_999
"""The end of the year 9999."""
_READING = {
    "group.id": "windrow",  # the client wants one; nothing is committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    # what is asked for is there: a partition's end is no reason to wait
    "fetch.wait.max.ms": 10,
    # what is fetched beyond a range is thrown away; a queue that was full is looked at again soon
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 5,
    "reconnect.backoff.max.ms": 1000,
}
Range = tuple[int, int]
"""The first offset that is read, and the next one after the last."""

_GONE = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - the client's own names
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)


class Reader:
    """Reads ranges of a topic, one after the other, by one client, which it keeps. `settings` are librdkafka's."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self._topic = topic
        self._servers = settings["bootstrap.servers"]
        self._said: list[KafkaError] = []
        extra = {"error_cb": self._said.append, "log_level": 0}
        self._consumer = Consumer({**_READING, **settings, **extra}, logger=quiet())

    def read(self, ranges: Mapping[int, Range]) -> Iterator[pa.RecordBatch]:
        """Read the committed records between two offsets of each partition, in RAW batches; offsets may jump.

        A batch may be of several partitions, of each in the order of its offsets. Raise RecordsLostError if records are
        not there any more, SourceUnavailableError if no broker gives them.
        """
        ends = {partition: end for partition, (begin, end) in ranges.items() if begin < end}
        self._said.clear()
        self._consumer.assign([TopicPartition(self._topic, partition, ranges[partition][0]) for partition in ends])
        try:
            yield from _gathered(self._batches(ends))
        finally:
            self._consumer.unassign()

    def _batches(self, ends: dict[int, int]) -> Iterator[pa.RecordBatch]:
        """Yield what comes until each partition has come to its end."""
        heard, left = time.monotonic(), dict(ends)
        while left:
            messages = self._consumer.consume(_MESSAGES, _WAIT)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _PATIENCE:
                raise SourceUnavailableError(unreachable(self._servers, self._said))
            reached: dict[int, int] = {}
            if any(map(Message.error, messages)):
                reached = {one.partition() or 0: self._told(one, left) for one in messages if one.error()}
                messages = [one for one in messages if not one.error()]
            if messages:
                batch = _batch(messages)
                partitions, offsets = (batch.column(name).to_numpy() for name in ("partition", "offset"))
                inside = np.ones(len(messages), dtype=bool)
                for partition in np.unique(partitions).tolist():
                    its_own = partitions == partition
                    reached[partition] = max(reached.get(partition, 0), int(offsets[its_own][-1]) + 1)
                    inside &= ~its_own | (offsets < ends[partition])
                yield batch if inside.all() else batch.filter(pa.array(inside))
            done = [partition for partition, at in reached.items() if partition in left and at >= left[partition]]
            if done:
                # what is beyond is not fetched any more
                self._consumer.incremental_unassign([TopicPartition(self._topic, partition) for partition in done])
                left = {partition: end for partition, end in left.items() if partition not in done}

    def _told(self, message: Message, left: Mapping[int, int]) -> int:
        """Return how far a partition has come by what is told in the place of a record; raise if that is an error."""
        error, partition = message.error(), message.partition() or 0
        if error is None or partition not in left:
            return 0
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name
            reached = message.offset() or 0
            if reached < left[partition]:
                msg = f"the topic lost records: partition {partition} of {self._topic} ends at offset {reached} now"
                raise RecordsLostError(msg)
            return reached
        if error.code() in _GONE:
            msg = f"the topic lost records before they were read (partition {partition} of {self._topic})"
            raise RecordsLostError(msg)
        msg = f"topic {self._topic}, partition {partition} at {self._servers}: {error.str()}"
        raise (SourceUnavailableError if error.code() in PASSING else SourceError)(msg)


@lru_cache(maxsize=4)
def reader(topic: str, settings: tuple[tuple[str, str], ...]) -> Reader:
    """Return this process's reader of a topic; a worker of Spark's serves many steps."""
    return Reader(topic, dict(settings))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches to large ones."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= _BATCH_RECORDS or sum(one.nbytes for one in held) >= _BATCH_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held = []
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _batch(messages: list[Message]) -> pa.RecordBatch:
    # by `map`: no bytecode of ours runs for each message
    stamps = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * len(messages))
    micros = np.clip(stamps[1::2], 0, _LAST_MILLI) * 1000
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.fromiter(map(Message.partition, messages), np.int32, len(messages))),
            pa.array(np.fromiter(map(Message.offset, messages), np.int64, len(messages))),
            pa.array(micros, mask=stamps[::2] == TIMESTAMP_NOT_AVAILABLE).cast(MICROS),
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
        ],
        schema=RAW,
    )
