"""Records with a key and no value, which stand for the deletion of their key."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.decode.test_decoder import MILLIS, T0, pipeline, reasons
from tests.short_forms import Pipeline, operator_spec, windowed

from windrow.engine import schema
from windrow.engine.decode.decoder import SMALL_BATCH, Decoder
from windrow.model import (
    BooleanType,
    DataType,
    DecimalType,
    Decode,
    Field,
    KafkaSource,
    KeyFormat,
    LongType,
    StringType,
)
from windrow.testing.oracle.answer import LogRecord
from windrow.testing.oracle.reading import DeadLetterError, read

Raw = tuple[bytes | None, bytes | None, int | None]
"""Key, value and log timestamp in microseconds."""


def keyed(type_: DataType = StringType(), *, log: bool = False) -> Pipeline:  # noqa: B008 - it is frozen
    fields = (
        Field("user_id", type_, tombstones=True),
        Field("event_time", MILLIS),
        Field("amount", DecimalType(12, 2), optional=True),
    )
    return replace(pipeline(log=log), decode=Decode(fields))


def with_keys(key_format: KeyFormat | None, *fields: Field) -> Pipeline:
    """Return a pipeline whose keys are in a format and have some fields."""
    given = (*fields, Field("event_time", MILLIS), Field("amount", DecimalType(12, 2), optional=True))
    return replace(
        pipeline(),
        source=KafkaSource("localhost:1", "spend", key_format=key_format),
        decode=Decode(given),
        key=(fields[0].name,),
    )


def table(records: Sequence[Raw]) -> pa.Table:
    keys, values, times = (list(column) for column in zip(*records, strict=True))
    return pa.table(
        [
            pa.array([0] * len(records), pa.int32()),
            pa.array(range(len(records)), pa.int64()),
            pa.array(times, pa.int64()).cast(schema.MICROS),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
        ],
        schema=schema.RAW,
    )


@pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])
def test_a_tombstone_is_its_key_at_the_time_of_the_log(count: int) -> None:
    decoded = Decoder(operator_spec(keyed())).decode(table([(b"u\xc3\xa4", None, 7)] * count))
    assert decoded.dead.num_rows == 0
    assert decoded.good.slice(0, 1).to_pylist() == [
        {
            "partition": 0,
            "offset": 0,
            "time": 7,
            "user_id": "u\u00e4",
            "event_time": dt.datetime(1970, 1, 1, 0, 0, 0, 7, dt.UTC),
            "amount": None,
        }
    ]
    assert decoded.good.num_rows == count
    numbered = Decoder(operator_spec(keyed(LongType()))).decode(table([(b"-42", None, 7)] * count))
    assert numbered.good.column("user_id").to_pylist() == [-42] * count


BAD: list[tuple[DataType, Raw, str]] = [
    (StringType(), (b"a\xff", None, 7), "malformed: the key is not UTF-8 at byte 1"),
    (StringType(), (b"a\x00", None, 7), 'wrong type: user_id: "a\\u0000" holds U+0000'),
    (StringType(), (None, None, 7), "malformed: no value"),
    (StringType(), (b"u", None, None), "no log time"),
    (StringType(), (b"u", None, 2**62), "out of range: event_time: a window of the record would end after the year 9"),
    (LongType(), (b"u", None, 7), 'wrong type: user_id: "u" is not a long'),
    (LongType(), (b"9223372036854775808", None, 7), 'out of range: user_id: "9223372036854775808" does not fit long'),
]


@pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])
@pytest.mark.parametrize(("type_", "record", "reason"), BAD)
def test_one_that_cannot_be_read_is_a_dead_letter(type_: DataType, record: Raw, reason: str, count: int) -> None:
    decoded = Decoder(operator_spec(keyed(type_))).decode(table([record] * count))
    assert decoded.good.num_rows == 0
    assert {one[: len(reason)] for one in reasons(decoded)} == {reason}


def test_without_a_field_for_its_key_it_is_a_dead_letter() -> None:
    assert reasons(Decoder(operator_spec(pipeline())).decode(table([(b"u", None, 7)]))) == ["malformed: no value"]


def test_an_embedded_log_has_the_key_inside() -> None:
    values = [
        {"_key": "u", "_value": None, "_log_time": T0},
        {"_key": "u", "_value": None},
        {"_value": None, "_log_time": T0},
        {"_key": 5, "_value": None, "_log_time": T0},
        {"_key": "v", "user_id": "u", "event_time": T0 + 1, "_log_time": T0},  # it has no null in `_value`
    ]
    decoded = Decoder(operator_spec(keyed(log=True))).decode(
        table([(None, json.dumps(value).encode(), None) for value in values])
    )
    assert decoded.good.column("time").to_pylist() == [T0 * 1000, T0 * 1000 + 1000]
    assert reasons(decoded) == ["no log time", "malformed: no value", "wrong type: user_id: 5 is not a string"]


CODE = Field("code", StringType(), tombstones=True)
NUMBER = Field("n", LongType(), tombstones=True)
ENVELOPE = b'{"schema":{"type":"struct","fields":[]},"payload":%s}'
GOOD: list[tuple[KeyFormat | None, tuple[Field, ...], bytes, list[object]]] = [
    (None, (CODE,), b"EUR", ["EUR"]),
    (None, (CODE,), b"{EUR", ["{EUR"]),  # such as a GUID in braces
    (None, (CODE,), b'"EUR', ['"EUR']),
    (None, (CODE,), b"7", ["7"]),
    (None, (CODE,), b'"EUR"', ["EUR"]),  # ksqlDB's JSON of a single column
    (None, (CODE,), b'{"code":"EUR"}', ["EUR"]),  # Flink's JSON, and that of Kafka Connect without schemas
    (None, (CODE,), ENVELOPE % b'{"code":"EUR"}', ["EUR"]),
    (None, (CODE,), ENVELOPE % b'"EUR"', ["EUR"]),
    (None, (NUMBER,), ENVELOPE % b"7", [7]),
    (None, (NUMBER,), b'{"n":"7"}', [7]),
    (None, (NUMBER, CODE), b'{"code":"EUR","more":1,"n":7}', [7, "EUR"]),
    (None, (replace(CODE, alias=("CODE",)),), b'{"CODE":"EUR"}', ["EUR"]),
    (None, (replace(CODE, path=("payload", "id")),), ENVELOPE % b'{"id":"EUR"}', ["EUR"]),
    (None, (Field("code", DecimalType(5, 2), tombstones=True),), b"1.50", [Decimal("1.50")]),
    (None, (Field("code", BooleanType(), tombstones=True),), b"true", [True]),
    ("text", (CODE,), b'{"code":"EUR"}', ['{"code":"EUR"}']),
    ("json", (CODE,), b'"EUR"', ["EUR"]),
    ("json", (NUMBER,), b" 7 ", [7]),
    ("json", (Field("code", BooleanType(), tombstones=True),), b"false", [False]),
    ("binary", (NUMBER,), (-7).to_bytes(8, signed=True), [-7]),
    ("binary", (NUMBER,), (1 << 20).to_bytes(4), [1 << 20]),
    ("binary", (NUMBER,), b"1234", [0x31323334]),
]


@pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])
@pytest.mark.parametrize(("key_format", "fields", "key", "values"), GOOD)
def test_the_columns_of_a_key_are_in_their_fields(
    key_format: KeyFormat | None, fields: tuple[Field, ...], key: bytes, values: list[object], count: int
) -> None:
    decoded = Decoder(operator_spec(with_keys(key_format, *fields))).decode(table([(key, None, 7)] * count))
    assert reasons(decoded) == []
    assert [decoded.good.column(field.name).to_pylist() for field in fields] == [[value] * count for value in values]


MALFORMED: list[tuple[KeyFormat | None, tuple[Field, ...], bytes, str]] = [
    (None, (CODE,), b'{"id":"EUR"}', "missing: code (the key)"),
    (None, (CODE,), b'{"code":null}', "missing: code (the key)"),
    (None, (CODE,), b'{"code":7}', "wrong type: code: 7 is not a string"),
    (None, (NUMBER, CODE), b"7", "wrong type: the key is not an object"),
    (None, (NUMBER, CODE), b'{"n":7}', "missing: code (the key)"),
    (None, (replace(CODE, alias=("c",)),), b'{"code":"EUR","c":"USD"}', "conflict: code: code and c differ"),
    ("json", (CODE,), b"EUR", "malformed: the key: not JSON at character 0: Expecting value"),
    ("json", (CODE,), b"null", "malformed: no value"),
    ("json", (CODE,), b"\xff", "malformed: the key: not UTF-8 at byte 0"),
    ("json", (CODE,), b"7", "wrong type: code: 7 is not a string"),
    ("binary", (NUMBER,), b"12345", "malformed: the key: 5 bytes, and a binary number has 1, 2, 4 or 8"),
    ("binary", (CODE,), b"1234", "wrong type: code: 825373492 is not a string"),
]


@pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])
@pytest.mark.parametrize(("key_format", "fields", "key", "reason"), MALFORMED)
def test_a_key_without_its_columns_is_a_dead_letter(
    key_format: KeyFormat | None, fields: tuple[Field, ...], key: bytes, reason: str, count: int
) -> None:
    decoded = Decoder(operator_spec(with_keys(key_format, *fields))).decode(table([(key, None, 7)] * count))
    assert decoded.good.num_rows == 0
    assert set(reasons(decoded)) == {reason}


KEYS = st.sampled_from(
    [
        *(b"", b"u", b"7", b"-0", b"1.0", b"\xff", b"\x00", b"{", b'"', b'"7"', b'"u', b'{"user_id":"7"}', None),
        *(b'{"user_id":7,"user_id":8}', b'{"id":"u"}', b'{"user_id":null}', b"{}", ENVELOPE % b"7", ENVELOPE % b"null"),
    ]
)
TIMES = st.sampled_from([None, 0, T0 * 1000, 2**62])
INSIDE: st.SearchStrategy[dict[str, object]] = st.fixed_dictionaries(
    {},
    optional={
        "_key": st.sampled_from(["u", "7", '"7"', '{"user_id":"7"}', 7, 1.5, {"user_id": "7"}, {"id": "u"}, None]),
        "_value": st.sampled_from([None, None, {}, 0]),
        "_log_time": st.sampled_from([T0, None, "x"]),
        "user_id": st.sampled_from(["u", "7", None]),
        "event_time": st.just(T0),
    },
)
VALUES = st.one_of(st.none(), INSIDE.map(lambda value: json.dumps(value).encode()), st.just(b"[]"))


@given(
    st.lists(st.tuples(KEYS, VALUES, TIMES), min_size=1, max_size=20),
    st.sampled_from([StringType(), LongType()]),
    st.booleans(),
)
def test_it_is_what_the_definition_says(records: list[Raw], type_: DataType, log: bool) -> None:  # noqa: FBT001 - drawn
    given_ = keyed(type_, log=log)
    expected: list[tuple[object, ...]] = []  # by offset
    for offset, (key, value, time) in enumerate(records):
        try:
            found = read(windowed(given_), LogRecord(offset, time, value, key))
            assert found.fields is not None
            expected.append((found.time, found.fields["user_id"]))
        except DeadLetterError as exc:
            expected.append((str(exc),))
    for copies in (1, SMALL_BATCH // len(records) + 1):
        decoded = Decoder(operator_spec(given_)).decode(table(records * copies))
        good = list(
            zip(*(decoded.good.column(name).to_pylist() for name in ("offset", "time", "user_id")), strict=True)
        )
        reason = [one.partition(":")[0] for one in reasons(decoded)]
        dead = list(zip(decoded.dead.column("offset").to_pylist(), reason, strict=True))
        size = len(records)
        assert {offset: rest for offset, *rest in [*good, *dead]} == {
            offset + copy * size: list(rest) for copy in range(copies) for offset, rest in enumerate(expected)
        }
