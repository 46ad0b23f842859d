"""Schemas of a registry: by the id in a record, asked for once, and never a dead letter for want of an answer."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from google.protobuf import descriptor_pb2, wrappers_pb2
from tests.engine.decode.test_avro import SPEND, spend
from tests.engine.decode.test_decoder import MILLIS, T0, pipeline, reasons
from tests.engine.decode.test_tombstones import table
from tests.servers.registry import SchemaRegistry
from tests.short_forms import Pipeline, operator_spec

from windrow.engine.decode.avro import read_datum
from windrow.engine.decode.avro_defaults import with_defaults
from windrow.engine.decode.decoder import SMALL_BATCH, Decoder
from windrow.errors import InputError, SourceError, SourceUnavailableError
from windrow.model import (
    AvroFormat,
    DecimalType,
    Decode,
    Field,
    JsonSchemaFormat,
    KafkaSource,
    KeyFormat,
    ProtobufFormat,
    Registry,
    StringType,
)
from windrow.model.avro_schema import AvroRecord, parse_schema

ONCE = (("max.retries", "0"), ("timeout", "5"))


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as found:
        yield found


def registered(
    registry: SchemaRegistry, schema: dict[str, object], *references: SchemaReference, login: str = ""
) -> int:
    client = SchemaRegistryClient({"url": registry.url} | ({"basic.auth.user.info": login} if login else {}))
    return client.register_schema(str(schema["name"]), Schema(json.dumps(schema), "AVRO", list(references)))


def framed(id_: int, value: bytes) -> bytes:
    return b"\0" + id_.to_bytes(4) + value


def reading(url: str, *options: tuple[str, str], missing: tuple[int, ...] = ()) -> Pipeline:
    format_ = AvroFormat(Registry(url, (*ONCE, *options), missing))
    return replace(pipeline(), source=KafkaSource("localhost:1", "spend", format=format_))


GOOD = spend(b"\x08\x0812.5")
BOTH = pytest.mark.parametrize("copies", [1, SMALL_BATCH], ids=["one by one", "a batch"])


@BOTH
def test_records_are_read_by_their_own_schemas(registry: SchemaRegistry, copies: int) -> None:
    first = registered(registry, SPEND)
    fields = [{"name": "more", "type": "int"}, *reversed(SPEND["fields"])]
    second = registered(registry, SPEND | {"fields": fields, "name": "Later"})
    later = framed(second, b"\x02" + GOOD[8:] + GOOD[2:8] + GOOD[:2])
    decoder = Decoder(operator_spec(reading(registry.url)))
    values = [framed(first, GOOD), later, b"\0\0", b"{}", b""] * copies
    decoded = decoder.decode(table([(None, value, None) for value in values]))
    assert [str(one) for one in decoded.good.column("amount").to_pylist()] == ["12.50"] * 2 * copies
    assert decoded.good.column("event_time").cast("int64").to_pylist() == [T0 * 1000] * 2 * copies
    assert set(reasons(decoded)) == {
        "malformed: no schema id: the record has 2 bytes",
        "malformed: no schema id: the first byte is 123, not 0",
        "malformed: no schema id: the record is empty",
    }
    assert len([path for path in registry.asked if "/ids/" in path]) == 2


def test_a_schema_can_refer_to_others(registry: SchemaRegistry) -> None:
    registered(registry, {"type": "enum", "name": "Kind", "symbols": ["A", "B"]})
    fields = [*SPEND["fields"], {"name": "kind", "type": "Kind"}]
    id_ = registered(registry, SPEND | {"fields": fields}, SchemaReference("Kind", "Kind", 1))
    decoded = Decoder(operator_spec(reading(registry.url))).decode(table([(None, framed(id_, GOOD + b"\x02"), None)]))
    assert decoded.good.num_rows == 1


@BOTH
def test_an_unknown_id_stops_the_run_unless_the_pipeline_says_that_it_is_missing(
    registry: SchemaRegistry, copies: int
) -> None:
    id_ = registered(registry, SPEND)
    given = table([(None, value, None) for value in [framed(id_, GOOD), framed(4711, GOOD)] * copies])
    with pytest.raises(SourceError, match=r"partition 0, offset 1: .* has no schema with the id 4711; register it, or"):
        Decoder(operator_spec(reading(registry.url))).decode(given)
    decoded = Decoder(operator_spec(reading(registry.url, missing=(4711,)))).decode(given)
    assert decoded.good.num_rows == copies
    assert set(reasons(decoded)) == {"no schema: the pipeline says that the registry has none with the id 4711"}


def test_a_registry_that_does_not_answer_is_asked_again_by_the_next_try(registry: SchemaRegistry) -> None:
    id_ = registered(registry, SPEND)
    decoder, given = Decoder(operator_spec(reading(registry.url))), table([(None, framed(id_, GOOD), None)])
    registry.status = 503
    with pytest.raises(SourceUnavailableError, match="cannot answer now"):
        decoder.decode(given)
    registry.status = None
    assert decoder.decode(given).good.num_rows == 1
    registry.status = 503  # what is known is not asked for
    assert decoder.decode(given).good.num_rows == 1
    with pytest.raises(SourceUnavailableError, match="cannot be reached"):
        Decoder(operator_spec(reading("http://127.0.0.1:9"))).decode(given)


def test_an_answer_that_the_client_cannot_read_is_no_dead_letter(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        json.loads("<html>")

    monkeypatch.setattr(SchemaRegistryClient, "get_schema", fail)
    with pytest.raises(SourceUnavailableError, match="Expecting value"):
        Decoder(operator_spec(reading(registry.url))).decode(table([(None, framed(1, GOOD), None)]))


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with SchemaRegistry(login="me:secret") as registry:
        id_ = registered(registry, SPEND, login="me:secret")
        given = table([(None, framed(id_, GOOD), None)])
        with pytest.raises(SourceError, match="refuses these options"):
            Decoder(operator_spec(reading(registry.url))).decode(given)
        monkeypatch.setenv("REGISTRY_LOGIN", "me:secret")
        option = ("basic.auth.user.info", "${REGISTRY_LOGIN}")
        assert Decoder(operator_spec(reading(registry.url, option))).decode(given).good.num_rows == 1
        with pytest.raises(SourceError, match="options of the schema registry are wrong: Unrecognized"):
            Decoder(operator_spec(reading(registry.url, ("nonsense", "1")))).decode(given)


def test_a_schema_of_another_kind_is_a_dead_letter(registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    id_ = client.register_schema("x", Schema('{"type": "object"}', "JSON"))
    decoded = Decoder(operator_spec(reading(registry.url))).decode(table([(None, framed(id_, GOOD), None)]))
    assert reasons(decoded) == [f"malformed: the schema {id_} is JSON, and the source reads AVRO"]


CODE = Field("user_id", StringType(), tombstones=True)


def keyed(url: str, *, key_format: KeyFormat | None = None, field: Field = CODE, values: str = "avro") -> Pipeline:
    """Return a pipeline that reads tombstones; the values of its topic are in the registry, or JSON."""
    registry = Registry(url, ONCE)
    fields = (field, Field("event_time", MILLIS), Field("amount", DecimalType(12, 2), optional=True))
    source = KafkaSource("localhost:1", "spend", format=AvroFormat(registry), key_format=key_format)
    return replace(
        pipeline(), source=source if values == "avro" else replace(source, format="json"), decode=Decode(fields)
    )


KEY_SCHEMAS: list[tuple[Any, object, str]] = [
    ({"type": "record", "name": "Key", "fields": [{"name": "user_id", "type": "string"}]}, {"user_id": "u"}, "u"),
    ("string", "u", "u"),
    (["null", "string"], "u", "u"),  # a primary key in ksqlDB
    ({"type": "enum", "name": "E", "symbols": ["x", "u"]}, "u", "u"),
]


@BOTH
@pytest.mark.parametrize(("schema", "key", "value"), KEY_SCHEMAS, ids=["struct", "primitive", "union", "enum"])
def test_keys_have_their_own_schemas(
    registry: SchemaRegistry,
    schema: Any,  # noqa: ANN401 - JSON
    key: object,
    value: str,
    copies: int,
) -> None:
    id_ = register(registry, schema, "AVRO")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), key)
    given = [(framed(id_, stream.getvalue()), None, T0 * 1000), (b"text", None, T0 * 1000)] * copies
    decoded = Decoder(operator_spec(keyed(registry.url))).decode(table(given))
    assert (decoded.good.column("user_id").to_pylist(), reasons(decoded)) == ([value, "text"] * copies, [])
    # the values are JSON, and the keys alone in the registry
    chosen = keyed(registry.url, key_format=AvroFormat(Registry(registry.url, ONCE)), values="json")
    decoded = Decoder(operator_spec(chosen)).decode(table(given))
    assert decoded.good.column("user_id").to_pylist() == [value] * copies
    assert set(reasons(decoded)) == {"malformed: the key: no schema id: the first byte is 116, not 0"}


@BOTH
def test_a_key_that_cannot_be_read_says_why(registry: SchemaRegistry, copies: int) -> None:
    number, other = register(registry, "long", "AVRO"), register(registry, {"type": "string"}, "JSON")
    keys = [framed(number, b"\x0e"), framed(number, b""), framed(other, b'"u"'), framed(number, b"\x0e\x00")]
    decoded = Decoder(operator_spec(keyed(registry.url))).decode(table([(key, None, 7) for key in keys] * copies))
    assert reasons(decoded)[:4] == [
        "wrong type: user_id: 7 is not a string",
        "malformed: the key: not Avro at byte 5: the record ends after 5 bytes, and needs 6",
        f"malformed: the key: the schema {other} is JSON, and the source reads AVRO",
        "malformed: the key: not Avro at byte 6: the datum ends here, the record has 7 bytes",
    ]
    assert decoded.good.num_rows == 0
    with pytest.raises(SourceError, match=r"spend, partition 0, offset 1: .* has no schema with the id 4711"):
        Decoder(operator_spec(keyed(registry.url))).decode(
            table([(b"x", None, 7), (framed(4711, b"\x0e"), None, 7)] * copies)
        )


@BOTH
def test_protobuf_keys_are_messages_or_wrappers(registry: SchemaRegistry, copies: int) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="key.proto", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto(name="user_id", number=1, type=9, label=1)
    file.message_type.add(name="Key", field=[field])
    id_ = register_text(registry, base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    wrappers = descriptor_pb2.FileDescriptorProto()
    wrappers_pb2.DESCRIPTOR.CopyToProto(wrappers)
    other = register_text(registry, base64.b64encode(wrappers.SerializeToString()).decode(), "PROTOBUF")
    given = keyed(registry.url)
    given = replace(given, source=KafkaSource("a:1", "spend", format=ProtobufFormat(Registry(registry.url, ONCE))))
    of_string = next(at for at, one in enumerate(wrappers.message_type) if one.name == "StringValue")
    keys = [
        framed(id_, b"\0\x0a\x01u"),
        framed(other, bytes([2, 2 * of_string]) + wrappers_pb2.StringValue(value="v").SerializeToString()),
    ]
    decoded = Decoder(operator_spec(given)).decode(table([(key, None, T0 * 1000) for key in keys] * copies))
    assert (decoded.good.column("user_id").to_pylist(), reasons(decoded)) == (["u", "v"] * copies, [])


PLACE = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string", "default": "?"}]}
READER: dict[str, Any] = {
    "type": "record",
    "name": "Reader",
    "fields": [
        {"name": "user_id", "type": "string", "default": "nobody"},
        {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": T0},
        {"name": "amount", "type": ["null", "string"], "default": "2.50", "aliases": ["amt"]},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "place", "type": PLACE, "default": {"city": "Bern"}},
    ],
}
WRITERS: list[tuple[list[dict[str, Any]], dict[str, Any], list[object]]] = [
    ([], {}, ["nobody", "2.50", None, "Bern"]),
    ([{"name": "user_id", "type": "string"}], {"user_id": "u"}, ["u", "2.50", None, "Bern"]),
    ([{"name": "amt", "type": "string"}], {"amt": "7.00"}, ["nobody", "7.00", None, "Bern"]),
    ([{"name": "amount", "type": ["null", "string"]}], {"amount": None}, ["nobody", None, None, "Bern"]),
    (
        [{"name": "place", "type": ["null", {"type": "record", "name": "P", "fields": []}]}],
        {"place": {}},
        ["nobody", "2.50", None, "?"],
    ),
    ([{"name": "place", "type": ["null", PLACE]}], {"place": None}, ["nobody", "2.50", None, None]),
]


@BOTH
@pytest.mark.parametrize(("fields", "value", "expected"), WRITERS)
def test_a_reader_has_defaults_for_fields_that_a_schema_lacks(
    registry: SchemaRegistry, fields: list[dict[str, Any]], value: dict[str, Any], expected: list[object], copies: int
) -> None:
    schema = {"type": "record", "name": "Writer", "fields": fields}
    id_, stream = register(registry, schema, "AVRO"), io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    format_ = AvroFormat(Registry(registry.url, ONCE), json.dumps(READER))
    names = (
        Field("user_id", StringType()),
        Field("amount", DecimalType(12, 2), optional=True, alias=("amt",)),
        Field("note", StringType(), optional=True),
        Field("city", StringType(), optional=True, path=("place", "city")),
    )
    given = replace(
        pipeline(),
        source=KafkaSource("localhost:1", "spend", format=format_),
        decode=Decode((*names, Field("event_time", MILLIS))),
    )
    decoded = Decoder(operator_spec(given)).decode(table([(None, framed(id_, stream.getvalue()), None)] * copies))
    assert reasons(decoded) == []
    found = [decoded.good.column(field.name).to_pylist() for field in names]
    assert found == [[Decimal(str(one)) if at == 1 and one else one] * copies for at, one in enumerate(expected)]
    assert decoded.good.column("event_time").cast("int64").to_pylist() == [T0 * 1000] * copies


DEFAULTS: list[tuple[object, object, object]] = [
    ("boolean", True, True),
    ("int", 7, "7"),
    ("double", 7, "7.0"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001\u0000", "2.56"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u00ff", "-0.01"),
    ("bytes", "\u00ff", b"\xff"),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", "b"),
    ({"type": "array", "items": "long"}, [1, 2], ["1", "2"]),
    ({"type": "map", "values": "string"}, {"a": "b"}, {"a": "b"}),
    (["null", "long"], 3, "3"),
    ("long", "3", None),
    ("long", True, None),
    ("string", None, None),
    ({"type": "enum", "name": "E", "symbols": ["a"]}, "b", None),
]


@pytest.mark.parametrize(("type_", "given", "value"), DEFAULTS)
def test_a_default_is_a_value_of_its_type(type_: object, given: object, value: object) -> None:
    fields = [{"name": "f", "type": type_, "default": given}]
    writer, reader = (
        parse_schema(json.dumps({"type": "record", "name": "r", "fields": some}), "it") for some in ([], fields)
    )
    if value is None:
        with pytest.raises(InputError, match=r"the default of r\.f, .* is not a value of its type"):
            with_defaults(writer, reader)
    else:
        found = with_defaults(writer, reader)
        assert isinstance(found, AvroRecord)
        assert found.missing == (("f", value),)
        assert read_datum(found, b"") == {"f": value}


OBJECT = {"type": "object", "properties": {"user_id": {"type": "string"}}}


@BOTH
def test_json_with_a_schema_is_read_as_json(registry: SchemaRegistry, copies: int) -> None:
    id_, other = register(registry, OBJECT, "JSON"), register(registry, SPEND, "AVRO")
    format_ = JsonSchemaFormat(Registry(registry.url, ONCE))
    given = replace(pipeline(), source=KafkaSource("localhost:1", "spend", format=format_))
    good = json.dumps({"user_id": "u", "event_time": T0, "amount": "1.50"}).encode()
    values = [
        framed(id_, good),
        framed(id_, good[:-1]),
        framed(id_, b"7"),
        framed(other, GOOD),
        good,
        b"",
        None,
    ] * copies
    decoded = Decoder(operator_spec(given)).decode(table([(None, value, 7) for value in values]))
    assert [str(one) for one in decoded.good.column("amount").to_pylist()] == ["1.50"] * copies
    assert reasons(decoded)[:6] == [
        f"malformed: not JSON at character {len(good) - 1}: Expecting ',' delimiter",
        "not an object: a number",
        f"malformed: the schema {other} is AVRO, and the source reads JSON",
        "malformed: no schema id: the first byte is 123, not 0",
        "malformed: no schema id: the record is empty",
        "malformed: no value",
    ]
    both = replace(given, decode=keyed(registry.url).decode)
    keys = [framed(id_, b'{"user_id":"u"}'), framed(id_, b'"u"'), b"u"]
    decoded = Decoder(operator_spec(both)).decode(table([(key, None, T0 * 1000) for key in keys] * copies))
    assert (decoded.good.column("user_id").to_pylist(), reasons(decoded)) == (["u"] * 3 * copies, [])


def register(registry: SchemaRegistry, schema: object, kind: str) -> int:
    return register_text(registry, json.dumps(schema), kind)


def register_text(registry: SchemaRegistry, text: str, kind: str) -> int:
    return SchemaRegistryClient({"url": registry.url}).register_schema(f"key {text[:40]}", Schema(text, kind))
