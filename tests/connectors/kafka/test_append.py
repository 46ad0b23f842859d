"""Appending to a topic: all records or none, and one appender at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from windrow.connectors.kafka.append import KafkaAppender
from windrow.connectors.kafka.source import KafkaTopic
from windrow.connectors.source import NewRecord
from windrow.errors import InputError, SourceError
from windrow.model import KafkaSource
from windrow.testing.servers.kafka import Kafka


def values(source: KafkaSource, partition: int, begin: int = 0) -> list[tuple[int, bytes | None, bytes]]:
    batches = KafkaTopic(source).read_from(partition, begin)
    columns = ("offset", "key", "value")
    return [row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True)]


def test_records_are_appended_with_their_keys_and_offsets(kafka: Kafka, topic: Callable[[int], str]) -> None:
    source = KafkaSource(kafka.servers, topic(2))
    records = {0: [NewRecord(b"k", b"1"), NewRecord(None, b"2")], 1: [NewRecord(None, b"3")]}
    with KafkaAppender(source, f"append-{source.topic}") as appender:
        assert appender.append({}) == {}
        assert appender.append(records) == {0: [0, 1], 1: [0]}
    with KafkaAppender(source, f"append-{source.topic}") as appender:
        assert values(source, 0) == [(0, b"k", b"1"), (1, None, b"2")]
        assert values(source, 0, 1) == [(1, None, b"2")]
        assert values(source, 1) == [(0, None, b"3")]


def test_records_are_appended_with_their_headers(kafka: Kafka, topic: Callable[[int], str]) -> None:
    source = KafkaSource(kafka.servers, topic(1))
    headers = [("a", b"1"), ("b", None), ("a", b"\xff")]
    with KafkaAppender(source, f"append-{source.topic}") as appender:
        appender.append({0: [NewRecord(None, b"1", headers), NewRecord(None, b"2")]})
    with KafkaAppender(source, f"append-{source.topic}"):  # waits until what was committed can be read
        [batch] = KafkaTopic(source).with_headers().read_all()
    assert batch.column("headers").to_pylist() == [headers, []]


def test_an_earlier_appender_is_fenced(kafka: Kafka, topic: Callable[[int], str]) -> None:
    source = KafkaSource(kafka.servers, topic(1))
    with KafkaAppender(source, f"append-{source.topic}") as first:
        with KafkaAppender(source, f"append-{source.topic}") as second:
            second.append({0: [NewRecord(None, b"second")]})
        with pytest.raises(SourceError, match=r"cannot be appended to: .*run the command again"):
            first.append({0: [NewRecord(None, b"first")]})
    assert [value for _, _, value in values(source, 0)] == [b"second"]


def test_a_topic_that_is_not_there(kafka: Kafka) -> None:
    with (
        pytest.raises((SourceError, InputError), match="nowhere"),
        KafkaAppender(KafkaSource(kafka.servers, "nowhere"), "append-nowhere"),
    ):
        pass
