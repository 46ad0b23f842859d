"""Avro: the exact reader against fastavro, and columns against the exact reader, over random and damaged records."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.engine.decode.avro_values import Schema, records, zigzag
from tests.engine.decode.test_decoder import T0, pipeline, reasons
from tests.engine.decode.test_tombstones import table
from tests.examples import examples
from tests.short_forms import Pipeline, operator_spec

from windrow.engine.decode import avro
from windrow.engine.decode.avro import read_datum
from windrow.engine.decode.decoder import SMALL_BATCH, Decoder
from windrow.engine.decode.exact import ExactDecoder, decode_exactly
from windrow.engine.decode.fast import FastReader
from windrow.engine.decode.values import MalformedError, NumberText
from windrow.errors import InputError
from windrow.model import (
    ArrayType,
    AvroFormat,
    BooleanType,
    DataType,
    DecimalType,
    Decode,
    Delay,
    DoubleType,
    EventTime,
    Field,
    KafkaSource,
    LongType,
    SourceNode,
    StringType,
    StructType,
    TimestampType,
)
from windrow.model.avro_schema import parse_schema


def node(schema: Schema, *fields: Field, time: str = "t") -> SourceNode:
    source = KafkaSource("localhost:1", "orders", format=AvroFormat(json.dumps(schema)))
    return SourceNode("orders", source, Decode(fields), EventTime(time, Delay(0)))


def batch(*values: bytes | None) -> pa.RecordBatch:
    return table([(None, value, None) for value in values]).combine_chunks().to_batches()[0]


def without_logical(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_logical(value) for name, value in schema.items() if name != "logicalType"}


def plain(value: object) -> object:
    """What fastavro reads, from what we do; all that is not a number is nan."""
    match value:
        case NumberText():
            return repr(float(value)) if any(one in value for one in ".en") else int(value)
        case float():
            return repr(value)
        case dict():
            return {name: plain(one) for name, one in value.items()}
        case list():
            return [plain(one) for one in value]
        case _:
            return value


def has_bytes(schema: Schema) -> bool:
    return '"bytes"' in json.dumps(schema) or '"fixed"' in json.dumps(schema)


FAILURES = (EOFError, IndexError, ValueError, OverflowError, MemoryError, TypeError, StopIteration, AssertionError)


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(records(3))
def test_a_record_is_what_fastavro_reads(drawn: tuple[Schema, list[bytes]]) -> None:
    schema, values = without_logical(drawn[0]), drawn[1]
    type_ = parse_schema(json.dumps(schema), "it")
    parsed = fastavro.parse_schema(schema)
    for value in values:
        try:
            found = read_datum(type_, value)
        except MalformedError:
            continue  # fastavro is more lenient: it does not ask where a record ends, for one
        stream = io.BytesIO(value)
        try:
            expected = fastavro.schemaless_reader(stream, parsed, None)
        except UnicodeDecodeError:
            continue  # of no matter until a field reads the text
        assert stream.tell() == len(value)
        assert plain(found) == plain(expected)


@examples(200, suppress_health_check=[HealthCheck.too_slow])
@given(records(1))
def test_what_is_whole_is_read(drawn: tuple[Schema, list[bytes]]) -> None:
    schema, (value,) = drawn
    bare, parsed = without_logical(schema), fastavro.parse_schema(without_logical(schema))
    stream = io.BytesIO()
    try:
        expected = fastavro.schemaless_reader(io.BytesIO(value), parsed, None)
        fastavro.schemaless_writer(stream, parsed, expected)
    except FAILURES:
        return
    again = stream.getvalue()
    found = read_datum(parse_schema(json.dumps(bare), "it"), again)
    assert plain(found) == plain(fastavro.schemaless_reader(io.BytesIO(again), parsed, None))


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(records(3), st.data())
def test_what_is_not_needed_is_skipped_and_has_the_same_errors(
    drawn: tuple[Schema, list[bytes]], data: st.DataObject
) -> None:
    schema, values = drawn
    type_ = parse_schema(json.dumps(schema), "it")
    names = [field["name"] for field in schema["fields"]]
    needed = dict.fromkeys(data.draw(st.sets(st.sampled_from(names)) if names else st.just(set())))
    for value in values:
        try:
            whole = read_datum(type_, value)
        except MalformedError as exc:
            with pytest.raises(MalformedError, match=f"^{re.escape(str(exc))}$"):
                read_datum(type_, value, needed=needed)
        else:
            found = read_datum(type_, value, needed=needed)
            assert isinstance(whole, dict)
            assert found == {name: part for name, part in whole.items() if name in needed}


@pytest.mark.parametrize(
    ("values", "items"),
    [
        ({"type": "map", "values": "long"}, {f"k{number}": -(2**40) for number in range(20_000)}),
        ({"type": "map", "values": ["null", "string"]}, {f"k{number}": "text" for number in range(20_000)}),
        ({"type": "array", "items": "long"}, list(range(-(2**63), -(2**63) + 20_000))),
        ({"type": "array", "items": "double"}, [0.5] * 20_000),
        ({"type": "array", "items": {"type": "map", "values": "int"}}, [{"a": 2**31 - 1}] * 20_000),
        (
            {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "item",
                    "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "boolean"}],
                },
            },
            [{"a": "x", "b": True}] * 20_000,
        ),
    ],
)
def test_items_that_are_not_needed_are_not_read(values: Schema, items: object, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = [{"name": "id", "type": "string"}, {"name": "many", "type": values}, {"name": "t", "type": "long"}]
    schema = {"type": "record", "name": "r", "fields": fields}
    (value,) = written(schema, {"id": "a", "many": items, "t": 5})
    reads = 0
    read = avro._Datum.read  # noqa: SLF001 - each value that becomes an object

    def counted(datum: Any, *rest: Any) -> object:  # noqa: ANN401 - as it is called
        nonlocal reads
        reads += 1
        return read(datum, *rest)

    monkeypatch.setattr(avro._Datum, "read", counted)  # noqa: SLF001 - the same
    type_ = parse_schema(json.dumps(schema), "it")
    assert read_datum(type_, value, needed={"id": None, "t": None}) == {"id": "a", "t": "5"}
    assert reads == 3
    # a record whose end is missing is read to the place that is wrong
    with pytest.raises(MalformedError, match="the record ends after"):
        read_datum(type_, value[:-3], needed={"id": None, "t": None})


TYPES: Sequence[DataType] = (
    StringType(),
    BooleanType(),
    LongType(),
    DoubleType(),
    DecimalType(12, 2),
    DecimalType(25, 20),
    TimestampType("millis"),
    TimestampType("iso"),
    ArrayType(LongType()),
    ArrayType(StringType(), optional=True),
    ArrayType(StructType((Field("a", LongType(), optional=True), Field("b", StringType())))),
)


@st.composite
def some_fields(draw: st.DrawFn) -> tuple[Field, ...]:
    places = [("a",), ("b",), ("c",), ("a", "b"), ("d", "c"), ("d", "a", "b")]
    paths = draw(st.lists(st.sampled_from(places), unique=True, max_size=4))
    found = [Field("t", TimestampType("millis"))]
    for number, path in enumerate(paths):
        found.append(Field(f"f{number}", draw(st.sampled_from(TYPES)), optional=draw(st.booleans()), path=path))
    return tuple(found)


def agreement(exact: ExactDecoder, raw: pa.RecordBatch) -> int:
    """Assert that what is accepted is decoded exactly; return how many records that is."""
    assert exact.reader is not None
    fast = FastReader(exact, exact.reader).decode(raw)
    found, _, _ = decode_exactly(exact, raw, fast.rows)
    assert found.rows.tolist() == fast.rows.tolist()
    assert found.times == fast.times
    for one, other in zip(found.columns, fast.columns, strict=True):
        assert one.type == other.type
        assert one.to_pylist() == other.to_pylist()
    return len(fast.rows)


@examples(400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(records(12), some_fields())
def test_columns_are_what_the_exact_decoder_reads(
    drawn: tuple[Schema, list[bytes]], given_fields: tuple[Field, ...]
) -> None:
    schema, values = drawn
    paths = {one.paths[0] for one in given_fields}
    if any(path[:length] in paths for path in paths for length in range(1, len(path))):
        return  # a path that leads through another field is read by the exact decoder alone
    agreement(ExactDecoder.of(node(schema, *given_fields)), batch(None, *values))


ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "user_id", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["SALE", "RETURN"]}},
        {
            "name": "buyer",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Buyer",
                    "fields": [
                        {"name": "born", "type": ["null", {"type": "int", "logicalType": "date"}]},
                        {"name": "weight", "type": "float"},
                        {"name": "tags", "type": {"type": "map", "values": "long"}},
                    ],
                },
            ],
        },
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": ["int", "null"]}],
                },
            },
        },
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
FIELDS = (
    Field("user_id", StringType()),
    Field("note", StringType(), optional=True),
    Field("event_time", TimestampType("iso")),
    Field("amount", DecimalType(14, 4)),
    Field("kind", StringType()),
    Field("born", TimestampType("seconds"), optional=True, path=("buyer", "born")),
    Field("weight", DoubleType(), optional=True, path=("buyer", "weight")),
    Field("lines", ArrayType(StructType((Field("sku", StringType()), Field("count", LongType(), optional=True))))),
    Field("seen", TimestampType("millis")),
)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def order(number: int) -> dict[str, Any]:
    return {
        "user_id": f"u\u00e4{number}",
        "note": None if number % 3 else "x" * number,
        "event_time": EPOCH + dt.timedelta(milliseconds=T0 + number),
        "amount": Decimal(number * 7 - 300).scaleb(-2),
        "kind": "RETURN" if number % 2 else "SALE",
        "buyer": None
        if number % 5 == 0
        else {"born": None if number % 2 else dt.date(1960, 1, 2), "weight": 70.5, "tags": {"a": 1, "b": number}},
        "lines": [{"sku": f"s{one}", "count": None if one % 2 else one} for one in range(number % 4)],
        "seen": EPOCH + dt.timedelta(microseconds=T0 * 1000 + number),
    }


def written(schema: Schema, *values: dict[str, Any]) -> list[bytes]:
    parsed, found = fastavro.parse_schema(schema), []
    for value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        found.append(stream.getvalue())
    return found


def test_ordinary_records_take_the_fast_path() -> None:
    values = written(ORDER, *(order(number) for number in range(200)))
    assert agreement(ExactDecoder.of(node(ORDER, *FIELDS, time="event_time")), batch(*values)) == 200


@pytest.mark.parametrize("copies", [1, SMALL_BATCH], ids=["one by one", "a batch"])
def test_logical_types_unions_records_and_arrays(copies: int) -> None:
    values = written(ORDER, order(3), order(4), order(5)) * copies
    decoded = Decoder(node(ORDER, *FIELDS, time="event_time")).decode(table([(None, value, None) for value in values]))
    assert decoded.dead.num_rows == 0
    three, four, five = decoded.good.slice(0, 3).to_pylist()
    assert (three["user_id"], three["note"], three["amount"]) == ("u\u00e43", "xxx", Decimal("-2.7900"))
    assert (three["time"], three["event_time"]) == ((T0 + 3) * 1000, EPOCH + dt.timedelta(milliseconds=T0 + 3))
    assert three["seen"] == EPOCH + dt.timedelta(microseconds=T0 * 1000 + 3)
    assert three["lines"] == [{"sku": "s0", "count": 0}, {"sku": "s1", "count": None}, {"sku": "s2", "count": 2}]
    assert (four["kind"], four["born"], four["weight"]) == ("SALE", dt.datetime(1960, 1, 2, tzinfo=dt.UTC), 70.5)
    assert (five["kind"], five["born"], five["weight"]) == ("RETURN", None, None)


SPEND: dict[str, Any] = {
    "type": "record",
    "name": "Spend",
    "fields": [
        {"name": "user_id", "type": "string"},
        {"name": "event_time", "type": "long"},
        {"name": "amount", "type": ["null", "boolean", "double", "bytes", "string"]},
    ],
}


def spend(amount: bytes, user: bytes = b"\x02u", time: int = T0) -> bytes:
    return user + zigzag(time) + amount


BAD: list[tuple[bytes, str]] = [
    (b"", "malformed: not Avro at byte 0 (user_id): the record ends after 0 bytes, and needs 1"),
    (spend(b"\x08\x0212"), "malformed: not Avro at byte 11: the datum ends here, the record has 12 bytes"),
    (spend(b"\x08\x081"), "malformed: not Avro at byte 10 (amount): the record ends after 11 bytes, and needs 14"),
    (spend(b"\x0a"), "malformed: not Avro at byte 8 (amount): the union has no branch 5"),
    (spend(b"\x02\x02"), "malformed: not Avro at byte 9 (amount): a boolean is 0 or 1"),
    (spend(b"\0", b"\x01"), "malformed: not Avro at byte 0 (user_id): a length is -1"),
    (b"\x02u" + b"\xff" * 10, "malformed: not Avro at byte 2 (event_time): an integer has more than 64 bits"),
    (spend(b"\0"), "null: amount"),
    (spend(b"\x02\x01"), "wrong type: amount: true is not a decimal(12,2)"),
    (spend(b"\x06\x021"), "wrong type: amount: bytes is not a decimal(12,2)"),
    (spend(b"\x04" + b"\0" * 6 + b"\xf0\x7f"), "wrong type: amount: inf is not a decimal(12,2)"),
    (spend(b"\x08\x021", b"\x02\xff"), "wrong type: user_id: bytes is not a string"),
    (spend(b"\x08\x021", b"\x02\0"), 'wrong type: user_id: "\\u0000" holds U+0000'),
    (spend(b"\x08\x021", time=2**61), "out of range: event_time: 2305843009213693952 does not fit timestamp_millis"),
]


def spending() -> Pipeline:
    source = KafkaSource("localhost:1", "spend", format=AvroFormat(json.dumps(SPEND)))
    return replace(pipeline(), source=source)


@pytest.mark.parametrize("copies", [1, SMALL_BATCH], ids=["alone", "in a batch"])
@pytest.mark.parametrize(("value", "reason"), BAD)
def test_a_bad_record_is_a_dead_letter_and_spoils_no_other(value: bytes, reason: str, copies: int) -> None:
    good = spend(b"\x08\x0812.5")
    decoded = Decoder(operator_spec(spending())).decode(
        table([(None, one, None) for one in [good, value, good] * copies])
    )
    assert set(reasons(decoded)) == {reason}
    assert decoded.dead.column("raw").to_pylist() == [value] * copies
    assert decoded.good.column("amount").to_pylist() == [Decimal("12.50")] * 2 * copies


@pytest.mark.parametrize("copies", [1, SMALL_BATCH], ids=["alone", "in a batch"])
@pytest.mark.parametrize("scale", [0, 2, 5000, 10**9])
def test_a_decimal_of_any_length_ends_nothing(scale: int, copies: int) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": max(12, scale), "scale": scale}
    fields = [{"name": "t", "type": "long"}, {"name": "d", "type": decimal}]
    lengths = [1, 8, 16, 1785, 1786, 3000, 100_000]
    values = [
        zigzag(T0) + zigzag(length) + first + rest * (length - 1)
        for length in lengths
        for first, rest in ((b"\x7d", b"\0"), (b"\x83", b"\0"), (b"\0", b"\0"), (b"\xff", b"\xff"))
    ]
    times = Field("t", TimestampType("millis"))
    given = node({"type": "record", "name": "r", "fields": fields}, times, Field("d", DecimalType(12, 2)))
    values += values[:1] * (copies - 1)
    decoded = Decoder(given).decode(table([(None, one, None) for one in values]))
    assert decoded.good.num_rows + decoded.dead.num_rows == len(values)
    assert {one.partition(": d: ")[0] for one in reasons(decoded)} <= {"wrong type", "out of range"}
    # a zero has any number of bytes
    assert decoded.good.column("d").to_pylist().count(0) == len(lengths)


RECURSIVE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "t", "type": "long"}, {"name": "next", "type": ["null", "Tree"]}],
}


@pytest.mark.parametrize("copies", [1, SMALL_BATCH], ids=["alone", "in a batch"])
def test_a_schema_can_contain_itself_to_some_depth(copies: int) -> None:
    values = [b"\x02\x02" * (depth - 1) + b"\x02\0" for depth in (1, 256, 257)]
    decoder = Decoder(node(RECURSIVE, Field("t", TimestampType("millis"))))
    decoded = decoder.decode(table([(None, value, None) for value in values * copies]))
    assert decoded.good.num_rows == 2 * copies
    assert set(reasons(decoded)) == {"malformed: nested too deeply (more than 256 levels)"}


def test_a_long_array_and_a_block_that_lies_are_left_to_the_exact_decoder() -> None:
    fields = [{"name": "t", "type": "long"}, {"name": "a", "type": {"type": "array", "items": "int"}}]
    schema = {"type": "record", "name": "A", "fields": fields}
    exact = ExactDecoder.of(node(schema, Field("t", TimestampType("millis")), Field("a", ArrayType(LongType()))))
    raw = batch(
        b"\x02" + zigzag(2000) + b"\x02" * 2000 + b"\0",
        b"\x02" + zigzag(-2) + zigzag(2) + b"\x02\x04\0",
        b"\x02" + zigzag(-2) + zigzag(3) + b"\x02\x04\0",
        b"\x02" + zigzag(2**40),
    )
    assert agreement(exact, raw) == 1
    good, _, dead = decode_exactly(exact, raw, np.arange(4))
    assert good.columns[1].to_pylist() == [[1] * 2000, [1, 2]]
    assert dead.reasons.to_pylist() == [
        "malformed: not Avro at byte 5 (a): a block has another size than it says",
        "malformed: not Avro at byte 7 (a): a block of 1099511627776 items is longer than the record",
    ]


WRONG: list[tuple[str, str]] = [
    ('{"type": "record", "name": "A"}', "has no 'fields'"),
    ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "B"}]}', "there is no type 'B'"),
    ('{"type": "fixed", "name": "A", "size": "x"}', "the size of 'A' is not a whole number"),
    ("7", "7 is not a type"),
    ("{", "not JSON at line 1"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_schema_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match="the schema of the source is not an Avro schema: .*" + message):
        parse_schema(text, "the schema of the source")
