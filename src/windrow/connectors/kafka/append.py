"""Append records to a Kafka topic in one transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message

from windrow import model as m
from windrow.connectors.kafka.client import PASSING
from windrow.connectors.kafka.options import TIMEOUT, client_options, pop_transaction_timeout
from windrow.connectors.kafka.producer import TransactionalProducer
from windrow.connectors.kafka.source import KafkaTopic
from windrow.connectors.source import Appender, NewRecord
from windrow.errors import SourceError, SourceUnavailableError

_TRANSACTION_MS = 60_000
"""Milliseconds that a transaction may be open, unless the option `transaction.timeout.ms` says otherwise."""
_LOST = (
    *PASSING,
    KafkaError._TRANSPORT,  # noqa: SLF001 - the client's own names
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
)
"""Errors of a broker that is lost or is starting."""


class KafkaAppender(Appender):
    """Appends records to a topic.

    Appenders with the same `identity` fence each other: only the one that was opened last can commit. Opening an
    appender aborts an open transaction of the previous one before anything is read.
    """

    def __init__(self, source: m.KafkaSource, identity: str) -> None:
        self._topic = KafkaTopic(source)
        self._where = f"topic {source.topic} at {source.servers}"
        self._refused: list[KafkaError] = []
        settings = client_options(source)
        timeout = pop_transaction_timeout(settings, _TRANSACTION_MS)
        self._producer = TransactionalProducer(
            source.topic,
            settings,
            identity,
            what=self._where,
            fenced=self._fenced,
            timeout=timeout,
            refused=SourceError,
            unavailable=SourceUnavailableError,
            transient=_LOST,
        )

    def __enter__(self) -> Self:
        self._topic.ends()  # raises if there is no topic
        self._producer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._producer.client.purge()

    def append(self, records: Mapping[int, Sequence[NewRecord]]) -> dict[int, list[int]]:
        """Append all records to their partitions, or none of them; return their offsets."""
        offsets = {partition: [-1] * len(new) for partition, new in records.items() if new}
        if not offsets:
            return {}
        self._refused.clear()
        self._producer.begin()
        try:
            for partition, new in sorted(records.items()):
                for number, record in enumerate(new):
                    note = partial(self._note, offsets[partition], number)
                    self._producer.send(
                        self._topic.name,
                        record.key,
                        record.value,
                        [*record.headers],
                        partition=partition,
                        on_delivery=note,
                    )
            self._commit()
        except SourceError:
            self._producer.abandon()
            raise
        return offsets

    def _commit(self) -> None:
        client, until = self._producer.client, time.monotonic() + TIMEOUT
        # the callbacks with the offsets run within `poll`
        while len(client) and time.monotonic() < until:
            self._producer.call(client.poll, 0.1)
        if self._refused:
            raise self._producer.failure(KafkaException(self._refused[0]))
        if len(client):
            msg = f"{self._where} did not accept all records within {TIMEOUT:.0f} s; is the broker running?"
            raise SourceUnavailableError(msg)
        self._producer.commit(TIMEOUT)

    def _note(self, offsets: list[int], number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
        else:
            offsets[number] = message.offset() or 0

    def _fenced(self) -> SourceError:
        return SourceError(
            f"{self._where} cannot be appended to: this process is fenced, because another one is appending to it or "
            "the broker has ended the transaction; run the command again"
        )


def topic_appender(source: m.KafkaSource, identity: str, _prefix: bytes) -> KafkaAppender:
    """Return the appender of a topic that uses `identity` as its transactional id."""
    return KafkaAppender(source, identity)
