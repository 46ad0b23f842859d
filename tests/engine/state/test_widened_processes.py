"""A process whose fields, state and rows get wider types: it goes on as if they had been so from the beginning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from tests.engine.state.test_migrate import PLAIN, Story
from tests.short_forms import ProcessPipeline

from windrow.engine.state.widening import StateChange
from windrow.model import (
    DataType,
    DecimalType,
    Decode,
    Derive,
    Field,
    ListState,
    LongType,
    MapState,
    Process,
    ValueState,
)


def summing(ctx: Any, record: Any) -> None:  # noqa: ANN401 - what a process is given
    """Keep a sum, and the amounts by how often each came."""
    ctx.state.total.set(ctx.state.total.get(0) + record["amount"])
    ctx.state.all.append(record["amount"])
    ctx.state.times.set(record["twice"], ctx.state.times.get(record["twice"], 0) + 1)
    ctx.emit(
        total=ctx.state.total.get(),
        most=max(ctx.state.all.get()),
        times=max(times for _, times in ctx.state.times.items()),
    )


def pipeline(amount: DataType, twice: DataType, order: Literal["log", "event_time"]) -> ProcessPipeline:
    """A process over amounts; the key is made of one too."""
    return ProcessPipeline(
        name="summing",
        source=PLAIN.source,
        decode=Decode(
            (*PLAIN.decode.fields[:2], Field("amount", amount)),
        ),
        time=PLAIN.time,
        key=("user_id", "odd"),
        process=Process(
            summing,
            (ValueState("total", amount), ListState("all", amount), MapState("times", twice, LongType())),
            (Field("total", amount), Field("most", amount), Field("times", LongType())),
            order=order,
        ),
        sink=PLAIN.sink,
        key_groups=2,
        derive=(Derive("twice", "amount * 2"), Derive("odd", "amount % 2")),
    )


@pytest.mark.parametrize("order", ["log", "event_time"])
@pytest.mark.parametrize(
    ("there", "here"),
    [
        ((DecimalType(5, 2), DecimalType(18, 2)), (DecimalType(9, 2), DecimalType(22, 2))),
        ((LongType(), LongType()), (DecimalType(19, 0), DecimalType(28, 0))),
    ],
    ids=["decimal", "long"],
)
def test_a_process_goes_on_with_wider_types(
    there: tuple[DataType, DataType], here: tuple[DataType, DataType], order: Literal["log", "event_time"]
) -> None:
    before, after = pipeline(*there, order), pipeline(*here, order)
    story, plain = Story(before), Story(after)
    for one in (story, plain):
        one.at(*((1, f"u{number}", "3") for number in range(9)), (3, "x", "1"))
        one.at(*((4, f"u{number}", "4") for number in range(5)))  # in order of event time these are held
    were = tuple(field for field in before.decode.fields if field not in after.decode.fields)
    story.goes_on(replace(after, key_groups=3), StateChange(same_records=False, were=were))
    for records in ([(5, f"u{number}", "12345") for number in range(9)], [(9, "x", "-1")]):
        ours, theirs = (
            one.at(*records).changes.sort_by([("user_id", "ascending"), ("revision", "ascending"), ("op", "ascending")])
            for one in (story, plain)
        )
        assert ours.to_pylist() == theirs.to_pylist()
        assert ours.num_rows
