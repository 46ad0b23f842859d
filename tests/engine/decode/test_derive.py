"""Derived fields, and the records of which they cannot be made."""

import json
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MAIN
from tests.short_forms import AnyPipeline, Pipeline, operator_spec

from windrow.engine.decode.decoder import SMALL_BATCH, DecodedBatch, Decoder
from windrow.engine.duckdb_sql import _Plan
from windrow.engine.keys import MAX_KEY_BYTES
from windrow.engine.schema import RAW
from windrow.errors import RunError
from windrow.model import (
    Aggregate,
    Count,
    Decode,
    Derive,
    DoubleType,
    EventTime,
    Field,
    LongType,
    Punctuated,
    StringType,
    Sum,
    TimestampType,
)

FIELDS = Decode(
    (
        Field("t", TimestampType("micros")),
        Field("url", StringType()),
        Field("text", StringType()),
        Field("n", LongType()),
        Field("x", DoubleType()),
    )
)


def pipeline(*derive: Derive, key: tuple[str, ...] = ("url",), **changes: Any) -> Pipeline:  # noqa: ANN401
    return replace(MAIN, decode=FIELDS, derive=derive, key=key, aggregates=(Aggregate("c", Count()),), **changes)


def decode(of: AnyPipeline, *records: dict[str, Any], log_time: int | None = None) -> DecodedBatch:
    """Decode records, filled up with plain values; offsets are their places."""
    plain = {"t": 0, "url": "a/b/c", "text": "1", "n": 1, "x": 1}
    values = [json.dumps(plain | record).encode() for record in records]
    columns = [[0] * len(values), range(len(values)), [log_time] * len(values), [None] * len(values), values]
    rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, RAW, strict=True)], schema=RAW)
    return Decoder(operator_spec(of)).decode(rows)


def dead(decoded: DecodedBatch) -> list[tuple[int, str]]:
    return [(row["offset"], row["reason"]) for row in decoded.dead.to_pylist()]


def test_a_derived_field_stands_behind_the_decoded_ones() -> None:
    decoded = decode(pipeline(Derive("domain", "split_part(url, '/', 2)"), Derive("twice", "2 * n")), {}, {"n": 4})
    assert decoded.good.column_names[-2:] == ["domain", "twice"]
    assert decoded.good.column("domain").to_pylist() == ["b", "b"]
    assert decoded.good.column("twice").to_pylist() == [2, 8]
    assert decoded.good.schema.field("twice").type == pa.int64()


@pytest.mark.parametrize("count", [3, SMALL_BATCH + 40])
def test_a_record_for_which_an_expression_fails_is_dead_and_the_others_go_on(count: int) -> None:
    records = [{"text": "no number" if number % 3 == 1 else str(number)} for number in range(count)]
    decoded = decode(pipeline(Derive("number", "CAST(text AS BIGINT)")), *records)
    assert decoded.good.column("number").to_pylist() == [number for number in range(count) if number % 3 != 1]
    assert [offset for offset, _ in dead(decoded)] == list(range(1, count, 3))
    assert {reason for _, reason in dead(decoded)} == {
        "expression: number: Could not convert string 'no number' to INT64 when casting from source column text"
    }
    assert all(json.loads(row["raw"])["text"] == "no number" for row in decoded.dead.to_pylist())


def test_what_is_null_does_not_fail() -> None:
    decoded = decode(
        pipeline(Derive("number", "TRY_CAST(text AS BIGINT) // n")), {"text": "?"}, {"n": 0}, {"text": "7"}
    )
    assert decoded.good.column("number").to_pylist() == [None, 7]
    assert [offset for offset, _ in dead(decoded)] == [1]


@pytest.mark.parametrize(
    ("sql", "record", "why"),
    [
        ("x / n", {"n": 0}, "the result is not a finite number"),
        ("n * n", {"n": 2**40}, "Overflow in multiplication of INT64 (1099511627776 * 1099511627776)"),
        ("make_timestamptz(n)", {"n": -(2**62)}, "the result is a time outside the years 1 to 9999"),
        ("chr(n::INTEGER)", {"n": 0}, "the result holds U+0000"),
    ],
)
def test_what_no_field_can_have_is_a_dead_letter(sql: str, record: dict[str, Any], why: str) -> None:
    decoded = decode(pipeline(Derive("made", sql)), {}, record)
    assert decoded.good.num_rows == 1
    assert len(dead(decoded)) == 1
    offset, reason = dead(decoded)[0]
    assert offset == 1
    assert reason.startswith("expression: made: ")
    assert why.split("(", maxsplit=1)[0] in reason


@pytest.mark.parametrize(
    ("sql", "made"),
    [
        ("CASE WHEN n > 0 THEN 1 // 0 ELSE 2 END", [2]),
        ("1 // 0", []),
        ("CAST('a' AS BIGINT)", []),
    ],
)
def test_an_expression_may_fail_for_whatever_record(sql: str, made: list[int]) -> None:
    decoded = decode(pipeline(Derive("made", sql)), {"n": 1}, {"n": 0})
    assert decoded.good.column("made").to_pylist() == made
    assert len(dead(decoded)) == 2 - len(made)


@pytest.mark.parametrize(
    ("sql", "record"),
    [
        ("1 // (n - n)", {"n": 5}),
        ("CAST(text || x AS BIGINT)", {"text": "it's", "x": -1.5e-300}),
        ("CAST(x * 1e300 * 1e300 AS BIGINT)", {"x": 1e300}),
        ("CASE WHEN t > make_timestamptz(0) THEN CAST(text AS BIGINT) END", {"text": "?", "t": 7}),
    ],
)
def test_inputs_of_every_type_are_tried_as_they_are(sql: str, record: dict[str, Any]) -> None:
    decoded = decode(pipeline(Derive("made", sql)), record, record)
    assert [offset for offset, _ in dead(decoded)] == [0, 1]


def test_there_is_one_zero() -> None:
    decoded = decode(pipeline(Derive("made", "-x")), {"x": 0})
    assert [str(value) for value in decoded.good.column("made").to_pylist()] == ["0.0"]


def test_a_null_in_a_derived_key_is_a_dead_letter() -> None:
    of = pipeline(Derive("k", "nullif(url, 'x')"), key=("k",))
    assert dead(decode(of, {}, {"url": "x"})) == [(1, "null key: k")]


def test_what_an_aggregate_is_over_fails_only_where_its_condition_holds() -> None:
    of = replace(
        pipeline(),
        aggregates=(Aggregate("total", Sum("CAST(text AS BIGINT)"), where="url = 'n'"), Aggregate("c", Count())),
    )
    decoded = decode(of, {"text": "?"}, {"text": "5", "url": "n"}, {"text": "?", "url": "n"})
    assert decoded.good.column("__e0").to_pylist() == [None, 5]
    assert [offset for offset, _ in dead(decoded)] == [2]


def test_the_log_time_of_a_dead_letter_is_the_one_in_the_record() -> None:
    decoded = decode(pipeline(Derive("made", "1 // n")), {"n": 0, "_log_time": 1_500}, {"n": 0}, log_time=7)
    assert decoded.dead.column("log_time").cast(pa.int64()).to_pylist() == [1_500_000, 7]


def test_a_mark_with_a_record_that_fails_is_none_and_one_that_lacks_a_key_is_nothing_else() -> None:
    fields = Decode((*FIELDS.fields, Field("w", TimestampType("micros"))))
    of = replace(
        pipeline(Derive("k", "nullif(url, 'x')"), Derive("one", "1 // n"), key=("k",)),
        decode=fields,
        time=EventTime("t", Punctuated("w")),
    )
    decoded = decode(of, {"w": 5}, {"w": 6, "n": 0}, {"w": 7, "url": "x"}, {"url": "x"})
    assert decoded.good.column("offset").to_pylist() == [0]
    assert [(row["offset"], row["watermark"]) for row in decoded.marks.to_pylist()] == [(0, 5), (2, 7)]
    assert [offset for offset, _ in dead(decoded)] == [1, 3]


@given(st.lists(st.tuples(st.sampled_from(["1", "2", "x", ""]), st.integers(-1, 2)), min_size=1, max_size=30))
def test_each_record_fares_as_it_does_alone(rows: list[tuple[str, int]]) -> None:
    of = pipeline(Derive("a", "CAST(text AS BIGINT)"), Derive("b", "CASE WHEN n > 0 THEN 4 // (n - 1) END"))
    records = [{"text": text, "n": n} for text, n in rows]
    together = decode(of, *records)
    alone = [decode(of, record) for record in records]
    assert [reason for _, reason in dead(together)] == [reason for one in alone for _, reason in dead(one)]
    assert together.good.select(["a", "b"]).to_pylist() == [
        row for one in alone for row in one.good.select(["a", "b"]).to_pylist()
    ]


LONG = "\N{SNOWMAN}" * 682 + "ab"


@pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])
def test_the_texts_of_a_key_have_2048_bytes_together_at_most(count: int) -> None:
    of = pipeline(Derive("k", "upper(text)"), key=("n", "url", "k"))
    assert len(LONG.encode()) == MAX_KEY_BYTES
    records = [{"url": LONG[1:], "text": "abc"}, {"url": LONG[1:], "text": "abcd"}, {"url": "", "text": LONG + "c"}]
    decoded = decode(of, *records * count, log_time=7)
    assert decoded.good.column("offset").to_pylist() == list(range(0, 3 * count, 3))
    assert {reason for _, reason in dead(decoded)} == {
        "long key: url, k: 2049 bytes of text; the limit is 2048",
    }
    assert len(dead(decoded)) == 2 * count
    assert decoded.dead.column("log_time").cast(pa.int64()).to_pylist() == [7] * 2 * count


def test_a_long_text_outside_the_key_is_no_matter() -> None:
    decoded = decode(pipeline(key=("n",)), {"url": LONG * 2})
    assert (decoded.good.num_rows, dead(decoded)) == (1, [])


def test_a_record_with_a_long_key_and_a_mark_is_dead_altogether() -> None:
    of = pipeline(time=EventTime("t", Punctuated("w")))
    decoded = decode(of, {"url": LONG + "c", "w": 5})
    assert (decoded.marks.num_rows, dead(decoded)) == (0, [(0, "long key: url: 2049 bytes of text; the limit is 2048")])


@pytest.mark.parametrize("count", [3, SMALL_BATCH + 40])
@pytest.mark.parametrize(
    ("sql", "odd", "why"),
    [
        # DuckDB would compute equal parts once, before TRY
        ("CASE WHEN CAST(text AS BIGINT) BETWEEN 1 AND 9 THEN 1 ELSE 0 END", "zz", "Could not convert string 'zz'"),
        ("CAST(text AS BIGINT) * CAST(text AS BIGINT)", "zz", "Could not convert string 'zz'"),
        # TRY does not catch it
        ("hour(t AT TIME ZONE if(text = '1', 'UTC', text))", "Mars/Olympus", "Unknown TimeZone 'Mars/Olympus'!"),
        # the message has half of a character
        ("length(CAST(text AS BIT))", "é", "Invalid character encountered in string -> bit conversion: '\ufffd'"),
        (
            "length(repeat(text, n * 1000000 * (length(text) - 1)))",
            "zz",
            "repeat() would produce more than 1,000,000 bytes",
        ),
    ],
)
def test_no_failure_of_a_record_ends_the_run(sql: str, odd: str, why: str, count: int) -> None:
    records = [{"text": odd if number % 3 == 1 else "1"} for number in range(count)]
    decoded = decode(pipeline(Derive("made", sql)), *records)
    assert decoded.good.num_rows == count - len(range(1, count, 3))
    assert decoded.good.column("made").null_count == 0
    assert [offset for offset, _ in dead(decoded)] == list(range(1, count, 3))
    assert all(reason.startswith(f"expression: made: {why}") for _, reason in dead(decoded))


def test_records_fail_by_themselves_where_duckdb_invalidates_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _Plan.run

    def fails(plan: Any, tables: Any, fetch: Any) -> Any:  # noqa: ANN401
        if "zz" in tables["rows"].column("text").to_pylist():
            msg = "INTERNAL Error: the database has been invalidated"
            raise duckdb.FatalException(msg)
        return run(plan, tables, fetch)

    monkeypatch.setattr(_Plan, "run", fails)
    decoded = decode(pipeline(Derive("number", "CAST(text AS BIGINT)")), {}, {"text": "zz"}, {"text": "3"})
    assert decoded.good.column("number").to_pylist() == [1, 3]
    assert dead(decoded) == [(1, "expression: number: the database has been invalidated")]


def test_lack_of_memory_is_no_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        msg = "Out of Memory Error: failed to allocate data of size 8.0 GiB"
        raise duckdb.OutOfMemoryException(msg)

    monkeypatch.setattr(_Plan, "run", fails)
    with pytest.raises(RunError, match="failed to allocate"):
        decode(pipeline(Derive("number", "CAST(text AS BIGINT)")), {})


@pytest.mark.parametrize(
    "sql",
    [
        "hour(make_timestamp(nullif(n, 0)) AT TIME ZONE split_part(text, '#', 1))",
        "hour(make_timestamp(nullif(n, 0)) AT TIME ZONE CASE WHEN text LIKE 'U%' THEN 'UTC' ELSE 'Mars' END)",
        "strftime(make_timestamp(nullif(n, 0))::TIMESTAMPTZ, split_part(text, '#', 1))",
        "date_part(split_part(text, '#', 1), make_timestamp(nullif(n, 0)))::BIGINT",
        "epoch_us(date_trunc(split_part(text, '#', 1), make_timestamp(nullif(n, 0))))",
        "epoch_us(time_bucket(INTERVAL 1 DAY, make_timestamp(nullif(n, 0))::TIMESTAMPTZ, split_part(text, '#', 1)))",
        "epoch_us(make_timestamptz(nullif(n, 0), 1, 1, 1, 1, 1.0, split_part(text, '#', 1)))",
        "date_diff(split_part(text, '#', 1), make_timestamp(nullif(n, 0)), make_timestamp(n))",
        "json_contains(split_part(text, '#', 1), nullif(url, 'none'))",
    ],
)
def test_whether_a_record_fails_does_not_depend_on_those_beside_it(sql: str) -> None:
    texts = ("UTC", "Mars", "hour", "%Y", "%é", '{"a": 1}', "[1", "")
    records = [{"text": text, "n": n, "url": "none" if n else "a"} for text in texts for n in (0, 1, 2)]
    of = pipeline(Derive("made", sql))
    alone = [decode(of, record) for record in records]
    for size in (2, 3, len(records)):
        parts = [decode(of, *records[start : start + size]) for start in range(0, len(records), size)]
        made = [value for part in parts for value in part.good.column("made").to_pylist()]
        assert made == [value for one in alone for value in one.good.column("made").to_pylist()]
        assert [why for part in parts for _, why in dead(part)] == [why for one in alone for _, why in dead(one)]


@pytest.mark.parametrize("sql", ["CASE WHEN n >= 0 THEN lpad(text, CAST(9223372036854775807 AS INTEGER), 'x') END"])
def test_constants_that_fail_make_dead_letters_and_do_not_end_the_run(sql: str) -> None:
    for _ in range(2):
        decoded = decode(pipeline(Derive("made", sql)), *[{}] * 3)
        assert [offset for offset, _ in dead(decoded)] == [0, 1, 2]


def test_an_expression_that_cannot_be_planned_is_not_tried_for_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    run, runs = _Plan.run, list[int]()

    def counted(*given: Any) -> Any:  # noqa: ANN401 - of any plan
        runs.append(1)
        return run(*given)

    monkeypatch.setattr(_Plan, "run", counted)
    count = SMALL_BATCH + 40
    of = pipeline(Derive("made", "CASE WHEN n >= 0 AND CAST('abc' AS BIGINT) > 0 THEN length(text) END"))
    decoded = decode(of, *[{"text": str(number)} for number in range(count)])
    assert dead(decoded) == [
        (offset, "expression: made: Could not convert string 'abc' to INT64") for offset in range(count)
    ]
    assert len(runs) < 10
