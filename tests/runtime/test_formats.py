"""A topic in each format: the same events give the same tables, and what is no record is a dead letter."""

from __future__ import annotations

import base64
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2
from google.protobuf.message_factory import GetMessageClass
from tests.graphs import Runnable, as_graph
from tests.servers.registry import SchemaRegistry

from windrow.authoring.checks import require_valid
from windrow.authoring.pipeline_file import read_document
from windrow.authoring.printing import to_text
from windrow.engine.decode.protobuf import descriptor_of
from windrow.errors import RunError
from windrow.model import ProtobufMessage
from windrow.runtime.compatibility import _decoding, pipeline_changes
from windrow.runtime.launch import launch
from windrow.runtime.run import HostName, RunSettings
from windrow.runtime.savepoint import fingerprint
from windrow.testing.servers.kafka import Kafka

T0 = 1_767_225_600_000
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Spend",
    "fields": [
        {"name": "user_id", "type": "string"},
        {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": "string"},
    ],
}
EVENTS = [{"user_id": f"u{n % 3}", "event_time": T0 + n * 7000, "amount": f"{n}.50"} for n in range(600)]
BAD = b"\x07 nothing"


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as found:
        yield found


def message() -> ProtobufMessage:
    file = descriptor_pb2.FileDescriptorProto(name="spend.proto", package="shop", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    types = {"user_id": field.TYPE_STRING, "event_time": field.TYPE_INT64, "amount": field.TYPE_STRING}
    file.message_type.add(
        name="Spend",
        field=[field(name=name, number=at, type=type_, label=1) for at, (name, type_) in enumerate(types.items(), 1)],
    )
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return ProtobufMessage(base64.b64encode(files.SerializeToString()).decode(), "shop.Spend")


def avro(event: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), event)
    return stream.getvalue()


def written(name: str, registry: SchemaRegistry, folder: Path) -> tuple[str, Callable[[dict[str, Any]], bytes]]:
    """Return the setting of a format, and what writes an event in it."""
    match name:
        case "json":
            return "json", lambda event: json.dumps(event).encode()
        case "csv":
            columns = "{csv: {columns: [user_id, event_time, amount]}}"
            return columns, lambda event: ",".join(map(str, event.values())).encode()
        case "avro":
            (folder / "spend.avsc").write_text(json.dumps(SCHEMA, indent=2))
            return f"{{avro: {{schema: {folder / 'spend.avsc'}}}}}", avro
        case "protobuf":
            given = message()
            (folder / "spend.desc").write_bytes(base64.b64decode(given.descriptor))
            made: Any = GetMessageClass(descriptor_of(given))
            setting = f"{{protobuf: {{descriptor: {folder / 'spend.desc'}, message: shop.Spend}}}}"
            return setting, lambda event: made(**event).SerializeToString()
    # as a producer of Confluent writes it
    client = SchemaRegistryClient({"url": registry.url})
    if name == "json schema":
        prefix = b"\0" + client.register_schema("spend-value", Schema('{"type": "object"}', "JSON")).to_bytes(4)
        return f"{{json_schema: {{registry: {registry.url}}}}}", lambda event: prefix + json.dumps(event).encode()
    serializer = AvroSerializer(client, json.dumps(SCHEMA), conf={"normalize.schemas": False})
    context = SerializationContext("spend", MessageField.VALUE)
    return f"{{avro: {{registry: {registry.url}}}}}", lambda event: serializer(event, context) or b""


def pipeline(servers: str, topic: str, format_: str, folder: Path) -> Runnable:
    text = f"""
    name: spend
    source: {{kafka: {{servers: "{servers}", topic: {topic}, format: {format_}}}}}
    decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
    time: {{field: event_time, delay: 1m}}
    key: user_id
    window: {{tumbling: 5m}}
    aggregate: {{total: sum(amount), events: count()}}
    emit: {{at_end: fire}}
    sink: {{sqlite: {{path: {folder / "spend.db"}, table: spend}}}}
    """
    found = read_document(text, "spend.yaml").pipeline
    return require_valid(found)


def run(given: Runnable, folder: Path, host: HostName, *, fresh: bool = True) -> tuple[list[Any], list[Any]]:
    options = RunSettings(folder / "checkpoint", host, until_end=True, max_records=250, fresh=fresh)
    launch(as_graph(given), options, lambda _: None, lambda _: None)
    with closing(sqlite3.connect(folder / "spend.db")) as tables:
        rows = tables.execute("SELECT window_start, user_id, total, events FROM spend ORDER BY 1, 2").fetchall()
        return rows, tables.execute("SELECT partition, raw FROM spend_dead ORDER BY 1").fetchall()


def fill(kafka: Kafka, topic: str, write: Callable[[dict[str, Any]], bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers})
    for number, event in enumerate(EVENTS):
        producer.produce(topic, write(event), partition=number % 2)
    producer.produce(topic, BAD, partition=1)
    producer.flush(30)


FORMATS = ("json", "csv", "avro", "protobuf", "avro by registry", "json schema")


def test_each_format_gives_the_same_tables(
    kafka: Kafka, topic: Callable[..., str], registry: SchemaRegistry, tmp_path: Path
) -> None:
    found = {}
    for name in FORMATS:
        folder, its_topic = tmp_path / name.replace(" ", "-"), topic(2)
        folder.mkdir()
        setting, write = written(name, registry, folder)
        fill(kafka, its_topic, write)
        found[name] = run(pipeline(kafka.servers, its_topic, setting, folder), folder, "memory")
    assert len(found["json"][0]) == 15 * 3 - 3
    assert found["json"][1] == [(1, BAD)]
    assert all(one == found["json"] for one in found.values())


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.service
def test_a_run_on_spark_waits_for_the_registry_and_makes_no_dead_letters_of_that(
    kafka: Kafka, topic: Callable[..., str], registry: SchemaRegistry, tmp_path: Path
) -> None:
    its_topic = topic(2)
    setting, write = written("avro by registry", registry, tmp_path)
    fill(kafka, its_topic, write)
    given = pipeline(kafka.servers, its_topic, setting, tmp_path)
    registry.status = 503
    options = RunSettings(tmp_path / "checkpoint", "stream", until_end=True, max_records=250, retry=0)
    with pytest.raises(RunError, match=r"the schema registry .* cannot answer now"):
        launch(as_graph(given), options, lambda _: None, lambda _: None)
    registry.status = None
    assert "Avro records with the schemas of http://" in to_text(as_graph(given))
    assert "JSON" not in to_text(as_graph(given))
    rows, dead = run(given, tmp_path, "stream", fresh=False)
    assert sum(row[3] for row in rows) == len(EVENTS)
    assert dead == [(1, BAD)]


def test_a_schema_that_is_not_registered_stops_a_run_with_the_place(
    kafka: Kafka, topic: Callable[..., str], registry: SchemaRegistry, tmp_path: Path
) -> None:
    name = topic(1)
    kafka.produce(name, 0, [b"\0" + (4711).to_bytes(4) + avro(EVENTS[0])])
    given = pipeline(kafka.servers, name, f"{{avro: {{registry: {registry.url}}}}}", tmp_path)
    with pytest.raises(
        RunError, match=rf"{name}, partition 0, offset 0: the schema registry .* no schema with the id 4711"
    ):
        run(given, tmp_path, "memory")
    missing = f"{{avro: {{registry: {{url: '{registry.url}', missing: [4711]}}}}}}"
    rows, dead = run(pipeline(kafka.servers, name, missing, tmp_path), tmp_path, "memory")
    assert (rows, len(dead)) == ([], 1)


def test_another_registry_is_no_change_and_another_schema_is_one(tmp_path: Path) -> None:
    (tmp_path / "spend.avsc").write_text(json.dumps(SCHEMA))
    (tmp_path / "same.avsc").write_text(json.dumps(SCHEMA | {"doc": "what was spent"}, indent=4))
    (tmp_path / "other.avsc").write_text(json.dumps(SCHEMA | {"fields": [*SCHEMA["fields"][::-1]]}))

    def changes(there: str, here: str) -> list[str]:
        before, after = (fingerprint(as_graph(pipeline("a:1", "spend", one, tmp_path))) for one in (there, here))
        return [one.field for one in pipeline_changes(before, after) if one.means is None]

    def decoding(format_: str) -> object:
        return _decoding(fingerprint(as_graph(pipeline("a:1", "spend", format_, tmp_path))))

    schema, registry = "{{avro: {{schema: {}}}}}", "{{avro: {{registry: {}}}}}"
    given = schema.format(tmp_path / "spend.avsc")
    assert changes(given, schema.format(tmp_path / "same.avsc")) == []
    assert changes(given, schema.format(tmp_path / "other.avsc")) == ["source.kafka.format.avro.schema"]
    assert changes(registry.format("http://a:1"), registry.format("{url: 'http://b:1', missing: [7]}")) == []
    assert decoding(registry.format("http://a:1")) != decoding(registry.format("{url: 'http://a:1', missing: [7]}"))
    assert changes("json", "{csv: {columns: [user_id, event_time, amount]}}") == ["source.kafka.format.csv.columns"]
