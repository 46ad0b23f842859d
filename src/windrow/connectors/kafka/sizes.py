"""The sizes of a topic's records, by which steps are limited to a number of bytes.

A broker knows only how many records there are, so a few records are read at both ends of a step. Sizes are estimates:
they decide where a step ends, and no result depends on that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from windrow.connectors.cuts import Cut
from windrow.connectors.kafka.client import client_of
from windrow.connectors.kafka.read import MEANING

_USUAL_MOST = 1 << 20
"""Brokers refuse larger records unless they are told to accept them; a step that fits in any case is not sampled."""
_SLACK = 1.25
"""A step may exceed its bytes by this factor, as sizes are estimates."""
_SHRINK = 4
"""A step that is too large is shortened by at most this factor before its new end is sampled."""
_SAMPLE = 32
_PLACES = 5
"""Number of places of a topic that are sampled to estimate its size."""
_SECONDS = 2.0
"""Seconds after which a partition without a record stays unknown; reading the step reports what is wrong."""
_WAIT = 0.05
_TUNING = {
    # one fetch has enough records
    "fetch.message.max.bytes": 1 << 16,
    "fetch.wait.max.ms": 10,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1 << 10,
    "reconnect.backoff.max.ms": 1000,
}


class RecordSizes:
    """Limits the steps of a topic to a number of bytes. `settings` are librdkafka settings."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self._topic = topic
        self._settings = settings
        self._last: dict[int, float] = {}

    @cached_property
    def _consumer(self) -> Consumer:
        return client_of(Consumer, self._topic, {**self._settings, **MEANING, **_TUNING, "error_cb": lambda _: None})

    def limit(self, begin: Cut, ends: Cut, max_bytes: int) -> dict[int, int]:
        """Return where a step of about `max_bytes` ends, at or before `ends`.

        All partitions are shortened by the same factor, but each contributes at least one record.
        """
        first = {partition: begin.get(partition, 0) for partition, end in ends.items()}
        counts = {partition: end - first[partition] for partition, end in ends.items() if end > first[partition]}
        if sum(counts.values()) * _USUAL_MOST <= max_bytes:
            return dict(ends)
        self._last |= self.means({partition: first[partition] for partition in counts.keys() - self._last.keys()})
        before = dict(self._last)
        expected = sum(count * before.get(partition, 0) for partition, count in counts.items())
        part = min(1.0, _SHRINK * max_bytes / max(1, expected))
        while True:
            taken = {partition: max(1, int(count * part)) for partition, count in counts.items()}
            self._last |= self.means(
                {partition: first[partition] + max(0, count - _SAMPLE) for partition, count in taken.items()}
            )
            size = sum(
                count * max(before.get(partition, 0), self._last.get(partition, 0))
                for partition, count in taken.items()
            )
            if size <= _SLACK * max_bytes or max(taken.values()) == 1:
                return {**ends, **{partition: first[partition] + count for partition, count in taken.items()}}
            part *= max(1 / _SHRINK, max_bytes / size)

    def estimate(self, begin: Cut, end: Cut) -> int:
        """Estimate the bytes of the records between two cuts."""
        counts = {partition: last - begin.get(partition, 0) for partition, last in end.items()}
        counts = {partition: count for partition, count in counts.items() if count > 0}
        found: dict[int, list[float]] = {}
        for place in range(_PLACES):
            part = place / (_PLACES - 1)
            at = {
                number: begin.get(number, 0) + int(max(0, count - _SAMPLE) * part) for number, count in counts.items()
            }
            for partition, mean in self.means(at).items():
                found.setdefault(partition, []).append(mean)
        return int(sum(counts[partition] * sum(own) / len(own) for partition, own in found.items()))

    def means(self, places: Cut) -> dict[int, float]:
        """Return the mean size of some records from an offset on, for each partition that has a record there."""
        sizes: dict[int, list[int]] = {}
        ended: set[int] = set()
        deadline = time.monotonic() + _SECONDS
        if not places:
            return {}
        try:
            self._consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in places.items()])
            while places.keys() - sizes.keys() - ended and time.monotonic() < deadline:
                messages = self._consumer.consume(1, _WAIT)
                for message in messages + (self._consumer.consume(_SAMPLE * len(places), 0) if messages else []):
                    partition = message.partition()
                    if partition is None:
                        continue
                    if message.error() is not None:
                        ended.add(partition)
                    elif len(own := sizes.setdefault(partition, [])) < _SAMPLE:
                        headers: Any = message.headers() or ()
                        beside = sum(len(name) + len(value or b"") for name, value in headers)
                        own.append(len(message.value() or b"") + len(message.key() or b"") + beside)
            self._consumer.unassign()
        except KafkaException:
            return {}
        return {partition: sum(own) / len(own) for partition, own in sizes.items()}
