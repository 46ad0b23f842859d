"""Topics whose offsets jump: transactions, aborted ones, compaction, tombstones; and a partition without a record."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from tests.contracts.stores import Store
from tests.runtime.answers import assert_epochs, assert_same
from tests.runtime.runs import Runner
from tests.runtime.spend import HOUR, Value, event, events, spend

from windrow.connectors.open_sources import open_source
from windrow.model import KafkaSource
from windrow.testing.servers.kafka import Kafka

pytestmark = pytest.mark.usefixtures("spark")

SECONDS = 30.0


def write_transactions(kafka: Kafka, topic: str, values: list[Value]) -> None:
    """Write values in transactions; before each comes the same aborted, which would change every sum."""
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    nobody = [(0, event(minute, "nobody")) for minute in range(300)]
    for part in (values[:200], values[200:400], values[400:], nobody):
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for partition, value in part:
                producer.produce(topic, value, partition=partition)
            producer.flush(SECONDS)  # else an abort would drop what was not sent yet
            end(SECONDS)
            if part == nobody:  # at the end is a step and more of nothing but what was aborted
                return


def test_aborted_transactions_and_markers_are_passed_over(
    kafka: Kafka, topic: Callable[..., str], store: Store, runner: Runner
) -> None:
    source = KafkaSource(kafka.servers, topic(4))  # the last partition stays empty
    write_transactions(kafka, source.topic, events(600))
    pipeline = spend(source, store.settings())
    runner.bounded(pipeline, max_records=280)
    found = assert_same(store, pipeline)
    assert found.on_time
    assert found.late
    assert "nobody" not in {key[2] for key in found.table}
    assert_epochs(store)
    last = runner.reports[-1]
    assert last.watermarks[3] is None
    assert sum(last.offsets.values()) > 2 * sum(report.events for report in runner.reports)


def test_a_compacted_topic_with_tombstones(
    kafka: Kafka, topic: Callable[..., str], store: Store, runner: Runner
) -> None:
    settings = {"cleanup_policy": "compact", "segment_ms": "50", "min_cleanable_dirty_ratio": "0.01"}
    source = KafkaSource(kafka.servers, topic(2, **settings, min_compaction_lag_ms="0"))
    producer = Producer({"bootstrap.servers": kafka.servers})
    deadline = time.monotonic() + 2 * SECONDS
    written = left = 0
    while left > written - 20 or left < 50:  # a segment closes when a record comes after its time; then it is compacted
        assert time.monotonic() < deadline, "the broker compacted nothing"
        for minute in range(written, written + 20):
            key = b"the same" if minute % 2 else b"%d" % minute
            producer.produce(source.topic, event(minute, f"u{minute % 5}"), key=key, partition=0)
        producer.flush(SECONDS)
        written += 20
        left = sum(batch.num_rows for batch in open_source(source).read_all())
    producer.produce(source.topic, None, key=b"0", partition=0)
    producer.produce(source.topic, event(written + 100, "u1"), key=b"last", partition=0)
    producer.produce(source.topic, event(written + 100, "u2"), key=b"last", partition=1)
    producer.flush(SECONDS)
    pipeline = spend(source, store.settings(), lateness=2 * HOUR)
    runner.bounded(pipeline, max_records=30)
    found = assert_same(store, pipeline)
    assert found.dead == {(0, written): "malformed"}
    [(raw, reason)] = store.query("SELECT raw, reason FROM spend_dead")
    assert (raw, reason) == (None, "malformed: no value")
    assert sum(report.records for report in runner.reports) < written
    assert_epochs(store)


def test_a_record_ahead_of_its_append_time_is_a_dead_letter(
    kafka: Kafka, topic: Callable[..., str], store: Store, runner: Runner
) -> None:
    source = KafkaSource(kafka.servers, topic(1))
    kafka.produce(source.topic, 0, [event(0), event(10**7), event(2, "u2")])
    pipeline = spend(source, store.settings())
    runner.bounded(pipeline)
    assert assert_same(store, pipeline).dead == {(0, 1): "future"}
