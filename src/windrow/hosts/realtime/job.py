"""What a pipeline in real time is made of: its topics, its consumer group, and what its state depends on."""

from __future__ import annotations

import json
from typing import Any

from windrow.errors import InputError
from windrow.hosts.savepoint import fingerprint
from windrow.model import KafkaSink, KafkaSource, Runnable, as_graph


def source_of(pipeline: Runnable) -> KafkaSource:
    """Return the source; raise InputError if it is not the only one, or not Kafka."""
    sources = as_graph(pipeline).sources
    if len(sources) != 1 or not isinstance(sources[0].source, KafkaSource):
        msg = "the realtime host reads one Kafka topic"
        raise InputError(msg)
    return sources[0].source


def sinks_of(pipeline: Runnable) -> list[KafkaSink]:
    """Return the sinks; raise InputError if one is not Kafka."""
    sinks = [node.sink for node in as_graph(pipeline).sinks]
    found = [sink for sink in sinks if isinstance(sink, KafkaSink)]
    if len(found) != len(sinks):
        msg = "the realtime host writes to Kafka alone"
        raise InputError(msg)
    return found


def group_of(pipeline: Runnable) -> str:
    """Return the consumer group whose committed offsets say how far a pipeline is, and what its ids begin with."""
    return f"windrow-{pipeline.name}"


def state_topic(pipeline: Runnable) -> str:
    """Return the topic of a pipeline's checkpoints."""
    return f"{pipeline.name}.state"


def meaning_of(pipeline: Runnable) -> dict[str, Any]:
    """Return what the state depends on, as plain JSON: the pipeline without its places."""
    found = _without_places(fingerprint(pipeline)) | {"topic": source_of(pipeline).topic}
    if "streams" in found:
        found["streams"] = {name: _without_places(stream) for name, stream in found["streams"].items()}
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def _without_places(meaning: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in meaning.items() if name not in {"source", "sink", "key_groups", "mode"}}
