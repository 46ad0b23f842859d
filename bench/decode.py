"""How fast the decoder is on records of the main job, by format: ``python bench/decode.py``."""

from __future__ import annotations

import base64
import io
import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2
from google.protobuf.message_factory import GetMessageClass
from tests.short_forms import Pipeline, operator_spec

from windrow.engine import schema
from windrow.engine.decode.decoder import Decoder
from windrow.engine.decode.protobuf import descriptor_of
from windrow.model import (
    Aggregate,
    AvroFormat,
    Count,
    CsvFormat,
    DecimalType,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    KafkaSource,
    ProtobufFormat,
    ProtobufMessage,
    RecordFormat,
    SqliteSink,
    StringType,
    TimestampType,
    Tumbling,
)

RECORDS = 100_000
ROUNDS = 10
MALFORMED = 1000
"""One record of so many is cut short."""

SOURCE = KafkaSource("localhost:9092", "spend")
PIPELINE = Pipeline(
    name="user-spend",
    source=SOURCE,
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


Event = tuple[str, int, str]
"""User, event time in milliseconds, and amount."""
SCHEMA = {
    "type": "record",
    "name": "Spend",
    "fields": [
        {"name": "user_id", "type": "string"},
        {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
    ],
}


def message() -> ProtobufMessage:
    """Return the message of a record."""
    kinds = descriptor_pb2.FieldDescriptorProto
    types = {"user_id": kinds.TYPE_STRING, "event_time": kinds.TYPE_INT64, "amount": kinds.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="spend.proto", package="bench", syntax="proto3")
    fields = [kinds(name=name, number=at, type=type_, label=1) for at, (name, type_) in enumerate(types.items(), 1)]
    file.message_type.add(name="Spend", field=fields)
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return ProtobufMessage(base64.b64encode(files.SerializeToString()).decode(), "bench.Spend")


def writers() -> dict[str, tuple[RecordFormat, Callable[[Event], bytes]]]:
    """Return each format, and what writes a record in it."""
    parsed, given = fastavro.parse_schema(SCHEMA), message()
    made: Any = GetMessageClass(descriptor_of(given))

    def avro(event: Event) -> bytes:
        stream = io.BytesIO()
        values = {"user_id": event[0], "event_time": event[1], "amount": Decimal(event[2])}
        fastavro.schemaless_writer(stream, parsed, values)
        return stream.getvalue()

    def protobuf(event: Event) -> bytes:
        content: bytes = made(user_id=event[0], event_time=event[1], amount=event[2]).SerializeToString()
        return content

    return {
        "json": (
            "json",
            lambda event: f'{{"user_id":"{event[0]}","event_time":{event[1]},"amount":{event[2]}}}'.encode(),
        ),
        "avro": (AvroFormat(json.dumps(SCHEMA)), avro),
        "csv": (CsvFormat(("user_id", "event_time", "amount")), lambda event: ",".join(map(str, event)).encode()),
        "protobuf": (ProtobufFormat(given), protobuf),
    }


def records(count: int, write: Callable[[Event], bytes]) -> pa.RecordBatch:
    """Return raw records in `schema.RAW`."""
    rng = random.Random(1)
    start = 1_767_225_600_000
    values = []
    for i in range(count):
        amount = f"{rng.random() * 100:.2f}"
        value = write((f"u{rng.randrange(10_000):05d}", start + 86 * i, amount))
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
    """Print records a second, the best and the median of some rounds, and processor time beside that of JSON."""
    json_time = 0.0
    for name, (format_, write) in writers().items():
        batch = records(RECORDS, write)
        decoder = Decoder(operator_spec(replace(PIPELINE, source=replace(SOURCE, format=format_))))
        decoder.decode(batch)
        times = []
        processor = time.process_time()
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            decoded = decoder.decode(batch)
            times.append(time.perf_counter() - begin)
            if decoded.good.num_rows + decoded.dead.num_rows != RECORDS:
                msg = "records were lost"
                raise AssertionError(msg)
        each = (time.process_time() - processor) / ROUNDS / RECORDS
        json_time = json_time or each
        times.sort()
        print(
            f"{name}: {RECORDS / times[0]:,.0f} records/s at best, {RECORDS / times[ROUNDS // 2]:,.0f} in the median; "
            f"{each * 1e6:.2f} us of processor time a record, {each / json_time:.2f} of JSON's"
        )


if __name__ == "__main__":
    main()
