"""Where the source is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import assert_never

from windrow.api.checks.finding import Finding, error
from windrow.model import KafkaSource, LogSource, Pipeline

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s,:\[\]]+):[0-9]{1,5}")
_OWN_OPTIONS = {
    "bootstrap.servers": "write it as `servers`",
    "auto.offset.reset": "write it as `start`",
    "isolation.level": "leave it out: windrow reads what is committed",
    "group.id": "leave it out: windrow keeps its offsets in its checkpoint",
    "enable.auto.commit": "leave it out: windrow keeps its offsets in its checkpoint",
}


def source_address(pipeline: Pipeline) -> Iterator[Finding]:
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
                if option in _OWN_OPTIONS:
                    yield error(f"source.kafka.options.{option}", f"is not yours to set; {_OWN_OPTIONS[option]}")
        case _:
            assert_never(pipeline.source)
