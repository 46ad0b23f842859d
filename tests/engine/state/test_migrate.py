"""What a change of a pipeline means for the windows that a run leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.graphs import as_graph
from tests.runtime.spend import MINUTE, event, spend
from tests.short_forms import Pipeline, ProcessPipeline

from windrow.engine.changelog import StepOutput
from windrow.engine.level import migrate
from windrow.engine.schema import RAW
from windrow.engine.state.widening import StateChange
from windrow.model import (
    Aggregate,
    Count,
    Delay,
    Emit,
    Field,
    Hopping,
    LogSource,
    LongType,
    Max,
    Process,
    Session,
    SqliteSink,
    Sum,
    Tumbling,
    ValueState,
    Window,
)
from windrow.runtime.memory import MemoryHost

PLAIN = replace(
    spend(LogSource("data/spend"), SqliteSink("spend.db", "spend"), lateness=10 * MINUTE),
    aggregates=(Aggregate("total", Sum("amount")),),
    key_groups=2,
)
PLAIN = replace(PLAIN, time=replace(PLAIN.time, watermark=Delay(0), future=None))


class Story:
    """A log that is read a record at a time, by one pipeline and then by another."""

    def __init__(self, pipeline: Pipeline | ProcessPipeline) -> None:
        self.host = MemoryHost(as_graph(pipeline), [0])
        self._next = 0

    def at(self, *records: tuple[float, str, str]) -> StepOutput:
        """Take a step with records of (minute, user, amount)."""
        rows = []
        for minute, user, amount in records:
            rows.append({"partition": 0, "offset": self._next, "value": event(minute, user, amount)})
            self._next += 1
        return StepOutput.concat(group.rows for group in self.host.step(pa.Table.from_pylist(rows, schema=RAW)))

    def goes_on(self, pipeline: Pipeline | ProcessPipeline, plan: StateChange) -> None:
        """Read on by another pipeline."""
        states = self.host.states
        self.host = MemoryHost(as_graph(pipeline), [0])
        self.host.begin(migrate(as_graph(pipeline), {"": plan}, states))


def rows(output: StepOutput, *columns: str) -> list[tuple[Any, ...]]:
    """The rows that changes bring, in the order of their windows."""
    kept = output.changes.to_pylist()
    return sorted(tuple(str(row[name]) for name in columns) for row in kept if row["op"] in {"insert", "update_after"})


def with_emit(pipeline: Pipeline, lateness: int) -> Pipeline:
    return replace(pipeline, emit=Emit(lateness=lateness * MINUTE))


@pytest.mark.parametrize("window", [Tumbling(5 * MINUTE), Hopping(5 * MINUTE, 5 * MINUTE), Session(5 * MINUTE)])
def test_with_a_longer_lateness_windows_that_were_forgotten_stay_so(window: Window) -> None:
    before = replace(PLAIN, window=window)
    story = Story(before)
    story.at((1, "a", "1.00"), (6, "a", "1.00"), (20, "b", "1.00"))  # what ends by 10 is forgotten
    story.goes_on(with_emit(before, 60), StateChange((0,), before.emit.lateness))
    gone = story.at((1, "a", "1.00"))
    assert (gone.late.num_rows, gone.changes.num_rows) == (1, 0)
    story.at((50, "b", "1.00"))
    waits = story.at((20, "b", "2.00"))  # with 10 minutes it would have expired
    assert (waits.late.num_rows, rows(waits, "pane", "total")) == (0, [("late", "3.00")])
    # a second change keeps what the first one found
    story.goes_on(with_emit(before, 30), StateChange((0,), 60 * MINUTE))
    story.goes_on(with_emit(before, 90), StateChange((0,), 30 * MINUTE))
    assert story.at((4, "a", "1.00")).late.num_rows == 1
    assert story.at((14, "c", "1.00")).late.num_rows == 1
    assert story.at((45, "c", "1.00")).late.num_rows == 0


@pytest.mark.parametrize("window", [Tumbling(5 * MINUTE), Session(5 * MINUTE)])
def test_with_a_shorter_lateness_windows_are_forgotten_at_once(window: Window) -> None:
    before = replace(PLAIN, window=window, key_groups=1)
    story = Story(before)
    story.at((1, "a", "1.00"), (12, "b", "1.00"))
    after = with_emit(before, 1)
    story.goes_on(after, StateChange((0,), before.emit.lateness))
    assert story.at((12, "b", "1.00"), (2, "a", "1.00")).late.num_rows == 1
    (state,) = story.host.states
    (table,) = (pa.ipc.open_stream(blob).read_all() for _, blob in state.items())
    assert table.column("user_id").to_pylist() == ["b"]


@pytest.mark.parametrize("window", [Tumbling(5 * MINUTE), Hopping(10 * MINUTE, 5 * MINUTE), Session(5 * MINUTE)])
def test_a_new_aggregate_counts_from_where_it_came(window: Window) -> None:
    before = replace(PLAIN, window=window)
    after = replace(
        before,
        aggregates=(
            Aggregate("events", Count()),
            Aggregate("most", Max("amount * 2")),
            Aggregate("total", Sum("amount")),
            Aggregate("more", Sum("amount")),
        ),
    )
    story = Story(before)
    story.at((0, "a", "1.00"), (0, "b", "1.00"))
    story.goes_on(after, StateChange((None, None, 0, None), before.emit.lateness, same_records=False))
    story.at((1, "a", "2.00"), (1, "c", "3.00"))
    fired = story.at((30, "z", "1.00"))
    found = {row[0]: row[1:] for row in rows(fired, "user_id", "events", "most", "total", "more")}
    assert found == {
        "a": ("1", "4.00", "3.00", "2.00"),
        "b": ("0", "None", "1.00", "None"),
        "c": ("1", "6.00", "3.00", "3.00"),
    }


def test_another_delay_is_true_from_the_next_record_on() -> None:
    story = Story(PLAIN)
    story.at((9, "a", "1.00"))
    slower = replace(PLAIN, time=replace(PLAIN.time, watermark=Delay(5 * MINUTE)))
    story.goes_on(slower, StateChange((0,), PLAIN.emit.lateness))
    # the watermark stays at 9 until there is a record at 14
    assert rows(story.at((13, "a", "1.00")), "total") == []
    assert rows(story.at((3, "a", "1.00")), "pane", "total") == [("late", "1.00")]
    assert rows(story.at((16, "b", "1.00")), "pane", "total") == [("on_time", "1.00")]


def counting(ctx: Any, _: Any) -> None:  # noqa: ANN401 - what a process is given
    """Emit how many records of the key there were."""
    count = ctx.state.seen.get(0) + 1
    ctx.state.seen.set(count)
    ctx.emit(seen=count)


@pytest.mark.parametrize("order", ["log", "event_time"])
def test_the_keys_of_a_process_go_to_other_key_groups(order: Any) -> None:  # noqa: ANN401 - a literal
    process = Process(
        function=counting, state=(ValueState("seen", LongType()),), returns=(Field("seen", LongType()),), order=order
    )
    pipeline = ProcessPipeline(
        name="counting",
        source=PLAIN.source,
        decode=PLAIN.decode,
        time=PLAIN.time,
        key=("user_id",),
        process=process,
        sink=PLAIN.sink,
        key_groups=2,
    )
    users = [f"u{number}" for number in range(30)]
    story, plain = Story(pipeline), Story(pipeline)
    for one in (story, plain):
        one.at(*((1, user, "1.00") for user in users), (3, "x", "1.00"))
        one.at(*((4, user, "1.00") for user in users[:20]))  # in order of event time these are held
    story.goes_on(replace(pipeline, key_groups=7), StateChange())
    for records in ([(5, user, "1.00") for user in users], [(9, "x", "1.00")]):
        ours, theirs = (one.at(*records) for one in (story, plain))
        assert rows(ours, "user_id", "seen") == rows(theirs, "user_id", "seen")
        assert ours.changes.num_rows == theirs.changes.num_rows
