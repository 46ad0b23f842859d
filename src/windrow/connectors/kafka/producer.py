"""A producer of Kafka transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from windrow.connectors.kafka.client import client_of
from windrow.errors import RunError, SinkError, SinkUnavailableError

Headers = list[tuple[str, str | bytes | None]]
_BEGIN_SECONDS = 30.0
_CALL_SECONDS = 10.0


class TransactionalProducer:
    """Writes transactions under one transactional id. The id is a fence: only the writer that started last can commit.

    In error messages, `topic` names the topic whose settings are invalid, `what` the writer, and `ids` the
    transactional ids of its kind. `group` is the consumer group whose offsets the transactions contain, if any. When
    another writer has fenced this one, `fenced()` is raised. The broker aborts a transaction that stays open longer
    than `timeout` milliseconds.

    Raise `refused` for permanent errors and `unavailable` for errors that may be transient. In both cases the producer
    must be abandoned, and the next producer aborts its open transaction. `transient` has the codes of errors that may
    be transient; by default these are all codes without advice in `_REFUSED`.
    """

    def __init__(
        self,
        topic: str,
        settings: Mapping[str, Any],
        identity: str,
        *,
        what: str,
        fenced: Callable[[], RunError],
        timeout: int,
        ids: str | None = None,
        group: str | None = None,
        refused: type[RunError] = SinkError,
        unavailable: type[RunError] = SinkUnavailableError,
        transient: Container[int] | None = None,
    ) -> None:
        self._what = what
        self._servers = settings["bootstrap.servers"]
        self._ids = f"the transactional id {identity}" if ids is None else ids
        self._group = group
        self._fenced = fenced
        self._timeout = timeout
        self._refused, self._unavailable = refused, unavailable
        self._transient = transient
        own = {
            "transactional.id": identity,
            "transaction.timeout.ms": timeout,
            # a commit is retried while the markers of the last one are still being written
            "retry.backoff.ms": 1,
            "reconnect.backoff.max.ms": 1000,
            "error_cb": lambda _: None,
        }
        self.client = client_of(Producer, topic, {**settings, **own})

    def start(self) -> None:
        """Take over the transactional id: fence the previous writer and abort its open transaction."""
        self.call(self.client.init_transactions, _BEGIN_SECONDS)

    def begin(self) -> None:
        """Begin a transaction."""
        self.call(self.client.begin_transaction)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None = None,
        *,
        partition: int = -1,
        timestamp: int = 0,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        """Add a record to the transaction. Without a partition, the record's key determines it.

        `timestamp` is in milliseconds since 1970; 0 means the current time. `on_delivery` is called when the client is
        polled.
        """
        while True:
            try:
                # positional arguments cost half of keywords
                self.client.produce(topic, value, key, partition, on_delivery, None, timestamp, headers)
            except BufferError:
                self.call(self.client.poll, 0.1)
            except KafkaException as exc:
                raise self.failure(exc) from exc
            else:
                return

    def commit(self, seconds: float = _CALL_SECONDS) -> None:
        """Commit the transaction. A call that takes longer than `seconds` is repeated, for half a minute in total."""
        self.call(self.client.commit_transaction, seconds)

    def abandon(self) -> None:
        """Close the producer and abort its open transaction.

        If no broker answers, the transaction is aborted when the next writer starts or the broker's timeout expires.
        """
        with suppress(KafkaException):
            self.client.abort_transaction(_CALL_SECONDS)
        self.client.purge()

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:  # noqa: ANN401 - one of the client's
        """Call the client, retrying as long as the call may succeed; raise the errors of `failure`."""
        deadline = time.monotonic() + _BEGIN_SECONDS
        while True:
            try:
                function(*arguments)
            except KafkaException as exc:
                if not exc.args[0].retriable() or time.monotonic() > deadline:
                    raise self.failure(exc) from exc
            else:
                return

    def failure(self, exc: KafkaException) -> RunError:
        """Convert an error of the client to the error that the class documents for it."""
        error = exc.args[0]
        if error.code() == KafkaError._FATAL:  # noqa: SLF001 - the client's own name
            # polling the client gives the cause
            try:
                self.client.poll(0)
            except KafkaException as fatal:
                error = fatal.args[0]
        advice = _REFUSED.get(error.code())
        if advice is not None:
            advice = advice.format(group=self._group, ids=self._ids, timeout=self._timeout)
            return self._refused(f"the transaction of {self._what} is refused: {error.str()}; {advice}")
        if error.fatal() or error.code() in _FENCED:
            return self._fenced()
        may_pass = self._transient is None or error.retriable() or error.code() in self._transient
        kind = self._unavailable if may_pass else self._refused
        where = f" at {self._servers}" if error.code() == KafkaError._TIMED_OUT else ""  # noqa: SLF001 - the same
        return kind(f"the transaction of {self._what}{where} failed: {error.str()}")


_GONE = "a topic that it writes does not exist: create it, or start the run again, which creates topics of its sinks"
_TOO_LARGE = "raise max.message.bytes of the topic, and message.max.bytes among the options"
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant WRITE and DESCRIBE on the topics that it writes",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant READ on the consumer group {group}",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant WRITE and DESCRIBE on {ids}",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant IDEMPOTENT_WRITE on the cluster",
    KafkaError.MSG_SIZE_TOO_LARGE: _TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    KafkaError.INVALID_RECORD: "the topic does not accept such records: check its settings",
    KafkaError.POLICY_VIOLATION: "a policy of the broker forbids it",
    KafkaError.UNKNOWN_TOPIC_OR_PART: _GONE,
    KafkaError._UNKNOWN_TOPIC: _GONE,  # noqa: SLF001 - the client's own names
    KafkaError._UNKNOWN_PARTITION: _GONE,  # noqa: SLF001
    KafkaError.TOPIC_EXCEPTION: _GONE,
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "set transaction.max.timeout.ms of the broker to at least {timeout:,} ms",
    KafkaError.UNSUPPORTED_VERSION: "the broker is too old for transactions",
    KafkaError._UNSUPPORTED_FEATURE: "the broker is too old for transactions",  # noqa: SLF001
}
"""Permanent errors, with advice."""
_FENCED = (
    KafkaError._FATAL,  # noqa: SLF001 - the client's own name
    KafkaError._FENCED,  # noqa: SLF001 - the client's own name
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
