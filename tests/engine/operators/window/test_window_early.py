"""Panes before the watermark: by count, by processing time, by compositions of these, in each mode."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, main, raw, record
from tests.examples import examples
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.engine.changelog import StepOutput
from windrow.errors import RunError
from windrow.model import (
    AllOf,
    AnyOf,
    Emit,
    Every,
    Global,
    Hopping,
    Mode,
    PaneSoFar,
    Records,
    Repeat,
    Trigger,
    When,
)
from windrow.runtime.memory import MemoryHost

SECOND = 1_000_000
NEVER = When(lambda _: False)


def early(trigger: Trigger, mode: Mode = "retract", **changes: Any) -> Pipeline:  # noqa: ANN401 - fields of any type
    return main(**{"emit": Emit(lateness=10 * MINUTE, mode=mode, early=trigger), "key_groups": 1, **changes})


def rows(outputs: list[Any]) -> list[tuple[Any, ...]]:
    """(op, pane, revision, events) in the order of effect."""
    changes = StepOutput.concat(output.rows for output in outputs).changes.to_pylist()
    return [(row["op"], row["pane"], row["revision"], row["events"]) for row in changes]


def in_windows(outputs: list[Any]) -> list[tuple[Any, ...]]:
    """(op, pane, revision, window's first minute, user, events)."""
    changes = StepOutput.concat(output.rows for output in outputs).changes.to_pylist()
    return [
        (
            *(row["op"], row["pane"], row["revision"], int(row["window_start"].timestamp()) // 60),
            *(row["user"], row["events"]),
        )
        for row in changes
    ]


def ones(number: int) -> list[bytes]:
    return [record("A", 1)] * number


def test_a_step_writes_each_of_its_early_panes_and_then_the_on_time_one() -> None:
    host = MemoryHost(as_graph(early(Records(2))), [0])
    # the record at minute 7 moves the watermark to 6
    assert rows(host.step(raw(0, 0, *ones(5), record("A", 7)))) == [
        ("insert", "early", 0, 2),
        ("update_before", "early", 0, 2),
        ("update_after", "early", 1, 4),
        ("update_before", "on_time", 1, 4),
        ("update_after", "on_time", 2, 5),
    ]
    # late records revise it
    assert rows(host.step(raw(0, 6, *ones(2)))) == [
        ("update_before", "late", 2, 5),
        ("update_after", "late", 3, 6),
        ("update_before", "late", 3, 6),
        ("update_after", "late", 4, 7),
    ]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # the second early pane holds all: the on-time pane says so again
        (
            "retract",
            [
                ("insert", "early", 0, 2),
                ("update_before", "early", 0, 2),
                ("update_after", "early", 1, 4),
                ("update_before", "on_time", 1, 4),
                ("update_after", "on_time", 2, 4),
            ],
        ),
        (
            "accumulate",
            [("insert", "early", 0, 2), ("update_after", "early", 1, 4), ("update_after", "on_time", 2, 4)],
        ),
        # and in mode discard there is nothing left to say
        ("discard", [("insert", "early", 0, 2), ("insert", "early", 1, 2)]),
    ],
)
def test_modes(mode: Mode, expected: list[tuple[Any, ...]]) -> None:
    host = MemoryHost(as_graph(early(Records(2), mode)), [0])
    assert rows(host.step(raw(0, 0, *ones(4), record("A", 7)))) == expected


def test_discard_counts_revisions_over_all_panes() -> None:
    host = MemoryHost(as_graph(early(Records(2), "discard")), [0])
    assert rows(host.step(raw(0, 0, *ones(3)))) == [("insert", "early", 0, 2)]
    assert rows(host.step(raw(0, 3, record("A", 7)))) == [("insert", "on_time", 1, 1)]
    assert rows(host.step(raw(0, 4, *ones(2)))) == [("insert", "late", 2, 1), ("insert", "late", 3, 1)]


def test_no_more_panes_than_repeat_says() -> None:
    host = MemoryHost(as_graph(early(Repeat(Records(1), 2))), [0])
    assert [row[1] for row in rows(host.step(raw(0, 0, *ones(1)))) if row[0] != "update_before"] == ["early"]
    assert [row[1] for row in rows(host.step(raw(0, 1, *ones(5)))) if row[0] != "update_before"] == ["early"]
    assert rows(host.step(raw(0, 6, *ones(3)))) == []
    assert rows(host.end())[-1] == ("update_after", "on_time", 2, 9)


def test_processing_time_counts_from_the_first_unseen_record() -> None:
    host = MemoryHost(as_graph(early(Every(10 * SECOND))), [0])
    host.tick(100 * SECOND)
    host.step(raw(0, 0, *ones(1)))
    assert rows(host.tick(109 * SECOND)) == []
    host.step(raw(0, 1, *ones(1)))
    assert rows(host.tick(110 * SECOND)) == [("insert", "early", 0, 2)]
    # nothing is new
    assert rows(host.tick(130 * SECOND)) == []
    host.step(raw(0, 2, *ones(1)))
    assert rows(host.tick(139 * SECOND)) == []
    assert rows(host.tick(140 * SECOND)) == [("update_before", "early", 0, 2), ("update_after", "early", 1, 3)]


def test_what_came_before_the_first_tick_waits_from_it_on() -> None:
    host = MemoryHost(as_graph(early(Every(10 * SECOND))), [0])
    host.step(raw(0, 0, *ones(1)))
    assert rows(host.tick(100 * SECOND)) == []
    assert rows(host.tick(109 * SECOND)) == []
    assert rows(host.tick(110 * SECOND)) == [("insert", "early", 0, 1)]


def test_both_processing_time_and_count() -> None:
    host = MemoryHost(as_graph(early(AllOf((Every(10 * SECOND), Records(3))))), [0])
    host.tick(100 * SECOND)
    assert rows(host.step(raw(0, 0, *ones(4)))) == []
    # the count has been reached before
    assert rows(host.tick(110 * SECOND)) == [("insert", "early", 0, 4)]
    host.step(raw(0, 4, *ones(2)))
    assert rows(host.tick(120 * SECOND)) == []
    # and here the time
    assert rows(host.step(raw(0, 6, *ones(1))))[-1] == ("update_after", "early", 1, 7)


def test_a_global_window_fires_at_the_end_what_is_new_and_goes_on() -> None:
    host = MemoryHost(as_graph(early(Records(2), window=Global(), emit=Emit(early=Records(2)))), [0])
    host.step(raw(0, 0, *ones(1), record("B", 10_000), *ones(1), record("B", -10_000)))
    host.step(raw(0, 4, record("B", 0)))
    assert [(row[4], *row[:3], row[5]) for row in in_windows(host.end())] == [
        ("B", "update_before", "on_time", 0, 2),
        ("B", "update_after", "on_time", 1, 3),
    ]
    assert rows(host.end()) == []
    assert rows(host.step(raw(0, 5, *ones(2))))[-1] == ("update_after", "early", 1, 4)


def test_early_panes_of_hopping_windows() -> None:
    host = MemoryHost(as_graph(early(Records(2), window=Hopping(10 * MINUTE, 5 * MINUTE))), [0])
    # minute 1 is late for [-5, 5), minute 7 for [0, 10)
    assert in_windows(host.step(raw(0, 0, record("A", 6), record("A", 1), record("A", 11), record("A", 7)))) == [
        ("insert", "late", 0, -5, "A", 1),
        ("insert", "early", 0, 0, "A", 2),
        ("update_before", "on_time", 0, 0, "A", 2),
        ("update_after", "on_time", 1, 0, "A", 2),
        ("update_before", "late", 1, 0, "A", 2),
        ("update_after", "late", 2, 0, "A", 3),
        ("insert", "early", 0, 5, "A", 2),
    ]


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.integers(1, 15)),
        st.tuples(st.sampled_from(["A", "B"]), st.integers(0, 12)),
        st.tuples(st.just("cut"), st.just(0)),
    ),
    max_size=30,
)
PLAIN: st.SearchStrategy[Trigger] = st.sampled_from(
    [
        Records(3),
        Every(10 * SECOND),
        AnyOf((Records(3), Every(10 * SECOND))),
        AnyOf((Records(4), Every(20 * SECOND), Records(3), AnyOf((Every(5 * SECOND), Records(7))))),
        Repeat(AnyOf((Records(2), Every(5 * SECOND))), 2),
        Repeat(Repeat(Every(5 * SECOND), 3), 1),
        Repeat(Records(2), 3),
    ]
)


@examples(8, suppress_health_check=list(HealthCheck))
@given(PLAIN, EVENTS, st.sampled_from(["retract", "discard"]))
def test_what_sql_follows_and_what_python_follows_say_the_same(trigger: Trigger, events: Any, mode: Mode) -> None:  # noqa: ANN401
    # a part that never says so keeps a trigger from SQL and changes nothing
    outer = replace(trigger, trigger=AnyOf((trigger.trigger, NEVER))) if isinstance(trigger, Repeat) else None
    hosts = [MemoryHost(as_graph(early(one, mode)), [0]) for one in (trigger, outer or AnyOf((trigger, NEVER)))]
    now, offset = 100 * SECOND, 0
    waiting: list[bytes] = []
    found: list[list[Any]] = [[], []]

    def step() -> None:
        nonlocal offset
        for host, said in zip(hosts, found, strict=True):
            said.append(in_windows(host.step(raw(0, offset, *waiting))))
        offset += len(waiting)
        waiting.clear()

    for what, value in events:
        if what in "AB":
            waiting.append(record(what, value))
            continue
        if waiting:
            step()
        if what == "tick":
            now += value * SECOND
            for host, said in zip(hosts, found, strict=True):
                said.append(in_windows(host.tick(now)))
    if waiting:
        step()
    for host, said in zip(hosts, found, strict=True):
        said.append(in_windows(host.end()))
    assert found[0] == found[1]


def fails(_: PaneSoFar) -> bool:
    msg = "no\nluck"
    raise LookupError(msg)


def test_an_error_of_a_predicate_names_it_the_record_and_the_pane() -> None:
    host = MemoryHost(as_graph(early(When(fails))), [0])
    where = r"at partition 0, offset 0 of spend, key user='A', PaneSoFar\(.*\)"
    said = rf"the trigger {re.escape(__name__)}\.fails failed {where}: LookupError: no luck \(.*\); what was"
    with pytest.raises(RunError, match=said):
        host.step(raw(0, 0, record("A", 1)))
