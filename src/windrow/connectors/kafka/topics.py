"""Topics that windrow creates, including compacted topics in which it keeps its positions."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from windrow import model as m
from windrow.connectors.kafka.options import TIMEOUT
from windrow.errors import InputError

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "0.1"}
"""Settings of a topic that keeps the last record of each key forever."""
STAMPED = {"message.timestamp.type": "LogAppendTime"}
"""Settings of a topic for other readers: the broker sets the timestamps."""
_DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def settings_of(sink: m.KafkaSink) -> dict[str, dict[str, str]]:
    """Map each topic of a sink, except that of its clocks, to the settings with which it is created.

    A topic of upserts is compacted: it keeps at least the last record of each key.
    """
    late, dead = sink.companion("late"), sink.companion("dead")
    changes = STAMPED | {"cleanup.policy": "compact"} if sink.format == "upsert" else STAMPED
    return {sink.topic: changes, late: STAMPED, dead: STAMPED}


def create_topics(admin: AdminClient, missing: Sequence[NewTopic]) -> None:
    """Create topics, ignoring topics that already exist.

    Raise InputError if the broker refuses, and KafkaException if no broker answers.
    """
    if not missing:
        return
    wanted = {topic.topic: topic.num_partitions for topic in missing}
    for topic, answer in admin.create_topics(list(missing)).items():
        try:
            answer.result(TIMEOUT)
        except KafkaException as exc:
            error = exc.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            if error.code() < 0:  # the client's own: no answer
                raise
            partitions = "" if wanted[topic] < 1 else f", with {wanted[topic]} partitions"
            msg = f"topic {topic} cannot be created: {error.str()}; create it{partitions}"
            if error.code() in _DENIED:
                msg += ", or grant CREATE on it; if it already exists, grant DESCRIBE and WRITE on it"
            raise InputError(msg) from exc


def require_compaction(admin: AdminClient, topic: str) -> None:
    """Raise InputError unless a topic is compacted and so keeps the last record of each key forever."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        policy = admin.describe_configs([resource])[resource].result(TIMEOUT)["cleanup.policy"].value
    except KafkaException as exc:
        if exc.args[0].code() not in _DENIED:
            raise
        msg = f"the settings of topic {topic} may not be read: grant DESCRIBE_CONFIGS on it"
        raise InputError(msg) from exc
    if policy != "compact":
        msg = (
            f"the topic {topic} has cleanup.policy={policy}, and would lose state that has long been unchanged: set "
            f"cleanup.policy=compact on it (kafka-configs --alter --entity-type topics --entity-name {topic} "
            "--add-config cleanup.policy=compact)"
        )
        raise InputError(msg)
