"""Where the source is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import assert_never

from windrow.api.checks.finding import Finding, error
from windrow.model import AnyPipeline, KafkaSource, LogSource

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s,:\[\]]+):[0-9]{1,5}")
_OWN_OPTIONS = {
    "bootstrap.servers": "write it as `servers`",
    "auto.offset.reset": "write it as `start`",
    "group.id": "leave it out: offsets are kept in the checkpoint, in no group",
    "enable.auto.commit": "leave it out: offsets are kept in the checkpoint, in no group",
    "isolation.level": "leave it out: only committed records are read",
    "key.deserializer": "leave it out: keys are read as bytes",
    "value.deserializer": "leave it out: values are read as bytes, and `decode` says what they hold",
    "interceptor.classes": "leave it out: records are read as they are",
}


def source_address(pipeline: AnyPipeline) -> Iterator[Finding]:
    """A log has a path; a topic has a name that Kafka allows, and brokers with ports."""
    match pipeline.source:
        case LogSource(path):
            if not path:
                yield error("source.log.path", "is empty; name the folder that holds partition-0.jsonl ...")
        case KafkaSource(servers, topic, _, options):
            if not all(_SERVER.fullmatch(server.strip()) for server in servers.split(",")):
                message = f"{servers!r} must be HOST:PORT, or several with commas, such as localhost:9092"
                yield error("source.kafka.servers", message)
            if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
                message = f"{topic!r} is no topic's name: letters, digits, '.', '_' and '-', at most 249"
                yield error("source.kafka.topic", message)
            for option, _ in options:
                where = f"source.kafka.options.{option}"
                if option in _OWN_OPTIONS:
                    yield error(where, f"is not yours to set; {_OWN_OPTIONS[option]}")
                elif option.startswith("kafka."):
                    yield error(where, f"has a prefix too much; write {option.removeprefix('kafka.')}")
        case _:
            assert_never(pipeline.source)
