"""A tick before the time that the last step gives as due changes nothing, so a live run need not take a step for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.engine.operators.process.test_process import pipeline as process
from tests.engine.pipelines import MINUTE, main, raw, record
from tests.examples import examples
from tests.graphs import Runnable, as_graph

from windrow.engine.changelog import StepOutput
from windrow.engine.columns import MAX_TIME, MIN_TIME
from windrow.engine.operators.base import GroupOutput
from windrow.model import (
    AllOf,
    AnyOf,
    Delay,
    Emit,
    EventTime,
    Every,
    Field,
    LongType,
    Records,
    Repeat,
    Session,
    StringType,
    Trigger,
    Tumbling,
    ValueState,
)
from windrow.runtime.memory import MemoryHost

SECOND = 1_000_000
NOON = 1_767_268_800 * SECOND
TRIGGERS: list[Trigger | None] = [
    None,
    Every(3 * SECOND),
    AnyOf((Records(2), Every(4 * SECOND))),
    AllOf((Records(2), Every(2 * SECOND))),
    Repeat(Every(2 * SECOND), 2),
]


def timed(idle: int | None, all_idle: Any) -> EventTime:  # noqa: ANN401 - one of two words
    return EventTime("t", Delay(MINUTE), idle=None if idle is None else idle * SECOND, all_idle=all_idle)


def timers(ctx: Any, row: Any) -> None:  # noqa: ANN401 - as users write it
    count = (ctx.state.count.get() or 0) + 1
    ctx.state.count.set(count)
    ctx.processing_timer(after=f"{count + 1}s", name=row["user"])


def said(ctx: Any, timer: Any) -> None:  # noqa: ANN401
    if ctx.state.count.get() % 2:
        ctx.processing_timer(after="1s", name="again")
        ctx.state.count.set(2)
    ctx.emit(text=f"{timer.name} {timer.at.second}")


@st.composite
def pipelines(draw: st.DrawFn) -> Runnable:
    time = timed(draw(st.sampled_from([None, 2, 4])), draw(st.sampled_from(["hold", "advance"])))
    kind = draw(st.sampled_from(["window", "session", "process"]))
    if kind == "process":
        return process(
            timers,
            (ValueState("count", LongType()),),
            (Field("text", StringType()),),
            on_processing_timer=said,
        )
    window = Tumbling(5 * MINUTE) if kind == "window" else Session(2 * MINUTE)
    trigger = draw(st.sampled_from(TRIGGERS if kind == "window" else TRIGGERS[:2]))
    return main(time=time, window=window, emit=Emit(lateness=2 * MINUTE, early=trigger))


Turn = Sequence[tuple[int, str, int]]
"""The records of a second: partition, user and minute."""
RECORD = st.tuples(st.integers(0, 2), st.sampled_from("AB"), st.integers(0, 12))
TURNS: st.SearchStrategy[list[Turn]] = st.lists(
    st.one_of(st.just(()), st.just(()), st.lists(RECORD, min_size=1, max_size=3)), min_size=1, max_size=14
)


class Played:
    """A host that is given each second's tick, and then its records."""

    def __init__(self, graph: Runnable) -> None:
        self.host = MemoryHost(as_graph(graph), [0, 1])
        self.due = MIN_TIME
        self._offsets = [0, 0, 0]

    def _rows(self, groups: Sequence[GroupOutput]) -> dict[str, Any]:
        self.due = min(group.stats.due for group in groups)
        rows = StepOutput.concat(group.rows for group in groups)
        return {field.name: getattr(rows, field.name).to_pylist() for field in fields(rows)}

    def tick(self, micros: int) -> dict[str, Any]:
        return self._rows(self.host.tick(micros))

    def read(self, turn: Turn) -> list[dict[str, Any]]:
        found = []
        for partition, user, minute in turn:
            found.append(self._rows(self.host.step(raw(partition, self._offsets[partition], record(user, minute)))))
            self._offsets[partition] += 1
        return found


@examples(20)
@given(pipelines(), TURNS)
def test_a_tick_that_is_not_due_changes_nothing(graph: Runnable, turns: list[Turn]) -> None:
    full, quiet = Played(graph), Played(graph)
    skipped = 0
    for second, turn in enumerate(turns):
        now = NOON + second * SECOND
        expected = full.tick(now)
        if turn or now >= quiet.due:
            assert quiet.tick(now) == expected
        else:
            assert not any(expected.values()), f"second {second}"
            skipped += 1
        assert quiet.read(turn) == full.read(turn)
    event("some were skipped" if skipped else "none was skipped")


@pytest.mark.parametrize(
    ("all_idle", "due"),
    [
        # at second 2 partition 1 is idle, as partition 0 has a record at second 1; when all are idle, time stands still
        ("hold", [0, None, 2, None, None, None]),
        # at second 3 all are idle, and from then on time advances with each tick
        ("advance", [0, 2, 2, 3, 4, 5]),
    ],
)
def test_idleness_is_due_as_long_as_it_moves_a_watermark(all_idle: str, due: list[int | None]) -> None:
    played = Played(main(time=timed(2, all_idle)))
    found = [played.due]
    for second in range(5):
        played.tick(NOON + second * SECOND)
        if second < 2:
            played.read([(0, "A", second), (1, "B", second)][: 2 - second])
        found.append(played.due)
    seconds = [None if at == MAX_TIME else max(0, -(-(at - NOON) // SECOND)) for at in found]
    assert seconds == due


def test_nothing_is_due_in_a_pipeline_that_waits_for_no_tick() -> None:
    played = Played(main())
    played.tick(NOON)
    played.read([(0, "A", 1), (1, "B", 1)])
    assert played.due == MAX_TIME
