"""Pipelines in real time for tests: what is fed to them, what they have to write, and what they wrote."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.graphs import Runnable, as_graph, graph_of
from tests.short_forms import Pipeline, ProcessPipeline, RulesPipeline

import windrow as wr
from windrow.client.fluent.streams import Timed
from windrow.connectors.kafka.rows import KafkaRecords
from windrow.connectors.kafka.source import log_ends
from windrow.connectors.kafka.subjects import register_schemas
from windrow.connectors.open_sources import open_sources
from windrow.engine.changelog import concat_by_sink, empty_by_sink
from windrow.expressions import sink_specs
from windrow.model import (
    Graph,
    KafkaSource,
    Rule,
    RuleList,
)
from windrow.runtime.memory import MemoryHost
from windrow.runtime.realtime.journal import read_journal
from windrow.runtime.realtime.partition import Owner, Partition
from windrow.runtime.realtime.topics import prepare_topics
from windrow.testing.servers.kafka import Kafka

_OPEN_SECONDS = 10.0
"""How long changes are waited for whose transaction is not ended."""

Written = dict[bytes | None, list[bytes | None]]
"""The values of each key, in order."""


def suspicious(ctx: wr.Context, record: Mapping[str, Any]) -> None:
    """Emit a purchase that is far above the card's mean so far."""
    count, total = ctx.state.count.get(0), ctx.state.total.get(0)
    if count and record["amount"] > 3 * total / count:
        ctx.emit(id=record["id"], amount=record["amount"], mean=total / count)
    ctx.state.count.set(count + 1)
    ctx.state.total.set(total + record["amount"])


def process_pipeline(servers: str, topic: str, name: str) -> ProcessPipeline:
    """Emit suspicious purchases by card."""
    pipeline = (
        cards(servers, topic)
        .key_by("card")
        .process(
            suspicious,
            state={"count": wr.value_state("long"), "total": wr.value_state("double")},
            returns={"id": "string", "amount": "double", "mean": "double"},
        )
        .to(wr.kafka_sink(f"{name}.alerts", servers=servers), name=name, mode="realtime")
    )
    return graph_of(pipeline, ProcessPipeline)


def window_pipeline(servers: str, topic: str, name: str) -> Pipeline:
    """Count and sum the purchases of each card by minute, with revisions and expired records."""
    pipeline = (
        cards(servers, topic)
        .key_by("card")
        .window(wr.tumbling("1m"))
        .aggregate(purchases=wr.count(), most=wr.max("amount"))
        .emit(lateness="30s")
        .to(wr.kafka_sink(f"{name}.alerts", servers=servers), name=name, mode="realtime")
    )
    return graph_of(pipeline, Pipeline)


def deduplicated_graph(servers: str, topic: str, name: str) -> Graph:
    """Leave out copies of purchases, then emit suspicious ones: two levels with one key."""
    graph = wr.graph(name, mode="realtime")
    source = graph.source("cards", cards(servers, topic), lateness="1h")
    unique = graph.stream("unique", source.deduplicate("id", within="1h", scope="partition"))
    alerts = graph.stream(
        "alerts",
        unique.key_by("card").process(
            suspicious,
            state={"count": wr.value_state("long"), "total": wr.value_state("double")},
            returns={"id": "string", "amount": "double", "mean": "double"},
        ),
    )
    graph.sink("out", alerts, wr.kafka_sink(f"{name}.alerts", servers=servers))
    return graph_of(graph.build(), Graph)


def rules_pipeline(
    servers: str,
    topic: str,
    name: str,
    *,
    lists: Mapping[str, RuleList] | None = None,
    rules: Sequence[Rule] = (),
    last: int = 16,
) -> RulesPipeline:
    """Raise alerts on cards of a list, and by the purchases before and after each; or by other rules."""
    own = [
        wr.rule("large", when="count(recent) >= 3 and amount > 3 * mean(recent.amount)", say="{amount} for {id}"),
        wr.rule("burst", when="count(recent, '1m') >= 5", evidence={"most": "max(recent.amount, '1m')"}),
        wr.rule("testing", when="next.amount > 5 * amount", say="{id}, then {next.id}"),
        *([wr.rule("blocked", when="card in blocked", say="{amount}")] if lists else []),
    ]
    pipeline = (
        cards(servers, topic)
        .key_by("card")
        .rules(*(rules or own), recent=wr.recent(last=last, within="1h"), unique="id", lists=lists, lateness="2m")
        .to(wr.kafka_sink(f"{name}.alerts", servers=servers), name=name, mode="realtime")
    )
    return graph_of(pipeline, RulesPipeline)


PIPELINES: dict[str, Callable[[str, str, str], Runnable]] = {
    "deduplicated": deduplicated_graph,
    "process": process_pipeline,
    "rules": rules_pipeline,
    "window": window_pipeline,
}


def cards(servers: str, topic: str) -> Timed:
    records = wr.kafka(topic, servers=servers).decode(id="string", card="string", t="timestamp_millis", amount="double")
    return records.event_time("t", delay="10s")


def purchases(first: int, count: int, partition: int, seed: int = 0) -> list[bytes]:
    """Return purchases in an order that is about that of their times; some are late, copies, or no JSON."""
    chance = random.Random(f"{seed}/{partition}/{first}")
    values = []
    for number in range(first, first + count):
        late = chance.choice([0, 0, 0, 0, 15_000, 60_000, 300_000])
        amount = round(chance.lognormvariate(3, 0.5) * chance.choice([1] * 19 + [9]), 2)
        record = {
            "id": f"{partition}-{number - chance.choice([0] * 9 + [1])}",
            "card": f"card {partition} {chance.randrange(20)}",
            "t": 1_760_000_000_000 + 700 * number - late,
            "amount": amount,
        }
        values.append(json.dumps(record).encode() if chance.random() > 0.01 else b"{")
    return values


def feed(kafka: Kafka, topic: str, first: int, count: int, partitions: int) -> None:
    """Append purchases to each partition."""
    for partition in range(partitions):
        kafka.produce(topic, partition, purchases(first, count, partition))


def open_jobs(pipeline: Runnable, run: str = "run", attempt: int = 0) -> list[Partition]:
    """Create the topics; return a job for each partition."""
    return [Partition(as_graph(pipeline), number, Owner(run, attempt)) for number in prepare_topics(as_graph(pipeline))]


def until_read(jobs: Sequence[Partition], ends: dict[int, int], turns: int = 3000) -> Callable[[], bool]:
    """Return a function that says when the committed offsets are at the ends; it fails if that takes for ever."""
    left = iter(range(turns))
    tails = Committed(jobs)

    def is_done() -> bool:
        if next(left, None) is None:
            message = f"the run has not come to {ends}: {tails.offsets()}"
            raise AssertionError(message)
        return all(tails.offsets().get(number, 0) >= end for number, end in ends.items())

    return is_done


class Committed:
    """The committed offsets of a pipeline."""

    def __init__(self, jobs: Sequence[Partition]) -> None:
        self._places = [TopicPartition(job.source.topic, job.number) for job in jobs]
        self._consumer = Consumer(
            {
                "bootstrap.servers": jobs[0].source.servers,
                "group.id": f"windrow-{jobs[0].pipeline.name}",
                "log_level": 0,
            }
        )

    def offsets(self) -> dict[int, int]:
        """Return those that there are; none while the broker does not say."""
        try:
            found = self._consumer.committed(self._places, 10)
        except KafkaException:
            return {}
        return {one.partition: one.offset for one in found if one.offset >= 0}


def ends_of(pipeline: Runnable) -> dict[int, int]:
    """Return the ends of the source's partitions."""
    return {number: end for number, (_, end) in open_sources(as_graph(pipeline)).ends().items()}


def written(servers: str, topic: str) -> Written:
    """Return what is committed in a topic."""
    found: defaultdict[bytes | None, list[bytes | None]] = defaultdict(list)
    for message in messages(servers, topic):
        found[message.key()].append(message.value())
    return dict(found)


def messages(servers: str, topic: str) -> list[Any]:
    """Return the committed messages of a topic, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "log_level": 0,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    # a broker that has committed offsets may still have to end the transaction in the other topics
    ends = log_ends(KafkaSource(servers, topic))
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    found, ended, deadline = [], set[int](), time.monotonic() + _OPEN_SECONDS
    while len(ended) < len(ends) and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            number = message.partition()
            if message.error() is None:
                found.append(message)
            elif number is not None and (message.offset() or 0) >= ends[number]:
                ended.add(number)
    consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def expected(pipeline: Runnable) -> dict[str, Written]:
    """Return what each topic must hold, by the memory host over all partitions at once, in one step.

    Rules and lists are those of the run's journal.
    """
    graph = as_graph(pipeline)
    source = open_sources(as_graph(pipeline))
    for node in graph.rules:
        lists = tuple(replace(one, entries=()) for one in node.rules.lists)
        graph = graph.with_rules(replace(node.rules, lists=lists, journal=read_journal(graph)))
    host = MemoryHost(replace(graph, mode="micro-batch"), source.partitions())
    output = host.step(pa.Table.from_batches(source.read_all()))
    rows = concat_by_sink(empty_by_sink(as_graph(pipeline)), (group.by_sink for group in output))
    found: defaultdict[str, defaultdict[bytes | None, list[bytes | None]]] = defaultdict(lambda: defaultdict(list))
    for name, spec in sink_specs(graph).items():
        for record in KafkaRecords(spec, encoders=register_schemas(spec)).of(rows[name]):
            found[record.topic][record.key].append(record.value)
    return {topic: dict(values) for topic, values in found.items()}
