"""Clients of Kafka brokers."""

from __future__ import annotations

import difflib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, TopicDescription  # type: ignore[attr-defined]

from windrow.errors import InputError, SourceError, SourceUnavailableError
from windrow.model.references import redact

T = TypeVar("T")

_GRACE = 3.0
"""Seconds to keep waiting for a broker that seems down, because its name may have a second address."""

_HEARD = 32
"""Number of recent errors that a client keeps."""
_LOOK = 0.05
"""Seconds between checks for errors."""
_MOST_BYTES = 1_000_000
"""Maximum bytes of a record in librdkafka by default (`message.max.bytes`)."""

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
    KafkaError._NOENT,  # noqa: SLF001 - the client's own: no partition of the request has a leader
)
"""Errors that occur while a broker is starting, or while a partition has no leader."""
_HOPELESS = (KafkaError._AUTHENTICATION, KafkaError._SSL)  # noqa: SLF001 - the client's own names


def client_of(kind: Callable[..., T], topic: str, settings: Mapping[str, Any]) -> T:
    """Create a librdkafka client that raises errors instead of logging them.

    Raise InputError for an invalid setting.
    """
    logger = logging.Logger("windrow.kafka")  # noqa: LOG001 - it belongs to no tree, so no handler receives it
    logger.addHandler(logging.NullHandler())
    try:
        return kind({**settings, "log_level": 0}, logger=logger)
    except (KafkaException, ValueError, TypeError) as exc:
        error = exc.args[0]
        why = error.str() if isinstance(error, KafkaError) else str(error)
        # librdkafka repeats a value that it refuses
        given = (value for name, value in settings.items() if isinstance(value, str) and name != "bootstrap.servers")
        msg = f"the Kafka options of topic {topic} are wrong: {redact(why, given)}"
        raise InputError(msg) from None


class Admin:
    """Sends metadata requests about a topic to its brokers, using one client that all threads may share.

    Each request takes at most `timeout` seconds. `settings` are librdkafka settings; raise InputError if one is
    invalid.
    """

    def __init__(self, topic: str, settings: Mapping[str, str], timeout: float) -> None:
        self._topic = topic
        self._servers = settings["bootstrap.servers"]
        self._timeout = timeout
        self._most_bytes = int(settings.get("message.max.bytes", _MOST_BYTES))
        self._said = said = deque[tuple[float, KafkaError]](maxlen=_HEARD)

        def hear(error: KafkaError) -> None:  # without this object: a client in a reference cycle would not be closed
            said.append((time.monotonic(), error))

        # otherwise a broker that is back is noticed only after ten seconds
        options = {"reconnect.backoff.max.ms": 1000, **settings, "error_cb": hear}
        self._client = client_of(AdminClient, topic, options)

    def partitions(self) -> list[int]:
        """Return the topic's partitions; raise SourceError if the topic does not exist or reading it is denied."""
        return sorted(partition.id for partition in self._describe(self._timeout).partitions)

    def topic_id(self, timeout: float | None = None) -> str:
        """Return the topic's id, which distinguishes it from other topics of the same name.

        Raise the errors of `partitions`.
        """
        return str(self._describe(self._timeout if timeout is None else timeout).topic_id)

    def settings(self) -> dict[str, str]:
        """Return the topic's settings, such as ``retention.ms``; raise SourceError if reading them is denied."""
        began, resource = time.monotonic(), ConfigResource(ConfigResource.Type.TOPIC, self._topic)
        found = self._answer(self._client.describe_configs([resource])[resource], began, self._timeout)
        return {name: entry.value for name, entry in found.items()}

    def most_bytes(self) -> int:
        """Return the maximum size of a record in bytes, as limited by the settings of the client and of the topic.

        If the topic's settings cannot be read, only the client's limit counts, and the broker may refuse larger
        records.
        """
        try:
            there = self.settings()
        except SourceError:
            there = {}
        return min(self._most_bytes, int(there.get("max.message.bytes", self._most_bytes)))

    def offsets(self, partitions: list[int]) -> dict[int, tuple[int, int]]:
        """Return the first offset of each partition and the end of its committed records."""
        begin, end = self._list(partitions, OffsetSpec.earliest()), self._list(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {partition: (begin[partition], end[partition]) for partition in partitions}

    def ends(self) -> dict[int, int]:
        """Return the end of the committed records of each partition; raise the errors of `partitions`."""
        return self._list(self.partitions(), OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def log_ends(self) -> dict[int, int]:
        """Return the end of each partition, including open transactions; raise the errors of `partitions`."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._list(self.partitions(), latest, IsolationLevel.READ_UNCOMMITTED)

    def _describe(self, timeout: float) -> TopicDescription:
        topic = self._topic
        began = time.monotonic()
        found: Future[TopicDescription] = self._client.describe_topics(TopicCollection([topic]))[topic]
        return self._answer(found, began, timeout)

    def _list(
        self, partitions: list[int], spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[int, int]:
        requests = {TopicPartition(self._topic, partition): spec for partition in partitions}
        deadline = time.monotonic() + self._timeout
        while True:
            began = time.monotonic()
            answers = self._client.list_offsets(requests, isolation_level=isolation)
            try:
                return {
                    at.partition: self._answer(future, began, self._timeout).offset for at, future in answers.items()
                }
            except SourceUnavailableError as exc:
                # the broker's own answer: a new partition, or one of a restarted broker, has no leader yet
                if not isinstance(exc.__cause__, KafkaException) or time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK)

    def _answer(self, future: Future[T], began: float, timeout: float) -> T:
        """Wait for the answer to a request sent at `began`, for `timeout` seconds or less if no broker is reachable."""
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
        """Return the message for unreachable brokers, with the last error other than "all brokers down"."""
        said = [error for _, error in tuple(self._said)]
        specific = [error for error in said if error.code() != KafkaError._ALL_BROKERS_DOWN]  # noqa: SLF001 - the client's own name
        return unreachable(self._servers, specific or ([KafkaError(KafkaError._TRANSPORT)] if said else []))  # noqa: SLF001 - the same

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
        return f"; did you mean {', '.join(near)}?" if near else f"; create it first ({len(known)} other topics exist)"


class ConsumerGroup:
    """Commits offsets of a topic for a consumer group without joining the group.

    `settings` are librdkafka settings; raise InputError if one is invalid.
    """

    def __init__(self, group: str, topic: str, settings: Mapping[str, str]) -> None:
        self._group = group
        self._topic = topic
        self._servers = settings["bootstrap.servers"]
        options = {"reconnect.backoff.max.ms": 1000, **settings, "error_cb": lambda _: None}
        self._client = client_of(AdminClient, topic, options)

    def commit(self, offsets: Mapping[int, int], timeout: float) -> None:
        """Commit the next offset of each partition.

        Raise SourceError if access to the group is denied or the group has active members. Raise SourceUnavailableError
        if no broker answers within `timeout` seconds.
        """
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        request = ConsumerGroupTopicPartitions(self._group, places)
        (answer,) = self._client.alter_consumer_group_offsets([request], request_timeout=timeout).values()
        for place in group_answer(answer, self._group, self._servers, timeout).topic_partitions:
            if place.error is not None:
                raise denied(place.error, self._group, self._servers) or SourceUnavailableError(
                    f"the consumer group {self._group} at {self._servers} rejected the offset of partition "
                    f"{place.partition} of {self._topic}: {place.error.str()}"
                )


def group_answer(future: Future[T], group: str, servers: str, timeout: float) -> T:
    """Return a broker's answer to a request about a consumer group.

    Raise SourceError if access to the group is denied, and SourceUnavailableError if no answer arrives in time.
    """
    try:
        return future.result(timeout)
    except KafkaException as exc:
        raise denied(exc.args[0], group, servers) or SourceUnavailableError(
            unreachable(servers, [exc.args[0]])
        ) from exc
    except TimeoutError as exc:
        raise SourceUnavailableError(unreachable(servers, [])) from exc


def denied(error: KafkaError, group: str, servers: str) -> SourceError | None:
    """Return the error if access to a consumer group or topic was denied; None for other errors."""
    match error.code():
        case KafkaError.GROUP_AUTHORIZATION_FAILED:
            what = f"the consumer group {group} at {servers} may not be used with these options: grant READ on it"
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            what = (
                f"the offsets of the consumer group {group} at {servers} may not be used with these options: grant "
                "READ and DESCRIBE on the topic that it reads"
            )
        case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            what = f"the brokers at {servers} refuse these options: grant DESCRIBE on the cluster"
        case KafkaError.UNKNOWN_MEMBER_ID | KafkaError.NON_EMPTY_GROUP | KafkaError.STALE_MEMBER_EPOCH:
            what = (
                f"the consumer group {group} at {servers} has active members and accepts offsets only from them: use a "
                "group without consumers"
            )
        case _:
            return None
    return SourceError(what)


def unreachable(servers: str, said: list[KafkaError]) -> str:
    """Return the message for brokers that do not answer, with the client's last error."""
    why = said[-1].str() if said else "no answer"
    return f"no Kafka broker can be reached at {servers}: {why}; is it running, and are the options right?"
