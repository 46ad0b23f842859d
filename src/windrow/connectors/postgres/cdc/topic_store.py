"""A Kafka topic with the changes of a table; ``TOPIC.position`` keeps the state of following it.

Changes are written in one transaction with the state after them, and so is the whole copy. Thus the committed state
tells which changes are in the topic, and a change is confirmed to the slot only after its transaction has committed.
``TOPIC.position`` is compacted, so its last record is kept forever, and neither retention nor compaction of the topic
leads to repeated changes.

All changes of a row have the same key and are in the same partition, in commit order. The partition is a hash of the
key, modulo the number of partitions that the topic had when the table was copied. Each of these partitions has a record
for a truncation of the table, which removes the rows of the partition. Partitions that are added later stay
empty, since keys would otherwise move between partitions.

Only one process at a time writes to the topic. It holds an advisory lock in the database while it follows the table. A
process that loses its connection, and with it the lock, without noticing is fenced by the transactional id
``windrow-TOPIC.position``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from zlib import crc32

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic  # type: ignore[attr-defined]

from windrow import model as m
from windrow.connectors.follower import FollowStore
from windrow.connectors.kafka.client import Admin, client_of, unreachable
from windrow.connectors.kafka.options import TIMEOUT, client_options, pop_transaction_timeout
from windrow.connectors.kafka.producer import TransactionalProducer
from windrow.connectors.kafka.read import Reader
from windrow.connectors.kafka.source import KafkaTopic, log_ends, preflight
from windrow.connectors.kafka.topics import COMPACTED, create_topics, require_compaction
from windrow.connectors.postgres.cdc.records import ChangeRecord
from windrow.connectors.postgres.cdc.server import BUSY_SECONDS, WAIT_SECONDS
from windrow.connectors.postgres.cdc.state import SlotState
from windrow.connectors.postgres.client import Connection
from windrow.errors import InputError, SourceError, SourceUnavailableError

_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_KEY = b"position"
_TRANSACTION_MS, _COPY_MS = 60_000, 900_000
"""Timeouts of transactions with changes, and of the transaction with the copy. The latter is the default maximum of
brokers; the option ``transaction.timeout.ms`` overrides it."""
_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended($1, 0))"


@dataclass(frozen=True)
class _Position:
    """A record of ``TOPIC.position``: the state, the topic's id (None if it has none), and its number of partitions."""

    state: SlotState
    topic_id: str | None
    partitions: int

    @staticmethod
    def read(value: bytes) -> _Position:
        plain = json.loads(value)
        return _Position(SlotState.read(plain["state"]), plain["topic_id"], plain["partitions"])

    def write(self) -> bytes:
        return json.dumps({**asdict(self), "state": self.state.as_json()}).encode()


class TopicStore(FollowStore[SlotState, ChangeRecord]):
    """A store for the changes of a table that is a Kafka topic. `sql` is a connection to the table's database."""

    def __init__(self, topic: m.KafkaSource, table: str, sql: Connection) -> None:
        self._topic = topic
        self._table = table
        self._sql = sql
        self._beside = f"{topic.topic}.position"
        self._settings = client_options(topic)
        self._copy_ms = pop_transaction_timeout(self._settings, _COPY_MS)
        self._position: _Position | None = None
        self._producer: TransactionalProducer | None = None

    @property
    def name(self) -> str:
        return f"the topic {self._topic.topic}"

    @property
    def removal(self) -> str:
        return f"delete the topics {self._topic.topic} and {self._beside}"

    @cached_property
    def _admin(self) -> AdminClient:
        return client_of(AdminClient, self._topic.topic, {**self._settings, "error_cb": lambda _: None})

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Acquire the lock, create missing topics, and end an open transaction of a previous writer.

        The state must be read after that, because a commit without an answer may still take effect until then.
        """
        # new clients for each opening: an old one knows a restarted broker by its former epoch
        self._position_admin = Admin(self._beside, self._settings, TIMEOUT)
        self._positions = Reader(self._beside, self._settings)
        with self._reaching_broker():
            cluster = self._known().cluster_id
        lock = f"windrow {cluster} {self._topic.topic}"
        deadline = time.monotonic() + BUSY_SECONDS
        while not self._sql.execute(_TRY_LOCK, (lock,)).fetchall()[0][0]:
            if time.monotonic() > deadline:
                msg = (
                    f"another run follows the table {self._table} into {self.name}: end that run, give this pipeline a "
                    "topic of its own, or let it read that topic: kafka: {servers, topic, format: debezium}"
                )
                raise SourceUnavailableError(msg)
            time.sleep(WAIT_SECONDS)
        try:
            with self._reaching_broker():
                self._create()
                require_compaction(self._admin, self._beside)
            self._start(_TRANSACTION_MS)
            yield
        finally:
            self._abandon()
            with suppress(psycopg.Error):  # a lost connection has no lock
                self._sql.execute(_UNLOCK, (lock,))

    def _known(self) -> ClusterMetadata:
        return self._admin.list_topics(timeout=TIMEOUT)

    def _create(self) -> None:
        known = self._known().topics
        has_topic, has_position = self._topic.topic in known, self._beside in known
        if has_position and not has_topic and self._read() is not None:
            msg = (
                f"the topic {self._topic.topic} no longer exists at {self._topic.servers}, so changes are lost: "
                f"delete the topic {self._beside}, too, to copy the table again, and start over with --fresh"
            )
            raise SourceUnavailableError(msg)  # a broker that is starting may not know it yet
        missing = [] if has_topic else [NewTopic(self._topic.topic, config=_KEPT)]
        missing += [] if has_position else [NewTopic(self._beside, 1, config=COMPACTED)]
        create_topics(self._admin, missing)
        deadline = time.monotonic() + TIMEOUT
        while missing and not self._known().topics.keys() >= {self._topic.topic, self._beside}:
            if time.monotonic() > deadline:
                msg = f"{self.name} was created but is not available yet: start again"
                raise SourceUnavailableError(msg)
            time.sleep(WAIT_SECONDS)

    @contextmanager
    def _reaching_broker(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as exc:
            raise SourceUnavailableError(unreachable(self._topic.servers, [exc.args[0]])) from exc

    def state(self) -> SlotState | None:
        """Return the state in ``TOPIC.position``; None if there is none."""
        self._position = self._read()
        if self._position is None:
            if any(first < end for first, end in preflight(self._topic).values()):
                msg = (
                    f"{self.name} at {self._topic.servers} has records, but {self._beside} does not name their "
                    "table: use another topic in `topic`"
                )
                raise InputError(msg)
            return None
        if self._position.topic_id != KafkaTopic(self._topic).identity():
            msg = (
                f"{self.name} at {self._topic.servers} is not the topic into which "
                f"{', '.join(self._position.state.names)} was copied, so changes are lost: {self.removal} to copy the "
                "table again, and start over with --fresh"
            )
            raise SourceError(msg)
        return self._position.state

    def is_copied(self) -> bool:
        """Whether the transaction that contains the copy was committed."""
        return self._position is not None and self._position.state.confirmed > 0

    def note(self, state: SlotState) -> None:
        """Commit a state, unless it is already in the topic."""
        if self._position is None:
            partitions = len(log_ends(self._topic))
            self._position = _Position(SlotState("", "", ()), KafkaTopic(self._topic).identity(), partitions)
        if state != self._position.state:
            self._commit((), state)

    def copy(self, records: Iterator[ChangeRecord], state: SlotState) -> None:
        """Write the copy and the state in one transaction."""
        self._start(self._copy_ms)
        self._commit(records, state)

    def resume(self) -> SlotState:
        """Fence the previous writer, and return the committed state."""
        self._start(_TRANSACTION_MS)
        self._position = self._read()
        if self._position is None:
            msg = (
                f"the topic {self._beside} has lost its records: {self.removal} to copy the table again, and start "
                "over with --fresh"
            )
            raise SourceError(msg)
        return self._position.state

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the partition and the value of each record of the topic, one partition after the other."""
        for batch in KafkaTopic(self._topic).read_all():
            yield from zip(batch.column("partition").to_pylist(), batch.column("value").to_pylist(), strict=True)

    def trimmed(self) -> Collection[int]:
        """Return the partitions whose first records were removed."""
        return [partition for partition, (first, _) in KafkaTopic(self._topic).ends().items() if first > 0]

    def append(self, records: Sequence[ChangeRecord], state: SlotState) -> None:
        """Write changes and the state in one transaction."""
        self._commit(records, state)

    def _read(self) -> _Position | None:
        last: bytes | None = None
        for batch in self._positions.read({0: self._position_admin.offsets([0])[0]}):
            last = batch.column("value")[-1].as_py()
        try:
            return None if last is None else _Position.read(last)
        except (ValueError, TypeError, LookupError) as exc:
            msg = (
                f"the topic {self._beside} has a record that windrow did not write: use another topic in `topic`, or "
                f"{self.removal}, and start over with --fresh"
            )
            raise SourceError(msg) from exc

    def _start(self, timeout: int) -> None:
        """Take over the transactional id with a new producer."""
        self._abandon()
        self._producer = TransactionalProducer(
            self._topic.topic,
            {"compression.type": "lz4", "linger.ms": 5, **self._settings},
            f"windrow-{self._beside}",
            what=f"topic {self._topic.topic}",
            fenced=self._fenced,
            timeout=timeout,
            refused=SourceError,
            unavailable=SourceUnavailableError,
        )
        self._producer.start()

    def _commit(self, records: Iterator[ChangeRecord] | Sequence[ChangeRecord], state: SlotState) -> None:
        known, producer = self._position, self._producer
        if known is None or producer is None:
            msg = f"{self.name} is not open"
            raise SourceError(msg)
        written = _Position(state, known.topic_id, known.partitions)
        producer.begin()
        for record in records:
            key, value = record.key.encode(), record.value.encode()
            here = crc32(key) % known.partitions
            for partition in range(known.partitions) if record.is_truncation else (here,):
                producer.send(self._topic.topic, key, value, partition=partition, timestamp=record.time)
        producer.send(self._beside, _KEY, written.write(), partition=0)
        producer.commit()
        self._position = written

    def _abandon(self) -> None:
        if self._producer is not None:
            self._producer.abandon()
            self._producer = None

    def _fenced(self) -> SourceUnavailableError:
        return SourceUnavailableError(
            f"the transaction of topic {self._topic.topic} was ended, by the broker after its time limit, or by "
            f"another run that follows the table {self._table} into it"
        )
