"""Protobuf: messages of a descriptor set, and of a registry's schemas."""

from __future__ import annotations

import base64
import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf import descriptor_pb2
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.engine.decode.avro_values import damaged
from tests.engine.decode.test_avro import agreement, batch
from tests.engine.decode.test_decoder import T0, reasons
from tests.engine.decode.test_registry import ONCE, framed
from tests.engine.decode.test_tombstones import table
from tests.examples import examples
from tests.servers.registry import SchemaRegistry

from windrow.engine.decode import protobuf
from windrow.engine.decode.cursors import Cursors
from windrow.engine.decode.decoder import SMALL_BATCH, Decoder
from windrow.engine.decode.exact import ExactDecoder, Good
from windrow.engine.decode.field_columns import TextColumns
from windrow.engine.decode.protobuf import descriptor_of, registered_file
from windrow.engine.decode.registry import RegisteredSchema
from windrow.errors import InputError
from windrow.model import (
    ArrayType,
    BooleanType,
    DecimalType,
    Decode,
    Delay,
    DoubleType,
    EventTime,
    Field,
    KafkaSource,
    LongType,
    ProtobufFormat,
    ProtobufMessage,
    Registry,
    SourceNode,
    StringType,
    StructType,
    TimestampType,
)

F = descriptor_pb2.FieldDescriptorProto


def field(name: str, number: int, type_: int, *, of: str = "", many: bool = False, optional: bool = False) -> Any:  # noqa: ANN401 - of no type that mypy knows
    label = F.LABEL_REPEATED if many else F.LABEL_OPTIONAL
    made = F(name=name, number=number, type=type_, label=label, type_name=of or None)
    if optional:
        made.proto3_optional = True
        made.oneof_index = 0
    return made


def files() -> descriptor_pb2.FileDescriptorSet:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    other = file.message_type.add(name="Other")
    other.field.append(field("id", 1, F.TYPE_STRING))
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("UNKNOWN", "SALE", "RETURN")):
        kind.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.extend([field("sku", 1, F.TYPE_STRING), field("count", 2, F.TYPE_SINT32)])
    order.oneof_decl.add(name="_note")
    order.field.extend(
        [
            field("user_id", 1, F.TYPE_STRING),
            field("event_time", 2, F.TYPE_MESSAGE, of=".google.protobuf.Timestamp"),
            field("amount", 3, F.TYPE_STRING),
            field("note", 4, F.TYPE_STRING, optional=True),
            field("kind", 5, F.TYPE_ENUM, of=".shop.Kind"),
            field("lines", 6, F.TYPE_MESSAGE, of=".shop.Order.Line", many=True),
            field("weight", 7, F.TYPE_DOUBLE),
            field("paid", 8, F.TYPE_MESSAGE, of=".google.protobuf.BoolValue"),
            field("first", 9, F.TYPE_MESSAGE, of=".shop.Order.Line"),
            field("counts", 10, F.TYPE_INT64, many=True),
        ]
    )
    return descriptor_pb2.FileDescriptorSet(file=[file])


MESSAGE = ProtobufMessage(base64.b64encode(files().SerializeToString()).decode(), "shop.Order")
ORDER = GetMessageClass(descriptor_of(MESSAGE))
FIELDS = (
    Field("user_id", StringType()),
    Field("event_time", TimestampType("iso")),
    Field("amount", DecimalType(12, 2)),
    Field("note", StringType(), optional=True),
    Field("kind", StringType()),
    Field("lines", ArrayType(StructType((Field("sku", StringType()), Field("count", LongType()))))),
    Field("weight", DoubleType()),
    Field("paid", BooleanType(), optional=True),
    Field("first", LongType(), optional=True, path=("first", "count")),
    Field("counts", ArrayType(LongType())),
)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def node(format_: ProtobufFormat) -> SourceNode:
    source = KafkaSource("localhost:1", "orders", format=format_)
    return SourceNode("orders", source, Decode(FIELDS), EventTime("event_time", Delay(0)))


def order(**more: object) -> bytes:
    time = {"seconds": T0 // 1000, "nanos": 5_000}
    made: Any = ORDER(**{"user_id": "u", "event_time": time, "amount": "12.5", "kind": 1} | more)
    content: bytes = made.SerializeToString()
    return content


@pytest.mark.parametrize("copies", [1, SMALL_BATCH], ids=["one by one", "a batch"])
def test_a_message_has_the_fields_of_its_descriptor(copies: int) -> None:
    lines = [{"sku": "s", "count": -2}, {"sku": "", "count": 0}]
    paid = {"value": False}
    full = order(lines=lines, note="", weight=70.5, paid=paid, first=lines[0], counts=[1, 2])
    given_values = table([(None, value, None) for value in [full, order(kind=7)] * copies])
    decoded = Decoder(node(ProtobufFormat(MESSAGE))).decode(given_values)
    assert set(reasons(decoded)) == {"wrong type: kind: 7 is not a string"}
    row, *_ = decoded.good.to_pylist()
    assert {name: row[name] for name in ("amount", "note", "kind", "lines", "weight", "paid", "first", "counts")} == {
        "amount": Decimal("12.50"),
        "note": "",
        "kind": "SALE",
        "lines": lines,
        "weight": 70.5,
        "paid": False,
        "first": -2,
        "counts": [1, 2],
    }
    assert row["event_time"] == EPOCH + dt.timedelta(milliseconds=T0, microseconds=5)


def test_what_is_not_set_is_null_or_the_default() -> None:
    decoded = Decoder(node(ProtobufFormat(MESSAGE))).decode(table([(None, order(kind=0), None), (None, b"", None)]))
    (row,) = decoded.good.to_pylist()
    assert (row["kind"], row["note"], row["paid"], row["first"], row["lines"]) == ("UNKNOWN", None, None, None, [])
    assert reasons(decoded) == ["null: event_time"]


LINES = st.fixed_dictionaries({}, optional={"sku": st.text(max_size=3), "count": st.integers(-(2**31), 2**31 - 1)})
CONTENTS = st.fixed_dictionaries(
    {"user_id": st.text(max_size=3), "amount": st.sampled_from(["", "12.5", "-1", "x"])},
    optional={
        "event_time": st.fixed_dictionaries(
            {"seconds": st.integers(-(2**40), 2**41), "nanos": st.sampled_from([0, 1000, 7])}
        ),
        "note": st.text(max_size=2),
        "kind": st.integers(0, 4),
        "lines": st.lists(LINES, max_size=3),
        "weight": st.floats(),
        "paid": st.fixed_dictionaries({}, optional={"value": st.booleans()}),
        "first": LINES,
        "counts": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    },
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message, several of which the runtime takes for one, or damaged ones."""
    made = b"".join(order(**draw(CONTENTS)) for _ in range(draw(st.sampled_from([1, 1, 1, 2]))))
    return draw(damaged(made + draw(st.sampled_from([b"", b"", b"\xf8\x01\x05", b"\x50\x05", b"\x08\x05"]))))


SCALARS = tuple(one for one in FIELDS if one.name not in {"lines", "counts"})
BELOW = (FIELDS[1], Field("a", LongType(), optional=True, path=("paid", "value")), *FIELDS[:1])


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(messages(), max_size=12), st.sampled_from([SCALARS, FIELDS, BELOW]))
def test_columns_are_what_the_runtime_reads(values: list[bytes], fields: tuple[Field, ...]) -> None:
    given_node = replace(node(ProtobufFormat(MESSAGE)), decode=Decode(fields))
    agreement(ExactDecoder.of(given_node), batch(order(), None, *values))


def test_ordinary_messages_take_the_fast_path() -> None:
    line = {"sku": "s", "count": -2}
    values = [order(note="n", weight=1.5, first=line, paid={"value": True}, counts=[1, 300]), order(lines=[line, line])]
    exact = ExactDecoder.of(replace(node(ProtobufFormat(MESSAGE)), decode=Decode(SCALARS)))
    assert agreement(exact, batch(*values)) == 2


def test_a_packed_field_that_is_not_needed_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[object] = []
    scalar = protobuf._scalar  # noqa: SLF001 - each value that becomes an object

    def counted(value: Any) -> object:  # noqa: ANN401 - of any type
        converted.append(value)
        return scalar(value)

    monkeypatch.setattr(protobuf, "_scalar", counted)
    fields = tuple(one for one in FIELDS if one.name not in {"lines", "counts", "first"})
    exact = ExactDecoder.of(replace(node(ProtobufFormat(MESSAGE)), decode=Decode(fields)))
    large = order(counts=list(range(-50_000, 50_000)), lines=[{"sku": "s", "count": 1}] * 1000)
    outcome = exact.decode(large, None)
    assert isinstance(outcome, Good)
    assert len(converted) < 10
    # columns are read, too, without the runtime
    [read] = protobuf.ProtobufReader(descriptor_of(MESSAGE)).read(
        batch(order(counts=list(range(-50_000, 50_000)))).column("value"), {("user_id",): StringType()}, TextColumns()
    )
    assert read.is_record.tolist() == [True]
    assert read.columns["user_id",].values.to_pylist() == ["u"]


def varints(numbers: list[int]) -> bytes:
    made = bytearray()
    for number in numbers:
        rest = number
        while rest >= 0x80:
            made.append(rest & 0x7F | 0x80)
            rest >>= 7
        made.append(rest)
    return bytes(made)


@given(st.lists(st.binary(max_size=25) | st.lists(st.integers(0, 2**64 - 1), max_size=4).map(varints), max_size=6))
def test_packed_integers_are_whole_as_they_are_read_one_by_one(values: list[bytes]) -> None:
    for copies in (1, 200):
        cursors = Cursors(pa.array([value * copies for value in values], pa.binary()))
        found = cursors.are_varints()
        going = np.arange(len(values))
        while len(going):
            going = going[(cursors.at[going] < cursors.end[going]) & ~cursors.failed[going]]
            cursors.varint(going)
        one_by_one = cursors.at_end()
        assert not (found & ~one_by_one).any()
        # a record after a damaged one may be taken for damaged
        assert found.all() or not one_by_one.all()


def test_a_damaged_message_is_malformed() -> None:
    decoded = Decoder(node(ProtobufFormat(MESSAGE))).decode(table([(None, order() + b"\x0a\x05a", None)]))
    assert reasons(decoded) == ["malformed: not Protobuf"]


def test_messages_are_found_by_the_indexes_behind_the_id() -> None:
    with SchemaRegistry() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        text = base64.b64encode(files().file[0].SerializeToString()).decode()
        id_ = client.register_schema("orders", Schema(text, "PROTOBUF"))
        values = [
            framed(id_, b"\x02\x02" + order()),
            framed(id_, b"\x04\x02\x00" + b""),
            framed(id_, b"\x00" + order()),
            framed(id_, b"\x02\x08"),
            framed(id_, b"\xff"),
        ]
        reading = node(ProtobufFormat(Registry(registry.url, ONCE)))
        decoded = Decoder(reading).decode(table([(None, value, None) for value in values]))
        assert decoded.good.column("user_id").to_pylist() == ["u"]
        assert reasons(decoded) == [
            "missing: user_id",
            "missing: user_id",
            "malformed: not Protobuf at byte 5: the schema has no message with the index 4",
            "malformed: not Protobuf at byte 6: no index of a message",
        ]
        assert any("format=serialized" in path for path in registry.asked)


def test_an_optional_field_needs_no_oneof_in_a_registry() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    file.message_type.add(name="A").field.add(name="n", number=1, type=3, label=1, proto3_optional=True)
    schema = RegisteredSchema(base64.b64encode(file.SerializeToString()).decode(), (), "the schema")
    (field,) = registered_file(schema).message_types_by_name["A"].fields
    assert (field.has_presence, field.containing_oneof.name) == (True, "_n")


def test_a_descriptor_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"has no message 'shop.Nothing'; its messages are shop.Other, shop.Order"):
        descriptor_of(replace(MESSAGE, name="shop.Nothing"))
    with pytest.raises(InputError, match="the descriptor of the source is not a descriptor set"):
        descriptor_of(replace(MESSAGE, descriptor=base64.b64encode(b"\xff\xff").decode()))
    alone = files()
    alone.file[0].dependency.append("other.proto")
    with pytest.raises(InputError, match=r"cannot be used: .*--include_imports"):
        descriptor_of(replace(MESSAGE, descriptor=base64.b64encode(alone.SerializeToString()).decode()))


def test_a_batch_is_read_as_single_records_are() -> None:
    values = [order(user_id=f"u{number}") for number in range(SMALL_BATCH)]
    decoder = Decoder(node(ProtobufFormat(MESSAGE)))
    whole = decoder.decode(table([(None, value, None) for value in values]))
    assert isinstance(whole.good, pa.Table)
    assert whole.good.column("user_id").to_pylist() == [f"u{number}" for number in range(SMALL_BATCH)]
