"""The main job on a small scale: a pipeline, its events, and logs that grow while they are read."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.short_forms import Pipeline

from windrow.model import (
    Aggregate,
    Avg,
    Count,
    DecimalType,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    KafkaSource,
    LogSource,
    Max,
    Min,
    Sink,
    Source,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
)
from windrow.testing.servers.kafka import Kafka
from windrow.tools.generate import LogSpec, generate
from windrow.tools.generate.spec import START

MINUTE = 60_000_000
HOUR = 60 * MINUTE

Value = tuple[int, bytes | None]
"""A partition, and a record's value."""


KEY_GROUPS = 2
"""Fewer than the default: on Spark each costs time in each step."""


def spend(source: Source, sink: Sink, **emit: Any) -> Pipeline:  # noqa: ANN401 - any setting of `Emit`
    """What each user spent in 5 minutes, by the definition's defaults but for the lateness: 30 minutes."""
    return Pipeline(
        name="user-spend",
        source=source,
        decode=Decode(
            (
                Field("user_id", StringType()),
                Field("event_time", TimestampType("millis")),
                Field("amount", DecimalType(12, 2)),
            )
        ),
        time=EventTime("event_time", Delay(10 * MINUTE), future=HOUR),
        key=("user_id",),
        window=Tumbling(5 * MINUTE),
        aggregates=(
            Aggregate("total", Sum("amount")),
            Aggregate("events", Count()),
            Aggregate("least", Min("amount")),
            Aggregate("most", Max("amount")),
            Aggregate("mean", Avg("amount")),
        ),
        emit=Emit(**({"lateness": 30 * MINUTE} | emit)),
        sink=sink,
        key_groups=KEY_GROUPS,
    )


def events(count: int, partitions: int = 3, **spec: Any) -> list[Value]:  # noqa: ANN401 - any setting of `LogSpec`
    """Events in the order of arrival: of 40 users, over a day, a twentieth late, some malformed, some repeated."""
    plain = {"users": 40, "late_share": 0.05, "malformed_share": 0.02, "duplicate_share": 0.01, "log_time": True}
    found: list[Value] = []
    for batch in generate(LogSpec(events=count, partitions=partitions, **(plain | spec))):
        found += zip(batch["partition"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return found


def event(minute: float, user: str = "u00001", amount: str = "1.00", **fields: Any) -> bytes:  # noqa: ANN401 - JSON
    """A record at that minute of the day."""
    time = START // 1000 + round(minute * 60_000)
    return json.dumps({"user_id": user, "event_time": time, "amount": amount, **fields}).encode()


class Log(Protocol):
    """A log that can be written while it is read."""

    @property
    def source(self) -> Source:
        """The model of the source that reads it."""
        ...

    def append(self, values: Iterable[Value]) -> None:
        """Append values to their partitions, in their order."""
        ...

    def grow(self, total: int) -> None:
        """Have that many partitions."""
        ...


class Files:
    """An embedded log."""

    def __init__(self, path: Path, partitions: int) -> None:
        self.source: Source = LogSource(str(path))
        self._path = path
        path.mkdir()
        self.grow(partitions)

    def append(self, values: Iterable[Value]) -> None:
        for partition, lines in _by_partition(values).items():
            with (self._path / f"partition-{partition}.jsonl").open("ab") as file:
                file.write(b"".join((line or b"") + b"\n" for line in lines))

    def grow(self, total: int) -> None:
        for partition in range(total):
            (self._path / f"partition-{partition}.jsonl").touch()


@dataclass
class Topic:
    """A Kafka topic."""

    kafka: Kafka
    name: str

    @property
    def source(self) -> Source:
        return KafkaSource(self.kafka.servers, self.name)

    def append(self, values: Iterable[Value]) -> None:
        for partition, records in _by_partition(values).items():
            self.kafka.produce(self.name, partition, records)

    def grow(self, total: int) -> None:
        self.kafka.add_partitions(self.name, total)


def _by_partition(values: Iterable[Value]) -> Mapping[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for partition, value in values:
        found[partition].append(value)
    return found
