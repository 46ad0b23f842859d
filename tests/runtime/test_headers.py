"""Fields that are read from the headers of Kafka's records, on each host."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from tests.contracts.stores import Store
from tests.graphs import as_graph, graph_of
from tests.runtime.answers import assert_epochs, assert_same
from tests.runtime.realtime_jobs import ends_of, expected, open_jobs, until_read, written
from tests.runtime.runs import Runner
from tests.runtime.spend import event, events, spend
from tests.short_forms import Pipeline

import windrow as wr
from windrow.authoring.checks import require_valid
from windrow.authoring.pipeline_file import read_document
from windrow.connectors.open_sinks import open_sinks
from windrow.model import Decode, Derive, Field, Graph, KafkaSource, Sink, SqliteSink, StringType
from windrow.runtime.memory import MemoryRun
from windrow.runtime.realtime.supervise import serve
from windrow.runtime.run import HostName
from windrow.runtime.settings import SparkOptions
from windrow.runtime.stream.take_savepoint import take_savepoint
from windrow.testing.servers.kafka import Kafka
from windrow.tools.redrive.copies import Choice, redrive

Header = tuple[str, str | bytes | None]


def random_headers(seed: int) -> Iterator[list[Header]]:
    """Yield headers: users and tenants, some twice, null, missing, or no text."""
    chance = Random(seed)
    values = [b"a", b"b", b"c", b"c", None, b"\xff\xfe", "ü".encode()]
    while True:
        names = chance.choices(["user", "ce.tenant", "trace"], k=chance.randrange(5))
        yield [(name, chance.choice(values)) for name in names]


def produce(
    kafka: Kafka, topic: str, values: Sequence[tuple[int, bytes | None]], headers: Iterator[list[Header]]
) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers, "acks": "all"})
    for (partition, value), its_headers in zip(values, headers, strict=False):
        producer.produce(topic, value, partition=partition, headers=its_headers)
    assert not producer.flush(30)


def by_headers(source: KafkaSource, sink: Sink, **emit: Any) -> Pipeline:  # noqa: ANN401 - any setting of `Emit`
    """What each user of a tenant spent, both of which are in headers."""
    pipeline = spend(source, sink, **emit)
    _, *others = pipeline.decode.fields
    user = Field("user_id", StringType(), path=("_headers", "user"))
    return replace(
        pipeline,
        decode=Decode((user, Field("_headers", StringType()), *others)),
        derive=(Derive("tenant", "coalesce(_headers->>'ce.tenant', '-')"),),
        key=("user_id", "tenant"),
    )


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("host", ["memory", "batch", "stream"])
def test_each_host_reads_them(
    kafka: Kafka, topic: Callable[..., str], store: Store, runner: Runner, host: HostName
) -> None:
    source = KafkaSource(kafka.servers, topic(1))
    pipeline = by_headers(source, store.settings())
    headers = random_headers(7)
    values = events(400, partitions=1)
    for part in (values[:300], values[300:]) if host == "stream" else (values,):
        produce(kafka, source.topic, part, headers)
        runner.bounded(pipeline, host=host, max_records=70)
    found = assert_same(store, pipeline)
    assert {"missing", "null"} <= set(found.dead.values())
    assert {key[2:] for key in found.table} >= {("a", "-"), ("c", "b"), ("//4=", "ü"), ("ü", "//4=")}
    if host == "stream":
        assert_epochs(store)


GRAPH = """
name: both
sources:
  with:
    source: {{kafka: {{servers: "{servers}", topic: {topics[0]}}}}}
    decode: {{user: {{type: string, path: _headers.user}}, t: timestamp_millis}}
    time: {{field: t, delay: 1m}}
  without:
    source: {{kafka: {{servers: "{servers}", topic: {topics[1]}}}}}
    decode: {{user: string, t: timestamp_millis}}
    time: {{field: t, delay: 1m}}
streams:
  all: {{from: [with, without]}}
  counts: {{from: all, key: user, window: {{tumbling: 1h}}, aggregate: {{n: count()}}}}
sinks:
  out: {{from: counts, sink: {{sqlite: {{path: {path}, table: counts}}}}}}
"""


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("host", ["memory", "batch", "stream"])
def test_beside_a_topic_whose_headers_are_not_read(
    kafka: Kafka, topic: Callable[..., str], runner: Runner, tmp_path: Path, host: HostName
) -> None:
    topics, path = [topic(2), topic(1)], tmp_path / "counts.db"
    for partition in (0, 1):
        values = [(partition, b'{"t": %d}' % number) for number in range(100)]
        produce(kafka, topics[0], values, repeat([("user", b"a")]))
    produce(kafka, topics[1], [(0, b'{"t": 7, "user": "b"}')] * 50, repeat([("user", b"c")]))
    text = GRAPH.format(servers=kafka.servers, topics=topics, path=path)
    graph = require_valid(read_document(text, "both.yaml").pipeline)
    assert isinstance(graph, Graph)
    runner.bounded(graph, host=host, max_records=60)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT user, n FROM counts ORDER BY user").fetchall() == [("a", 200), ("b", 50)]


def test_in_real_time(kafka: Kafka, topic: Callable[..., str]) -> None:
    source, name = topic(1), f"p-{uuid4().hex[:8]}"
    records = wr.kafka(source, servers=kafka.servers).decode(
        card=wr.field("string", path="_headers.user"), _headers="string", t="timestamp_millis"
    )
    built = (
        records.event_time("t", delay="10s")
        .key_by("card", tenant="coalesce(_headers->>'ce.tenant', '-')")
        .window(wr.tumbling("1m"))
        .aggregate(purchases=wr.count())
        .emit(lateness="30s")
        .to(wr.kafka_sink(f"{name}.counts", servers=kafka.servers), name=name, mode="realtime")
    )
    pipeline = graph_of(built, Pipeline)
    headers = random_headers(8)
    for first in (0, 200):
        values = [(0, b'{"t": %d}' % (1_760_000_000_000 + 700 * number)) for number in range(first, first + 200)]
        produce(kafka, source, values, headers)
        jobs = open_jobs(pipeline)
        serve(jobs, until_read(jobs, ends_of(pipeline)))
    found = expected(pipeline)
    assert any(b'"tenant":"b"' in (key or b"") for key in found[f"{name}.counts"])
    for its_topic, values_ in found.items():
        assert written(kafka.servers, its_topic) == values_


@pytest.mark.usefixtures("spark")
def test_a_redriven_record_has_its_headers(
    kafka: Kafka, topic: Callable[..., str], runner: Runner, tmp_path: Path
) -> None:
    source = KafkaSource(kafka.servers, topic(1))
    before = by_headers(source, SqliteSink(str(tmp_path / "live.db"), "spend"), at_end="hold")
    renamed = event(2).replace(b'"amount"', b'"sum"')
    headers: list[list[Header]] = [[("user", b"a")], [("user", b"a"), ("ce.tenant", b"\xff"), ("user", b"b")]]
    produce(kafka, source.topic, [(0, event(1)), (0, renamed)], iter(headers))
    runner.bounded(before)
    sink = open_sinks(as_graph(before))
    saved = take_savepoint(as_graph(before), sink, runner.checkpoint, None, SparkOptions("local[*]"))
    sink.close()
    *others, amount = before.decode.fields
    after = replace(before, decode=Decode((*others, replace(amount, alias=("sum",)))))
    other = Runner(runner.checkpoint.with_name("other"))
    other.bounded(after, savepoint=saved)
    assert [one.outcome for one in redrive(as_graph(after), Choice(), other.checkpoint, attempts=3)] == ["redriven"]
    fired = replace(after, emit=replace(after.emit, at_end="fire"))
    other.bounded(fired)
    replayed = replace(fired, sink=SqliteSink(str(tmp_path / "replayed.db"), "spend"))
    sink = open_sinks(as_graph(replayed))
    assert MemoryRun(as_graph(replayed), sink, None).run(lambda _: None) == "end"
    sink.close()
    for name in ("live", "replayed"):
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as db:
            rows = db.execute("SELECT user_id, tenant, events FROM spend ORDER BY user_id").fetchall()
        assert rows == [("a", "-", 1), ("b", "/w==", 1)]
