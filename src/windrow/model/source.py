"""Where records come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal


@dataclass(frozen=True)
class LogSource:
    """An embedded log: a folder with ``partition-N.jsonl``; the offset is the line's number from 0."""

    path: str

    @property
    def label(self) -> str:
        """The name of the source in the late output, the dead letters and the clock journal."""
        return PurePath(self.path).name


@dataclass(frozen=True)
class KafkaSource:
    """A Kafka topic; `options` go to the consumer as they are (``security.protocol`` ...)."""

    servers: str
    topic: str
    start: Literal["earliest", "latest"] = "earliest"
    options: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """The name of the source in the late output, the dead letters and the clock journal."""
        return self.topic


Source = LogSource | KafkaSource
