"""A log in steps gives the same on every host, step by step."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from windrow.core.output import StepOutput
from windrow.hosts import memory
from windrow.hosts.stream import play as stream
from windrow.model import (
    Aggregate,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    LogSource,
    LongType,
    Pipeline,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
)

MINUTE = 60_000_000
PIPELINE = Pipeline(
    name="worked-example",
    source=LogSource("example"),
    decode=Decode((Field("user", StringType()), Field("t", TimestampType("seconds")), Field("amount", LongType()))),
    time=EventTime("t", Delay(MINUTE)),
    key=("user",),
    window=Tumbling(5 * MINUTE),
    aggregates=(Aggregate("total", Sum("amount")),),
    emit=Emit(lateness=10 * MINUTE),
    sink=SqliteSink("example.db", "example"),
)
EVENTS = [("A", 0, 5), ("B", 2, 3), ("A", 4, 2), ("B", 6, 1), ("A", 1, 1)]


def record(user: str, minute: int, amount: int) -> tuple[int, bytes]:
    return 0, json.dumps({"user": user, "t": 60 * minute, "amount": amount}).encode()


def rows(outputs: list[StepOutput]) -> list[dict[str, list[dict[str, object]]]]:
    return [{part.name: getattr(output, part.name).to_pylist() for part in fields(output)} for output in outputs]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("at_end", ["fire", "hold"])
@pytest.mark.parametrize("cuts", [[5], [2, 0, 2, 1]])
def test_the_worked_example(cuts: list[int], at_end: str) -> None:
    log = iter([record(*event) for event in EVENTS])
    steps = [[next(log) for _ in range(size)] for size in cuts]
    told = memory.play(PIPELINE, steps, at_end)  # type: ignore[arg-type]
    assert rows(stream.play(PIPELINE, steps, at_end)) == rows(told)  # type: ignore[arg-type]
    changes = [
        (row["op"], row["pane"], row["user"], int(row["total"]))
        for output in told
        for row in output.changes.to_pylist()
    ]
    expected = [
        ("insert", "on_time", "A", 7),
        ("insert", "on_time", "B", 3),
        ("update_before", "late", "A", 7),
        ("update_after", "late", "A", 8),
    ]
    if at_end == "fire":
        expected.append(("insert", "on_time", "B", 1))
    assert sorted(changes, key=lambda change: change[2]) == sorted(expected, key=lambda change: change[2])
