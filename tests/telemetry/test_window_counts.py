"""Windows by key group: what opens, fires and closes, by plain counts and by the kind of the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, main, raw, record
from tests.examples import examples
from tests.graphs import Runnable, as_graph
from tests.short_forms import Pipeline

from windrow.authoring.pipeline_file import read_document
from windrow.engine import duckdb_sql
from windrow.engine.keys import key_groups
from windrow.model import Calendar, Emit, Global, Hopping, Records, Session, Tumbling, Window
from windrow.runtime.memory import MemoryHost
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import StepReport
from windrow.telemetry.window_counts import GroupWindows, WindowCounts

USERS = [f"u{number}" for number in range(8)]
TWO = """\
name: spend
key_groups: 2
sources:
  purchases:
    source: {log: {path: unused}}
    decode: {user: string, t: timestamp_micros, amount: long}
    time: {field: t, delay: 0s}
streams:
  minutes:
    from: purchases
    key: user
    window: {tumbling: 5m}
    aggregate: {total: sum(amount)}
  hours: {from: minutes, key: user, window: {tumbling: 1h}, aggregate: {total: sum(total)}}
  ever: {from: minutes, key: user, window: {global: {}}, aggregate: {total: sum(total)}}
sinks:
  a: {from: minutes, sink: {sqlite: {path: a.db, table: a}}}
  b: {from: hours, sink: {sqlite: {path: a.db, table: b}}}
  c: {from: ever, sink: {sqlite: {path: a.db, table: c}}}
"""


def run(
    pipeline: Runnable, *steps: Sequence[tuple[float, str]], end: bool = False
) -> tuple[MemoryHost, list[dict[str, WindowCounts]]]:
    """Run steps of records (minute and user) of one partition; return the windows that each reports."""
    graph = as_graph(pipeline)
    host, offset, reports = MemoryHost(graph, [0], probe=step_probe(graph)), 0, list[StepReport]()
    for step in steps:
        groups = host.step(raw(0, offset, *(record(user, minute) for minute, user in step)))
        offset += len(step)
        reports.append(StepReport.of(len(reports), groups, 0.0))
    if end:
        reports.append(StepReport.of(len(reports), host.end(), 0.0))
    return host, [one.windows or {} for one in reports]


def totals(pipeline: Pipeline, *minutes: list[float], end: bool = False) -> list[GroupWindows]:
    """Return the counts of each step of records of one user."""
    _, found = run(pipeline, *([(minute, "u") for minute in step] for step in minutes), end=end)
    return [one[pipeline.name].total for one in found]


@given(st.lists(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=4), min_size=1, max_size=4))
def test_sums_of_steps_with_other_numbers_of_key_groups(steps: list[list[tuple[int, int, int]]]) -> None:
    """A savepoint may change the number: what is open is that of the last step, and each group has all three counts."""
    total = reduce(add, (WindowCounts.of(GroupWindows(*group) for group in step) for step in steps))
    assert len({len(total.open), len(total.fired), len(total.closed)}) == 1
    fired, closed = (sum(group[place] for step in steps for group in step) for place in (1, 2))
    assert total.total == GroupWindows(sum(group[0] for group in steps[-1]), fired, closed)


def plain_counts(window: Tumbling | Hopping, log: list[tuple[int, str]]) -> WindowCounts:
    """The definition, with a delay of a minute and a lateness of 10."""
    slide = window.slide if isinstance(window, Hopping) else window.size
    groups = key_groups(duckdb_sql.Connection(), pa.table({"user": USERS}), 4).tolist()
    watermark, there = -MINUTE, set[tuple[int, int]]()
    for minute, user in log:
        time = minute * MINUTE
        watermark = max(watermark, time - MINUTE)
        for start in range(time // slide * slide, time - window.size, -slide):
            if watermark < start + window.size + 10 * MINUTE:
                there.add((groups[USERS.index(user)], start + window.size))
    return WindowCounts.of(
        GroupWindows(
            sum(at == group and end > watermark for at, end in there),
            sum(at == group and end <= watermark for at, end in there),
            sum(at == group and end + 10 * MINUTE <= watermark for at, end in there),
        )
        for group in range(4)
    )


@examples(20)
@given(
    st.sampled_from([Tumbling(5 * MINUTE), Hopping(10 * MINUTE, 5 * MINUTE)]),
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from(USERS)), min_size=1, max_size=30),
    st.integers(1, 30),
    st.sampled_from([1, 3]),
)
def test_windows_are_counted_by_the_definition(
    window: Tumbling | Hopping, log: list[tuple[int, str]], size: int, salt: int
) -> None:
    steps = [log[at : at + size] for at in range(0, len(log), size)]
    _, found = run(main(window=window, salt=salt, key_groups=4), *steps)
    together = found[0]["user-spend"]
    for one in found[1:]:
        together += one["user-spend"]
    assert together == plain_counts(window, log)


@pytest.mark.parametrize("window", [Tumbling(5 * MINUTE), Calendar(1, "hour"), Session(5 * MINUTE)])
def test_the_end_of_the_input_fires_what_is_open(window: Window) -> None:
    assert totals(main(window=window), [0, 1], end=True) == [GroupWindows(1, 0, 0), GroupWindows(0, 1, 0)]


def test_sessions_that_grow_together_before_they_fire_are_one() -> None:
    found = totals(main(window=Session(5 * MINUTE)), [0, 5.5], [2], [30], [60])
    assert found == [GroupWindows(2, 0, 0), GroupWindows(1, 0, 0), GroupWindows(1, 1, 1), GroupWindows(1, 1, 1)]


def test_a_session_that_has_fired_fires_again_as_a_longer_one_and_is_closed_once() -> None:
    # the watermark is 6, and 4 comes before the end of its own session
    found = totals(main(window=Session(5 * MINUTE)), [0], [7], [4], [40], [70])
    assert found == [
        GroupWindows(1, 0, 0),
        GroupWindows(1, 1, 0),
        GroupWindows(1, 0, 0),
        GroupWindows(1, 1, 1),
        GroupWindows(1, 1, 1),
    ]


def test_a_session_of_late_records_alone_is_closed_and_never_fires() -> None:
    found = totals(main(window=Session(5 * MINUTE)), [30], [20], [60])
    assert found == [GroupWindows(1, 0, 0), GroupWindows(1, 0, 0), GroupWindows(1, 1, 2)]


def test_a_session_with_early_panes_is_one() -> None:
    early = replace(Emit(lateness=10 * MINUTE), early=Records(2))
    found = totals(main(window=Session(5 * MINUTE), emit=early), [0, 1, 2], [20])
    assert found == [GroupWindows(1, 0, 0), GroupWindows(1, 1, 0)]


def test_the_global_window_stays_open_and_its_panes_are_no_firing() -> None:
    pipeline = main(window=Global(), emit=Emit(early=Records(2)))
    assert totals(pipeline, [0, 1, 2], [90], end=True) == [GroupWindows(1, 0, 0)] * 3


def test_windows_are_counted_by_node_and_those_of_earlier_levels_too() -> None:
    graph = read_document(TWO, "two.yaml").pipeline
    _, found = run(graph, [(0, "a"), (1, "b")], [(9, "a"), (70, "a")])
    # an aggregate of all rows of a changelog has no windows
    assert [one.keys() for one in found] == [{"minutes", "hours"}] * 2
    first, second = ({node: one.total for node, one in by_node.items()} for by_node in found)
    assert first == {"minutes": GroupWindows(2, 0, 0), "hours": GroupWindows(0, 0, 0)}
    assert second == {"minutes": GroupWindows(1, 3, 3), "hours": GroupWindows(0, 2, 2)}


def test_a_step_that_is_run_again_adds_none_and_what_is_open_is_open() -> None:
    counts = WindowCounts((1, 2), (3, 0), (0, 4))
    assert counts.again == WindowCounts((1, 2), (0, 0), (0, 0))
    assert counts + counts.again == counts
    assert counts + WindowCounts((5,), (1,), (1,)) == WindowCounts((5, 0), (4, 0), (1, 4))
