"""Which changes of a pipeline can go on from a savepoint, and what is said of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.hosts.spend import MINUTE, spend

from windrow.core.state import MemoryState
from windrow.errors import CheckpointError
from windrow.hosts.changed import changes
from windrow.hosts.meaning import meaning
from windrow.hosts.savepoint import Savepoint
from windrow.hosts.upgrade import meant, upgraded
from windrow.model import (
    Aggregate,
    Count,
    DecimalType,
    Decode,
    Delay,
    EventTime,
    Field,
    LogSource,
    Max,
    Pipeline,
    PostgresSink,
    Punctuated,
    Records,
    SqliteSink,
    StringType,
    Tumbling,
)
from windrow.sinks.base import Run

PIPELINE = spend(LogSource("data/spend"), SqliteSink("spend.db", "spend"))
Edit = Callable[[Pipeline], Pipeline]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A savepoint of `PIPELINE` before its first step."""
    savepoint = Savepoint(Run("user-spend", "one"), 3, {0: 5}, (0,), 8, meaning(PIPELINE))
    savepoint.write(tmp_path / "savepoint", ((group, MemoryState()) for group in range(8)))
    return tmp_path / "savepoint"


def emit(**settings: Any) -> Edit:  # noqa: ANN401 - any setting of `Emit`
    return lambda pipeline: replace(pipeline, emit=replace(pipeline.emit, **settings))


def time(**settings: Any) -> Edit:  # noqa: ANN401 - any setting of `EventTime`
    return lambda pipeline: replace(pipeline, time=replace(pipeline.time, **settings))


def decode(*fields: Field) -> Edit:
    return lambda pipeline: replace(pipeline, decode=Decode((*pipeline.decode.fields, *fields)))


CAN: list[tuple[Edit, list[str]]] = [
    (lambda pipeline: pipeline, []),
    (lambda pipeline: replace(pipeline, sink=PostgresSink("postgresql://localhost/a", "b")), []),
    (lambda pipeline: replace(pipeline, source=LogSource("elsewhere")), []),
    (lambda pipeline: replace(pipeline, aggregates=pipeline.aggregates[::-1]), []),
    (emit(at_end="hold"), []),
    (emit(lateness=60 * MINUTE), ['emit.lateness: "30m" there, "1h" here: windows that are forgotten by now stay so']),
    (emit(lateness=MINUTE), ['emit.lateness: "30m" there, "1m" here: windows that are late by more']),
    (time(watermark=Delay(0)), ['time.delay: "10m" there, "0s" here: true from the next record on']),
    (time(future=None, idle=MINUTE), ['time.future: "1h" there, nothing here', 'time.idle: nothing there, "1m" here']),
    (
        lambda pipeline: replace(pipeline, key_groups=2),
        ["key_groups: 8 there, 2 here: the states are split and joined"],
    ),
    (lambda pipeline: replace(pipeline, salt=3), ["salt: nothing there, 3 here: records are spread"]),
    (
        lambda pipeline: replace(pipeline, aggregates=(*pipeline.aggregates[1:], Aggregate("last", Max("amount")))),
        ['aggregate.total: "sum(amount)" there, nothing here', 'aggregate.last: nothing there, "max(amount)" here'],
    ),
    (decode(Field("shop", StringType())), ['decode.shop: nothing there, "string" here: a record from here on']),
]


@pytest.mark.parametrize(("edit", "told"), CAN, ids=[str(told) for _, told in CAN])
def test_what_can_change_says_what_it_means(edit: Edit, told: list[str], folder: Path) -> None:
    found = [change.text for change in meant(folder, edit(PIPELINE))]
    assert len(found) == len(told)
    assert all(text.startswith(begins) for text, begins in zip(found, told, strict=True)), found
    savepoint, states = upgraded(folder, edit(PIPELINE))
    assert savepoint.meaning == meaning(edit(PIPELINE))
    assert len(list(states)) == savepoint.key_groups == edit(PIPELINE).key_groups


CANNOT: list[tuple[Edit, str]] = [
    (lambda pipeline: replace(pipeline, name="other"), "name"),
    (lambda pipeline: replace(pipeline, window=Tumbling(MINUTE)), "window"),
    (lambda pipeline: replace(pipeline, key=("user_id", "amount")), "key"),
    (lambda pipeline: replace(pipeline, time=EventTime("amount", Delay(0))), "time.field"),
    (time(sent="amount"), "time.sent"),
    (emit(mode="discard"), "emit.mode"),
    (emit(late="batch"), "emit.late"),
    (emit(early=Records(3)), "emit.early"),
    (lambda pipeline: replace(pipeline, aggregates=(Aggregate("total", Count()),)), "aggregate.total"),
    (
        lambda pipeline: replace(
            pipeline, decode=Decode((*pipeline.decode.fields[:2], Field("amount", DecimalType(14, 2))))
        ),
        "decode.amount",
    ),
]


@pytest.mark.parametrize(("edit", "field"), CANNOT, ids=[field for _, field in CANNOT])
def test_what_cannot_change_is_refused_by_its_field(edit: Edit, field: str, folder: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"\n  {field}: .* there, .* here\nleave that as it was"):
        meant(folder, edit(PIPELINE))
    with pytest.raises(CheckpointError):
        upgraded(folder, edit(PIPELINE))


def test_a_punctuation_in_the_place_of_a_delay(folder: Path) -> None:
    changed = decode(Field("w", StringType()))(time(watermark=Punctuated("w"))(PIPELINE))
    assert {change.field for change in meant(folder, changed)} == {"decode.w", "time.delay", "time.punctuated"}


def test_a_field_that_is_decoded_where_it_was_derived_is_another() -> None:
    derived = {"decode": {"a": "long"}, "derive": {"b": "a * 2"}}
    decoded = {"decode": {"a": "long", "b": "long"}}
    for kept, given in ((derived, decoded), (decoded, derived)):
        assert {(change.field, change.means) for change in changes(kept, given)} == {
            ("derive.b", None),
            ("decode.b", None),
        }
    assert all(change.means for change in changes(derived, {"decode": {"a": "long", "c": "long"}}))


@pytest.mark.parametrize("part", ["state", "returns"])
def test_what_a_process_keeps_cannot_come_or_go(part: str) -> None:
    without, with_it = {"process": {"function": "f"}}, {"process": {"function": "f", part: {"seen": "long"}}}
    for kept, given in ((without, with_it), (with_it, without)):
        assert {change.means for change in changes(kept, given)} == {None}
