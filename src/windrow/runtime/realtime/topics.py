"""The topics of a realtime run, which are created before it begins, and its consumer groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from windrow import model as m
from windrow.connectors.kafka.client import Admin, client_of, unreachable
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.kafka.read import CommittedOffsets
from windrow.connectors.kafka.source import preflight
from windrow.connectors.kafka.subjects import check_schemas, register_schemas
from windrow.connectors.kafka.topics import COMPACTED, create_topics, require_compaction, settings_of
from windrow.engine.lists import lists_of
from windrow.errors import InputError, SourceError, SourceUnavailableError
from windrow.expressions import sink_specs


def source_of(graph: m.Graph) -> m.KafkaSource:
    """Return the only source; raise InputError if there are several, or if it is not a Kafka source."""
    sources = graph.sources
    if len(sources) != 1 or not isinstance(sources[0].source, m.KafkaSource):
        msg = "the realtime host reads one Kafka topic"
        raise InputError(msg)
    return sources[0].source


def sinks_of(graph: m.Graph) -> list[m.KafkaSink]:
    """Return the sinks; raise InputError if one of them is not a Kafka sink."""
    sinks = [node.sink for node in graph.sinks]
    found = [sink for sink in sinks if isinstance(sink, m.KafkaSink)]
    if len(found) != len(sinks):
        msg = "the realtime host writes only to Kafka"
        raise InputError(msg)
    return found


def topic_lists(graph: m.Graph) -> list[m.TopicList]:
    """Return the lists used by rules that are stored in topics."""
    return [rule_list for rule_list in lists_of(graph) if isinstance(rule_list, m.TopicList)]


def group_of(graph: m.Graph) -> str:
    """Return the consumer group of a pipeline's offsets, which is also the prefix of its transactional IDs."""
    return f"{m.OWN_GROUPS}{graph.name}"


def stop_group(graph: m.Graph) -> str:
    """Return the consumer group whose commits request that a run stop."""
    return f"{group_of(graph)}.stop"


def state_topic(graph: m.Graph) -> str:
    """Return the topic of a pipeline's checkpoints."""
    return f"{graph.name}.state"


def moved_keys(source: m.KafkaSource, partitions: int, known: int, when: str) -> str:
    """Return the error message for a topic whose number of partitions was `known` before and has changed."""
    return (
        f"topic {source.topic} has {partitions} partitions, but had {known} {when}: keys are no longer in the same "
        "partitions as their state. Give the pipeline another name, so that it starts over"
    )


def prepare_topics(graph: m.Graph) -> list[int]:
    """Register the schemas of records, create missing topics, and return the partitions of the source.

    Raise SourceError if a broker or a registry cannot be reached, a schema is refused, a list has no topic or a
    consumer group is not permitted. Raise InputError if a topic may not be created, or if the state topic has a
    retention or a different number of partitions.
    """
    source = source_of(graph)
    partitions = sorted(preflight(source))
    settings = client_options(source)
    for spec in sink_specs(graph).values():
        register_schemas(spec)
    with _admin(graph) as admin:
        known = admin.list_topics(timeout=TIMEOUT).topics
        wanted = _topics(graph).items()
        missing = [NewTopic(name, len(partitions), config=config) for name, config in wanted if name not in known]
        create_topics(admin, missing)
        state = known.get(state_topic(graph))
        if state is not None:
            require_compaction(admin, state_topic(graph))
    for group in (group_of(graph), stop_group(graph)):
        with suppress(SourceUnavailableError):  # the tasks ask again
            CommittedOffsets(group, source.topic, settings).ask(partitions, TIMEOUT)
    for topic_list in topic_lists(graph):
        Admin(topic_list.topic, settings, TIMEOUT).partitions()
    if state is not None and len(state.partitions) != len(partitions):
        when = f"when the state in {state_topic(graph)} was written"
        raise InputError(moved_keys(source, len(partitions), len(state.partitions), when))
    return partitions


@contextmanager
def _admin(graph: m.Graph) -> Iterator[AdminClient]:
    """Yield a client of the source's brokers; raise SourceError if the block cannot reach them."""
    source = source_of(graph)
    errors: list[Any] = []
    try:
        yield client_of(AdminClient, source.topic, {**client_options(source), "error_cb": errors.append})
    except KafkaException as exc:
        raise SourceError(unreachable(source.servers, errors or [exc.args[0]])) from exc


def _topics(graph: m.Graph) -> dict[str, dict[str, str]]:
    """Map each topic that a run writes to its settings."""
    wanted = {state_topic(graph): COMPACTED}
    for sink in sinks_of(graph):
        wanted |= settings_of(sink)
    return wanted


def missing_topics(graph: m.Graph) -> list[str]:
    """Return the topics that a run would create.

    Raise SourceError if the brokers or a registry cannot be reached, or if the registry would refuse a schema.
    """
    for spec in sink_specs(graph).values():
        check_schemas(spec)
    with _admin(graph) as admin:
        known = admin.list_topics(timeout=TIMEOUT).topics
    return [name for name in _topics(graph) if name not in known]
