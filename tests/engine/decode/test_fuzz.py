"""Any bytes at all: each record is good or dead, none is lost, nothing raises."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.short_forms import Pipeline, operator_spec

from windrow.engine import schema
from windrow.engine.decode.decoder import Decoder
from windrow.model import (
    Aggregate,
    AvroFormat,
    BooleanType,
    Count,
    CsvFormat,
    DecimalType,
    Decode,
    Delay,
    DoubleType,
    Emit,
    EventTime,
    Field,
    KafkaSource,
    LogSource,
    LongType,
    RecordFormat,
    SourceNode,
    SqliteSink,
    StringType,
    TimestampType,
    Tumbling,
)

PIPELINE = Pipeline(
    name="fuzz",
    source=LogSource("data/fuzz"),
    decode=Decode(
        (
            Field("user_id", StringType()),
            Field("event_time", TimestampType("millis")),
            Field("amount", DecimalType(12, 2)),
        )
    ),
    time=EventTime("event_time", Delay(0), future=3_600_000_000),
    key=("user_id",),
    window=Tumbling(300_000_000),
    aggregates=(Aggregate("events", Count()),),
    emit=Emit(),
    sink=SqliteSink("x.db", "t"),
)
SEEDS = [
    b'{"user_id":"u1","event_time":1767225600000,"amount":12.34}',
    b'{"user_id": "\xc3\xa4\xf0\x9f\x98\x80", "event_time": "1767225600000", "amount": "1e2", "_log_time": 1767225600}',
    b'{"a":[1,{"b":null}],"amount":-0.5,"user_id":"\\ud83d\\ude00","event_time":0}',
    b'{"amount":99999999999999999999,"event_time":1e300,"user_id":null}',
]
TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b"\\u00",
    b"\\ud8",
    b"null",
    b"NaN",
    b"1e999",
    b"-",
    b".",
    b"\xff",
]
TOKENS += [
    b"\x00",
    b"\xef\xbb\xbf",
    b"[" * 300,
    b"9" * 400,
    b" ",
    b"\n",
    b'"amount":',
    b'"user_id":"x",',
    b"true",
    b"\xed\xa0\x80",
]


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(60))


def soup(rng: random.Random) -> bytes:
    return b"".join(rng.choices(TOKENS, k=rng.randrange(12)))


def mutation(rng: random.Random) -> bytes:
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.choice([0, 1, 1, 1, 2, 5])):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(4)] = rng.choice([b"", rng.randbytes(1), rng.choice(TOKENS)])
    return bytes(data)


KINDS: list[Callable[[random.Random], bytes | None]] = [noise, soup, mutation, mutation, mutation, lambda _: None]


def batches(count: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yield fuzz in three partitions, with gaps between the offsets."""
    rng = random.Random(7)
    for start in range(0, count, size):
        partitions = np.sort(np.array([rng.randrange(3) for _ in range(size)], dtype=np.int32))
        values = [rng.choice(KINDS)(rng) for _ in range(size)]
        offsets = np.arange(start, start + size) * 3
        log_times = pa.array([rng.choice([None, 0, 1_767_225_600_000_000]) for _ in range(size)], pa.int64())
        columns = [
            partitions,
            offsets,
            log_times.cast(schema.MICROS),
            pa.nulls(size, pa.binary()),
            pa.array(values, pa.binary()),
        ]
        yield pa.record_batch([pa.array(column) for column in columns], schema=schema.RAW)


def each_is_good_or_dead(count: int) -> None:
    decoder = Decoder(operator_spec(PIPELINE))
    good = dead = 0
    for batch in batches(count, 10_000):
        decoded = decoder.decode(batch)
        found = [
            (partition, offset)
            for table in (decoded.good, decoded.dead)
            for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        ]
        read = zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
        assert sorted(found) == list(read)
        assert decoded.good["offset"].to_pylist() == sorted(decoded.good["offset"].to_pylist())
        assert decoded.dead["offset"].to_pylist() == sorted(decoded.dead["offset"].to_pylist())
        assert decoded.marks.num_rows == 0
        decoded.good.validate(full=True)
        decoded.dead.validate(full=True)
        good += decoded.good.num_rows
        dead += decoded.dead.num_rows
    assert good + dead == count
    assert good > count // 20
    assert dead > count // 10


NUMBERS = ["5", "-0", "1" * 5000, "1e999999999", "0e99999999999999999999", "12.340000", "1e2", "9223372036854775808"]
NUMBERS += ["NaN", "-Infinity", "01", "1.", "\u0663", "1.7976931348623159e308", "4.9e-324", ""]
TIMES = [
    "2026-01-01T00:00:00Z",
    "2016-12-31T23:59:60Z",
    "2026-01-01T24:00:00Z",
    "0000-01-01T00:00",
    "2026-02-29 00:00:00",
]
TIMES += ["2026-01-01T00:00:00+25:00", "2026-01-01T00:00:00,5", "2026-01-01T00:00:00.1234567Z", "10000-01-01T00:00:00Z"]
TIMES += ["2026-01-01t00:00:00z", " 2026-01-01T00:00:00Z", "infinity", "9999-12-31T23:59:59-01:00", "2026-01-01"]
LINE = ("1767225600000", "5", "1.25", "0.5", "2026-01-01T00:00:00Z", "u", "true")
CHOICES = (
    ("0", "-1"),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    TIMES,
    ("\u00e4\U0001f600", "a\0b", '"', "\\"),
    ("false", "1", "TRUE"),
)
FIELDS = (
    Field("t", TimestampType("millis")),
    Field("l", LongType(), optional=True),
    Field("d", DecimalType(12, 2), optional=True),
    Field("f", DoubleType(), optional=True),
    Field("i", TimestampType("iso"), optional=True),
    Field("s", StringType(), optional=True),
    Field("b", BooleanType(), optional=True),
)
AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "t", "type": "long"},
        {"name": "l", "type": ["null", "long"]},
        {"name": "d", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "f", "type": ["null", "double", "float"]},
        {"name": "i", "type": ["null", "string"]},
        {"name": "m", "type": {"type": "map", "values": "string"}},
        {"name": "b", "type": ["null", "boolean"]},
    ],
}


def some_line(rng: random.Random) -> list[str]:
    return [rng.choice(odd) if rng.random() < 0.1 else one for one, odd in zip(LINE, CHOICES, strict=True)]


def json_record(rng: random.Random) -> bytes:
    def value(name: str, text: str) -> str:
        is_text = name in {"i", "s"} or rng.random() < 0.1
        return json.dumps(text, ensure_ascii=rng.random() < 0.5) if is_text else text

    members = [f'"{one.name}":{value(one.name, text)}' for one, text in zip(FIELDS, some_line(rng), strict=True)]
    others = ['"l":7', '"\\u006c":7', f'"{"k" * 5000}":1', f'"x":{"[" * 300}{"]" * 300}', '"x":"\\ud83d"', '"L":1']
    return f"{{{','.join(members + rng.choices(others, k=rng.random() < 0.2))}}}".encode()


def csv_record(rng: random.Random) -> bytes:
    quoted = (f'"{one.replace(chr(34), chr(34) * 2)}"' if rng.random() < 0.1 else one for one in some_line(rng))
    return ",".join(quoted).encode() + rng.choice([b"", b"\n", b"\r\n"])


def avro_record(rng: random.Random) -> bytes:
    others: list[list[bytes]] = [
        [b"\x02\x0a", b"\x02" + b"\xff" * 9 + b"\x01"],
        [b"\x02\x02\x7d", b"\x02\x14" + rng.randbytes(10), b"\x02\xa0\x38" + rng.randbytes(3600)],
        [b"\x02" + rng.randbytes(8), b"\x04" + rng.randbytes(2) + b"\x80\x7f"],
        [b"\x02\x02x"],
        [b"\x02\x02\xff\x02y\0", b"\x03\x0a\x02k\x02y\0"],
        [b"\x02\x01"],
    ]
    parts = (rng.choice(some) if rng.random() < 0.2 else b"\0" for some in others)
    return b"\x80\xa0\xd5\xed\xee\x66" + b"".join(parts)


def damaged(record: bytes, rng: random.Random) -> bytes:
    data = bytearray(record)
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(3)] = rng.choice([b"", rng.randbytes(1), *TOKENS])
    return bytes(data)


RECORDS: dict[RecordFormat, Callable[[random.Random], bytes]] = {
    "json": json_record,
    CsvFormat(tuple(one.name for one in FIELDS)): csv_record,
    AvroFormat(json.dumps(AVRO)): avro_record,
}


def outcomes(decoder: Decoder, values: list[bytes]) -> list[dict[str, Any]]:
    """Return what each record is, in order."""
    count = len(values)
    columns = [pa.repeat(0, count), pa.array(range(count)), pa.nulls(count), pa.nulls(count), pa.array(values)]
    raw = pa.table([one.cast(field.type) for one, field in zip(columns, schema.RAW, strict=True)], schema.RAW)
    decoded = decoder.decode(raw)
    for found in (decoded.good, decoded.dead):
        found.validate(full=True)
    rows = [*decoded.good.to_pylist(), *decoded.dead.drop_columns("log_time").to_pylist()]
    return [{**row, "offset": 0} for row in sorted(rows, key=lambda row: row["offset"])]


@pytest.mark.parametrize("format_", RECORDS, ids=lambda one: type(one).__name__)
def test_a_record_is_the_same_alone_and_among_many(format_: RecordFormat) -> None:
    rng, make = random.Random(3), RECORDS[format_]
    decoder = Decoder(
        SourceNode("x", KafkaSource("localhost:1", "x", format=format_), Decode(FIELDS), EventTime("t", Delay(0)))
    )
    values = [damaged(make(rng), rng) for _ in range(600)]
    together = outcomes(decoder, values)
    assert together == [one for value in values for one in outcomes(decoder, [value])]
    dead = sum("reason" in one for one in together)
    assert len(values) // 10 < dead < len(values) * 9 // 10


def test_fuzz() -> None:
    each_is_good_or_dead(50_000)


@pytest.mark.long
def test_a_million_lines_of_fuzz() -> None:
    each_is_good_or_dead(1_000_000)
