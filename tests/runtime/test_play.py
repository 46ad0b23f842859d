"""A log in steps gives the same on every host, step by step."""

from __future__ import annotations

import json
import random
from dataclasses import fields, replace
from typing import Literal

import pytest
from tests.engine.outputs import only
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.engine.changelog import StepOutput
from windrow.model import (
    Adaptive,
    Aggregate,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    LogSource,
    LongType,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
)
from windrow.runtime import memory
from windrow.runtime.stream import run as stream

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
@pytest.mark.parametrize(("cuts", "at_end"), [([5], "hold"), ([2, 0, 2, 1], "fire")])
def test_the_worked_example(cuts: list[int], at_end: Literal["fire", "hold"]) -> None:
    log = iter([record(*event) for event in EVENTS])
    steps = [[next(log) for _ in range(size)] for size in cuts]
    told = only(memory.play(as_graph(PIPELINE), steps, at_end))
    assert rows(only(stream.play(as_graph(PIPELINE), steps, at_end))) == rows(told)
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


@pytest.mark.usefixtures("spark")
def test_a_delay_that_follows_the_lateness_seen() -> None:
    chance = random.Random(1)
    log = [(number % 2, record("AB"[number % 2], number - chance.choice([0, 0, 0, 4]), 1)[1]) for number in range(1100)]
    pipeline = replace(PIPELINE, time=EventTime("t", Adaptive(0.7, 0, 30 * MINUTE)))
    steps = [log[:700], log[700:710], log[710:]]
    told = only(memory.play(as_graph(pipeline), steps, "fire"))
    # the delay is 30 minutes to begin with, and nothing is late; then it is shorter
    assert told[0].late.num_rows == 0
    assert "late" in told[2].changes.column("pane").to_pylist()
    assert rows(only(stream.play(as_graph(pipeline), steps, "fire"))) == rows(told)
