"""The topics of a realtime run and its consumer group: which they are, and how they are created before it begins."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from windrow import model as m
from windrow.connectors.kafka import STAMPED
from windrow.connectors.kafka.client import Admin, client_of, unreachable
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.read import CommittedOffsets
from windrow.connectors.kafka.source import preflight
from windrow.connectors.kafka.topics import COMPACTED, create_topics, require_compaction
from windrow.engine.lists import lists_of
from windrow.errors import InputError, SourceError, SourceUnavailableError


def source_of(graph: m.Graph) -> m.KafkaSource:
    """Return the source; raise InputError if it is not the only one, or not Kafka."""
    sources = graph.sources
    if len(sources) != 1 or not isinstance(sources[0].source, m.KafkaSource):
        msg = "the realtime host reads one Kafka topic"
        raise InputError(msg)
    return sources[0].source


def sinks_of(graph: m.Graph) -> list[m.KafkaSink]:
    """Return the sinks; raise InputError if one is not Kafka."""
    sinks = [node.sink for node in graph.sinks]
    found = [sink for sink in sinks if isinstance(sink, m.KafkaSink)]
    if len(found) != len(sinks):
        msg = "the realtime host writes to Kafka alone"
        raise InputError(msg)
    return found


def topic_lists(graph: m.Graph) -> list[m.TopicList]:
    """Return the lists of rules that are in topics."""
    return [one for one in lists_of(graph) if isinstance(one, m.TopicList)]


def group_of(graph: m.Graph) -> str:
    """Return the consumer group whose committed offsets say how far a pipeline is, and what its ids begin with."""
    return f"{m.OWN_GROUPS}{graph.name}"


def stop_group(graph: m.Graph) -> str:
    """Return the consumer group whose commits are requests to stop a run."""
    return f"{group_of(graph)}.stop"


def state_topic(graph: m.Graph) -> str:
    """Return the topic of a pipeline's checkpoints."""
    return f"{graph.name}.state"


def moved_keys(source: m.KafkaSource, partitions: int, known: int, when: str) -> str:
    """Return the message for a topic whose number of partitions has changed since it was `known`."""
    return (
        f"topic {source.topic} has {partitions} partitions, and had {known} {when}: keys have moved to other "
        "partitions than their state. Give the pipeline another name, so that it begins anew"
    )


def prepare_topics(graph: m.Graph) -> list[int]:
    """Create the topics that are missing; return the partitions of the source.

    Raise SourceError for a broker that cannot be reached, for a list without a topic and for a consumer group that may
    not be used, InputError for a topic that may not be created, and for a state topic of another number of partitions,
    or one that forgets.
    """
    source = source_of(graph)
    partitions = sorted(preflight(source))
    settings = client_options(source)
    errors: list[Any] = []
    admin = client_of(AdminClient, source.topic, {**settings, "error_cb": errors.append})
    wanted = _topics(graph)
    try:
        known = admin.list_topics(timeout=TIMEOUT).topics
        missing = [
            NewTopic(name, len(partitions), config=config) for name, config in wanted.items() if name not in known
        ]
        create_topics(admin, missing)
        state = known.get(state_topic(graph))
        if state is not None:
            require_compaction(admin, state_topic(graph))
    except KafkaException as exc:
        raise SourceError(unreachable(source.servers, errors or [exc.args[0]])) from exc
    for group in (group_of(graph), stop_group(graph)):
        with suppress(SourceUnavailableError):  # the tasks ask again
            CommittedOffsets(group, source.topic, settings).ask(partitions, TIMEOUT)
    for topic_list in topic_lists(graph):
        Admin(topic_list.topic, settings, TIMEOUT).partitions()
    if state is not None and len(state.partitions) != len(partitions):
        when = f"when the state in {state_topic(graph)} was written"
        raise InputError(moved_keys(source, len(partitions), len(state.partitions), when))
    return partitions


def _topics(graph: m.Graph) -> dict[str, dict[str, str]]:
    """Return the topics that a run writes, with their settings."""
    wanted = {state_topic(graph): COMPACTED}
    for sink in sinks_of(graph):
        wanted |= dict.fromkeys((sink.topic, sink.companion("late"), sink.companion("dead")), STAMPED)
    return wanted


def missing_topics(graph: m.Graph) -> list[str]:
    """Return the topics that a run would create; raise SourceError for a broker that cannot be reached."""
    source = source_of(graph)
    errors: list[Any] = []
    admin = client_of(AdminClient, source.topic, {**client_options(source), "error_cb": errors.append})
    try:
        known = admin.list_topics(timeout=TIMEOUT).topics
    except KafkaException as exc:
        raise SourceError(unreachable(source.servers, errors or [exc.args[0]])) from exc
    return [name for name in _topics(graph) if name not in known]
