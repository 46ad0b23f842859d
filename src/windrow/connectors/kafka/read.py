"""The records of a topic, through librdkafka: ranges of it, or one partition as its records come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

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
from windrow.engine.schema import MICROS, RAW
from windrow.errors import RecordsLostError, SourceError, SourceUnavailableError

_MESSAGES = 10_000
_WAIT = 0.05
"""Seconds to wait for that many messages; fewer come back then."""
_BATCH_RECORDS = 100_000
_BATCH_BYTES = 16 << 20
"""So much is gathered at the most before it is handed on: a large batch costs less a record."""
_PATIENCE = 30.0
"""Seconds without a record after which a broker is given up of which an error was heard."""
_LONG_PATIENCE = 300.0
"""Seconds after which it is given up also if none was: aborted records come as nothing."""
_END_PATIENCE = 5.0
"""Seconds after which the end of a partition is believed that is nearer than it was: a new leader may not know yet."""
_LAST_MILLI = 253_402_300_799_999
"""The end of the year 9999."""
_TUNING = {
    # what is asked for is there: a partition's end is no reason to wait
    "fetch.wait.max.ms": 10,
    # what is fetched beyond a range is thrown away; a queue that was full is looked at again soon
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 5,
    "reconnect.backoff.max.ms": 1000,
}
_MEANING = {
    "group.id": "windrow",  # the client wants one; nothing is committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
}
"""Consumer settings that the reader depends on, which override the pipeline's options."""
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
        made = {**_TUNING, **settings, **_MEANING, "error_cb": self._said.append}
        self._consumer = client_of(Consumer, topic, made)

    def read(self, ranges: Mapping[int, Range]) -> Iterator[pa.RecordBatch]:
        """Read the committed records between two offsets of each partition, in RAW batches; offsets may jump.

        A batch may be of several partitions, of each in the order of its offsets. Raise RecordsLostError if records are
        not there any more, SourceUnavailableError if no broker gives them.
        """
        left = {partition: range_ for partition, range_ in ranges.items() if range_[0] < range_[1]}
        self._said.clear()
        self._consumer.assign([TopicPartition(self._topic, partition, begin) for partition, (begin, _) in left.items()])
        try:
            yield from _gathered(self._batches(left))
        finally:
            self._consumer.unassign()

    def _batches(self, ranges: dict[int, Range]) -> Iterator[pa.RecordBatch]:
        """Yield what comes until each partition has come to its end."""
        at = {partition: begin for partition, (begin, _) in ranges.items()}
        ends = {partition: end for partition, (_, end) in ranges.items()}
        left, heard = set(ranges), time.monotonic()
        short: dict[int, int] = {}
        while left:
            # no more than there are: it would wait for them
            rest = sum(ends[partition] - at[partition] for partition in left)
            messages = self._consumer.consume(min(rest, _MESSAGES), _WAIT)
            if messages:
                heard = time.monotonic()
            else:
                self._give_up(time.monotonic() - heard, short)
            events: list[Message] = []
            if any(map(Message.error, messages)):
                events = [message for message in messages if message.error()]
                messages = [message for message in messages if not message.error()]
            if messages:
                yield _before(ends, _in_order(at, _batch(messages)))
            for message in events:
                self._hear(message, at, short)
            short = {partition: end for partition, end in short.items() if at[partition] <= end < ends[partition]}
            done = {partition for partition in left if at[partition] >= ends[partition]}
            if done:
                # what is beyond is not fetched any more
                self._consumer.incremental_unassign([TopicPartition(self._topic, partition) for partition in done])
                left -= done

    def _hear(self, message: Message, at: dict[int, int], short: dict[int, int]) -> None:
        """Handle a message that is not a record; raise if that is an error of a partition that is read.

        The end of a partition is where it has come `at`, but if that is before the end of what is read: `short` is
        where it ends then.
        """
        error, partition = message.error(), message.partition()
        if error is None:
            return
        if partition not in at:
            self._said.append(error)  # of the group, which this client does not join, or of what was read before
            return
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name
            end = message.offset() or 0
            short[partition] = end
            at[partition] = max(at[partition], end)
            return
        raise _read_error(self._topic, partition, self._servers, error)

    def _give_up(self, seconds: float, short: Mapping[int, int]) -> None:
        """Raise if nothing has come for too long."""
        if short and seconds > _END_PATIENCE:
            partition, end = min(short.items())
            msg = f"the topic lost records: partition {partition} of {self._topic} ends at offset {end} now"
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
    # the broker answers when there is a record; a queue that was full is looked at again soon
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 5,
    "fetch.error.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
}


class CommittedOffsets:
    """Reads the offsets that a consumer group has committed to a topic; it gets no member by that, and commits none.

    A consumer asks for them: librdkafka's admin client ends the whole process where the group has another coordinator
    than before, as after a restart of a broker (its issue 5040).
    """

    def __init__(self, group: str, topic: str, settings: Mapping[str, str]) -> None:
        self._group = group
        self._topic = topic
        self._servers = settings["bootstrap.servers"]
        self._said: list[KafkaError] = []
        made = {"enable.auto.commit": "false", **settings, "group.id": group, "error_cb": self._said.append}
        self._consumer = client_of(Consumer, topic, made)

    def ask(self, partitions: Iterable[int], seconds: float) -> dict[int, TopicPartition]:
        """Return the committed offset of each partition that has one, with its metadata; raise as `Tail.committed`."""
        self._said.clear()
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        return _committed(self._consumer, places, seconds, self._group, self._servers, self._said)


def _committed(  # noqa: PLR0917 - what a consumer is known by
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
    for one in found:
        if one.error is not None:
            raise denied(one.error, group, servers) or _read_error(one.topic, one.partition, servers, one.error)
    return {one.partition: one for one in found if one.offset >= 0}


class Tail:
    """Follows a partition: gives its committed records as they come, from the offset on that `seek` is given.

    It belongs to the consumer group `group`, whose committed offset it reads but does not write.
    """

    def __init__(self, topic: str, partition: int, settings: Mapping[str, str], group: str) -> None:
        self._place = TopicPartition(topic, partition)
        self._servers = settings["bootstrap.servers"]
        self._group = group
        self._said: list[KafkaError] = []
        made = {**_TAILING, **settings, **_MEANING, "group.id": group, "error_cb": self._said.append}
        self._consumer = client_of(Consumer, topic, made)
        self.next = 0
        """The next offset, behind all that was given and all that there is nothing to give of."""

    def committed(self, seconds: float) -> TopicPartition | None:
        """Return the group's committed offset, with its metadata; None if there is none.

        Raise SourceError if the group may not be used, SourceUnavailableError if no broker answers in time.
        """
        found = _committed(self._consumer, [self._place], seconds, self._group, self._servers, self._said)
        return found.get(self._place.partition)

    def seek(self, offset: int) -> None:
        """Give the records from an offset on."""
        self.next = offset
        self._consumer.assign([TopicPartition(self._place.topic, self._place.partition, offset)])

    def poll(self, most: int, seconds: float) -> pa.RecordBatch | None:
        """Return the records that have come, in the schema RAW; wait so many seconds for the first, then return None.

        Raise RecordsLostError if the next one is not there any more, SourceError if the broker says that it is wrong.
        """
        # asked for more, the client waits the whole time for it
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
            batch = _in_order(at, _batch(messages))
            self.next = at[self._place.partition]
        # the end of the partition is behind the records that came with it
        for message in events:
            self._hear(message)
        return batch

    def _hear(self, message: Message) -> None:
        error = message.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name
            # behind the marks of transactions, which are no records
            self.next = max(self.next, message.offset() or 0)
        elif message.topic() != self._place.topic:
            self._said.append(error)
        else:
            raise _read_error(self._place.topic, self._place.partition, self._servers, error)

    def group(self) -> object:
        """Return the consumer group as a transaction wants it."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


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


def _in_order(at: dict[int, int], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch, and note where each partition has come to; raise SourceError if it is not what comes next."""
    partitions, offsets = (batch.column(name).to_numpy() for name in ("partition", "offset"))
    for partition in distinct(partitions):
        its_own = offsets[partitions == partition]
        if np.any(np.diff(its_own, prepend=at.get(partition, its_own[0] + 1) - 1) <= 0):
            msg = f"the Kafka client gave records of partition {partition} twice, or in another order"
            raise SourceError(msg)
        at[partition] = int(its_own[-1]) + 1
    return batch


def _before(ends: Mapping[int, int], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records before the ends."""
    partitions, offsets = (batch.column(name).to_numpy() for name in ("partition", "offset"))
    inside = np.ones(batch.num_rows, dtype=bool)
    for partition, end in ends.items():
        inside &= (partitions != partition) | (offsets < end)
    return batch if inside.all() else batch.filter(pa.array(inside))


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
