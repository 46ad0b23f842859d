"""Where a stream begins."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Literal

from windrow.api.fluent.stages import Stream
from windrow.model import KafkaSource, LogSource


def log(path: str | PathLike[str]) -> Stream:
    """Read an embedded log: a folder with ``partition-0.jsonl``, ``partition-1.jsonl`` ..."""
    return Stream(LogSource(fspath(path)))


def kafka(
    topic: str,
    *,
    servers: str,
    start: Literal["earliest", "latest"] = "earliest",
    options: Mapping[str, str] | None = None,
) -> Stream:
    """Read a Kafka topic; `options` go to the consumer as they are (``{"security.protocol": "SSL"}``)."""
    return Stream(KafkaSource(servers, topic, start, tuple((options or {}).items())))
