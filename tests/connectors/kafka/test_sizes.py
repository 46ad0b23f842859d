"""The bytes of a topic's steps, planned by samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer

from windrow.connectors.kafka.options import client_options
from windrow.connectors.kafka.sizes import RecordSizes
from windrow.model import KafkaSource
from windrow.testing.servers.kafka import Kafka

MOST = 256 << 20
Sizes = Callable[[int], int]
"""Maps an offset to the size of its record."""


class Topic(RecordSizes):
    """A topic whose sizes are known; `asked` counts the samples."""

    def __init__(self, sizes: Mapping[int, Sizes]) -> None:
        super().__init__("topic", {})
        self._of = sizes
        self.asked = 0

    def means(self, places: Mapping[int, int]) -> dict[int, float]:
        self.asked += bool(places)
        return {partition: float(self._of[partition](offset)) for partition, offset in places.items()}


def steps(sizes: Sizes, end: int, most: int) -> list[tuple[int, int]]:
    """Return the records and bytes of each step of a partition, of at most `most` records."""
    topic, at, found = Topic({0: sizes}), 0, []
    while at < end:
        reached = topic.limit({0: at}, {0: min(end, at + most)}, MOST)[0]
        assert reached > at
        found.append((reached - at, sum(map(sizes, range(at, reached)))))
        at = reached
    return found


def test_records_that_grow_get_shorter_steps() -> None:
    # from 100 B to 1 MB
    found = steps(lambda offset: int(100 * 10 ** (4 * offset / 20_000)), 20_000, 1_000_000)
    assert max(size for _, size in found) <= 1.3 * MOST
    assert found[0][0] >= 5_000
    assert len(found) < 60


def test_a_jump_within_a_step_is_seen() -> None:
    found = steps(lambda offset: 100 if offset < 100_000 else 1_000_000, 101_000, 1_000_000)
    assert max(size for _, size in found) <= 1.3 * MOST


def test_steps_of_large_records_are_full_after_the_first() -> None:
    found = steps(lambda _: 1_000_000, 2_000, 1_000_000)
    assert [size for _, size in found[:-1]] == [pytest.approx(MOST, rel=0.3)] * (len(found) - 1)


def test_small_steps_are_not_sampled() -> None:
    topic = Topic({0: lambda _: 200, 1: lambda _: 200})
    assert topic.limit({}, {0: 100, 1: 100}, MOST) == {0: 100, 1: 100}
    assert topic.asked == 0
    ends = {0: 4_000, 1: 4_000}
    assert topic.limit({0: 0, 1: 0}, ends, MOST) == ends
    asked = topic.asked
    # the last records of a step are the first of the next
    assert topic.limit({0: 4_000, 1: 4_000}, {0: 9_000, 1: 9_000}, MOST) == {0: 9_000, 1: 9_000}
    assert topic.asked == asked + 1


def test_partitions_are_shortened_together_and_none_is_left_out() -> None:
    topic = Topic({0: lambda _: 1_000_000, 1: lambda _: 1_000})
    ends = topic.limit({0: 10}, {0: 10_010, 1: 10_000, 2: 0}, MOST)
    assert ends[2] == 0
    assert 100 < ends[0] - 10 < 400
    assert ends[1] == pytest.approx(ends[0] - 10, abs=1)
    assert topic.limit({}, {0: 100_000, 1: 2}, 10) == {0: 1, 1: 1}


def test_what_no_broker_answers_is_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic({0: lambda _: 1})
    monkeypatch.setattr(topic, "means", lambda _: {})
    assert topic.limit({}, {0: 100_000}, MOST) == {0: 100_000}


def test_a_topic_is_sampled(kafka: Kafka, topic: Callable[..., str]) -> None:
    source = KafkaSource(kafka.servers, topic(3))
    producer = Producer({"bootstrap.servers": kafka.servers})
    for number in range(200):
        producer.produce(source.topic, b"x" * (100 if number < 100 else 10_000), key=b"key", partition=0)
        producer.flush(30)
    producer.produce(source.topic, None, key=b"key", partition=1, headers=[("trace", b"12345"), ("none", None)])
    producer.flush(30)
    sizes = RecordSizes(source.topic, client_options(source))
    assert sizes.means({0: 0, 1: 0, 2: 0}) == {0: 103, 1: 17}
    assert sizes.means({0: 150}) == {0: 10_003}
    assert sizes.estimate({}, {0: 200, 1: 1}) == pytest.approx(1_010_000, rel=0.7)
    ends = sizes.limit({}, {0: 200, 1: 1, 2: 0}, 100_000)
    # a quarter, as the last records are large
    assert ends[0] == 50
    assert (ends[1], ends[2]) == (1, 0)
