"""Upsert topics as other systems write them: the last value of each key, and a tombstone for each deletion."""

from __future__ import annotations

import base64
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf import descriptor_pb2
from google.protobuf.message_factory import GetMessageClass
from tests.servers.registry import SchemaRegistry

from windrow.authoring.checks import require_valid
from windrow.authoring.pipeline_file import read_document
from windrow.engine.decode.protobuf import descriptor_of
from windrow.model import Graph, ProtobufMessage
from windrow.runtime.launch import launch
from windrow.runtime.run import HostName, RunSettings
from windrow.testing.servers.kafka import Kafka

T0 = 1_767_225_600_000
PARTITIONS = 2
Row = dict[str, Any]
Encode = Callable[[Row], bytes]


@dataclass(frozen=True)
class Form:
    """How a system writes the keys and values of a topic, and what a pipeline says of it."""

    key: Encode
    value: Encode
    source: str = "{}"
    id: str = "{type: long, tombstones: true}"
    rate: str = '"double?"'
    time: str = "timestamp_millis"


def to_json(value: object) -> bytes:
    return json.dumps(value).encode()


def in_envelope(value: object) -> bytes:
    """Return what Kafka Connect's JSON converter writes with `schemas.enable`."""
    return to_json({"schema": {"type": "struct", "optional": False}, "payload": value})


def without_id(row: Row) -> Row:
    """Return a value without the columns of the key (Flink's `value.fields-include = 'EXCEPT_KEY'`, all of ksqlDB)."""
    return {name: value for name, value in row.items() if name != "id"}


class Schemas:
    """Encodes rows with the schemas of a registry, as Confluent's serializers do."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._client = SchemaRegistryClient({"url": registry.url})

    def avro(self, schema: Any, of: Callable[[Row], object]) -> Encode:  # noqa: ANN401 - JSON
        id_ = self._client.register_schema("x", Schema(json.dumps(schema), "AVRO"))
        parsed = fastavro.parse_schema(schema)

        def encode(row: Row) -> bytes:
            stream = io.BytesIO(b"\0" + id_.to_bytes(4))
            stream.seek(5)
            fastavro.schemaless_writer(stream, parsed, of(row))
            return stream.getvalue()

        return encode

    def protobuf(self, name: str, *names: str) -> Encode:
        types = {"id": 3, "rate": 1, "t": 3}
        field = descriptor_pb2.FieldDescriptorProto
        file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", syntax="proto3")
        fields = [field(name=one, number=at, type=types[one], label=1) for at, one in enumerate(names, 1)]
        file.message_type.add(name=name, field=fields)
        text = base64.b64encode(file.SerializeToString()).decode()
        id_ = self._client.register_schema("x", Schema(text, "PROTOBUF"))
        files = descriptor_pb2.FileDescriptorSet(file=[file])
        set_ = base64.b64encode(files.SerializeToString()).decode()
        made: Any = GetMessageClass(descriptor_of(ProtobufMessage(set_, name)))
        prefix = b"\0" + id_.to_bytes(4) + b"\0"
        return lambda row: prefix + made(**{one: row[one] for one in names}).SerializeToString()


RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Rate",
    "fields": [{"name": "id", "type": "long"}, {"name": "rate", "type": "double"}, {"name": "t", "type": "long"}],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
NAMES = [
    "flink, key apart",
    "avro, key apart",
    "text",
    "flink",
    "connect",
    "connect with schemas",
    "ksqldb",
    "avro",
    "avro primitive",
    "protobuf",
]


@pytest.fixture(scope="module")
def forms() -> Iterator[dict[str, Form]]:
    with SchemaRegistry() as registry:
        schemas = Schemas(registry)
        avro = schemas.avro(RECORD, lambda row: row)
        by_registry = f"{{format: {{avro: {{registry: {registry.url}}}}}}}"
        payload = "path: payload."
        yield {
            "text": Form(lambda row: b"%d" % row["id"], to_json),
            "flink": Form(lambda row: to_json({"id": row["id"]}), to_json),
            "flink, key apart": Form(lambda row: to_json({"id": row["id"]}), lambda row: to_json(without_id(row))),
            "avro, key apart": Form(
                schemas.avro(KEY, lambda row: {"id": row["id"]}),
                schemas.avro(RECORD | {"fields": RECORD["fields"][1:]}, without_id),
                by_registry,
                id="{type: long, tombstones: true, path: _key.id}",
            ),
            "connect": Form(lambda row: to_json(row["id"]), to_json, "{key_format: json}"),
            "connect with schemas": Form(
                lambda row: in_envelope({"id": row["id"]}),
                in_envelope,
                id=f"{{type: long, tombstones: true, {payload}id}}",
                rate=f'{{type: "double?", {payload}rate}}',
                time=f"{{type: timestamp_millis, {payload}t}}",
            ),
            "ksqldb": Form(
                lambda row: row["id"].to_bytes(8, signed=True),
                lambda row: to_json(without_id(row)),
                "{key_format: binary}",
            ),
            "avro": Form(schemas.avro(KEY, lambda row: {"id": row["id"]}), avro, by_registry),
            "avro primitive": Form(schemas.avro("long", lambda row: row["id"]), avro, by_registry),
            "protobuf": Form(
                schemas.protobuf("Key", "id"),
                schemas.protobuf("Rate", "id", "rate", "t"),
                f"{{format: {{protobuf: {{registry: {registry.url}}}}}}}",
            ),
        }


def graph(servers: str, topic: str, form: Form, folder: Path) -> Graph:
    more = form.source[1:-1]
    text = f"""
    name: rates
    key_groups: 2
    sources:
      changes:
        source: {{kafka: {{servers: "{servers}", topic: {topic}{", " if more else ""}{more}}}}}
        decode: {{id: {form.id}, rate: {form.rate}, t: {form.time}, _partition: long, _offset: long}}
        time: {{field: t, delay: 1h}}
    streams:
      rate: {{from: changes, table: {{key: id, deleted: rate IS NULL}}}}
    sinks:
      out: {{from: rate, sink: {{sqlite: {{path: {folder / "rates.db"}, table: rates}}}}}}
    """
    found = require_valid(read_document(text, "rates.yaml").pipeline)
    assert isinstance(found, Graph)
    return found


def fill(servers: str, topic: str, form: Form, *, count: int = 400) -> dict[int, float]:
    """Write random upserts and deletions, with a bad key in between; return the rows that are left."""
    random = Random(7)
    rows: dict[int, float] = {}
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        id_ = random.randrange(-3, 40)
        row = {"id": id_, "rate": float(number), "t": T0 + number * 1000}
        place: dict[str, Any] = {"partition": id_ % PARTITIONS, "timestamp": row["t"]}
        if random.random() < 0.4:
            rows.pop(id_, None)
            producer.produce(topic, None, form.key(row), **place)
        else:
            rows[id_] = row["rate"]
            producer.produce(topic, form.value(row), form.key(row), **place)
    producer.produce(topic, None, b"\xff\xfe", partition=0, timestamp=T0)
    assert not producer.flush(30)
    return rows


def run(given: Graph, folder: Path, host: HostName) -> tuple[dict[int, float], list[Any]]:
    options = RunSettings(folder / "checkpoint", host, until_end=True, max_records=37, fresh=True)
    assert launch(given, options, lambda _: None, lambda _: None) == "end"
    with closing(sqlite3.connect(folder / "rates.db")) as tables:
        rows = dict(tables.execute("SELECT id, rate FROM rates").fetchall())
        of_id = tables.execute("SELECT id, _partition, _offset FROM rates").fetchall()
        assert all(partition == id_ % PARTITIONS for id_, partition, _ in of_id)
        assert len({(partition, offset) for _, partition, offset in of_id}) == len(of_id)
        return rows, tables.execute("SELECT reason, raw FROM rates_dead").fetchall()


REASONS = {
    "connect": "malformed: the key: not UTF-8 at byte 0",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_are_those_that_were_not_deleted(
    kafka: Kafka, topic: Callable[..., str], forms: dict[str, Form], tmp_path: Path, name: str
) -> None:
    its_topic = topic(PARTITIONS, cleanup_policy="compact")
    rows = fill(kafka.servers, its_topic, forms[name])
    found, dead = run(graph(kafka.servers, its_topic, forms[name], tmp_path), tmp_path, "memory")
    assert found == rows
    assert len(rows) > 10
    if name == "ksqldb":  # two bytes are a number
        assert dead == []
    else:
        assert dead == [(REASONS.get(name, "malformed: the key is not UTF-8 at byte 0"), None)]


@pytest.mark.parametrize(("name", "host"), [("avro, key apart", "stream"), ("flink", "batch")])
@pytest.mark.usefixtures("spark")
def test_on_spark_too(  # noqa: PLR0917 - fixtures
    kafka: Kafka, topic: Callable[..., str], forms: dict[str, Form], tmp_path: Path, name: str, host: HostName
) -> None:
    its_topic = topic(PARTITIONS)
    rows = fill(kafka.servers, its_topic, forms[name])
    found, dead = run(graph(kafka.servers, its_topic, forms[name], tmp_path), tmp_path, host)
    assert (found, len(dead)) == (rows, 1)
