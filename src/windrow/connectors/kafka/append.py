"""Appending records to a Kafka topic, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from windrow import model as m
from windrow.connectors.kafka.client import PASSING, client_of
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.source import KafkaTopic
from windrow.connectors.source import Appender, NewRecord
from windrow.errors import SourceError, SourceUnavailableError

_LOST = (
    *PASSING,
    KafkaError._TRANSPORT,  # noqa: SLF001 - the client's own names
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
)
"""Errors of a broker that is lost or starting."""


class KafkaAppender(Appender):
    """The appender of a topic.

    Appenders with the same `identity` fence each other: only the last one that was opened can commit, and an open
    transaction of another one is aborted before it reads.
    """

    def __init__(self, source: m.KafkaSource, identity: str) -> None:
        self._source = source
        self._topic = KafkaTopic(source)
        self._refused: list[KafkaError] = []
        self._producer: Any = client_of(
            Producer,
            source.topic,
            {**client_options(source), "transactional.id": identity, "error_cb": lambda _: None},
        )

    def __enter__(self) -> Self:
        self._topic.ends()  # raises if there is no topic
        self._call(self._producer.init_transactions)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._producer.purge()

    def append(self, records: Mapping[int, Sequence[NewRecord]]) -> dict[int, list[int]]:
        """Append records to their partitions, all or none; return their offsets."""
        offsets = {partition: [-1] * len(new) for partition, new in records.items() if new}
        if not offsets:
            return {}
        self._refused.clear()
        self._call(self._producer.begin_transaction, timed=False)
        try:
            for partition, new in sorted(records.items()):
                for number, record in enumerate(new):
                    self._send(partition, record, partial(self._note, offsets[partition], number))
            self._commit()
        except SourceError:
            # otherwise the broker aborts it at its timeout, or when the next appender opens
            with suppress(KafkaException):
                self._producer.abort_transaction(TIMEOUT)
            raise
        return offsets

    def _commit(self) -> None:
        until = time.monotonic() + TIMEOUT
        while len(self._producer) and time.monotonic() < until:
            self._call(partial(self._producer.poll, 0.1), timed=False)
        if self._refused:
            msg = f"{self._where} cannot be appended to: {self._refused[0].str()}; run the command again"
            raise self._kind(self._refused[0])(msg)
        if len(self._producer):
            msg = f"{self._where} did not take all records within {TIMEOUT:.0f} s; is the broker running?"
            raise SourceUnavailableError(msg)
        self._call(self._producer.commit_transaction)

    def _send(
        self, partition: int, record: NewRecord, on_delivery: Callable[[KafkaError | None, Message], None]
    ) -> None:
        while True:
            try:
                self._producer.produce(self._source.topic, record.value, record.key, partition, on_delivery=on_delivery)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as exc:
                raise self._error(exc) from exc
            else:
                return

    def _note(self, offsets: list[int], number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
        else:
            offsets[number] = message.offset() or 0

    def _call(self, call: Callable[..., Any], *, timed: bool = True) -> None:
        """Call the producer; raise SourceError if the call fails."""
        try:
            call(*((TIMEOUT,) if timed else ()))
        except KafkaException as exc:
            raise self._error(exc) from exc

    @property
    def _where(self) -> str:
        return f"topic {self._source.topic} at {self._source.servers}"

    def _error(self, exc: KafkaException) -> SourceError:
        error = exc.args[0]
        return self._kind(error)(f"{self._where} cannot be appended to: {error.str()}; run the command again")

    @staticmethod
    def _kind(error: KafkaError) -> type[SourceError]:
        return SourceUnavailableError if error.code() in _LOST else SourceError


def topic_appender(source: m.KafkaSource, identity: str, _prefix: bytes) -> KafkaAppender:
    """Return the appender of a topic, under a transactional id."""
    return KafkaAppender(source, identity)
