"""How fast the decoder is on records of the main job: ``python bench/decode.py``."""

from __future__ import annotations

import random
import time

import pyarrow as pa

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
    KafkaSource,
    Pipeline,
    SqliteSink,
    StringType,
    TimestampType,
    Tumbling,
)

RECORDS = 100_000
ROUNDS = 20
MALFORMED = 1000
"""One record of so many is cut short."""

PIPELINE = Pipeline(
    name="user-spend",
    source=KafkaSource("localhost:9092", "spend"),
    decode=Decode(
        (
            Field("user_id", StringType()),
            Field("event_time", TimestampType("millis")),
            Field("amount", DecimalType(12, 2)),
        )
    ),
    time=EventTime("event_time", Delay(600_000_000), future=3_600_000_000),
    key=("user_id",),
    window=Tumbling(300_000_000),
    aggregates=(Aggregate("events", Count()),),
    emit=Emit(),
    sink=SqliteSink("spend.db", "user_spend_5m"),
)


def records(count: int) -> pa.RecordBatch:
    """Return raw records in `schema.RAW`."""
    rng = random.Random(1)
    start = 1_767_225_600_000
    values = []
    for i in range(count):
        amount = f"{rng.random() * 100:.2f}"
        value = f'{{"user_id":"u{rng.randrange(10_000):05d}","event_time":{start + 86 * i},"amount":{amount}}}'.encode()
        values.append(value if i % MALFORMED else value[:-5])
    return pa.record_batch(
        [
            pa.array([0] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array([(start + 86 * i) * 1000 for i in range(count)], pa.int64()).cast(schema.MICROS),
            pa.nulls(count, pa.binary()),
            pa.array(values, pa.binary()),
        ],
        schema=schema.RAW,
    )


def main() -> None:
    """Print records a second: the best and the median of some rounds."""
    batch = records(RECORDS)
    decoder = Decoder(PIPELINE)
    decoder.decode(batch)
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        decoded = decoder.decode(batch)
        times.append(time.perf_counter() - begin)
        if decoded.good.num_rows + decoded.dead.num_rows != RECORDS:
            msg = "records were lost"
            raise AssertionError(msg)
    times.sort()
    print(f"decode: {RECORDS / times[0]:,.0f} records/s at best, {RECORDS / times[ROUNDS // 2]:,.0f} in the median")


if __name__ == "__main__":
    main()
