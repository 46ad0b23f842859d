"""The topics of a realtime run: they are created before it begins, and what does not fit is refused."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from windrow.errors import InputError, SourceError
from windrow.hosts.realtime.job import sinks_of, source_of, state_topic
from windrow.model import Runnable, companion
from windrow.sources.kafka import preflight
from windrow.sources.kafka.client import client_of, unreachable
from windrow.sources.kafka.options import TIMEOUT, client_options


def prepare_topics(pipeline: Runnable) -> list[int]:
    """Create the topics that are missing; return the partitions of the source.

    Raise SourceError for a broker that cannot be reached, InputError for a state topic of another number of partitions.
    """
    source = source_of(pipeline)
    partitions = sorted(preflight(source))
    settings = client_options(source)
    errors: list[Any] = []
    admin = client_of(AdminClient, source.topic, {**settings, "error_cb": errors.append})
    compacted = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "0.1"}
    stamped = {"message.timestamp.type": "LogAppendTime"}
    wanted = {state_topic(pipeline): compacted}
    for sink in sinks_of(pipeline):
        wanted |= dict.fromkeys((sink.topic, companion(sink, "late"), companion(sink, "dead")), stamped)
    try:
        known = admin.list_topics(timeout=TIMEOUT).topics
        missing = [
            NewTopic(name, len(partitions), config=config) for name, config in wanted.items() if name not in known
        ]
        if missing:
            for made in admin.create_topics(missing).values():
                made.result(TIMEOUT)
    except KafkaException as exc:
        raise SourceError(unreachable(source.servers, errors or [exc.args[0]])) from exc
    state = known.get(state_topic(pipeline))
    if state is not None and len(state.partitions) != len(partitions):
        msg = (
            f"topic {source.topic} has {len(partitions)} partitions, and had {len(state.partitions)} when the state in "
            f"{state_topic(pipeline)} was written: keys have moved to other partitions than their state. Give the "
            "pipeline another name, so that it begins anew"
        )
        raise InputError(msg)
    return partitions
