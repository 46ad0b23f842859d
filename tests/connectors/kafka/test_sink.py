"""Records of a Kafka topic."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.steps import step
from tests.graphs import graph_of, sink_spec_of
from tests.short_forms import Pipeline

import windrow as wr
from windrow.connectors.json_rows import json_objects
from windrow.connectors.kafka.encoding import AvroEncoding, JsonSchemaEncoding, RowEncoding
from windrow.connectors.kafka.protobuf_rows import ProtobufEncoding
from windrow.connectors.kafka.rows import Encoders, KafkaRecords, RecordColumns
from windrow.engine import schema
from windrow.engine.changelog import StepOutput
from windrow.expressions import SinkSpec
from windrow.model import (
    Aggregate,
    AvroFormat,
    ChangeFormat,
    CollectList,
    Global,
    JsonSchemaFormat,
    KafkaSink,
    ProtobufFormat,
    Registry,
    SchemaFormat,
)


def totals() -> Pipeline:
    pipeline = (
        wr.kafka("sales", servers="unused:9092")
        .decode(shop="string", t="timestamp", amount="double")
        .event_time("t", delay="1m")
        .key_by("shop")
        .window(wr.tumbling("1m"))
        .aggregate(total=wr.sum("amount"))
        .to(wr.kafka_sink("totals", servers="unused:9092"), mode="realtime")
    )
    return graph_of(pipeline, Pipeline)


def test_elements_of_lists_are_written_as_values_of_their_type() -> None:
    far = pa.array([[2**58, -(2**56), None], None, [], [1]], pa.list_(pa.timestamp("us", "UTC")))
    prices = pa.array([[Decimal("1.50")], [], None, [None]], pa.list_(pa.decimal128(10, 2)))
    nested = pa.array([[["a\n"], []], None, [], [None]], pa.list_(pa.list_(pa.string())))
    batch = pa.record_batch({"far": far, "prices": prices, "nested": nested})
    lines = [
        '{"far":["11103-08-29T17:22:31.711744Z","-0314-08-02T01:39:22.072064Z",null],"prices":["1.50"],"nested":[["a\\n"],[]]}',
        '{"far":null,"prices":[],"nested":null}',
        '{"far":[],"prices":null,"nested":[]}',
        '{"far":["1970-01-01T00:00:00.000001Z"],"prices":[null],"nested":[null]}',
    ]
    assert json_objects(batch).to_pylist() == lines
    assert json_objects(batch.slice(1, 2)).to_pylist() == lines[1:3]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_null(number: float) -> None:
    pipeline = totals()
    spec = sink_spec_of(pipeline)
    fields = schema.changes(spec.rows)
    row = {field.name: number if field.name == "total" else None for field in fields}
    rows = pa.Table.from_pylist([row | {"op": "insert"}], schema=pa.schema([(one.name, one.type) for one in fields]))
    (record,) = KafkaRecords(spec).of(replace(StepOutput.empty(spec.rows), changes=rows))
    assert record.value is not None
    assert json.loads(record.value, parse_constant=pytest.fail)["total"] is None


ENCODINGS: dict[type[RowEncoding], type[SchemaFormat]] = {
    AvroEncoding: AvroFormat,
    ProtobufEncoding: ProtobufFormat,
    JsonSchemaEncoding: JsonSchemaFormat,
}


def words(form: ChangeFormat, encoding: SchemaFormat | None) -> SinkSpec:
    """A sink for the words of all shops: rows without a key."""
    sink = KafkaSink("unused:9092", "words", format=form, encoding=encoding)
    aggregates = (Aggregate("words", CollectList("shop", 9)),)
    return sink_spec_of(replace(totals(), key=(), window=Global(), aggregates=aggregates, sink=sink))


def records_of_words(spec: SinkSpec, encoders: Encoders | None = None) -> list[tuple[bytes | None, bytes | None]]:
    start = datetime(1, 1, 1, tzinfo=UTC)
    lists = [("insert", '["a"]'), ("update_before", '["a"]'), ("update_after", '["a","b"]')]
    output = step(spec, [[op, "early", number, start, start, text] for number, (op, text) in enumerate(lists)])
    return [(record.key, record.value) for record in KafkaRecords(spec, encoders=encoders).of(output)]


@pytest.mark.parametrize("form", get_args(ChangeFormat))
def test_rows_without_a_key(form: ChangeFormat) -> None:
    found = records_of_words(words(form, None))
    assert [key for key, _ in found] == [b"{}"] * 2
    values = [json.loads(value or b"") for _, value in found]
    assert [value.get("after", value)["words"] for value in values] == ['["a"]', '["a","b"]']


@pytest.mark.parametrize("form", ["json", "upsert"])
@pytest.mark.parametrize("kind", ENCODINGS)
def test_rows_without_a_key_and_with_a_schema(kind: type[RowEncoding], form: ChangeFormat) -> None:
    spec = words(form, ENCODINGS[kind](Registry("http://unused:8081")))
    columns = RecordColumns.of(spec)
    # lists are text only where there is no schema
    assert [field.type for field in columns.value if field.name == "words"] == [pa.list_(pa.string())]
    values, keys = (kind("words", part) for part in (columns.value, columns.key))
    key = keys.encoder(2, keys.derive(())) if form == "upsert" else None
    found = records_of_words(spec, Encoders(values.encoder(1, values.derive(())), key))
    no_columns = {AvroEncoding: b"", ProtobufEncoding: b"\0", JsonSchemaEncoding: b"{}"}[kind]
    assert [key for key, _ in found] == [b"{}" if key is None else b"\0\0\0\0\2" + no_columns] * 2


@pytest.mark.parametrize("limit", [20_000, 100_000, 1_000_000])
@pytest.mark.parametrize("more", [-300, -1, 0, 1, 300])
def test_a_dead_letter_fits_its_topic_and_says_what_is_left_out(limit: int, more: int) -> None:
    pipeline = totals()
    spec = sink_spec_of(pipeline)
    raw = bytes(limit + more)
    letters = [{"source": "sales", "partition": 0, "offset": 1, "reason": "malformed: x", "raw": raw}]
    output = replace(StepOutput.empty(spec.rows), dead=pa.Table.from_pylist(letters, schema.DEAD))
    (whole,) = KafkaRecords(spec).of(output)
    (record,) = KafkaRecords(spec, {"totals.dead": limit}).of(output)
    assert whole.value == raw
    assert record.value is not None
    size = len(record.value) + sum(len(name) + len(value or "") for name, value in record.headers)
    assert size < limit
    reason = dict(record.headers)["reason"]
    kept = min(65_536, len(record.value))
    assert reason == (
        f"malformed: x: raw has the first {kept:,} of {len(raw):,} bytes, SHA-256 {sha256(raw).hexdigest()}".encode()
    )
    assert kept > limit - 1000 or kept == 65_536


def plain(value: object) -> object:
    match value:
        case Decimal():
            return format(value, "f")
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis gives the zone
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
COLUMNS: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.string(): TEXTS,
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.decimal128(20, 3): st.decimals(-(10**16), 10**16, places=3),
    pa.timestamp("us", "UTC"): TIMES,
    pa.list_(pa.string()): st.lists(TEXTS, max_size=3),
}


@given(st.data())
def test_a_row_is_the_json_that_python_writes(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4))
    names = data.draw(st.lists(TEXTS, min_size=len(types), max_size=len(types), unique=True))
    count = data.draw(st.integers(1, 4))
    columns = [data.draw(st.lists(st.none() | COLUMNS[one], min_size=count, max_size=count)) for one in types]
    batch = pa.record_batch([pa.array(one, type_) for one, type_ in zip(columns, types, strict=True)], names)
    found = json_objects(batch).to_pylist()
    for row, text in zip(zip(*columns, strict=True), found, strict=True):
        expected = {name: plain(value) for name, value in zip(names, row, strict=True)}
        assert text == json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
