"""What a JSON value means as each type."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from tests.short_forms import Pipeline, windowed

from windrow.model import (
    Aggregate,
    BooleanType,
    Count,
    DataType,
    DecimalType,
    Decode,
    Delay,
    DoubleType,
    Emit,
    EventTime,
    Field,
    LogSource,
    LongType,
    SqliteSink,
    StringType,
    TimestampType,
    Tumbling,
)
from windrow.testing.oracle import LogRecord
from windrow.testing.oracle.reading import DeadLetterError, read

PIPELINE = Pipeline(
    name="values",
    source=LogSource("values"),
    decode=Decode((Field("t", TimestampType("micros")), Field("v", LongType()))),
    time=EventTime("t", Delay(0)),
    key=("v",),
    window=Tumbling(1),
    aggregates=(Aggregate("n", Count()),),
    emit=Emit(),
    sink=SqliteSink("values.db", "data"),
)


def value(type_: DataType, json_text: str) -> object:
    """Return the value of `v`, or the reason why the record is not good."""
    pipeline = replace(PIPELINE, decode=Decode((Field("t", TimestampType("micros")), Field("v", type_))))
    try:
        reading = read(windowed(pipeline), LogRecord(0, None, f'{{"t": 0, "v": {json_text}}}'.encode()))
    except DeadLetterError as exc:
        return str(exc)
    return reading.fields and reading.fields["v"]


WRONG, RANGE = "wrong type", "out of range"

CASES: list[tuple[DataType, str, Any]] = [
    (StringType(), '"a"', "a"),
    (StringType(), '"\\ud83d\\ude00"', "\U0001f600"),
    (StringType(), '"\\ud800"', "malformed"),
    (StringType(), '"\\u0000"', WRONG),
    (StringType(), "7", WRONG),
    (StringType(), "true", WRONG),
    (StringType(), "null", "null"),
    (BooleanType(), "false", False),
    (BooleanType(), '"false"', WRONG),
    (BooleanType(), "0", WRONG),
    (LongType(), "7", 7),
    (LongType(), "-0", 0),
    (LongType(), '"7"', 7),
    (LongType(), '" 7"', WRONG),
    (LongType(), '"07"', WRONG),
    (LongType(), "07", "malformed"),
    (LongType(), "1.0", 1),
    (LongType(), "1e3", 1000),
    (LongType(), "1200e-2", 12),
    (LongType(), "1.5", WRONG),
    (LongType(), "true", WRONG),
    (LongType(), "9223372036854775807", 2**63 - 1),
    (LongType(), "-9223372036854775808", -(2**63)),
    (LongType(), "9223372036854775808", RANGE),
    (LongType(), "1e999999999999", RANGE),
    (LongType(), "0e999999999999", 0),
    (LongType(), "1e-999999999999", WRONG),
    (DoubleType(), "0.1", 0.1),
    (DoubleType(), '"1e3"', 1000.0),
    (DoubleType(), "1e400", RANGE),
    (DoubleType(), '"NaN"', WRONG),
    (DoubleType(), "NaN", "malformed"),
    (DoubleType(), "false", WRONG),
    (DecimalType(12, 2), "12.34", Decimal("12.34")),
    (DecimalType(12, 2), "12.340", Decimal("12.34")),
    (DecimalType(12, 2), "12.345", WRONG),
    (DecimalType(12, 2), '"-0.5"', Decimal("-0.5")),
    (DecimalType(12, 2), "9999999999.99", Decimal("9999999999.99")),
    (DecimalType(12, 2), "10000000000", RANGE),
    (DecimalType(12, 2), "1e-3", WRONG),
    (DecimalType(2, 2), "0.99", Decimal("0.99")),
    (DecimalType(2, 2), "1", RANGE),
    (TimestampType("seconds"), "1", 1_000_000),
    (TimestampType("millis"), "-1", -1_000),
    (TimestampType("micros"), "1.0", 1),
    (TimestampType("micros"), "253402300799999999", 253402300799999999),
    (TimestampType("micros"), "253402300800000000", RANGE),
    (TimestampType("seconds"), "-62135596801", RANGE),
    (TimestampType("iso"), '"1970-01-01T00:00:01.5Z"', 1_500_000),
    (TimestampType("iso"), '"1970-01-01 00:00"', 0),
    (TimestampType("iso"), '"1969-12-31T23:59:59.999999+00:00"', -1),
    (TimestampType("iso"), '"1970-01-01T01:30:00+01:30"', 0),
    (TimestampType("iso"), '"1969-12-31T22:30:00-0130"', 0),
    (TimestampType("iso"), '"1970-01-01T00:00:00.0000001"', WRONG),
    (TimestampType("iso"), '"1970-02-30T00:00:00"', RANGE),
    (TimestampType("iso"), '"1970-01-01"', WRONG),
    (TimestampType("iso"), "0", WRONG),
]


@pytest.mark.parametrize(("type_", "json_text", "expected"), CASES)
def test_value(type_: DataType, json_text: str, expected: Any) -> None:  # noqa: ANN401 - any value
    found = value(type_, json_text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "malformed"),
        (b"\xff", "malformed"),
        (b'\xef\xbb\xbf{"t": 0, "v": 0}', "malformed"),
        (b'{"t": 0, "v": 0,}', "malformed"),
        (b'{"t": 0, "v": 0} //', "malformed"),
        (b"{'t': 0, 'v': 0}", "malformed"),
        (b'{"t": 0, "v": 0, "x": "\n"}', "malformed"),
        (b'{"t": 0, "v": 0, "x": Infinity}', "malformed"),
        (b'{"t": 0, "v": 0, "x": 1, "x": "\\ud800"}', "malformed"),
        (b'{"t": 0, "v": 0, "x": ' + b"[" * 256 + b"]" * 256 + b"}", "malformed"),
        (b"[" * 100_000, "malformed"),
        (b"[[1, 2]]", "not an object"),
        (b"[]", "not an object"),
        (b'"t"', "not an object"),
        (b"null", "not an object"),
        (b"{}", "missing"),
        (b'{"t": 0}', "missing"),
        (b'{"t": null, "v": 0}', "null"),
    ],
)
def test_record_that_is_not_good(raw: bytes, reason: str) -> None:
    with pytest.raises(DeadLetterError, match=f"^{reason}$"):
        read(windowed(PIPELINE), LogRecord(0, None, raw))


@pytest.mark.parametrize(
    "raw",
    [
        b' {"v": 1, "t": 0, "t": null} \n',
        b'{"v": 1, "t": 0, "x": {"y": [null]}}',
        b'{"v": 1, "t": 0, "x": ' + b"[" * 255 + b"]" * 255 + b"}",
    ],
)
def test_record_that_is_good(raw: bytes) -> None:
    reading = read(windowed(PIPELINE), LogRecord(0, None, raw))
    assert (reading.fields, reading.time, reading.mark) == ({"t": 0, "v": 1}, 0, None)
