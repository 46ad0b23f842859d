"""Windows made of slices: records that are in time for some of their windows only, panes of many slices, state."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, main, raw, record
from tests.graphs import as_graph

from windrow.engine.changelog import StepOutput
from windrow.engine.operators.window.slices import windows_of_slices
from windrow.engine.windows import slice_starts
from windrow.model import Cumulate, Emit, Hopping
from windrow.runtime.memory import MemoryHost
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import StepReport
from windrow.testing.oracle.windows import windows_of


def rows(outputs: list[Any]) -> list[tuple[Any, ...]]:
    """(op, pane, revision, window's first minute, user, events) in the order of effect."""
    changes = StepOutput.concat(output.rows for output in outputs).changes.to_pylist()
    return [
        (
            *(row["op"], row["pane"], row["revision"], int(row["window_start"].timestamp()) // 60),
            *(row["user"], row["events"]),
        )
        for row in changes
    ]


def missed(outputs: list[Any]) -> list[tuple[int, int]]:
    """(offset, window's first minute)"""
    late = StepOutput.concat(output.rows for output in outputs).late.to_pylist()
    return [(row["offset"], int(row["window_start"].timestamp()) // 60) for row in late]


def hopping(size: int, slide: int, lateness: int) -> MemoryHost:
    pipeline = main(window=Hopping(size * MINUTE, slide * MINUTE), emit=Emit(lateness=lateness * MINUTE), key_groups=1)
    return MemoryHost(as_graph(pipeline), [0], probe=step_probe(as_graph(pipeline)))


def blobs(host: MemoryHost) -> set[tuple[str, int]]:
    return {(kind, start // MINUTE) for state in host.states for kind, start in state._blobs}  # noqa: SLF001 - the state is the point


def test_a_record_is_expired_for_one_window_late_for_another_and_on_time_for_a_third() -> None:
    host = hopping(15, 5, 2)
    assert rows(host.step(raw(0, 0, record("A", 12), record("A", 14)))) == []
    # the watermark goes to 13, and [-5, 10) fires without a record
    assert rows(host.step(raw(0, 2, record("A", 18)))) == [("insert", "on_time", 0, 0, "A", 2)]
    # 17 is past [0, 15) by its lateness, and in time for [5, 20)
    outputs = host.step(raw(0, 3, record("A", 12)))
    assert missed(outputs) == [(3, 0)]
    assert rows(outputs) == []
    # 9 is in [-5, 10), [0, 15) and [5, 20)
    outputs = host.step(raw(0, 4, record("A", 9)))
    assert missed(outputs) == [(4, -5), (4, 0)]
    assert rows(host.end()) == [
        ("insert", "on_time", 0, 5, "A", 5),
        ("insert", "on_time", 0, 10, "A", 4),
        ("insert", "on_time", 0, 15, "A", 1),
    ]


def test_a_late_record_revises_the_windows_that_it_is_late_for_alone() -> None:
    host = hopping(10, 5, 10)
    host.step(raw(0, 0, record("A", 6), record("A", 12)))
    # the watermark is 11: [0, 10) has fired
    assert rows(host.step(raw(0, 2, record("A", 7)))) == [
        ("update_before", "late", 0, 0, "A", 1),
        ("update_after", "late", 1, 0, "A", 2),
    ]
    assert rows(host.end()) == [("insert", "on_time", 0, 5, "A", 3), ("insert", "on_time", 0, 10, "A", 1)]


def test_a_record_between_windows_moves_the_clock_and_nothing_else() -> None:
    host = hopping(2, 5, 0)
    outputs = host.step(raw(0, 0, record("A", 1), record("A", 4)))
    assert rows(outputs) == [("insert", "on_time", 0, 0, "A", 1)]
    assert missed(outputs) == []
    assert sum(output.stats.records for output in outputs) == 2
    assert blobs(host) == set()


SIZES = [(60, 1), (64, 1), (61, 3), (17, 4), (48, 16), (5, 5)]


@pytest.mark.parametrize(
    ("size", "slide", "steps"),
    [
        pytest.param(*size, steps, marks=() if (steps == 7) == (size != (17, 4)) else pytest.mark.long)
        for size in SIZES
        for steps in (1, 7, 50)
    ],
)
def test_every_pane_counts_all_records_of_its_slices(size: int, slide: int, steps: int) -> None:
    host = hopping(size, slide, 0)
    minutes = [minute for minute in range(-20, 280) if minute % 7]
    found = []
    for first in range(0, len(minutes), -(-len(minutes) // steps)):
        part = minutes[first : first + -(-len(minutes) // steps)]
        found += rows(host.step(raw(0, first, *(record("AB"[minute % 2], minute) for minute in part))))
        empty = StepReport.of(first, host._run([]), 0.0)  # noqa: SLF001 - a step without anything
        low = part[-1] - 1
        seen = minutes[: first + len(part)]
        assert empty.open_windows == (
            len({m // slide * slide - back for m in seen for back in range(0, size + slide, slide)
                 if m // slide * slide - back + size > max(m, low)})
        )  # fmt: skip
    found += rows(host.end())
    expected = {}
    for start in range(-100, 300):
        if start % slide == 0:
            for user, even in (("A", 0), ("B", 1)):
                events = sum(start <= minute < start + size and minute % 2 == even for minute in minutes)
                if events:
                    expected[start, user] = events
    assert {(row[3], row[4]): row[5] for row in found} == expected
    assert len(found) == len(expected)
    # what the end fired can still be revised, but no more slices go in it
    assert {kind for kind, _ in blobs(host)} == {"panes"}


@given(
    st.integers(1, 50),
    st.integers(1, 50),
    st.integers(-5, 5),
    st.sets(st.integers(-200, 200)),
    st.integers(-200, 200),
)
def test_windows_of_slices_are_those_of_each_of_them(
    size: int, slide: int, offset: int, times: set[int], after: int
) -> None:
    window = Hopping(size, slide, offset)
    slices = set(slice_starts(window, np.array(sorted(times), dtype=np.int64)).tolist())
    starts = {
        number * slide + offset
        for number in range(-300, 300)
        if any(number * slide + offset <= start < number * slide + offset + size for start in slices)
    }
    assert windows_of_slices(window, slices, after) == {start for start in starts if start + size > after}


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(-5, 5), st.sets(st.integers(-200, 200)), st.integers(-200, 200)
)
def test_windows_of_slices_of_cumulate_windows_are_known_by_their_ends(
    step: int, steps: int, offset: int, times: set[int], after: int
) -> None:
    window = Cumulate(step * steps, step, offset)
    slices = set(slice_starts(window, np.array(sorted(times), dtype=np.int64)).tolist())
    ends = {end for time in times for _, end in windows_of(window, time)}
    assert windows_of_slices(window, slices, after) == {end for end in ends if end > after}


@pytest.mark.parametrize("steps", [1, 7, pytest.param(50, marks=pytest.mark.long)])
def test_every_cumulate_pane_counts_all_records_since_its_start(steps: int) -> None:
    # 23 slices are in nodes of 16, 4 and 1, some of which reach over the end of a size
    window = Cumulate(23 * 3 * MINUTE, 3 * MINUTE, MINUTE)
    host = MemoryHost(as_graph(main(window=window, emit=Emit(), key_groups=1)), [0])
    minutes = [minute for minute in range(-20, 280) if minute % 7]
    outputs = []
    for first in range(0, len(minutes), -(-len(minutes) // steps)):
        part = minutes[first : first + -(-len(minutes) // steps)]
        outputs += host.step(raw(0, first, *(record("A", minute) for minute in part)))
    changes = StepOutput.concat(output.rows for output in [*outputs, *host.end()]).changes.to_pylist()
    bounds = [
        tuple(int(row[name].timestamp()) * 1_000_000 for name in ("window_start", "window_end")) for row in changes
    ]
    found = dict(zip(bounds, (row["events"] for row in changes), strict=True))
    expected = Counter(bound for minute in minutes for bound in windows_of(window, minute * MINUTE))
    assert found == expected
    assert len(changes) == len(expected)
    assert {kind for kind, _ in blobs(host)} <= {"panes"}


def test_slices_with_thousands_of_windows_each_are_looked_at_once_a_window() -> None:
    # one by one they would be a thousand million
    window = Hopping(10_000, 1)
    assert windows_of_slices(window, range(100_000), 0) == set(range(-9_999, 100_000))


def test_slices_go_with_their_last_window_and_fired_panes_are_kept_only_for_lateness() -> None:
    host = hopping(10, 1, 0)
    for minute in range(70):
        host.step(raw(0, minute, record("A", minute)))
    kept = blobs(host)
    assert {kind for kind, _ in kept} <= {"slices", "slices1"}
    # the watermark is 68 and the oldest window that is open [59, 69)
    assert min(start for kind, start in kept if kind == "slices") == 59
    assert len(kept) <= 11 + 4
