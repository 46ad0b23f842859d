"""Any bytes at all: each record is good or dead, none is lost, nothing raises."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from windrow.core import schema
from windrow.core.decode import Decoder
from windrow.model import (
    Aggregate,
    Count,
    DecimalType,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    LogSource,
    Pipeline,
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
    decoder = Decoder(PIPELINE)
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


def test_fuzz() -> None:
    each_is_good_or_dead(50_000)


@pytest.mark.long
def test_a_million_lines_of_fuzz() -> None:
    each_is_good_or_dead(1_000_000)
