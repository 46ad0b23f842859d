"""Read the records of a topic with librdkafka, either in ranges or by following a partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from windrow.connectors.kafka.client import PASSING, client_of, denied, unreachable
from windrow.engine.columns import distinct
from windrow.engine.schema import HEADERS, MICROS, RAW
from windrow.errors import RecordsLostError, SourceError, SourceUnavailableError

_MESSAGES = 10_000
_WAIT = 0.05
"""Seconds to wait for this number of messages before returning fewer."""
_BATCH_RECORDS = 100_000
_BATCH_BYTES = 16 << 20
"""Size at which joined batches are passed on; a large batch costs less per record than many small ones."""
_PATIENCE = 30.0
"""Seconds without a record after which a read fails, if the broker had an error."""
_LONG_PATIENCE = 300.0
"""Seconds after which a read fails without an error. It may take long, as aborted records are not delivered."""
_END_PATIENCE = 5.0
"""Seconds after which an earlier end of a partition is believed, because a new leader may not know the end yet."""
_LAST_MILLI = 253_402_300_799_999
"""The end of the year 9999."""
_TUNING = {
    # the records exist: the broker need not wait at the end of a partition
    "fetch.wait.max.ms": 10,
    # records beyond a range are discarded; a full queue is checked again soon
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 5,
    "reconnect.backoff.max.ms": 1000,
}
MEANING = {
    "group.id": "windrow",  # required by the client; nothing is committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
}
"""Settings that the reader depends on, which override the pipeline's options."""
Range = tuple[int, int]
"""The first offset to read, and the offset after the last."""

_GONE = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - the client's own names
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)


class Reader:
    """Reads ranges of a topic one after the other with a single client. `settings` are librdkafka settings."""

    def __init__(self, topic: str, settings: Mapping[str, str], *, has_headers: bool = False) -> None:
        self._topic = topic
        self._has_headers = has_headers
        self._servers = settings["bootstrap.servers"]
        self._said: list[KafkaError] = []
        options = {**_TUNING, **settings, **MEANING, "error_cb": self._said.append}
        self._consumer = client_of(Consumer, topic, options)

    def read(self, ranges: Mapping[int, Range]) -> Iterator[pa.RecordBatch]:
        """Read the committed records in a range of offsets of each partition, in RAW batches.

        Offsets may have gaps. A batch may contain records of several partitions, those of each partition in offset
        order. Raise RecordsLostError if records were lost, and SourceUnavailableError if no broker delivers them.
        """
        left = {partition: range_ for partition, range_ in ranges.items() if range_[0] < range_[1]}
        self._said.clear()
        self._consumer.assign([TopicPartition(self._topic, partition, begin) for partition, (begin, _) in left.items()])
        try:
            yield from _join_batches(self._batches(left))
        finally:
            self._consumer.unassign()

    def _batches(self, ranges: dict[int, Range]) -> Iterator[pa.RecordBatch]:
        """Yield batches until every partition has reached the end of its range."""
        at = {partition: begin for partition, (begin, _) in ranges.items()}
        ends = {partition: end for partition, (_, end) in ranges.items()}
        left, heard, most = set(ranges), time.monotonic(), _MESSAGES
        short: dict[int, int] = {}
        while left:
            # no more than exist: the client would wait for them
            rest = sum(ends[partition] - at[partition] for partition in left)
            messages = self._consumer.consume(min(rest, most), _WAIT)
            if messages:
                heard = time.monotonic()
            else:
                self._give_up(time.monotonic() - heard, short)
            events: list[Message] = []
            if any(map(Message.error, messages)):
                events = [message for message in messages if message.error()]
                messages = [message for message in messages if not message.error()]
            if messages:
                batch = _batch(messages, has_headers=self._has_headers)
                most = max(1, min(_MESSAGES, _BATCH_BYTES * len(messages) // max(1, batch.nbytes)))
                yield _before(ends, _in_order(at, batch))
                del batch, messages[:]
            for message in events:
                self._hear(message, at, short)
            short = {partition: end for partition, end in short.items() if at[partition] <= end < ends[partition]}
            done = {partition for partition in left if at[partition] >= ends[partition]}
            if done:
                # records beyond the end are no longer fetched
                self._consumer.incremental_unassign([TopicPartition(self._topic, partition) for partition in done])
                left -= done

    def _hear(self, message: Message, at: dict[int, int], short: dict[int, int]) -> None:
        """Handle a message that is not a record; raise it if it is an error of a partition being read.

        The end of a partition advances its position in `at`. If the partition ends before its range does, `short`
        records where.
        """
        error, partition = message.error(), message.partition()
        if error is None:
            return
        if partition not in at:
            self._said.append(error)  # of the group, which this client does not join, or of a former range
            return
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name
            end = message.offset() or 0
            short[partition] = end
            at[partition] = max(at[partition], end)
            return
        raise _read_error(self._topic, partition, self._servers, error)

    def _give_up(self, seconds: float, short: Mapping[int, int]) -> None:
        """Raise an error if no record has arrived for too long."""
        if short and seconds > _END_PATIENCE:
            partition, end = min(short.items())
            msg = f"the topic lost records: partition {partition} of {self._topic} now ends at offset {end}"
            raise RecordsLostError(msg)
        if seconds > (_PATIENCE if self._said else _LONG_PATIENCE):
            raise SourceUnavailableError(unreachable(self._servers, self._said))


def _read_error(topic: str, partition: int | None, servers: str, error: KafkaError) -> SourceError:
    if error.code() in _GONE:
        return RecordsLostError(f"the topic lost records before they were read (partition {partition} of {topic})")
    place = f"topic {topic}, partition {partition} at {servers}"
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return SourceError(f"{place} may not be read with these options: grant READ and DESCRIBE on the topic")
    is_passing = error.code() in PASSING
    return (SourceUnavailableError if is_passing else SourceError)(f"{place}: {error.str()}")


_TAILING = {
    # the broker answers when there is a record; a full queue is checked again soon
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 5,
    "fetch.error.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
}


class CommittedOffsets:
    """Reads the offsets that a consumer group has committed for a topic, without joining the group.

    This uses a consumer. librdkafka's admin client would terminate the process if the group's coordinator has changed,
    as it may after a broker restarts (librdkafka issue 5040).
    """

    def __init__(self, group: str, topic: str, settings: Mapping[str, str]) -> None:
        self._group = group
        self._topic = topic
        self._servers = settings["bootstrap.servers"]
        self._said: list[KafkaError] = []
        options = {"enable.auto.commit": "false", **settings, "group.id": group, "error_cb": self._said.append}
        self._consumer = client_of(Consumer, topic, options)

    def ask(self, partitions: Iterable[int], seconds: float) -> dict[int, TopicPartition]:
        """Return the committed offset, with its metadata, of each partition that has one.

        Raise the errors of `Tail.committed`.
        """
        self._said.clear()
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        return _committed(self._consumer, places, seconds, self._group, self._servers, self._said)


def _committed(  # noqa: PLR0917 - the identity of a consumer
    consumer: Consumer,
    places: list[TopicPartition],
    seconds: float,
    group: str,
    servers: str,
    said: Sequence[KafkaError],
) -> dict[int, TopicPartition]:
    try:
        found = consumer.committed(places, seconds)
    except KafkaException as exc:
        raise denied(exc.args[0], group, servers) or SourceUnavailableError(
            unreachable(servers, [*said] or [exc.args[0]])
        ) from exc
    for at in found:
        if at.error is not None:
            raise denied(at.error, group, servers) or _read_error(at.topic, at.partition, servers, at.error)
    return {at.partition: at for at in found if at.offset >= 0}


class Tail:
    """Follows a partition from a given offset, returning its committed records as they arrive.

    It is a consumer in the group `group`; it reads the group's committed offset but does not write it.
    """

    def __init__(
        self, topic: str, partition: int, settings: Mapping[str, str], group: str, *, has_headers: bool = False
    ) -> None:
        self._has_headers = has_headers
        self._place = TopicPartition(topic, partition)
        self._servers = settings["bootstrap.servers"]
        self._group = group
        self._said: list[KafkaError] = []
        options = {**_TAILING, **settings, **MEANING, "group.id": group, "error_cb": self._said.append}
        self._consumer = client_of(Consumer, topic, options)
        self.next = 0
        """The offset after all returned records and transaction markers."""

    def committed(self, seconds: float) -> TopicPartition | None:
        """Return the offset that the group has committed, with its metadata; None if it has committed none.

        Raise SourceError if access to the group is denied, and SourceUnavailableError if no broker answers in time.
        """
        found = _committed(self._consumer, [self._place], seconds, self._group, self._servers, self._said)
        return found.get(self._place.partition)

    def seek(self, offset: int) -> None:
        """Continue reading at an offset."""
        self.next = offset
        self._consumer.assign([TopicPartition(self._place.topic, self._place.partition, offset)])

    def poll(self, most: int, seconds: float) -> pa.RecordBatch | None:
        """Return at most `most` new records as a RAW batch; None if no record arrives within `seconds`.

        Raise RecordsLostError if the next record was lost, and SourceError for other errors of the broker.
        """
        # for more than one record, the client waits the whole time
        messages = self._consumer.consume(1, seconds)
        if messages and most > 1:
            messages += self._consumer.consume(most - 1, 0)
        events: list[Message] = []
        if any(map(Message.error, messages)):
            events = [message for message in messages if message.error()]
            messages = [message for message in messages if not message.error()]
        batch = None
        if messages:
            at = {self._place.partition: self.next}
            batch = _in_order(at, _batch(messages, has_headers=self._has_headers))
            self.next = at[self._place.partition]
        # the end of the partition is after the records that came with it
        for message in events:
            self._hear(message)
        return batch

    def _hear(self, message: Message) -> None:
        error = message.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name
            # after the markers of transactions, which are no records
            self.next = max(self.next, message.offset() or 0)
        elif message.topic() != self._place.topic:
            self._said.append(error)
        else:
            raise _read_error(self._place.topic, self._place.partition, self._servers, error)

    def group(self) -> object:
        """Return the consumer group's metadata, which a transaction needs to commit the group's offsets."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Disconnect from the brokers."""
        self._consumer.close()


@lru_cache(maxsize=32)
def reader(topic: str, settings: tuple[tuple[str, str], ...], *, has_headers: bool) -> Reader:
    """Return a reader of a topic that is shared within this process, since a Spark worker reads many steps."""
    return Reader(topic, dict(settings), has_headers=has_headers)


def _join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(part.num_rows for part in held) >= _BATCH_RECORDS or sum(part.nbytes for part in held) >= _BATCH_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held = []
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _in_order(at: dict[int, int], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Advance the positions past a batch and return it; raise SourceError if its offsets are out of order."""
    partitions, offsets = (batch.column(name).to_numpy() for name in ("partition", "offset"))
    for partition in distinct(partitions):
        its_own = offsets[partitions == partition]
        if np.any(np.diff(its_own, prepend=at.get(partition, its_own[0] + 1) - 1) <= 0):
            msg = f"the Kafka client returned records of partition {partition} twice or out of order"
            raise SourceError(msg)
        at[partition] = int(its_own[-1]) + 1
    return batch


def _before(ends: Mapping[int, int], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records that are before the end of their partition's range."""
    partitions, offsets = (batch.column(name).to_numpy() for name in ("partition", "offset"))
    inside = np.ones(batch.num_rows, dtype=bool)
    for partition, end in ends.items():
        inside &= (partitions != partition) | (offsets < end)
    return batch if inside.all() else batch.filter(pa.array(inside))


def _batch(messages: list[Message], *, has_headers: bool) -> pa.RecordBatch:
    # by `map`: no bytecode runs for each message
    stamps = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * len(messages))
    micros = np.clip(stamps[1::2], 0, _LAST_MILLI) * 1000
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(np.fromiter(map(Message.partition, messages), np.int32, len(messages))),
            pa.array(np.fromiter(map(Message.offset, messages), np.int64, len(messages))),
            pa.array(micros, mask=stamps[::2] == TIMESTAMP_NOT_AVAILABLE).cast(MICROS),
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
        ],
        schema=RAW,
    )
    return batch.append_column(HEADERS, pa.array(_headers(messages), HEADERS.type)) if has_headers else batch


def _headers(messages: list[Message]) -> list[Any]:
    """Return the headers of records, with None for a record with a header whose name is not UTF-8."""
    found: list[Any] = []
    # Each message is asked once, by `map`: for such a name, the client returns a list together with an error. A call in
    # bytecode may miss the error, and the list that a second call returns is broken.
    unread = map(Message.headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(headers or [] for headers in unread)
        except (SystemError, UnicodeDecodeError):
            found.append(None)
    return found
