from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.short_forms import Pipeline, operator_spec

from windrow.engine import schema
from windrow.engine.decode import exact
from windrow.engine.decode.decoder import SMALL_BATCH, SMALL_BYTES, DecodedBatch, Decoder
from windrow.model import (
    Aggregate,
    BooleanType,
    Calendar,
    Count,
    DataType,
    DecimalType,
    Decode,
    Delay,
    DoubleType,
    Emit,
    EventTime,
    Field,
    Hopping,
    KafkaSource,
    LogSource,
    LongType,
    Punctuated,
    Session,
    SqliteSink,
    StringType,
    TimestampType,
    Tumbling,
    Window,
)

MILLIS = TimestampType("millis")
T0 = 1_767_225_600_000  # 2026-01-01 in milliseconds
MAIN_JOB: dict[str, DataType] = {"user_id": StringType(), "event_time": MILLIS, "amount": DecimalType(12, 2)}


def pipeline(
    *,
    fields: dict[str, DataType] | None = None,
    log: bool = False,
    future: int | None = None,
    sent: str | None = None,
    punctuated: str | None = None,
) -> Pipeline:
    fields = fields or MAIN_JOB
    return Pipeline(
        name="test",
        source=LogSource("data/spend") if log else KafkaSource("localhost:1", "spend"),
        decode=Decode(tuple(Field(name, type_) for name, type_ in fields.items())),
        time=EventTime("event_time", Punctuated(punctuated) if punctuated else Delay(0), future, sent),
        key=("user_id",),
        window=Tumbling(300_000_000),
        aggregates=(Aggregate("events", Count()),),
        emit=Emit(),
        sink=SqliteSink("x.db", "t"),
    )


def raw(*values: bytes | str | dict[str, Any] | None, log_time: int | None = None) -> pa.Table:
    """Return the values as a table of raw records of partition 3, with offsets from 10; `log_time` in microseconds."""
    data = [json.dumps(v).encode() if isinstance(v, dict) else v.encode() if isinstance(v, str) else v for v in values]
    return pa.table(
        [
            pa.array([3] * len(data), pa.int32()),
            pa.array(range(10, 10 + len(data)), pa.int64()),
            pa.array([log_time] * len(data), pa.int64()).cast(schema.MICROS),
            pa.nulls(len(data), pa.binary()),
            pa.array(data, pa.binary()),
        ],
        schema=schema.RAW,
    )


def reasons(decoded: DecodedBatch) -> list[str]:
    return [str(reason) for reason in decoded.dead.column("reason").to_pylist()]


def one_field(type_: DataType, value: str) -> object:
    """Decode one record whose field `x` is written as `value`; return its value or the dead letter's reason."""
    fields: dict[str, DataType] = {"user_id": StringType(), "event_time": MILLIS, "x": type_}
    decoded = Decoder(operator_spec(pipeline(fields=fields))).decode(
        raw(f'{{"user_id": "u", "event_time": {T0}, "x": {value}}}')
    )
    assert decoded.good.num_rows + decoded.dead.num_rows == 1
    return decoded.good.column("x")[0].as_py() if decoded.good.num_rows else reasons(decoded)[0]


def test_a_record_of_the_main_job() -> None:
    decoded = Decoder(operator_spec(pipeline())).decode(raw({"user_id": "u1", "event_time": T0, "amount": 12.34}))
    assert decoded.good.to_pylist() == [
        {
            "partition": 3,
            "offset": 10,
            "time": T0 * 1000,
            "user_id": "u1",
            "event_time": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
            "amount": Decimal("12.34"),
        }
    ]
    assert decoded.good.schema.field("amount").type == pa.decimal128(12, 2)
    assert decoded.dead.schema == schema.DEAD
    assert (decoded.dead.num_rows, decoded.marks.num_rows) == (0, 0)


def test_a_large_record_is_not_parsed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"user_id": "u1", "event_time": T0, "amount": 12.34}
    large = record | {"unread": {f"name{number}": number for number in range(SMALL_BYTES // 16)}}
    decoder = Decoder(operator_spec(pipeline()))
    expected = decoder.decode(raw(record)).good
    monkeypatch.setattr(exact, "parse_object", lambda _: pytest.fail("parsed"))
    assert decoder.decode(raw(large)).good == expected


def test_an_empty_batch_has_the_same_schemas() -> None:
    decoder = Decoder(operator_spec(pipeline()))
    empty, full = decoder.decode(raw()), decoder.decode(raw({"user_id": "u1", "event_time": T0, "amount": 12.34}))
    assert (empty.good.schema, empty.marks.schema, empty.dead.schema) == (
        full.good.schema,
        full.marks.schema,
        full.dead.schema,
    )


def test_a_record_batch_is_decoded_like_a_table() -> None:
    table = raw({"user_id": "u1", "event_time": T0, "amount": 12.34}, "nonsense")
    decoder = Decoder(operator_spec(pipeline()))
    assert decoder.decode(table.to_batches()[0]) == decoder.decode(table)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "malformed: no value"),
        (b"", "malformed: not JSON"),
        (b"\xff\xfe", "malformed: not UTF-8 at byte 0"),
        (b'{"user_id": "\xe4", "event_time": 1, "amount": 1}', "malformed: not UTF-8 at byte 13"),
        (b"\xef\xbb\xbf{}", "malformed: not JSON"),
        (b'{"user_id": "u", "event_time": 1, "amount": 1', "malformed: not JSON"),
        (b'{"user_id": "u", "event_time": 1, "amount": 1,}', "malformed: not JSON"),
        (b'{"user_id": "u", "event_time": 1, "amount": NaN}', "malformed: not JSON"),
        (b'{"user_id": "u", "event_time": 1, "amount": 1, "z": -Infinity}', "malformed: not JSON"),
        (b'{"user_id": "u", "event_time": 1, "amount": 1, "z": 01}', "malformed: not JSON"),
        (b'{"user_id": "u", "event_time": 1, "amount": 1} {}', "malformed: not JSON"),
        (b'{"user_id": "\\ud800", "event_time": 1, "amount": 1}', "malformed: half of a surrogate pair"),
        (b'{"user_id": "u", "event_time": 1, "amount": 1, "z": "\\\\\\udc00"}', "malformed: half of a surrogate pair"),
        (b'{"user_id": "u", "event_time": 1, "amount": 1, "z": ' + b"[" * 300 + b"]" * 300 + b"}", "malformed: nested"),
        (b"[" * 100_000, "malformed: nested too deeply"),
        (b"[1]", "not an object: an array"),
        (b"null", "not an object: null"),
        (b"true", "not an object: true"),
        (b"12", "not an object: a number"),
        (b'"x"', "not an object: a string"),
        (b"{}", "missing: user_id"),
        (b'{"user_id": "u", "amount": 1}', "missing: event_time"),
        (b'{"user_id": null, "event_time": 1, "amount": 1}', "null: user_id"),
        (b'{"user_id": 5, "event_time": 1, "amount": 1}', "wrong type: user_id: 5 is not a string"),
        (b'{"user_id": "a\\u0000", "event_time": 1, "amount": 1}', "wrong type: user_id: "),
        (b'{"user_id": {}, "event_time": 1, "amount": 1}', "wrong type: user_id: an object is not a string"),
        (b'{"user_id": "u", "event_time": 1, "amount": "a"}', 'wrong type: amount: "a" is not a decimal(12,2)'),
        (b'{"user_id": "u", "event_time": 1, "amount": 1e10}', "out of range: amount: 1e10 does not fit"),
        (b'{"user_id": "u", "event_time": 1, "user_id": 2, "amount": true}', "wrong type: amount: true is not a"),
    ],
)
def test_a_dead_letter_says_why(value: bytes | None, reason: str) -> None:
    decoded = Decoder(operator_spec(pipeline())).decode(raw(value, log_time=7))
    (letter,) = decoded.dead.to_pylist()
    assert letter["reason"].startswith(reason)
    assert (letter["source"], letter["partition"], letter["offset"], letter["raw"]) == ("spend", 3, 10, value)
    assert letter["log_time"] == dt.datetime(1970, 1, 1, 0, 0, 0, 7, dt.UTC)
    assert decoded.good.num_rows == 0


@pytest.mark.parametrize("copies", [1, SMALL_BATCH], ids=["one by one", "a batch"])
def test_a_dead_letter_says_what_is_at_a_path(copies: int) -> None:
    fields = (
        Field("user_id", StringType(), path=("user", "account", "id")),
        Field("event_time", TimestampType("millis")),
        Field("age", LongType(), optional=True, path=("user", "age")),
    )
    nested = replace(pipeline(), decode=Decode(fields))
    users = {
        '{"account": {"id": "u"}, "age": 7}': ("u", 7),
        '{"account": {"id": "u"}}': ("u", None),
        '{"account": {}}': "missing: user_id (user.account.id)",
        '{"account": null}': "missing: user_id (user.account.id)",
        '{"account": {"id": null}}': "null: user_id (user.account.id)",
        '{"account": {"id": 5}}': "wrong type: user.account.id: 5 is not a string",
        '{"account": {"id": "u"}, "age": "x"}': 'wrong type: user.age: "x" is not a long',
        '{"account": [{"id": "u"}]}': "wrong type: user.account: an array is not an object",
        '"u"': 'wrong type: user: "u" is not an object',
        "null": "missing: user_id (user.account.id)",
    }
    decoded = Decoder(operator_spec(nested)).decode(
        raw(*[f'{{"user": {user}, "event_time": 1}}' for user in users] * copies)
    )
    found: dict[int, object] = {row["offset"]: (row["user_id"], row["age"]) for row in decoded.good.to_pylist()}
    found |= {row["offset"]: row["reason"] for row in decoded.dead.to_pylist()}
    assert [found[offset] for offset in sorted(found)] == list(users.values()) * copies


JUST = dt.datetime(2026, 1, 1, microsecond=123456, tzinfo=dt.UTC)
T_FINE = "2026-01-01T00:00:00.0000001"
LONGEST = "1234567890123456789012345678.0123456789"
WRONG = "wrong type: x: "
RANGE = "out of range: x: "


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (StringType(), '"\\u00e4\\n\\ud83d\\ude00"', "\u00e4\n\U0001f600"),
        (StringType(), '""', ""),
        (BooleanType(), "true", True),
        (BooleanType(), "false", False),
        (BooleanType(), '"true"', WRONG + '"true" is not a boolean'),
        (BooleanType(), "1", WRONG + "1 is not a boolean"),
        (LongType(), "7", 7),
        (LongType(), '"7"', 7),
        (LongType(), "-0", 0),
        (LongType(), "1.0", 1),
        (LongType(), "1e3", 1000),
        (LongType(), "120e-1", 12),
        (LongType(), "9223372036854775807", 2**63 - 1),
        (LongType(), "-9223372036854775808", -(2**63)),
        (LongType(), "9007199254740993.0", 2**53 + 1),
        (LongType(), "9223372036854775808", RANGE + "9223372036854775808 does not fit long"),
        (LongType(), "1e999999999999999999999", RANGE + "1e999999999999999999999 does not fit long"),
        (LongType(), "0e999999999999999999999", 0),
        (LongType(), "1e-999999999999999999999", WRONG + "1e-999999999999999999999 is not a long"),
        (LongType(), "1.5", WRONG + "1.5 is not a long"),
        (LongType(), "true", WRONG + "true is not a long"),
        (LongType(), '" 7"', WRONG + '" 7" is not a long'),
        (LongType(), '"07"', WRONG + '"07" is not a long'),
        (LongType(), '"\uff17"', WRONG + '"\\uff17" is not a long'),
        (DoubleType(), "0.1", 0.1),
        (DoubleType(), '"1E2"', 100.0),
        (DoubleType(), "12345678901234567890", 12345678901234567890.0),
        (DoubleType(), "2.2250738585072011e-308", 2.2250738585072011e-308),
        (DoubleType(), "1e400", RANGE + "1e400 does not fit double"),
        (DoubleType(), '"nan"', WRONG + '"nan" is not a double'),
        (DecimalType(12, 2), "12.340", Decimal("12.34")),
        (DecimalType(12, 2), "1e2", Decimal("100.00")),
        (DecimalType(12, 2), '"-0.05"', Decimal("-0.05")),
        (DecimalType(12, 2), "9999999999.99", Decimal("9999999999.99")),
        (DecimalType(12, 2), "10000000000", RANGE + "10000000000 does not fit decimal(12,2)"),
        (DecimalType(12, 2), "12.345", WRONG + "12.345 is not a decimal(12,2)"),
        (DecimalType(12, 2), "0.00", Decimal("0.00")),
        (DecimalType(38, 10), f"{LONGEST}", Decimal(LONGEST)),
        (DecimalType(2, 2), "0.25", Decimal("0.25")),
        (DecimalType(2, 2), "1", RANGE + "1 does not fit decimal(2,2)"),
        (TimestampType("seconds"), "1", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
        (TimestampType("millis"), "-1", dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)),
        (TimestampType("micros"), '"1"', dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)),
        (TimestampType("seconds"), "1.5", WRONG + "1.5 is not a timestamp_seconds"),
        (TimestampType("millis"), "253402300800000", RANGE + "253402300800000 does not fit timestamp_millis"),
        (TimestampType("seconds"), "9223372036854775807", RANGE + "9223372036854775807 does not fit timestamp_seconds"),
        (TimestampType("iso"), '"2026-01-01T10:00"', dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)),
        (TimestampType("iso"), '"2026-01-01 10:00:00.5Z"', dt.datetime(2026, 1, 1, 10, 0, 0, 500_000, tzinfo=dt.UTC)),
        (TimestampType("iso"), '"2026-01-01T10:00:00+02:30"', dt.datetime(2026, 1, 1, 7, 30, tzinfo=dt.UTC)),
        (TimestampType("iso"), '"0001-01-01T00:00:00Z"', dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
        (TimestampType("iso"), '"0001-01-01T00:00:00+01"', RANGE + '"0001-01-01T00:00:00+01" does not fit timestamp'),
        (TimestampType("iso"), '"2026-02-29T00:00:00"', RANGE + '"2026-02-29T00:00:00" does not fit timestamp'),
        (TimestampType("iso"), '"2026-01-01T00:00:00.1234560"', JUST),
        (TimestampType("iso"), '"2026-01-01T00:00:00.0000001"', WRONG + f'"{T_FINE}" is not a timestamp'),
        (TimestampType("iso"), "1767225600000", WRONG + "1767225600000 is not a timestamp"),
    ],
)  # fmt: skip
def test_types_hold_what_they_can_hold_exactly(type_: DataType, value: str, expected: object) -> None:
    got = one_field(type_, value)
    assert got == expected
    assert type(got) is type(expected)


def test_a_long_value_is_cut_in_the_reason() -> None:
    assert one_field(LongType(), f'"{"x" * 100}"') == WRONG + '"' + "x" * 39 + "... is not a long"


def test_of_a_key_that_comes_twice_the_first_counts() -> None:
    decoded = Decoder(operator_spec(pipeline())).decode(
        raw(f'{{"user_id":"a","event_time":{T0},"amount":1,"user_id":"b","amount":"x"}}')
    )
    assert decoded.good.column("user_id").to_pylist() == ["a"]


def test_order_is_kept_and_nothing_is_lost() -> None:
    rows = [{"user_id": f"u{i}", "event_time": T0 + i, "amount": 1 if i % 3 else "bad"} for i in range(30)]
    decoded = Decoder(operator_spec(pipeline())).decode(raw(*rows))
    assert decoded.dead.column("offset").to_pylist() == [10 + i for i in range(30) if i % 3 == 0]
    assert decoded.good.column("offset").to_pylist() == [10 + i for i in range(30) if i % 3]


@pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])
def test_an_event_time_whose_window_is_outside_the_years_1_to_9999_is_dead(count: int) -> None:
    fields: dict[str, DataType] = {"user_id": StringType(), "event_time": TimestampType("micros")}
    end, day = 253_402_300_800_000_000, 86_400_000_000
    windows: list[tuple[Window, int]] = [
        (Tumbling(300_000_000), end - 300_000_000),
        (Hopping(300_000_000, 60_000_000), end - 300_000_000),
        (Session(300_000_000), end - 300_000_000),
        (Calendar(1, "month"), end - 31 * day),
    ]
    for window, first in windows:
        decoder = Decoder(operator_spec(replace(pipeline(fields=fields), window=window)))
        records = [{"user_id": "u", "event_time": time} for time in (first - 1, first)]
        decoded = decoder.decode(raw(*records * count))
        assert decoded.good.column("time").to_pylist() == [first - 1] * count
        reason = "out of range: event_time: a window of the record would end after the year 9999"
        assert reasons(decoded) == [reason] * count
    early = {"user_id": "u", "event_time": -62_135_596_800_000_000}
    decoder = Decoder(operator_spec(replace(pipeline(fields=fields), window=Hopping(300_000_000, 60_000_000))))
    reason = "out of range: event_time: a window of the record would begin before the year 1"
    assert reasons(decoder.decode(raw(*[early] * count))) == [reason] * count


class TestFuture:
    hour = 3_600_000_000

    def test_a_record_too_far_ahead_of_the_log_is_dead(self) -> None:
        decoder = Decoder(operator_spec(pipeline(future=self.hour)))
        record = {"user_id": "u", "event_time": T0, "amount": 1}
        assert decoder.decode(raw(record, log_time=T0 * 1000 - self.hour)).good.num_rows == 1
        dead = decoder.decode(raw(record, log_time=T0 * 1000 - self.hour - 1))
        assert reasons(dead) == ["future: event_time is 1h1us ahead of the log timestamp; time.future allows 1h"]

    def test_without_a_log_time_there_is_no_guard(self) -> None:
        decoded = Decoder(operator_spec(pipeline(future=0))).decode(
            raw({"user_id": "u", "event_time": T0, "amount": 1})
        )
        assert decoded.good.num_rows == 1

    def test_an_embedded_log_has_its_log_time_inside(self) -> None:
        decoder = Decoder(operator_spec(pipeline(future=0, log=True)))
        record = {"user_id": "u", "event_time": T0, "amount": 1}
        decoded = decoder.decode(
            raw(
                record,
                record | {"_log_time": None},
                record | {"_log_time": T0},
                record | {"_log_time": T0 - 1},
                record | {"_log_time": "soon"},
                record | {"_log_time": 1.5},
                {"_log_time": 5},
            )
        )
        assert decoded.good.column("offset").to_pylist() == [10, 11, 12]
        assert [(r["offset"], r["reason"].split(" is ")[0], r["log_time"]) for r in decoded.dead.to_pylist()] == [
            (13, "future: event_time", dt.datetime(2025, 12, 31, 23, 59, 59, 999_000, dt.UTC)),
            (14, 'wrong type: _log_time: "soon"', None),
            (15, "wrong type: _log_time: 1.5", None),
            (16, "missing: user_id", dt.datetime(1970, 1, 1, 0, 0, 0, 5000, dt.UTC)),
        ]

    def test_a_topic_has_no_log_time_inside(self) -> None:
        record = {"user_id": "u", "event_time": T0, "amount": 1, "_log_time": "soon"}
        assert Decoder(operator_spec(pipeline(future=0))).decode(raw(record)).good.num_rows == 1


class TestPunctuation:
    record: dict[str, Any] = {"user_id": "u", "event_time": T0, "amount": 1}  # noqa: RUF012 (never changed)

    def test_a_mark_alone_is_no_dead_letter(self) -> None:
        decoded = Decoder(operator_spec(pipeline(punctuated="w"))).decode(
            raw(
                {"w": T0},
                {"w": T0 + 1, "user_id": "u"},
                {"w": T0 + 2, "event_time": T0, "amount": "bad"},
                {"w": T0 + 3, "event_time": None, "user_id": "u"},
            )
        )
        assert decoded.marks.to_pylist() == [
            {"partition": 3, "offset": 10 + i, "watermark": (T0 + i) * 1000} for i in range(4)
        ]
        assert (decoded.good.num_rows, decoded.dead.num_rows) == (0, 0)

    def test_a_mark_with_data_is_both(self) -> None:
        decoded = Decoder(operator_spec(pipeline(punctuated="w"))).decode(raw(self.record | {"w": T0}, self.record))
        assert decoded.good.column("offset").to_pylist() == [10, 11]
        assert decoded.marks.column("offset").to_pylist() == [10]

    def test_a_dead_letter_moves_no_clock(self) -> None:
        decoded = Decoder(operator_spec(pipeline(punctuated="w"))).decode(
            raw(self.record | {"w": T0, "amount": "bad"}, self.record | {"w": "bad"}, {"w": "bad"}, {"user_id": "u"})
        )
        assert decoded.dead.num_rows == 4
        assert decoded.marks.num_rows == 0

    def test_a_declared_mark_is_optional(self) -> None:
        fields: dict[str, DataType] = {"user_id": StringType(), "event_time": MILLIS, "w": MILLIS}
        decoded = Decoder(operator_spec(pipeline(fields=fields, punctuated="w"))).decode(
            raw({"user_id": "u", "event_time": T0}, {"user_id": "u", "event_time": T0, "w": 5})
        )
        assert decoded.good.column("w").to_pylist() == [None, dt.datetime(1970, 1, 1, 0, 0, 0, 5000, dt.UTC)]

    def test_a_mark_too_far_ahead_of_the_log_is_dead(self) -> None:
        decoded = Decoder(operator_spec(pipeline(punctuated="w", future=0))).decode(
            raw({"w": T0}, {"w": T0 + 1}, self.record | {"w": T0 + 1}, log_time=T0 * 1000)
        )
        assert decoded.marks.num_rows == 1
        assert [reason.split(" is ")[0] for reason in reasons(decoded)] == ["future: w", "future: w"]
