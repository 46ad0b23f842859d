"""Fields outside the value of a record: its place and time in the log, and its key."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.decode.test_decoder import MILLIS, T0, pipeline, reasons
from tests.short_forms import Pipeline, operator_spec, windowed

from windrow.engine import schema
from windrow.engine.decode.decoder import SMALL_BATCH, Decoder
from windrow.model import (
    MAX_PARTITIONS,
    CsvFormat,
    DecimalType,
    Decode,
    Field,
    FilesSource,
    KafkaSource,
    LogSource,
    LongType,
    RecordFormat,
    StringType,
    TimestampType,
)
from windrow.testing.oracle import LogRecord
from windrow.testing.oracle.reading import DeadLetterError, read

AMOUNT = Field("amount", DecimalType(12, 2), optional=True)
WHERE = (
    Field("p", LongType(), path=("_partition",)),
    Field("_offset", LongType()),
    Field("logged", TimestampType("iso"), path=("_log_time",)),
    Field("user_id", StringType(), path=("_key",)),
)


def reading(*fields: Field, source: Any = None, format_: RecordFormat = "json") -> Pipeline:  # noqa: ANN401 - any source
    own = KafkaSource("localhost:1", "spend", format=format_)
    given = (*fields, Field("event_time", MILLIS), AMOUNT)
    return replace(pipeline(), source=source or own, decode=Decode(given), key=(fields[0].name,))


def raw(*records: tuple[bytes | None, dict[str, object] | bytes | None], count: int = 1) -> pa.Table:
    """Return records of partition 3 of the second log, with offsets from 10 and the log timestamp T0."""
    rows = [
        {
            "partition": MAX_PARTITIONS + 3,
            "offset": 10 + offset,
            "log_time": T0 * 1000,
            "key": key,
            "value": json.dumps(value).encode() if isinstance(value, dict) else value,
        }
        for offset, (key, value) in enumerate(records * count)
    ]
    return pa.Table.from_pylist(rows, schema.RAW)


COPIES = pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])


@COPIES
def test_a_record_has_its_place_time_and_key(count: int) -> None:
    decoded = Decoder(operator_spec(reading(*WHERE))).decode(raw((b"u", {"event_time": T0}), count=count))
    assert reasons(decoded) == []
    assert decoded.good.num_rows == count
    row = decoded.good.slice(0, 1).to_pylist()[0]
    assert (row["p"], row["_offset"], row["user_id"]) == (3, 10, "u")
    assert decoded.good.column("_offset").to_pylist() == list(range(10, 10 + count))
    assert row["logged"].timestamp() == T0 / 1000


@COPIES
def test_what_the_value_has_counts(count: int) -> None:
    value: dict[str, object] = {"event_time": T0, "_partition": 7, "_offset": 8, "_log_time": "2026-01-01T00:00Z"}
    given = raw((b"u", value | {"_key": "v"}), (b"u", value | {"_offset": None, "_key": 5}), count=count)
    decoded = Decoder(operator_spec(reading(*WHERE))).decode(given)
    assert {tuple(row.values())[3:] for row in decoded.good.select(range(7)).to_pylist()} == {
        (7, 8, decoded.good.column("logged")[0].as_py(), "v")
    }
    assert set(reasons(decoded)) == {"wrong type: _key: 5 is not a string"}


@COPIES
@pytest.mark.parametrize("inner", [{}, {"x": None}, {"id": None}])
@pytest.mark.parametrize("path", [("_key", "id"), ("_headers", "x")])
def test_an_object_in_the_value_counts_as_a_whole(path: tuple[str, str], inner: dict[str, object], count: int) -> None:
    field = Field("n", LongType(), path=path, optional=True)
    given = raw((b'{"id":7}', {"event_time": T0, path[0]: inner}), (b'{"id":7}', {"event_time": T0}), count=count)
    decoded = Decoder(operator_spec(reading(WHERE[1], field))).decode(with_headers(given, [("x", b"7")]))
    assert decoded.good.column("n").to_pylist() == [None, 7] * count


@COPIES
@pytest.mark.parametrize(
    ("source", "value"),
    [
        (LogSource("spend"), {"event_time": T0, "_key": "u"}),
        (FilesSource(("spend/*.csv",), CsvFormat(("event_time", "_key"))), f"{T0},u".encode()),
    ],
)
def test_logs_and_files_have_places_too(source: object, value: Any, count: int) -> None:  # noqa: ANN401 - as above
    fields = (WHERE[0], WHERE[1], Field("user_id", StringType(), path=("_key",)))
    decoded = Decoder(operator_spec(reading(*fields, source=source))).decode(raw((b"a.csv:1", value), count=count))
    assert reasons(decoded) == []
    assert decoded.good.column("p").to_pylist() == [3] * count
    assert decoded.good.column("user_id").to_pylist() == ["u"] * count


KEYED = Field("user_id", StringType(), tombstones=True)
OTHER = Field("n", LongType(), tombstones=True)


@COPIES
def test_columns_of_the_key_need_not_be_in_the_value(count: int) -> None:
    given = raw((b"u", {"event_time": T0}), (b"u", {"event_time": T0, "user_id": "v"}), (b"w", None), count=count)
    decoded = Decoder(operator_spec(reading(KEYED))).decode(given)
    assert (decoded.good.column("user_id").to_pylist(), reasons(decoded)) == (["u", "v", "w"] * count, [])
    both = raw((b'{"user_id":"u","n":7}', {"event_time": T0}), (b'{"n":7}', {"event_time": T0}), count=count)
    decoded = Decoder(operator_spec(reading(KEYED, OTHER))).decode(both)
    assert decoded.good.column("n").to_pylist() == [7] * count
    assert set(reasons(decoded)) == {"missing: user_id"}


@COPIES
def test_a_tombstone_has_its_place(count: int) -> None:
    fields = (replace(KEYED, path=("_key", "id")), WHERE[0], WHERE[1])
    decoded = Decoder(operator_spec(reading(*fields))).decode(raw((b'{"id":"u"}', None), count=count))
    assert reasons(decoded) == []
    assert decoded.good.column("_offset").to_pylist() == list(range(10, 10 + count))
    assert decoded.good.column("user_id").to_pylist() == ["u"] * count


NAMES = ("x", "ce.type")
"""The second name cannot be in a path."""
TRACE = Field("user_id", StringType(), path=("_headers", "x"))
ALL = Field("all", StringType(), path=("_headers",))
Headers = list[tuple[str, bytes | None]] | None


def with_headers(records: pa.Table, *headers: Headers) -> pa.Table:
    given = [headers[row % len(headers)] for row in range(records.num_rows)]
    return records.append_column(schema.HEADERS, pa.array(given, schema.HEADERS.type))


@COPIES
def test_headers_by_name_and_as_json(count: int) -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("x", b"first"),
        ("ce.type", 'a "b" \xe4'.encode()),
        ("x", b"u"),
        ("none", None),
        ("bytes", b"\xff\x00"),
        ("nul", b"\0"),
    ]
    records = with_headers(raw((None, {"event_time": T0}), count=2 * count), headers, [("x", b"v")])
    for field, values in (
        (TRACE, ["u", "v"]),
        (ALL, ['{"x":"u","ce.type":"a \\"b\\" ä","none":null,"bytes":"/wA=","nul":"\\u0000"}', '{"x":"v"}']),
        (replace(TRACE, path=("_headers", "bytes"), optional=True), ["/wA=", None]),
    ):
        decoded = Decoder(operator_spec(reading(WHERE[1], field))).decode(records)
        assert (decoded.good.column(field.name).to_pylist(), reasons(decoded)) == (values * count, [])


@COPIES
def test_headers_that_are_not_there(count: int) -> None:
    none: Headers = []
    records = raw((None, {"event_time": T0}), count=3 * count)
    decoder = Decoder(operator_spec(reading(TRACE)))
    assert set(reasons(decoder.decode(records))) == {"missing: user_id (_headers.x)"}
    decoded = decoder.decode(with_headers(records, none, [("x", None)], [("x", b"a\0")]))
    assert (
        reasons(decoded)
        == [
            "missing: user_id (_headers.x)",
            "null: user_id (_headers.x)",
            'wrong type: _headers.x: "a\\u0000" holds U+0000',
        ]
        * count
    )
    decoder = Decoder(operator_spec(reading(WHERE[1], ALL)))
    assert decoder.decode(records).good.column("all").to_pylist() == ["{}"] * 3 * count
    decoded = decoder.decode(with_headers(records, none, None, none))
    assert decoded.good.column("all").to_pylist() == ["{}", "{}"] * count
    assert reasons(decoded) == ["malformed: the name of a header is not UTF-8"] * count


VALUES = st.fixed_dictionaries(
    {"event_time": st.just(T0)},
    optional={
        "_partition": st.sampled_from([None, 1, "x", {}]),
        "_offset": st.sampled_from([None, 2]),
        "_log_time": st.sampled_from([None, T0, "x"]),
        "_key": st.sampled_from([None, "k", 5, {"id": 7}, {"id": None}]),
        "_headers": st.sampled_from([None, "{}", 5, {}, {"x": "7"}, {"x": None}]),
        "user_id": st.sampled_from([None, "u"]),
        "u": st.sampled_from([None, "u", "v"]),
    },
)
KEYS = st.sampled_from([None, b"", b"7", b"u", b"\xff", b'{"id":"7"}', b'{"user_id":"w"}', b'"q"', b'{"u":"v"}', b"{"])
FIELDS = [
    Field("user_id", StringType(), tombstones=True, alias=("u",)),
    Field("a", LongType(), path=("_partition",)),
    Field("b", DecimalType(9, 0), path=("_offset",)),
    Field("c", LongType(), path=("_log_time",), optional=True),
    Field("d", LongType(), path=("_key", "id"), optional=True),
    Field("e", StringType(), path=("_key",), optional=True),
    Field("f", LongType(), path=("_headers", "x"), optional=True),
    Field("g", StringType(), path=("_headers",), optional=True),
    Field("h", StringType(), path=("_headers", "x"), optional=True),
]
HEADER = st.tuples(st.sampled_from(NAMES), st.sampled_from([None, b"7", b"", b"u", b"\xff", b"\0", b'{"a":1}']))
HEADERS = st.one_of(st.none(), st.lists(HEADER, max_size=4))


@given(st.lists(st.tuples(KEYS, VALUES, HEADERS), min_size=1, max_size=20), st.sets(st.sampled_from(range(1, 9))))
def test_a_batch_is_read_as_its_records_are(records: list[tuple[bytes | None, Any, Headers]], chosen: set[int]) -> None:
    decoder = Decoder(operator_spec(reading(FIELDS[0], *(FIELDS[at] for at in sorted(chosen)))))
    given = raw(*(record[:2] for record in records), count=SMALL_BATCH // len(records) + 1)
    given = with_headers(given, *(headers for _, _, headers in records))
    whole = decoder.decode(given)
    parts = [decoder.decode(given.slice(at, 1)) for at in range(min(given.num_rows, len(records)))]
    good = [row for part in parts for row in part.good.to_pylist()]
    dead = [row for part in parts for row in part.dead.to_pylist()]
    assert whole.good.to_pylist()[: len(good)] == good
    assert whole.dead.to_pylist()[: len(dead)] == dead


@given(
    st.lists(st.tuples(VALUES, st.lists(HEADER, max_size=4)), min_size=1, max_size=20),
    st.sampled_from(range(6, 9)),
    st.booleans(),
)
def test_headers_are_what_the_definition_says(
    records: list[tuple[Any, list[tuple[str, bytes | None]]]],
    number: int,
    optional: bool,  # noqa: FBT001 - drawn
) -> None:
    field = replace(FIELDS[number], optional=optional)
    pipeline = reading(WHERE[1], field)
    expected: list[object] = []
    for value, headers in records:
        try:
            one = LogRecord(0, T0 * 1000, json.dumps(value).encode(), headers=headers)
            found = read(windowed(pipeline), one).fields
            expected.append(None if found is None else [found[field.name]])
        except DeadLetterError as exc:
            expected.append(str(exc))
    copies = SMALL_BATCH // len(records) + 1
    given = with_headers(raw(*((None, value) for value, _ in records), count=copies), *(one for _, one in records))
    for some in (given, given.slice(0, len(records))):
        decoded = Decoder(operator_spec(pipeline)).decode(some)
        columns = (decoded.good.column(name).to_pylist() for name in ("offset", field.name))
        outcomes: dict[int, object] = {offset: [value] for offset, value in zip(*columns, strict=True)}
        outcomes |= {row["offset"]: row["reason"].partition(":")[0] for row in decoded.dead.to_pylist()}
        assert [outcomes[10 + row] for row in range(some.num_rows)] == (expected * copies)[: some.num_rows]
