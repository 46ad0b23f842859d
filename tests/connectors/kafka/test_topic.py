"""What only a topic has: transactions, compaction, timestamps, keys, and a broker that may say no."""

from __future__ import annotations

import ctypes
import logging
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from tests.connectors.streaming import Stream, raw, records

from windrow.connectors.kafka.source import KafkaTopic, preflight
from windrow.connectors.open_sources import open_source
from windrow.engine.schema import HEADERS, RAW
from windrow.errors import InputError, RecordsLostError, SourceError
from windrow.model import KafkaSource
from windrow.testing.servers.kafka import Kafka

SECONDS = 30.0


@pytest.fixture
def source(kafka: Kafka, topic: Callable[..., str]) -> KafkaSource:
    return KafkaSource(kafka.servers, topic(2))


@pytest.fixture
def transactions(kafka: Kafka, source: KafkaSource) -> Callable[[list[bytes], str], None]:
    """Write values to partition 0 in a transaction that ends as told: commit, abort, or open (it does not)."""
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": source.topic})
    producer.init_transactions(SECONDS)

    def write(values: list[bytes], end: str) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(source.topic, value, partition=0)
        producer.flush(SECONDS)
        match end:
            case "commit":
                producer.commit_transaction(SECONDS)
            case "abort":
                producer.abort_transaction(SECONDS)
            case _:
                pass

    return write


def read_both_ways(
    source: KafkaSource, spark: SparkSession, checkpoint: Path
) -> dict[int, list[tuple[int, bytes | None]]]:
    found = records(open_source(source).read_all())
    assert records(Stream(raw(open_source(source), spark), checkpoint).run()) == found
    return found


def test_aborted_and_open_transactions_are_not_read(
    source: KafkaSource, transactions: Callable[[list[bytes], str], None], spark: SparkSession, tmp_path: Path
) -> None:
    transactions([b"a", b"b"], "commit")  # offsets 0 and 1, the marker is 2
    transactions([b"no", b"no"], "abort")  # 3, 4 and 5
    transactions([b"c"], "commit")  # 6 and 7
    transactions([b"no"], "abort")  # 8 and 9: nothing but markers at the end
    transactions([b"not yet"], "open")  # 10
    assert preflight(source) == {0: (0, 10), 1: (0, 0)}
    assert read_both_ways(source, spark, tmp_path / "checkpoint") == {0: [(0, b"a"), (1, b"b"), (6, b"c")]}


def test_a_step_of_nothing_but_markers_reads_nothing(
    source: KafkaSource, transactions: Callable[[list[bytes], str], None], spark: SparkSession, tmp_path: Path
) -> None:
    transactions([b"a"], "commit")
    transactions([b"no"] * 5, "abort")
    transactions([b"b"], "commit")
    frame = raw(open_source(source), spark, max_records=3)
    assert records(Stream(frame, tmp_path / "checkpoint").run()) == {0: [(0, b"a"), (8, b"b")]}


def test_a_compacted_topic_has_gaps(
    kafka: Kafka, topic: Callable[..., str], spark: SparkSession, tmp_path: Path
) -> None:
    settings = {"cleanup_policy": "compact", "segment_ms": "50", "min_cleanable_dirty_ratio": "0.01"}
    source = KafkaSource(kafka.servers, topic(1, **settings, min_compaction_lag_ms="0", delete_retention_ms="0"))
    producer = Producer({"bootstrap.servers": kafka.servers})
    deadline = time.monotonic() + SECONDS
    written = 0
    while True:  # a segment closes when a record comes after its time; only closed ones are compacted
        assert time.monotonic() < deadline, "the broker compacted nothing"
        for key in (b"x", b"y"):
            producer.produce(source.topic, b"%d" % written, key=key, partition=0)
            written += 1
        producer.flush(SECONDS)
        offsets = [offset for offset, _ in records(open_source(source).read_all())[0]]
        if len(offsets) < written - 4 and 0 not in offsets:
            break
    producer.produce(source.topic, None, key=b"x", partition=0)
    producer.flush(SECONDS)
    table = pa.Table.from_batches(open_source(source).read_all())
    assert table["offset"][-1].as_py() == written
    assert table["value"][-1].as_py() is None
    assert all(int(row["value"]) == row["offset"] for row in table.slice(0, len(table) - 1).to_pylist())
    [step] = Stream(raw(open_source(source), spark), tmp_path / "checkpoint").run()
    assert records([step])[0][-1] == (written, None)


def test_records_that_were_deleted_before_the_start_are_passed_over(
    kafka: Kafka, source: KafkaSource, spark: SparkSession, tmp_path: Path
) -> None:
    kafka.produce(source.topic, 1, [b"a", b"b", b"c"])
    kafka.delete_before(source.topic, 1, 2)
    assert preflight(source) == {0: (0, 0), 1: (2, 3)}
    assert read_both_ways(source, spark, tmp_path / "checkpoint") == {1: [(2, b"c")]}


def test_records_that_were_deleted_unread_are_an_error(
    kafka: Kafka, source: KafkaSource, spark: SparkSession, tmp_path: Path
) -> None:
    kafka.produce(source.topic, 1, [b"a", b"b", b"c"])
    ends = preflight(source)
    Stream(raw(open_source(source), spark), tmp_path / "checkpoint").run()
    kafka.produce(source.topic, 1, [b"d", b"e"])
    kafka.delete_before(source.topic, 1, 4)
    with pytest.raises(RecordsLostError, match=rf"partition 1 of {source.topic}"):
        list(KafkaTopic(source).read_ranges(ends))
    with pytest.raises(Exception, match=rf"RecordsLostError: the topic lost records .*partition 1 of {source.topic}"):
        Stream(raw(open_source(source), spark), tmp_path / "checkpoint").run()


def test_headers_come_along_if_they_are_asked_for(kafka: Kafka, source: KafkaSource) -> None:
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("b", None), ("ä", b"\xff"), ("a", b"")]
    producer = Producer({"bootstrap.servers": kafka.servers})
    producer.produce(source.topic, b"v", partition=0, headers=headers)
    producer.produce(source.topic, b"w", partition=0)
    producer.flush(SECONDS)
    [batch] = open_source(source).with_headers().read_all()
    assert batch.schema.equals(RAW.append(HEADERS))
    assert batch.column("headers").to_pylist() == [headers, []]


def produce_with_headers(source: KafkaSource, value: bytes, headers: dict[bytes, bytes]) -> None:
    """Write a record with librdkafka itself, as Python's client encodes the names of headers."""
    (path,) = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka-*")
    client = ctypes.CDLL(str(path))
    for new in (client.rd_kafka_conf_new, client.rd_kafka_new, client.rd_kafka_headers_new):
        new.restype = ctypes.c_void_p
    settings = ctypes.c_void_p(client.rd_kafka_conf_new())
    client.rd_kafka_conf_set(settings, b"bootstrap.servers", source.servers.encode(), None, ctypes.c_size_t(0))
    producer = ctypes.c_void_p(client.rd_kafka_new(0, settings, None, ctypes.c_size_t(0)))
    given = ctypes.c_void_p(client.rd_kafka_headers_new(ctypes.c_size_t(len(headers))))
    for name, content in headers.items():
        sizes = (ctypes.c_ssize_t(len(part)) for part in (name, content))
        client.rd_kafka_header_add(given, name, next(sizes), content, next(sizes))
    topic, partition, whole, of_headers = 1, 3, 4, 10
    parts = (
        topic,
        source.topic.encode(),
        partition,
        0,
        whole,
        value,
        ctypes.c_size_t(len(value)),
        of_headers,
        given,
        0,
    )
    assert client.rd_kafka_producev(producer, *parts) == 0
    assert client.rd_kafka_flush(producer, 30_000) == 0
    client.rd_kafka_destroy(producer)


def test_a_header_whose_name_is_no_text_ends_no_read(kafka: Kafka, source: KafkaSource) -> None:
    kafka.produce(source.topic, 0, [b"a"])
    produce_with_headers(source, b"b", {b"x": b"1", b"\xff": b"2"})
    produce_with_headers(source, b"c", {b"x": b"3"})
    log = open_source(source)
    for _ in range(20):  # the client may find the error in another way when it is asked often
        [batch] = log.with_headers().read_all()
        assert batch.column("headers").to_pylist() == [[], None, [("x", b"3")]]
    [batch] = log.read_all()
    assert batch.column("value").to_pylist() == [b"a", b"b", b"c"]


def test_key_and_timestamp_come_along(kafka: Kafka, source: KafkaSource, spark: SparkSession, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers})
    producer.produce(source.topic, b"v", key=b"k", partition=0, timestamp=1_700_000_000_123)
    producer.flush(SECONDS)
    [batch] = open_source(source).read_all()
    assert batch.schema.equals(RAW)
    at = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    row = {"partition": 0, "offset": 0, "log_time": at, "key": b"k", "value": b"v"}
    assert batch.to_pylist() == [row]
    [step] = Stream(raw(open_source(source), spark), tmp_path / "checkpoint").run()
    assert step.to_pylist() == [row]
    assert step.schema.field("log_time").type == RAW.field("log_time").type


def test_latest_begins_with_what_comes_after_the_start(
    kafka: Kafka, source: KafkaSource, spark: SparkSession, tmp_path: Path
) -> None:
    kafka.produce(source.topic, 0, [b"before"])
    latest = open_source(replace(source, start="latest"))
    assert list(latest.read_all()) == []
    begin = latest.beginning()
    assert begin == {source.topic: {"0": 1, "1": 0}}
    assert records(Stream(raw(latest, spark, begin=begin), tmp_path / "checkpoint").run()) == {}
    kafka.produce(source.topic, 0, [b"after"])
    assert records(Stream(raw(latest, spark, begin=begin), tmp_path / "checkpoint").run()) == {0: [(1, b"after")]}


def test_steps_of_a_topic_cannot_be_prescribed(source: KafkaSource, spark: SparkSession) -> None:
    with pytest.raises(InputError, match="cannot be prescribed"):
        raw(open_source(source), spark, cuts=[{0: 1}])


def test_a_topic_that_is_not_there_has_a_neighbour(source: KafkaSource, capfd: pytest.CaptureFixture[str]) -> None:
    misspelt = source.topic[:-1] + "_"
    with pytest.raises(SourceError, match=f"there is no topic {misspelt} at .*; did you mean .*{source.topic}"):
        preflight(replace(source, topic=misspelt))
    with pytest.raises(SourceError, match=r"there is no topic zzzz at .*; create it first"):
        preflight(replace(source, topic="zzzz"))
    with pytest.raises(SourceError, match="there is no topic no such name at"):
        preflight(replace(source, topic="no such name"))
    assert capfd.readouterr() == ("", "")


def test_a_broker_that_is_not_there_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SourceError, match=r"no Kafka broker can be reached at 127\.0\.0\.1:1: .*Connection refused"):
        preflight(KafkaSource("127.0.0.1:1", "spend"), timeout=1.0)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_broker_that_does_not_answer_is_not_waited_for_longer_than_told(silent: str) -> None:
    began = time.monotonic()
    with pytest.raises(SourceError, match=f"no Kafka broker can be reached at {silent}: no answer"):
        preflight(KafkaSource(silent, "spend"), timeout=0.5)
    assert time.monotonic() - began < 10


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[AdminClient]:
    """The clients that were made."""
    made: list[AdminClient] = []

    def make(settings: dict[str, str | int | float | bool], logger: logging.Logger) -> AdminClient:
        made.append(AdminClient(settings, logger=logger))
        return made[-1]

    monkeypatch.setattr("windrow.connectors.kafka.client.AdminClient", make)
    return made


def test_a_topic_is_asked_again_and_again_by_one_client(source: KafkaSource, clients: list[AdminClient]) -> None:
    topic = open_source(source)
    assert {topic.identity() for _ in range(20)} == {topic.identity(SECONDS)}
    assert topic.ends() == topic.ends() == {0: (0, 0), 1: (0, 0)}
    assert len(clients) == 1


def test_what_a_topic_is_can_be_asked_for_a_moment_only(silent: str, clients: list[AdminClient]) -> None:
    topic = open_source(KafkaSource(silent, "spend"))
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(SourceError, match="no Kafka broker can be reached"):
            topic.identity(0.1)
    assert time.monotonic() - began < 5
    assert len(clients) == 1


def test_a_client_that_nobody_keeps_is_gone_with_its_threads(silent: str) -> None:
    threads = Path("/proc/self/task")
    before = len(list(threads.iterdir()))
    for _ in range(5):
        with pytest.raises(SourceError):
            preflight(KafkaSource(silent, "spend"), timeout=0.1)
    assert len(list(threads.iterdir())) < before + 5


def test_options_that_mean_nothing_are_wrong_input() -> None:
    with pytest.raises(InputError, match=r"the Kafka options of topic spend are wrong: .*security\.protocol"):
        preflight(KafkaSource("127.0.0.1:1", "spend", options=(("security.protocol", "carrier pigeon"),)))


def test_a_broker_that_is_spoken_to_in_the_wrong_way_says_so(source: KafkaSource) -> None:
    options = (("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "PLAIN"), ("sasl.jaas.config", JAAS))
    with pytest.raises(SourceError, match=r"no Kafka broker can be reached at .*are the options right"):
        preflight(replace(source, options=options), timeout=2)


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
