"""Clients of a Kafka broker outside of Spark, and the connection options that a pipeline may give."""

from __future__ import annotations

import difflib
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription  # type: ignore[attr-defined]

from windrow.errors import InputError, SourceError, SourceUnavailableError
from windrow.model import KafkaSource
from windrow.model.connectors import resolve_references

T = TypeVar("T")

_GRACE = 3.0
"""Seconds after which a broker that was found down is not waited for: a name may have a second address."""

_HEARD = 32
"""So many of the last errors that a client heard are kept."""
_LOOK = 0.05
"""Seconds between looks at whether an error was heard."""

PASSING = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
"""What a broker says while it starts, or while a partition has no leader."""
_HOPELESS = (KafkaError._AUTHENTICATION, KafkaError._SSL)  # noqa: SLF001 - the client's own names


def client_of(kind: Callable[..., T], topic: str, settings: Mapping[str, Any]) -> T:
    """Return a client of librdkafka that writes no log: what it complains of comes as errors too.

    Raise InputError if a setting is wrong.
    """
    logger = logging.Logger("windrow.kafka")  # noqa: LOG001 - it belongs to no tree, so no handler hears it
    logger.addHandler(logging.NullHandler())
    try:
        return kind({**settings, "log_level": 0}, logger=logger)
    except (KafkaException, ValueError, TypeError) as exc:
        error = exc.args[0]
        why = error.str() if isinstance(error, KafkaError) else str(error)
        msg = f"the Kafka options of topic {topic} are wrong: {why}"
        raise InputError(msg) from exc


class Admin:
    """Asks a broker, for at most `timeout` seconds a question; the client is kept, and any thread may ask.

    `settings` are librdkafka's. Raise InputError if one of them is wrong.
    """

    def __init__(self, topic: str, settings: Mapping[str, str], timeout: float) -> None:
        self._topic = topic
        self._servers = settings["bootstrap.servers"]
        self._timeout = timeout
        self._said = said = deque[tuple[float, KafkaError]](maxlen=_HEARD)

        def hear(error: KafkaError) -> None:  # it does not know this object: a client in a circle would not go
            said.append((time.monotonic(), error))

        # a broker that is back is not found out about in ten seconds only
        made = {"reconnect.backoff.max.ms": 1000, **settings, "error_cb": hear}
        self._client = client_of(AdminClient, topic, made)

    def partitions(self) -> list[int]:
        """Return the topic's partitions; raise SourceError if it does not exist, or may not be read."""
        return sorted(partition.id for partition in self._describe(self._timeout).partitions)

    def topic_id(self, timeout: float | None = None) -> str:
        """Return the id that the topic was given as it was made; raise as `partitions` does."""
        return str(self._describe(self._timeout if timeout is None else timeout).topic_id)

    def offsets(self, partitions: list[int]) -> dict[int, tuple[int, int]]:
        """Return each partition's first offset and the end of what is committed."""
        begin, end = self._list(partitions, OffsetSpec.earliest()), self._list(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {partition: (begin[partition], end[partition]) for partition in partitions}

    def ends(self) -> dict[int, int]:
        """Return the end of what is committed of each partition; raise as `partitions` does."""
        return self._list(self.partitions(), OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _describe(self, timeout: float) -> TopicDescription:
        topic = self._topic
        began = time.monotonic()
        found: Future[TopicDescription] = self._client.describe_topics(TopicCollection([topic]))[topic]
        return self._answer(found, began, timeout)

    def _list(self, partitions: list[int], spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(self._topic, partition): spec for partition in partitions}
        deadline = time.monotonic() + self._timeout
        while True:
            began = time.monotonic()
            told = self._client.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
            try:
                return {at.partition: self._answer(future, began, self._timeout).offset for at, future in told.items()}
            except SourceUnavailableError as exc:
                # the broker's own answer: a partition that is new, or whose broker was restarted, has no leader yet
                if not isinstance(exc.__cause__, KafkaException) or time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK)

    def _answer(self, future: Future[T], began: float, timeout: float) -> T:
        """Wait for an answer until `timeout` seconds after it `began`, or some less if no broker is there."""
        while True:
            try:
                return future.result(_LOOK)
            except TimeoutError:
                self._client.poll(0)
            except KafkaException as exc:
                raise self._error(exc) from exc
            heard = [(at, error.code()) for at, error in tuple(self._said) if at >= began]
            down = [at for at, code in heard if code == KafkaError._ALL_BROKERS_DOWN]  # noqa: SLF001 - the client's own name
            deadline = min([began + timeout, *(at + _GRACE for at in down[:1])])
            if time.monotonic() > deadline or any(code in _HOPELESS for _, code in heard):
                raise SourceUnavailableError(self._unreachable())

    def _unreachable(self) -> str:
        """Return the message for a broker that does not answer, with the last that was heard but that all are down."""
        said = [error for _, error in tuple(self._said)]
        told = [error for error in said if error.code() != KafkaError._ALL_BROKERS_DOWN]  # noqa: SLF001 - the client's own name
        return unreachable(self._servers, told or ([KafkaError(KafkaError._TRANSPORT)] if said else []))  # noqa: SLF001 - the same

    def _error(self, exc: KafkaException) -> Exception:
        topic, servers, error = self._topic, self._servers, exc.args[0]
        match error.code():
            case KafkaError.UNKNOWN_TOPIC_OR_PART | KafkaError.TOPIC_EXCEPTION:
                return SourceUnavailableError(f"there is no topic {topic} at {servers}{self._similar()}")
            case KafkaError.TOPIC_AUTHORIZATION_FAILED | KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return SourceError(
                    f"topic {topic} at {servers} may not be read with these options: grant DESCRIBE and READ on it"
                )
            case code if code in PASSING:
                return SourceUnavailableError(f"topic {topic} at {servers} cannot be read now: {error.str()}")
            case KafkaError._TIMED_OUT | KafkaError._TRANSPORT | KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
                return SourceUnavailableError(self._unreachable())
            case _:
                return SourceError(f"topic {topic} at {servers} cannot be read: {error.str()}")

    def _similar(self) -> str:
        try:
            known = [name for name in self._client.list_topics(timeout=5).topics if not name.startswith("__")]
        except KafkaException:
            known = []
        if not known:
            return "; create it first"
        near = difflib.get_close_matches(self._topic, known, n=3, cutoff=0.5)
        return f"; did you mean {', '.join(near)}?" if near else f"; create it first (there are {len(known)} others)"


def unreachable(servers: str, said: list[KafkaError]) -> str:
    """Return the message for a broker that does not answer, with the last that the client said."""
    why = said[-1].str() if said else "no answer"
    return f"no Kafka broker can be reached at {servers}: {why}; is it running, and are the options right?"


TIMEOUT = 10.0
"""Seconds that a broker is asked for."""
OURS = {
    "bootstrap.servers": "write `servers`",
    "auto.offset.reset": "write `start`",
    "group.id": "offsets are kept in the checkpoint, in no group",
    "enable.auto.commit": "offsets are kept in the checkpoint, in no group",
    "enable.auto.offset.store": "offsets are kept in the checkpoint, in no group",
    "enable.partition.eof": "where a partition ends is what a step relies on",
    "isolation.level": "only committed records are read",
    "metadata.broker.list": "write `servers`",
    "key.deserializer": "keys are read as bytes",
    "value.deserializer": "values are read as bytes; write `decode`",
    "interceptor.classes": "records are read as they are",
}
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
}
_LOGIN = "sasl.jaas.config"
_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def checked_options(source: KafkaSource) -> dict[str, str]:
    """Return the source's options, with what references in them name; raise InputError for one that windrow sets."""
    for name, _ in source.options:
        if name in OURS:
            msg = f"the Kafka option {name} is not for a pipeline to set: {OURS[name]}"
            raise InputError(msg)
        if name.startswith("kafka."):
            msg = f"the Kafka option {name} has a prefix too much; write {name.removeprefix('kafka.')}"
            raise InputError(msg)
    return {
        name: resolve_references(value, f"the Kafka option {name}", _quoted if name == _LOGIN else str)
        for name, value in source.options
    }


def _quoted(text: str) -> str:
    """Write a text so that it may stand between the quotes of a JAAS option."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def client_options(source: KafkaSource) -> dict[str, str]:
    """Return librdkafka's settings, from the names that Kafka's Java clients use, or from its own.

    Raise InputError for what librdkafka cannot do; a name that it does not know is an error when a client is made.
    """
    options = checked_options(source)
    settings = {"bootstrap.servers": source.servers}
    for name, value in options.items():
        match name:
            case _ if name == _LOGIN:
                settings.update({f"sasl.{key}": re.sub(r"\\(.)", r"\1", text) for key, text in _JAAS.findall(value)})
            case "ssl.truststore.location":
                if options.get("ssl.truststore.type", "JKS").upper() != "PEM":
                    msg = "the Kafka option ssl.truststore.location must name a PEM file; set ssl.truststore.type: PEM"
                    raise InputError(msg)
                settings["ssl.ca.location"] = value
            case "ssl.keystore.location" if options.get("ssl.keystore.type", "JKS").upper() == "JKS":
                msg = "the Kafka option ssl.keystore.location must name a PKCS12 file; set ssl.keystore.type: PKCS12"
                raise InputError(msg)
            case "ssl.endpoint.identification.algorithm":
                settings[name] = value or "none"
            case "ssl.truststore.type" | "ssl.truststore.password" | "ssl.keystore.type":
                pass  # said by the name of the setting
            case _:
                settings[_RENAMED.get(name, name)] = value
    return settings
