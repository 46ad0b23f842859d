"""Rows in Avro and as JSON with a JSON Schema, and the schemas that are derived from their columns."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import jsonschema
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st
from tests.connectors.kafka.test_sink import COLUMNS, plain

from windrow.connectors.kafka.encoding import AvroEncoding, JsonSchemaEncoding, RowEncoding
from windrow.connectors.kafka.protobuf_rows import ProtobufEncoding, first_message
from windrow.connectors.unfit import RefusedError

ID = 258
PREFIX = b"\0\0\0\1\2"
LISTS = [type_ for type_ in COLUMNS if pa.types.is_list(type_)]
TYPES = COLUMNS | {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    **{
        pa.list_(type_): st.lists(st.none() | values, max_size=3)
        for type_, values in COLUMNS.items()
        if type_ not in LISTS
    },
}
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)


@st.composite
def batches(draw: st.DrawFn, *, nulls_in_lists: bool = True) -> pa.RecordBatch:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    fields = [pa.field(name, draw(st.sampled_from(list(TYPES))), draw(st.booleans())) for name in names]
    count = draw(st.integers(0, 3))
    columns = []
    for one in fields:
        values = (st.none() | TYPES[one.type]) if one.nullable else TYPES[one.type]
        if not nulls_in_lists:
            values = values.filter(lambda value: not isinstance(value, list) or None not in value)
        columns.append(pa.array(draw(st.lists(values, min_size=count, max_size=count)), one.type))
    return pa.record_batch(columns, pa.schema(fields))


def same(value: object) -> object:
    """A value that equals itself."""
    if isinstance(value, dict):
        return {name: same(one) for name, one in value.items()}
    if isinstance(value, list):
        return list(map(same, value))
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def in_json(value: object) -> object:
    if isinstance(value, dict):
        return {name: in_json(one) for name, one in value.items()}
    return list(map(in_json, value)) if isinstance(value, list) else plain(value)


@given(batches())
def test_rows_come_back_as_they_were(rows: pa.RecordBatch) -> None:
    columns = list(rows.schema)
    avro, objects = AvroEncoding("a.b-c", columns), JsonSchemaEncoding("a.b-c", columns)
    schema = json.loads(avro.derive())
    found = avro.encoder(ID, avro.derive())(rows)
    assert all(one.startswith(PREFIX) for one in found)
    read: list[Any] = [fastavro.schemaless_reader(io.BytesIO(one[5:]), schema) for one in found]
    assert same(read) == same(rows.to_pylist())
    texts = objects.encoder(ID, objects.derive())(rows)
    values = [json.loads(one.removeprefix(PREFIX)) for one in texts]
    assert values == [in_json(row) for row in rows.to_pylist()]
    for value in values:
        jsonschema.validate(value, json.loads(objects.derive()))
    # what was derived fits itself
    assert all(one.fits(one.derive()) for one in (avro, objects))


def as_message(value: object) -> object:
    """A value as a message has it: a lack is no field, and no list an empty one."""
    if isinstance(value, dict):
        return {name: as_message(one) for name, one in value.items() if one not in (None, [])}
    return list(map(as_message, value)) if isinstance(value, list) else value


def of_message(message: Any, like: object) -> object:  # noqa: ANN401 - of any type
    """What a message has, with the types of a value that it was made of."""
    if not isinstance(like, dict):
        match like:
            case Decimal():
                return Decimal(message)
            case datetime():
                return datetime.fromtimestamp(message.seconds, UTC) + timedelta(microseconds=message.nanos / 1000)
            case list():
                return [of_message(item, one) for item, one in zip(message, like, strict=True)]
            case _:
                return message
    found = {}
    for field in message.DESCRIPTOR.fields:
        if like.get(field.name) not in (None, []):
            found[field.name] = of_message(getattr(message, field.name), like[field.name])
        else:
            is_there = len(getattr(message, field.name)) if field.is_repeated else message.HasField(field.name)
            assert not is_there
    return found


@given(batches(nulls_in_lists=False))
def test_messages_come_back_as_they_were(rows: pa.RecordBatch) -> None:
    encoding = ProtobufEncoding("a.b-c", list(rows.schema))
    schema = encoding.derive(())
    assert encoding.fits(schema)
    kind: Any = GetMessageClass(first_message(schema))
    found = [kind.FromString(one.removeprefix(PREFIX + b"\0")) for one in encoding.encoder(ID, schema)(rows)]
    given_ = rows.to_pylist()
    assert same([of_message(*pair) for pair in zip(found, given_, strict=True)]) == same(list(map(as_message, given_)))


COLUMNS_OF = [
    pa.field("user", pa.string(), nullable=False),
    pa.field("total", pa.decimal128(12, 2)),
    pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
    pa.field("n", pa.int32(), nullable=False),
]
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def test_the_schema_of_avro() -> None:
    assert json.loads(AvroEncoding("5m-spend.eu", COLUMNS_OF).derive()) == {
        "type": "record",
        "name": "_5m_spend_eu",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "total", "type": ["null", DECIMAL], "default": None},
            {"name": "at", "type": MICROS},
            {"name": "n", "type": "int"},
        ],
    }


def test_the_schema_of_objects() -> None:
    assert json.loads(JsonSchemaEncoding("spend", COLUMNS_OF).derive()) == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "spend",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "user": {"type": "string"},
            "total": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "at": {"type": "string", "format": "date-time"},
            "n": {"type": "integer"},
        },
        "required": ["user", "at", "n"],
    }


Schema = dict[str, Any]


def field(schema: Schema, name: str) -> Schema:
    (found,) = (one for one in schema["fields"] if one["name"] == name)
    return found  # type: ignore[no-any-return]


def change(name: str, type_: object) -> Callable[[Schema], object]:
    return lambda schema: field(schema, name).update(type=type_)


def add(name: str, **parts: object) -> Callable[[Schema], object]:
    return lambda schema: schema["fields"].insert(0, {"name": name, **parts})


AVRO: dict[str, tuple[bool, Callable[[Schema], object]]] = {
    "another name": (True, lambda schema: schema.update(name="Spend", namespace="org.shop", doc="by hand")),
    "another order": (True, lambda schema: schema["fields"].reverse()),
    "nullable": (True, change("user", ["null", "string"])),
    "one of several": (True, change("user", ["long", "string", "null"])),
    "of Java": (True, change("user", {"type": "string", "avro.java.string": "String"})),
    "a wider number": (True, change("n", "long")),
    "more digits": (True, change("total", ["null", DECIMAL | {"precision": 38}])),
    "a default": (True, add("region", type="string", default="eu")),
    "a null": (True, add("region", type=["null", DECIMAL], default=None)),
    "no default": (False, add("region", type="string")),
    "a default that cannot be written": (False, add("region", type=DECIMAL, default="\u0001")),
    "a field less": (False, lambda schema: schema["fields"].pop()),
    "not nullable": (False, change("total", DECIMAL)),
    "fewer digits": (False, change("total", ["null", DECIMAL | {"precision": 9}])),
    "another scale": (False, change("total", ["null", DECIMAL | {"scale": 3}])),
    "milliseconds": (False, change("at", {"type": "long", "logicalType": "timestamp-millis"})),
    "a plain number": (False, change("at", "long")),
    "a unit for a text": (False, change("user", {"type": "string", "logicalType": "uuid"})),
    "no record": (False, lambda schema: schema.update(type="string")),
}


def altered(encoding: RowEncoding, alter: Callable[[Schema], object]) -> str:
    """Return the derived schema of an encoding after a change."""
    schema = json.loads(encoding.derive(()))
    alter(schema)
    return json.dumps(schema)


@pytest.mark.parametrize("what", AVRO)
def test_a_schema_of_avro_fits_or_not(what: str) -> None:
    expected, alter = AVRO[what]
    encoding = AvroEncoding("spend", COLUMNS_OF)
    schema = altered(encoding, alter)
    assert encoding.fits(schema) == expected
    if expected:
        rows = [{"user": "ann", "total": Decimal("-1.50"), "at": datetime(2026, 1, 1, tzinfo=UTC), "n": 1}]
        (found,) = encoding.encoder(ID, schema)(pa.RecordBatch.from_pylist(rows, pa.schema(COLUMNS_OF)))
        read: Any = fastavro.schemaless_reader(io.BytesIO(found[5:]), json.loads(schema))
        assert rows == [{name: value for name, value in read.items() if name != "region"}]


OBJECTS: dict[str, tuple[bool, Callable[[Schema], object]]] = {
    "notes": (True, lambda schema: schema.update({"title": "Spend", "description": "by hand", "$id": "spend"})),
    "notes of a property": (True, lambda schema: schema["properties"]["user"].update(description="by hand")),
    "more": (True, lambda schema: schema["properties"].update(region={"type": "string"})),
    "fewer required": (True, lambda schema: schema["required"].pop()),
    "open": (True, lambda schema: (schema["properties"].pop("n"), schema.pop("additionalProperties"))),
    "a property less": (False, lambda schema: schema["properties"].pop("n")),
    "another type": (False, lambda schema: schema["properties"].update(n={"type": "string"})),
    "more required": (False, lambda schema: schema["required"].append("total")),
    "a rule": (False, lambda schema: schema.update(minProperties=9)),
    "a rule of a property": (False, lambda schema: schema["properties"]["user"].update(maxLength=1)),
}


@pytest.mark.parametrize("what", OBJECTS)
def test_a_schema_of_objects_fits_or_not(what: str) -> None:
    expected, alter = OBJECTS[what]
    encoding = JsonSchemaEncoding("spend", COLUMNS_OF)
    assert encoding.fits(altered(encoding, alter)) == expected


def numbers(schema: str) -> dict[str, int]:
    return {field.name: field.number for field in first_message(schema).fields}


def test_a_field_keeps_its_number() -> None:
    first = ProtobufEncoding("spend", COLUMNS_OF).derive(())
    assert numbers(first) == {"user": 1, "total": 2, "at": 3, "n": 4}
    more = [COLUMNS_OF[0], pa.field("region", pa.string()), *COLUMNS_OF[2:]]
    second = ProtobufEncoding("spend", more).derive([first])
    assert numbers(second) == {"user": 1, "region": 5, "at": 3, "n": 4}
    # the number of a field that is gone is not used again
    third = ProtobufEncoding("spend", [*more, pa.field("city", pa.string())]).derive([first, second])
    assert numbers(third) == {"user": 1, "region": 5, "at": 3, "n": 4, "city": 6}
    # the same columns have the same schema, whatever was added since
    assert ProtobufEncoding("spend", COLUMNS_OF).derive([first, second, third]) == first


def test_a_column_may_be_named_as_the_oneof_of_another() -> None:
    columns = [pa.field(name, pa.string()) for name in ("_a", "a", "X_a")]
    encoding = ProtobufEncoding("spend", columns)
    schema = encoding.derive(())
    row = {"_a": None, "a": "1", "X_a": "2"}
    (found,) = encoding.encoder(ID, schema)(pa.RecordBatch.from_pylist([row], pa.schema(columns)))
    message: Any = GetMessageClass(first_message(schema)).FromString(found[6:])
    assert {name: getattr(message, name) if message.HasField(name) else None for name in row} == row


@pytest.mark.parametrize("kind", [AvroEncoding, ProtobufEncoding, JsonSchemaEncoding])
def test_a_key_without_columns_is_the_same_for_each_row(kind: type[RowEncoding]) -> None:
    encoding = kind("spend_key", [])
    schema = encoding.derive(())
    found = encoding.encoder(ID, schema)(pa.RecordBatch.from_pydict({"a": [1, 2]}).select([]))
    data = {"AVRO": b"", "PROTOBUF": b"\0", "JSON": b"{}"}[kind.kind]
    assert (found, encoding.fits(schema)) == ([PREFIX + data] * 2, True)


def test_a_list_with_a_null_is_refused() -> None:
    columns = [pa.field("words", pa.list_(pa.string()))]
    encoding = ProtobufEncoding("spend", columns)
    rows = pa.RecordBatch.from_pylist([{"words": ["a", None]}], pa.schema(columns))
    with pytest.raises(RefusedError, match="refused: Protobuf: the list words has a null"):
        encoding.encoder(ID, encoding.derive(()))(rows)


MESSAGES: dict[str, tuple[bool, Callable[[FileDescriptorProto], object]]] = {
    "other numbers": (True, lambda file: file.message_type[0].field[0].MergeFrom(FieldDescriptorProto(number=99))),
    "more": (True, lambda file: file.message_type[0].field.add(name="region", number=9, type=9, label=1)),
    "a repeated field": (False, lambda file: file.message_type[0].field[0].MergeFrom(FieldDescriptorProto(label=3))),
    "a field less": (False, lambda file: file.message_type[0].field.pop(0)),
    "another type": (False, lambda file: file.message_type[0].field[0].MergeFrom(FieldDescriptorProto(type=3))),
    "another message": (False, lambda file: file.message_type[0].ClearField("field")),
    "no presence": (False, lambda file: file.message_type[0].field[1].ClearField("proto3_optional")),
    "proto2": (False, lambda file: file.MergeFrom(FileDescriptorProto(syntax="proto2"))),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_a_schema_of_messages_fits_or_not(what: str) -> None:
    expected, alter = MESSAGES[what]
    encoding = ProtobufEncoding("spend", COLUMNS_OF)
    file = FileDescriptorProto.FromString(base64.b64decode(encoding.derive(())))
    alter(file)
    if what == "no presence":
        file.message_type[0].field[1].ClearField("oneof_index")
        del file.message_type[0].oneof_decl[:]
    if what == "proto2":
        file.message_type[0].field[1].ClearField("proto3_optional")
    schema = base64.b64encode(file.SerializeToString()).decode()
    assert encoding.fits(schema) == expected
    if expected:
        rows = [{"user": "ann", "total": Decimal("-1.50"), "at": datetime(2026, 1, 1, tzinfo=UTC), "n": 0}]
        (found,) = encoding.encoder(ID, schema)(pa.RecordBatch.from_pylist(rows, pa.schema(COLUMNS_OF)))
        message: Any = GetMessageClass(first_message(schema)).FromString(found[6:])
        assert (message.user, message.total, message.at.seconds, message.n) == ("ann", "-1.50", 1767225600, 0)
