"""Topics with registered schemas: what a pipeline writes, other clients and the next pipeline read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass
from tests.servers.registry import SchemaRegistry

from windrow.authoring.checks import require_valid
from windrow.authoring.pipeline_file import read_document
from windrow.connectors.kafka.protobuf_rows import first_message
from windrow.connectors.kafka.source import KafkaTopic
from windrow.errors import SinkError, SinkUnavailableError
from windrow.model import Graph, KafkaSource
from windrow.runtime.launch import launch
from windrow.runtime.run import HostName, RunSettings
from windrow.testing.servers.kafka import Kafka

T0 = 1_767_225_600_000
PARTITIONS = 2
DAYS = 'days: "array<decimal(5,1)>?"'
RATES = """
name: rates
key_groups: 2
sources:
  changes:
    source: {{kafka: {{servers: "{servers}", topic: {source}}}}}
    decode:
      {{id: {{type: long, tombstones: true}}, rate: "decimal(12,2)?", word: "string?", {days}, t: timestamp_millis}}
    time: {{field: t, delay: 1h}}
streams:
  rate: {{from: changes, table: {{key: id, deleted: rate IS NULL}}}}
sinks:
  topic:
    from: rate
    sink: {{kafka: {{servers: "{servers}", topic: {topic}, format: upsert, encoding: {encoding}}}}}
  table: {{from: rate, sink: {{sqlite: {{path: {folder}/rates.db, table: rates}}}}}}
"""
AGAIN = """
name: again
key_groups: 2
sources:
  rates:
    source: {{kafka: {{servers: "{servers}", topic: {topic}, format: {encoding}}}}}
    decode: {{id: {{type: long, tombstones: true}}, rate: "decimal(12,2)?", word: "string?", {days}, t: timestamp}}
    time: {{field: t, delay: 1h}}
streams:
  rate: {{from: rates, table: {{key: id, deleted: rate IS NULL}}}}
sinks:
  table: {{from: rate, sink: {{sqlite: {{path: {folder}/again.db, table: rates}}}}}}
"""
WINDOWS = """
name: spend
source: {{kafka: {{servers: "{servers}", topic: {source}}}}}
decode: {{user: string, word: "string?", amount: "decimal(12,2)", x: double, t: timestamp_millis}}
time: {{field: t, delay: 0s}}
key: [user]
window: {{tumbling: 5m}}
aggregate: {{total: sum(amount), mean: avg(x), words: "collect_list(word, 9)", least: min(word)}}
sink: {{kafka: {{servers: "{servers}", topic: {topic}, encoding: {{{kind}: {{registry: {url}}}}}}}}}
"""
SPEND = [
    {"user": "ann", "word": None, "amount": "10.50", "x": 1.5, "t": T0 + 1000},
    {"user": "ann", "word": None, "amount": "0.25", "x": 2.5, "t": T0 + 2000},
    {"user": "bob", "word": "b", "amount": "-1", "x": 0, "t": T0 + 3000},
]


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(is_strict=True) as found:
        yield found


def graph(text: str) -> Graph:
    found = require_valid(read_document(text, "rates.yaml").pipeline)
    assert isinstance(found, Graph)
    return found


def fill(servers: str, topic: str, seed: int = 7, count: int = 300) -> None:
    """Write random upserts and deletions."""
    random, producer = Random(seed), Producer({"bootstrap.servers": servers})
    for number in range(count):
        id_ = random.randrange(-3, 40)
        word = random.choice([None, "", "grüße", '{"'])
        row = {"id": id_, "rate": f"{number / 4:.2f}", "word": word, "days": ["1.5"] * (number % 3), "t": T0 + number}
        value = None if random.random() < 0.3 else json.dumps(row).encode()
        producer.produce(topic, value, b"%d" % id_, partition=id_ % PARTITIONS, timestamp=T0 + number)
    assert not producer.flush(30)


def run(text: str, folder: Path, host: HostName = "memory", *, fresh: bool = True) -> None:
    options = RunSettings(folder / "checkpoint", host, until_end=True, max_records=37, fresh=fresh)
    assert launch(graph(text), options, lambda _: None, lambda _: None) == "end"


def rows(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as tables:
        assert tables.execute("SELECT count(*) FROM rates_dead").fetchone() == (0,)
        return tables.execute("SELECT id, rate, word, days, t FROM rates ORDER BY id").fetchall()


def records(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [
        pair
        for batch in KafkaTopic(KafkaSource(servers, topic)).read_all()
        for pair in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json_schema"])
def test_the_next_pipeline_has_the_same_table(
    kafka: Kafka, topic: Callable[..., str], registry: SchemaRegistry, tmp_path: Path, kind: str
) -> None:
    source, out = topic(PARTITIONS), topic(PARTITIONS)
    fill(kafka.servers, source)
    given = {"servers": kafka.servers, "source": source, "topic": out, "folder": tmp_path, "days": DAYS}
    encoding = f"{{{kind}: {{registry: {registry.url}}}}}"
    run(RATES.format(encoding=encoding, **given), tmp_path)
    run(AGAIN.format(encoding=encoding, **given), tmp_path / "again")
    found = rows(tmp_path / "rates.db")
    assert len(found) > 10
    assert rows(tmp_path / "again.db") == found


def reader_of(kind: str, registry: SchemaRegistry, subject: str) -> Any:  # noqa: ANN401 - a deserializer
    """A deserializer of Confluent's client."""
    client = SchemaRegistryClient({"url": registry.url})
    if kind != "protobuf":
        return AvroDeserializer(client) if kind == "avro" else JSONDeserializer(None, schema_registry_client=client)
    schema = client.get_schema(client.get_version(subject, 1).schema_id or 0, fmt="serialized").schema_str
    read = ProtobufDeserializer(GetMessageClass(first_message(schema or "")), {"use.deprecated.format": False}, client)

    def fields(value: bytes, context: SerializationContext) -> dict[str, Any]:
        message: Any = read(value, context)
        return {field.name: field_of(message, field) for field in message.DESCRIPTOR.fields}

    def field_of(message: Any, field: Any) -> Any:  # noqa: ANN401 - of any type
        found = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            return None
        if field.is_repeated:
            return list(found)
        return found if field.message_type is None else found.ToDatetime(UTC)

    return fields


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json_schema"])
def test_other_clients_read_the_changes_of_windows(
    kafka: Kafka, topic: Callable[..., str], registry: SchemaRegistry, tmp_path: Path, kind: str
) -> None:
    source, out = topic(1), topic(1)
    kafka.produce(source, 0, [json.dumps(row).encode() for row in SPEND])
    run(WINDOWS.format(servers=kafka.servers, source=source, topic=out, kind=kind, url=registry.url), tmp_path)
    found = records(kafka.servers, out)
    read = reader_of(kind, registry, f"{out}-value")
    times = [f"2026-01-01T00:0{minute}:00.000000Z" for minute in (0, 5)]
    is_text = kind == "json_schema"
    begin, end = times if is_text else (datetime.fromisoformat(time) for time in times)
    number: Any = Decimal if kind == "avro" else str
    # the lack of a list is an empty one in Protobuf
    none: list[str] | None = [] if kind == "protobuf" else None
    row = {"op": "insert", "pane": "on_time", "revision": 0, "window_start": begin, "window_end": end}
    values = [read(value, SerializationContext(out, MessageField.VALUE)) for _, value in found]
    assert values == [
        {**row, "user": "ann", "total": number("10.75"), "mean": 2.0, "words": none, "least": None},
        {**row, "user": "bob", "total": number("-1.00"), "mean": 0.0, "words": ["b"], "least": "b"},
    ]
    # keys have a schema only in the topics of upserts
    assert [json.loads(key or b"")["user"] for key, _ in found] == ["ann", "bob"]
    assert (len(registry.versions(f"{out}-value")), registry.versions(f"{out}-key")) == (1, [])


def test_a_refused_schema_ends_the_run_before_anything_is_written(
    kafka: Kafka, topic: Callable[..., str], registry: SchemaRegistry, tmp_path: Path
) -> None:
    source, out = topic(1), f"{topic(1)}-out"
    kafka.produce(source, 0, [json.dumps(row).encode() for row in SPEND])
    text = WINDOWS.format(servers=kafka.servers, source=source, topic=out, kind="avro", url=registry.url)
    schema = {"type": "record", "name": "spend", "fields": [{"name": "total", "type": "string"}]}
    registry.register(f"{out}-value", {"schema": json.dumps(schema)})
    with pytest.raises(SinkError, match=f"refuses a schema for the subject {out}-value: .*incompatible"):
        run(text, tmp_path)
    registry.status = 500
    with pytest.raises(SinkUnavailableError, match=r"the schema registry .* cannot answer now"):
        run(text.replace(registry.url, f'{{url: "{registry.url}", options: {{max.retries: "0"}}}}'), tmp_path)
    assert not [name for name in AdminClient({"bootstrap.servers": kafka.servers}).list_topics().topics if out in name]
