"""Changes of rows in Debezium's envelope: what they mean, alike for the fast path, the exact path and the oracle."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.decode.test_decoder import MILLIS, T0, pipeline, reasons
from tests.engine.decode.test_tombstones import Raw, table
from tests.examples import scaled
from tests.short_forms import Pipeline, operator_spec, windowed

from windrow.engine.decode.decoder import SMALL_BATCH, Decoder
from windrow.engine.decode.exact import ExactDecoder
from windrow.engine.decode.fast import FastDecoder
from windrow.engine.schema import DELETED
from windrow.model import (
    ArrayType,
    BooleanType,
    DecimalType,
    Decode,
    Delay,
    Derive,
    EventTime,
    Field,
    KafkaSource,
    LogSource,
    LongType,
    SourceNode,
    StringType,
    TimestampType,
)
from windrow.testing.oracle.answer import LogRecord
from windrow.testing.oracle.reading import DeadLetterError, read

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
COLUMNS = (
    Field("id", LongType()),
    Field("name", StringType(), alias=("title",)),
    Field("balance", DecimalType(12, 2), optional=True),
    Field("active", BooleanType(), optional=True),
    Field("seen", TimestampType("micros"), optional=True),
)
META = (
    Field("at", MILLIS, path=("source", "ts_ms")),
    Field("lsn", LongType(), optional=True, path=("source", "lsn")),
    Field("txid", StringType(), optional=True, path=("transaction", "id")),
    Field("op", StringType(), path=("op",)),
    Field("was", DecimalType(12, 2), optional=True, path=("before", "balance")),
)
SOURCE = {"version": "2.7.3.Final", "connector": "postgresql", "name": "shop", "ts_ms": T0, "table": "users", "lsn": 7}
SCHEMA = {
    "type": "struct",
    "name": "shop.public.users.Envelope",
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "balance", "type": "string", "optional": True},
    ],
}


def node(
    *fields: Field, time: str = "at", log: bool = False, tombstones: bool = False, future: int | None = None
) -> SourceNode:
    given = fields or (*COLUMNS, *META)
    given = tuple(replace(one, tombstones=tombstones) if one.name == "id" else one for one in given)
    source = LogSource("x", "debezium") if log else KafkaSource("localhost:1", "users", format="debezium")
    return SourceNode("users", source, Decode(given), EventTime(time, Delay(0), future))


def short(of: SourceNode) -> Pipeline:
    """Return the source within a pipeline of a window, which the oracle reads; no field is its key."""
    return replace(pipeline(), source=of.source, decode=of.decode, time=of.time, key=())


def change(op: str, before: object = None, after: object = None, **more: object) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": T0 + 3, "transaction": None} | more


ROW = {"id": 7, "name": "Ada", "balance": "12.50", "active": True, "seen": T0 * 1000}


def encoded(*given_values: object) -> pa.Table:
    return table([(b'{"id":7}', None if one is None else json.dumps(one).encode(), None) for one in given_values])


BOTH = pytest.mark.parametrize("copies", [1, SMALL_BATCH], ids=["one by one", "a batch"])


@BOTH
@pytest.mark.parametrize("op", ["c", "r", "u"])
def test_a_row_that_is_there_is_what_comes_after(op: str, copies: int) -> None:
    (row, *_) = Decoder(node()).decode(encoded(*[change(op, None, ROW)] * copies)).good.to_pylist()
    assert (row["id"], row["name"], row["balance"], row["active"]) == (7, "Ada", Decimal("12.50"), True)
    assert (row["lsn"], row["txid"], row["op"], row["was"]) == (7, None, op, None)
    assert (row["time"], row[DELETED]) == (T0 * 1000, False)


@BOTH
@pytest.mark.parametrize(
    ("time", "at"), [("seen", T0 * 1000), ("at", T0 * 1000), ("ts", T0 * 1000 + 3000)], ids=["column", "source", "ts"]
)
def test_a_truncation_has_the_time_of_the_change_and_no_fields(time: str, at: int, copies: int) -> None:
    fields = (*COLUMNS[:4], replace(COLUMNS[4], optional=False), *META, Field("ts", MILLIS, path=("ts_ms",)))
    source = replace(node(*fields, time=time), derive=(Derive("big", "id + 1"), Derive("fixed", "7")))
    records = encoded(*[change("c", None, ROW), change("t")] * copies)
    decoded = Decoder(source, truncations="applied").decode(records)
    assert decoded.dead.num_rows == 0
    row, truncation = decoded.good.to_pylist()[-2:]
    assert (row["id"], row["big"], row["fixed"], row[DELETED]) == (7, 8, 7, False)
    assert truncation.pop("time") == at
    assert {name: value for name, value in truncation.items() if value is not None} == {
        "partition": 0,
        "offset": 2 * copies - 1,
    }


@BOTH
def test_a_truncation_without_a_time_is_a_dead_letter(copies: int) -> None:
    records = encoded(*[change("t", source=None)] * copies)
    found = Decoder(node(), truncations="applied").decode(records).dead.column("reason").to_pylist()
    assert found == ["missing: at (source.ts_ms)"] * copies
    fields = (*COLUMNS[:4], replace(COLUMNS[4], optional=False))
    found = Decoder(node(*fields, time="seen"), truncations="applied").decode(records).dead.column("reason")
    assert found.to_pylist() == ["missing: source.ts_ms (seen of a truncation)"] * copies


@BOTH
def test_the_record_of_a_deleted_row_has_what_was_before_at_the_time_of_the_change(copies: int) -> None:
    fields = (*COLUMNS[:4], replace(COLUMNS[4], optional=False))
    records = [change("d", {"id": 7, "seen": 0}), change("d", {"id": 8, "name": None, "balance": "1.00"})]
    decoded = Decoder(node(*fields, time="seen")).decode(encoded(*records * copies))
    assert decoded.dead.num_rows == 0
    assert [(row["id"], row["name"], row["balance"], row["time"], row[DELETED]) for row in decoded.good.to_pylist()][
        :2
    ] == [(7, None, None, T0 * 1000, True), (8, None, Decimal("1.00"), T0 * 1000, True)]


@BOTH
def test_a_schema_around_the_envelope_changes_nothing(copies: int) -> None:
    changes = [change("c", None, ROW), change("u", ROW, ROW), change("d", ROW)]
    wrapped = [{"schema": SCHEMA, "payload": one} for one in changes]
    decoder = Decoder(node())
    plain = decoder.decode(encoded(*changes * copies))
    assert plain.good.num_rows == 3 * copies
    assert decoder.decode(encoded(*wrapped * copies)).good == plain.good
    mixed = decoder.decode(encoded(*[one for pair in zip(changes, wrapped, strict=True) for one in pair] * copies))
    assert mixed.good.column("op").to_pylist() == ["c", "c", "u", "u", "d", "d"] * copies


def test_ordinary_envelopes_take_the_fast_path() -> None:
    transaction = {"id": "571:53195829", "total_order": 1, "data_collection_order": 1}
    changes = [
        change("c", None, ROW, transaction=transaction),
        change("d", {"id": 7, "name": "", "balance": None}),
        {"schema": SCHEMA, "payload": change("u", ROW, ROW, transaction=transaction)},
        {**change("c", None, {"id": 1, "name": "x"}), "ts_us": 1, "ts_ns": 2},
    ]
    exact = ExactDecoder.of(node())
    assert FastDecoder.reads(exact)
    raw = encoded(*changes).combine_chunks().to_batches()[0]
    assert FastDecoder(exact).decode(raw).rows.tolist() == [0, 1, 2, 3]


@BOTH
def test_small_decimals_have_an_exponent(copies: int) -> None:
    """As Java writes numbers below a millionth, and zeros of as many digits: an exponent below 0 is in no bytes."""
    records = [change("c", None, ROW | {"balance": text}) for text in ("0E-8", "0.00000000", "12E-1", "-5E-2")]
    decoded = Decoder(node()).decode(encoded(*records * copies))
    found = [Decimal(text) for text in ("0.00", "0.00", "1.20", "-0.05")]
    assert decoded.good.column("balance").to_pylist() == found * copies


def test_a_column_that_comes_later_is_null_before() -> None:
    field = Field("country", StringType(), optional=True)
    records = [change("c", None, ROW), change("u", None, ROW | {"country": "SE"})]
    decoded = Decoder(node(*COLUMNS, *META, field)).decode(encoded(*records))
    assert decoded.good.column("country").to_pylist() == [None, "SE"]


BAD: list[tuple[Any, str]] = [
    ({"id": 7}, "missing: op (of Debezium's envelope)"),
    ({"status": "BEGIN", "id": "5", "op": None}, "null: op (of Debezium's envelope)"),
    (change("t"), "no change of a row: op is a truncation, which names no rows: those of the table stay until"),
    (change("m"), "no change of a row: op is a logical message"),
    (change("x", None, ROW), "no change of a row: op is unknown: c, u, r or d was expected"),
    (change("u", ROW, None), "null: after (of Debezium's envelope)"),
    ({"op": "d", "source": SOURCE}, "missing: before (of Debezium's envelope)"),
    (change("c", None, 5), "wrong type: after is not an object"),
    ({"payload": 5}, "wrong type: payload is not an object"),
    (change("c", None, ROW | {"id": "x"}), 'wrong type: after.id: "x" is not a long'),
    (change("c", None, {"id": 7}), "missing: name"),
    (change("c", None, ROW | {"name": None}), "null: name"),
    (change("c", None, ROW, source={}), "missing: at (source.ts_ms)"),
    (change("u", None, ROW | {"name": "__debezium_unavailable_value"}), "unavailable: name: unchanged and not in"),
    (change("c", None, ROW | {"balance": "AfQ="}), "wrong type: balance: bytes of a decimal; set decimal.handling"),
    (change("c", None, ROW | {"balance": "1234"}), "wrong type: balance: bytes of a decimal; set decimal.handling"),
    (change("c", None, ROW | {"balance": "1E+8"}), "wrong type: balance: bytes of a decimal; set decimal.handling"),
    (change("c", None, ROW | {"balance": "NaN"}), 'wrong type: after.balance: "NaN" is not a decimal(12,2)'),
    (change("c", None, ROW | {"balance": "Infinity"}), 'wrong type: after.balance: "Infinity" is not a decimal(12,2)'),
    (change("c", None, ROW | {"balance": "-Infinity"}), 'wrong type: after.balance: "-Infinity" is not a decimal'),
    (change("c", None, ROW | {"balance": "1E-8"}), 'wrong type: after.balance: "1E-8" is not a decimal(12,2)'),
]


@BOTH
@pytest.mark.parametrize(("record", "reason"), BAD)
def test_what_is_no_change_of_a_row_is_a_dead_letter(record: object, reason: str, copies: int) -> None:
    decoded = Decoder(node()).decode(encoded(*[record] * copies))
    assert decoded.good.num_rows == 0
    assert {one[: len(reason)] for one in reasons(decoded)} == {reason}


def test_a_tombstone_is_passed_over() -> None:
    decoded = Decoder(node()).decode(encoded(change("d", ROW), None, {"schema": None, "payload": None}))
    assert (decoded.good.num_rows, decoded.dead.num_rows, decoded.marks.num_rows) == (1, 0, 0)
    no_key = Decoder(node()).decode(table([(None, None, None)]))
    assert reasons(no_key) == ["malformed: no value"]
    lines = [change("d", ROW), {"_key": {"id": 7}, "_value": None}, {"_value": None}]
    log = Decoder(node(log=True)).decode(table([(None, json.dumps(one).encode(), None) for one in lines]))
    assert (log.good.num_rows, reasons(log)) == (1, ["malformed: no value"])


def test_a_tombstone_deletes_its_key_if_it_is_to() -> None:
    keys = [b'{"id":7}', b'{"schema":{},"payload":{"id":8}}', b'{"id":null}', b"7", b"x"]
    decoded = Decoder(node(tombstones=True)).decode(table([(key, None, 5) for key in keys]))
    assert [(row["id"], row["name"], row["time"], row[DELETED]) for row in decoded.good.to_pylist()] == [
        (7, None, 5, True),
        (8, None, 5, True),
    ]
    assert [one[:15] for one in reasons(decoded)] == ["missing: id (th", "not an object: ", "malformed: not "]


# mostly right, now and then not, with names that occur in other parts of the envelope
numbers = st.sampled_from([7, 0, -1, "7", 7.5, True, 2**63, 10**30])
texts = st.sampled_from(["Ada", "", "x\u0000", '"source":{', "before", "__debezium_unavailable_value", 5])
amounts = st.sampled_from(
    ["12.50", "0.00", "-3.1", 12.5, 3, "1234", "AfQ=", "1.234", "1e2", "0E-8", "NaN", {"scale": 1, "value": "AQ"}]
)
nothing: st.SearchStrategy[Any] = st.sampled_from([None, None, 5, "x", [], {}])
COLUMN_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.one_of(st.just(7), numbers),
    "name": st.one_of(st.just("Ada"), texts),
    "title": st.one_of(st.just("Ada"), texts),
    "balance": st.one_of(st.just("12.50"), amounts, nothing),
    "active": st.one_of(st.booleans(), nothing),
    "seen": st.one_of(st.just(T0 * 1000), numbers, nothing),
    "op": texts,
    "lsn": numbers,
    "source": st.one_of(texts, st.just({"ts_ms": 5, "id": 9})),
    "after": st.just({"id": 9}),
    "payload": texts,
    "Id": numbers,
}
rows = st.one_of(
    st.fixed_dictionaries({}, optional=COLUMN_VALUES),
    st.fixed_dictionaries({name: COLUMN_VALUES[name] for name in ("id", "name", "balance")}),
    st.just(ROW),
)
sides = st.one_of(rows, rows, rows, nothing)
sources = st.fixed_dictionaries(
    {"ts_ms": st.one_of(st.just(T0), st.just(T0), numbers, nothing)},
    optional={"lsn": st.one_of(numbers, nothing), "id": texts, "name": numbers, "balance": texts},
)
transactions = st.fixed_dictionaries({"id": st.one_of(texts, st.just("571:5"))}, optional={"total_order": numbers})
MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "before": sides,
    "after": sides,
    "source": st.one_of(sources, sources, sources, nothing),
    "transaction": st.one_of(transactions, nothing),
    "op": st.sampled_from(["c", "u", "r", "d", "d", "t", "x", None, 5]),
    "ts_ms": numbers,
    "_log_time": st.sampled_from([T0, T0, None, "x"]),
    "_value": nothing,
    "_key": st.sampled_from([{"id": 7}, {"id": "x"}, None, 7]),
}
USUAL = ("before", "after", "source", "op", "ts_ms", "transaction")


@st.composite
def members(draw: st.DrawFn) -> list[tuple[str, Any]]:
    names = list(USUAL) if draw(st.integers(0, 5)) else draw(st.lists(st.sampled_from(list(MEMBERS)), max_size=8))
    names += draw(st.lists(st.sampled_from(list(MEMBERS)), max_size=2)) if draw(st.integers(0, 3)) == 0 else []
    names = draw(st.permutations(names)) if draw(st.integers(0, 4)) == 0 else names
    return [(name, draw(MEMBERS[name])) for name in names]


def written(pairs: list[tuple[str, str]]) -> str:
    """Return an object whose members are JSON already, names repeated as they are given."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in pairs) + "}"


@st.composite
def values(draw: st.DrawFn) -> bytes | None:
    kind = draw(st.integers(0, 12))
    if kind == 0:
        return draw(st.sampled_from([None, b"", b"5", b"{}", b'{"payload":null}', b'{"op":"c",}']))
    text = written([(name, json.dumps(value)) for name, value in draw(members())])
    if kind in {1, 2, 3, 4}:
        around = [("schema", json.dumps(draw(st.sampled_from([SCHEMA, None, {}])))), ("payload", text)]
        around += [("_log_time", str(T0))] if draw(st.booleans()) else []
        around += [("op", draw(st.sampled_from(["null", '"c"'])))] if draw(st.integers(0, 5)) == 0 else []
        text = written(draw(st.permutations(around)) if draw(st.booleans()) else around)
    if kind == 5:  # an escape in a name
        text = text.replace('"source"', '"s\\u006furce"').replace('"op"', '"\\u006fp"', 1)
    if kind == 6:
        text = text.replace(":", " : ").replace("{", "{\n")
    return text.encode()


KEYS = st.sampled_from([b'{"id":7}', b'{"schema":{},"payload":{"id":7}}', b"7", b'{"id":"x"}', b"\xff", None])
TIMES = st.sampled_from([None, T0 * 1000, 2**62])
SHAPES = {
    "main": node(),
    "tombstones": node(tombstones=True),
    "log": node(log=True),
    "log with tombstones": node(log=True, tombstones=True),
    "time of a column": node(*COLUMNS[:4], replace(COLUMNS[4], optional=False), time="seen", future=1000),
    "time of the envelope": node(*COLUMNS, Field("ts", MILLIS, path=("ts_ms",)), time="ts", future=10**6),
    "other names": node(
        Field("id", LongType()),
        Field("op", StringType(), optional=True),
        Field("lsn", LongType(), optional=True),
        Field("source", StringType(), optional=True),
        Field("t", MILLIS, path=("source", "ts_ms")),
        time="t",
    ),
}


def agree(shape: str, most: int) -> None:
    """Hold the decoders and the oracle together."""
    source = SHAPES[shape]
    told, plain = (Decoder(of, truncations="ignored") for of in (source, operator_spec(short(source))))
    names = [field.name for field in source.decode.fields]

    @settings(max_examples=most, deadline=None)
    @given(st.lists(st.tuples(KEYS, values(), TIMES), min_size=1, max_size=15))
    def holds(records: list[Raw]) -> None:
        expected: dict[int, object] = {}
        for offset, (key, value, time) in enumerate(records):
            try:
                found = read(windowed(short(source)), LogRecord(offset, time, value, key))
                if found.fields is not None:
                    expected[offset] = (found.time, {name: found.fields[name] for name in names})
            except DeadLetterError as exc:
                expected[offset] = str(exc)
        for decoder in (told, plain):
            for copies in (1, SMALL_BATCH // len(records) + 1):
                decoded = decoder.decode(table(records * copies))
                good = decoded.good.to_pylist()
                for row in good:
                    row |= {name: micros(row[name]) for name in names}
                answer: dict[int, object] = {
                    row["offset"]: (row["time"], {name: row[name] for name in names}) for row in good
                }
                dead = (decoded.dead.column(name).to_pylist() for name in ("offset", "reason"))
                answer |= {offset: reason.partition(":")[0] for offset, reason in zip(*dead, strict=True)}
                size = len(records)
                assert answer == {
                    offset + copy * size: one for copy in range(copies) for offset, one in expected.items()
                }
        decoded = told.decode(table(records))
        if "op" in names and source.decode.field("op").path:
            for row in decoded.good.to_pylist():
                assert row[DELETED] == (row["op"] in {"d", None})

    holds()


def micros(value: object) -> object:
    """Return a time in microseconds, another value as it is."""
    return (value - EPOCH) // dt.timedelta(microseconds=1) if isinstance(value, dt.datetime) else value


@pytest.mark.parametrize("shape", SHAPES)
def test_the_decoders_are_what_the_definition_says(shape: str) -> None:
    agree(shape, scaled(30))


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_the_decoders_are_what_the_definition_says_at_length(shape: str) -> None:
    agree(shape, 5000)


def test_arrays_are_columns_as_well() -> None:
    fields = (*COLUMNS, META[0], Field("tags", ArrayType(StringType())))
    records = [change("c", None, ROW | {"tags": ["a"]}), change("d", {"id": 7})] * SMALL_BATCH
    decoded = Decoder(node(*fields)).decode(encoded(*records))
    assert decoded.good.column("tags").to_pylist()[:2] == [["a"], None]
