"""CSV: lines by Python's csv module, and columns of many lines at once."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.decode.test_avro import TYPES, agreement, batch
from tests.engine.decode.test_decoder import T0, pipeline, reasons
from tests.engine.decode.test_tombstones import table
from tests.examples import examples
from tests.short_forms import Pipeline, operator_spec

from windrow.engine.decode.decoder import SMALL_BATCH, DecodedBatch, Decoder
from windrow.engine.decode.exact import ExactDecoder
from windrow.model import (
    BooleanType,
    CsvFormat,
    DataType,
    Decode,
    Delay,
    Derive,
    EventTime,
    Field,
    FilesSource,
    KafkaSource,
    SourceNode,
    StringType,
    TimestampType,
)

COLUMNS = ("user_id", "event_time", "amount", "ok")


def reading(delimiter: str = ",") -> Pipeline:
    source = KafkaSource("localhost:1", "spend", format=CsvFormat(COLUMNS, delimiter))
    fields = (*pipeline().decode.fields, Field("ok", BooleanType(), optional=True))
    return replace(pipeline(), source=source, decode=Decode(fields))


def node(columns: tuple[str, ...], *fields: Field) -> SourceNode:
    source = KafkaSource("localhost:1", "x", format=CsvFormat(columns))
    return SourceNode("x", source, Decode((Field("t", TimestampType("millis")), *fields)), EventTime("t", Delay(0)))


BOTH = pytest.mark.parametrize("copies", [1, SMALL_BATCH], ids=["one by one", "a batch"])


@BOTH
def test_a_line_has_a_value_for_each_column(copies: int) -> None:
    values = [f"u,{T0},12.5,true", f'"a ""b"", c",{T0},"12.50",\n', f"\u00e4,{T0},-1,false\r\n"]
    decoded = Decoder(operator_spec(reading())).decode(table([(None, one.encode(), None) for one in values * copies]))
    assert decoded.dead.num_rows == 0
    found = [(row["user_id"], row["amount"], row["ok"]) for row in decoded.good.slice(0, 3).to_pylist()]
    assert found == [
        ("u", Decimal("12.50"), True),
        ('a "b", c', Decimal("12.50"), None),
        ("\u00e4", Decimal("-1.00"), False),
    ]
    tabs = Decoder(operator_spec(reading("\t"))).decode(table([(None, f"u\t{T0}\t1\t".encode(), None)] * copies))
    assert tabs.good.num_rows == copies


BAD: list[tuple[bytes, str]] = [
    (b"u,1,1", "malformed: not CSV: 3 values for the columns user_id, event_time, amount, ok"),
    (b"", "malformed: not CSV: 1 value for the columns user_id, event_time, amount, ok"),
    (b"u,1,1,true\nu,1,1,true", "malformed: not CSV: the record has more than one line"),
    (b'"u\n",1,1,true', "malformed: not CSV: the record has more than one line"),
    (b'"u,1,1,true', "malformed: not CSV: unexpected end of data"),
    (b'"u"x,1,1,true', "malformed: not CSV: ',' expected after '\"'"),
    (b'u "x",1,1,true', "malformed: not CSV: a quote in a value that is not in quotes"),
    (b"\xff,1,1,true", "malformed: not UTF-8 at byte 0"),
    (b",1,1,true", "null: user_id"),
    (b"u,1,1,yes", 'wrong type: ok: "yes" is not a boolean'),
    (b"u,1.5,1,true", 'wrong type: event_time: "1.5" is not a timestamp_millis'),
    (b"u,1,1.005,true", 'wrong type: amount: "1.005" is not a decimal(12,2)'),
]


@BOTH
def test_a_value_may_be_long(copies: int) -> None:
    users = ["u" * 200_000, '"' + '""' * 100_000 + '"', *["u"] * (copies - 1)]
    decode = replace(reading(), key=("amount",))
    decoded = Decoder(operator_spec(decode)).decode(
        table([(None, f"{user},{T0},1,true".encode(), None) for user in users])
    )
    assert decoded.good.column("user_id").to_pylist()[:2] == ["u" * 200_000, '"' * 100_000]


@BOTH
@pytest.mark.parametrize(("value", "reason"), BAD)
def test_a_bad_line_is_a_dead_letter(value: bytes, reason: str, copies: int) -> None:
    good = f"u,{T0},12.5,true".encode()
    decoded = Decoder(operator_spec(reading())).decode(
        table([(None, one, None) for one in [good, value, good] * copies])
    )
    assert set(reasons(decoded)) == {reason}
    assert decoded.good.num_rows == 2 * copies


def lines() -> st.SearchStrategy[bytes]:
    value = st.one_of(
        st.sampled_from(["", '""', '"a""b"', '"a,b"', "1", "-0", "12.50", "01", "1e3", "true", "2026-01-01T00:00:00Z"]),
        st.text(st.sampled_from('a1 ",\n\r\0;\u00e4'), max_size=4),
        st.integers(-(2**63), 2**64).map(str),
    )
    line = st.lists(value, min_size=2, max_size=4).map(",".join)
    return st.one_of(line.map(lambda one: f"{T0},{one}".encode()), st.binary(max_size=5))


@examples(400)
@given(st.lists(lines(), max_size=10), st.lists(st.tuples(st.sampled_from(TYPES[:-3]), st.booleans()), max_size=3))
def test_columns_are_what_the_exact_decoder_reads(given_lines: list[bytes], types: list[tuple[DataType, bool]]) -> None:
    fields = [Field(name, type_, optional=optional) for name, (type_, optional) in zip("abc", types, strict=False)]
    good = f"{T0},,,".encode()
    agreement(ExactDecoder.of(node(("t", "a", "b", "c"), *fields)), batch(good, None, *given_lines))


def test_ordinary_lines_take_the_fast_path() -> None:
    values = [f'{T0},"a, b"', f"{T0},c"]
    exact = ExactDecoder.of(node(("t", "a"), Field("a", StringType())))
    assert agreement(exact, batch(*(one.encode() for one in values))) == 2


def test_a_line_that_contains_the_name_of_the_log_timestamp_is_no_json() -> None:
    source = FilesSource(("data/*.csv",), CsvFormat(("t", "c")))
    derived = replace(
        node(("t", "c"), Field("c", StringType())), source=source, derive=(Derive("v", "CAST(c AS INT)"),)
    )
    given = table([(b"data/a.csv:2", f"{T0},_log_time".encode(), None), (b"data/a.csv:3", f"{T0},7".encode(), None)])
    decoded = Decoder(derived).decode(given)
    (reason,) = reasons(decoded)
    assert reason.startswith("expression: v: Could not convert string '_log_time'")
    assert decoded.good.column("v").to_pylist() == [7]


def test_a_defect_in_a_large_batch_leaves_all_other_records_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{T0 + number},{'defect' if number in {0, 600, 999} else number}".encode() for number in range(1000)]
    decoder, decode = Decoder(node(("t", "c"), Field("c", StringType()))), vars(Decoder)["_decode"]
    whole = decoder.decode(table([(None, line, None) for line in lines]))

    def fail(self: Decoder, raw: pa.RecordBatch) -> DecodedBatch:
        if any(b"defect" in value for value in raw.column("value").to_pylist()):
            raise SystemError
        found: DecodedBatch = decode(self, raw)
        return found

    monkeypatch.setattr(Decoder, "_decode", fail)
    decoded = decoder.decode(table([(None, line, None) for line in lines]))
    assert decoded.good == whole.good.filter(pc.not_equal(whole.good.column("c"), "defect"))
    assert reasons(decoded) == ["internal: decode: SystemError"] * 3
    assert decoded.dead.column("offset").to_pylist() == [0, 600, 999]
