"""Pipelines and logs for the tests of the core."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
from tests.short_forms import Pipeline

from windrow.engine.schema import RAW
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
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
)

MINUTE = 60_000_000

MAIN = Pipeline(
    name="user-spend",
    source=LogSource("data/spend"),
    decode=Decode(
        (
            Field("user", StringType()),
            Field("t", TimestampType("micros")),
            Field("amount", DecimalType(12, 2)),
        )
    ),
    time=EventTime("t", Delay(1 * MINUTE)),
    key=("user",),
    window=Tumbling(5 * MINUTE),
    aggregates=(Aggregate("total", Sum("amount")), Aggregate("events", Count())),
    emit=Emit(lateness=10 * MINUTE),
    sink=SqliteSink("spend.db", "spend"),
    key_groups=2,
)


def main(**changes: Any) -> Pipeline:  # noqa: ANN401 - fields of any type
    return replace(MAIN, **changes)


def record(user: str, minute: float, amount: float = 1) -> bytes:
    return json.dumps({"user": user, "t": round(minute * MINUTE), "amount": amount}).encode()


def raw(partition: int, first: int, *values: bytes) -> pa.Table:
    """A piece of one partition's log."""
    rows = [(partition, first + number, None, None, value) for number, value in enumerate(values)]
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, RAW, strict=True)], schema=RAW)
