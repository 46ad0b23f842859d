"""The records of a topic, through librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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

    def read(self, partition: int, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read the committed records of a partition between two offsets, in RAW batches; offsets may jump.

        Raise RecordsLostError if they are not there any more, SourceUnavailableError if no broker gives them.
        """
        if begin >= end:
            return
        self._said.clear()
        self._consumer.assign([TopicPartition(self._topic, partition, begin)])
        try:
            yield from self._batches(partition, begin, end)
        finally:
            self._consumer.unassign()

    def _batches(self, partition: int, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        at, heard = begin, time.monotonic()
        held: list[pa.RecordBatch] = []
        while at < end:
            messages = self._consumer.consume(_MESSAGES, _WAIT)
            if not messages:
                if time.monotonic() - heard > _PATIENCE:
                    raise SourceUnavailableError(unreachable(self._servers, self._said))
                continue
            heard = time.monotonic()
            told = [message for message in messages if message.error()] if any(map(Message.error, messages)) else []
            if told:
                messages = [message for message in messages if not message.error()]
            if messages:
                at = (messages[-1].offset() or 0) + 1
                held.append(_batch(partition, messages if at <= end else _before(end, messages)))
            for message in told:
                at = max(at, self._told(message, partition, end))
            if sum(one.num_rows for one in held) >= _BATCH_RECORDS or sum(one.nbytes for one in held) >= _BATCH_BYTES:
                yield _together(held)
                held = []
        if held:
            yield _together(held)

    def _told(self, message: Message, partition: int, end: int) -> int:
        """Return how far a partition has come by what is told in the place of a record; raise if that is an error."""
        error = message.error()
        if error is None:
            return 0
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name
            reached = message.offset() or 0
            if reached < end:
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


def _before(end: int, messages: list[Message]) -> list[Message]:
    return [message for message in messages if (message.offset() or 0) < end]


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _batch(partition: int, messages: list[Message]) -> pa.RecordBatch:
    # by `map`: no bytecode of ours runs for each message
    stamps = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * len(messages))
    micros = np.clip(stamps[1::2], 0, _LAST_MILLI) * 1000
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(len(messages), partition, np.int32)),
            pa.array(np.fromiter(map(Message.offset, messages), np.int64, len(messages))),
            pa.array(micros, mask=stamps[::2] == TIMESTAMP_NOT_AVAILABLE).cast(MICROS),
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
        ],
        schema=RAW,
    )
