"""Latencies of changes, computed from the timestamps that a realtime run writes into their headers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from windrow import model as m
from windrow.connectors.kafka.client import client_of
from windrow.connectors.kafka.options import client_options
from windrow.connectors.kafka.source import log_ends, preflight
from windrow.errors import SourceError

STAGES = ("event", "logged", "read", "decided", "appended")
"""The stages of a change, in order: each is a time in microseconds."""
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
_OPEN_SECONDS = 10.0
"""Timeout in seconds for reading a topic that has an open transaction at its end."""


def last_latencies(source: m.KafkaSource, records: int = 10_000) -> tuple[int, dict[str, dict[str, float]]]:
    """Return the number of stamped changes among the last records of a topic, and their `latencies`."""
    stamps = list(_read_last(source, records))
    return len(stamps), latencies(stamps)


def latencies(stamps: Sequence[Mapping[str, int]]) -> dict[str, dict[str, float]]:
    """Return quantiles, in milliseconds, of the time between consecutive stages, and of the total time since the log.

    Records read in the same poll share the log time of the earliest of them.
    """
    spans: dict[str, list[int]] = {}
    for times in stamps:
        reached = [stage for stage in STAGES if stage in times]
        for before, after in pairwise(reached):
            spans.setdefault(f"{before} to {after}", []).append(times[after] - times[before])
        first = "logged" if "logged" in times else reached[0]
        spans.setdefault(f"in all, since {first}", []).append(times[reached[-1]] - times[first])
    return {name: {label: _quantile(values, q) for label, q in _QUANTILES.items()} for name, values in spans.items()}


def _quantile(values: list[int], q: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * q))] / 1000, 1)


def _read_last(source: m.KafkaSource, records: int) -> Iterator[dict[str, int]]:
    """Yield the stamps of each stamped change among the last records of a topic."""
    places = preflight(source)
    ends = log_ends(source)
    share = -(-records // max(1, len(places)))
    begins = {number: max(first, end - share) for number, (first, end) in places.items()}
    left = {number for number, begin in begins.items() if begin < ends[number]}
    consumer = _consumer(source, begins)
    deadline = time.monotonic() + _OPEN_SECONDS
    while left and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                yield from _stamps(message)
                continue
            number = _ended_partition(message, source)
            # a reader of committed changes also gets an end before an open transaction
            if message.offset() >= ends[number]:
                left.discard(number)
    consumer.close()


def _consumer(source: m.KafkaSource, begins: Mapping[int, int]) -> Any:  # noqa: ANN401 - librdkafka's
    meaning = {"group.id": "windrow-latency", "enable.auto.commit": False, "enable.partition.eof": True}
    settings = {"fetch.wait.max.ms": 5, **client_options(source), **meaning, "isolation.level": "read_committed"}
    consumer = client_of(Consumer, source.topic, settings)
    consumer.assign([TopicPartition(source.topic, number, at) for number, at in begins.items()])
    return consumer


def _ended_partition(message: Any, source: m.KafkaSource) -> int:  # noqa: ANN401 - librdkafka's
    """Return the partition whose end a message reports; raise SourceError if the message reports a fault."""
    if message.error().code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name
        msg = f"topic {source.topic} at {source.servers}: {message.error().str()}"
        raise SourceError(msg)
    return int(message.partition())


def _stamps(message: Any) -> Iterator[dict[str, int]]:  # noqa: ANN401 - librdkafka's
    """Yield the stamps of a change; yield nothing if it is not stamped."""
    headers = {name: value for name, value in message.headers() or () if name in STAGES and value is not None}
    if "decided" in headers:
        yield {name: int(value) for name, value in headers.items()} | {"appended": message.timestamp()[1] * 1000}
