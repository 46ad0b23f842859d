"""Every window and mode gives the answer of the definition, however the log is cut into steps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, main, record
from tests.examples import scaled
from tests.properties.strategies import Case
from tests.properties.test_hosts import hold_to_the_oracle
from tests.short_forms import Pipeline

from windrow.model import (
    AllOf,
    AnyOf,
    Calendar,
    Cumulate,
    Delay,
    Emit,
    EventTime,
    EveryEventTime,
    Global,
    Hopping,
    PaneSoFar,
    Records,
    Repeat,
    Trigger,
    Tumbling,
    When,
    Window,
)

HOUR = 60 * MINUTE


def even(pane: PaneSoFar) -> bool:
    return pane.event_time // MINUTE % 2 == 0


def third(pane: PaneSoFar) -> bool:
    return pane.records % 3 == pane.panes % 3


TRIGGERS: st.SearchStrategy[Trigger] = st.recursive(
    st.builds(Records, st.integers(1, 4)) | st.sampled_from([When(even), When(third)]),
    lambda inner: (
        st.builds(Repeat, inner, st.integers(1, 3))
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: AnyOf(tuple(parts)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: AllOf(tuple(parts)))
    ),
    max_leaves=4,
)
COUNTS: st.SearchStrategy[Trigger] = st.builds(Records, st.integers(1, 4)) | st.builds(
    Repeat, st.builds(Records, st.integers(1, 4)), st.integers(1, 3)
)
CLOSED: st.SearchStrategy[Window] = st.one_of(
    st.builds(Tumbling, st.integers(1, 6).map(lambda n: n * MINUTE), st.integers(-3, 3)),
    st.builds(
        Hopping,
        st.integers(1, 24).map(lambda n: n * MINUTE),
        st.integers(1, 8).map(lambda n: n * MINUTE),
        st.integers(-3, 3).map(lambda n: n * MINUTE),
    ),
    st.builds(
        lambda step, steps, offset: Cumulate(step * steps * MINUTE, step * MINUTE, offset * MINUTE),
        st.integers(1, 4),
        st.integers(1, 30),
        st.integers(-3, 3),
    ),
    st.builds(
        Calendar,
        st.just(1),
        st.sampled_from(["day", "hour"]),
        st.just("Europe/Berlin"),
        st.integers(0, 3).map(lambda n: n * HOUR),
    ),
)
BASES = st.sampled_from([0, -10_000_000, 29_000_000])
"""Minutes."""


@st.composite
def pipelines(draw: st.DrawFn, windows: st.SearchStrategy[Window], early: st.SearchStrategy[Any]) -> Pipeline:
    window = draw(windows)
    closed = not isinstance(window, Global)
    return main(
        time=EventTime("t", Delay(draw(st.integers(0, 4)) * MINUTE)),
        window=window,
        emit=Emit(
            lateness=draw(st.sampled_from([0, 1, 3, 10, 60])) * MINUTE if closed else 0,
            late=draw(st.sampled_from(["each", "each", "batch", Records(2), Records(3)])) if closed else "each",
            mode=draw(st.sampled_from(["retract", "accumulate", "discard"])),
            at_end=draw(st.sampled_from(["fire", "hold"])),
            early=draw(early),
        ),
        key_groups=draw(st.integers(1, 2)),
    )


@st.composite
def cases(draw: st.DrawFn, windows: st.SearchStrategy[Window], early: st.SearchStrategy[Any]) -> Case:
    pipeline = draw(pipelines(windows, early))
    span = (
        draw(st.sampled_from([6, 20, 60, 3000]))
        if isinstance(pipeline.window, Calendar)
        else draw(st.sampled_from([6, 20, 60]))
    )
    base = draw(BASES)
    partitions = draw(st.sampled_from([1, 1, 2, 3]))
    log = draw(
        st.lists(
            st.tuples(st.integers(0, partitions - 1), st.sampled_from("AB"), st.integers(0, span), st.integers(-9, 9)),
            min_size=1,
            max_size=30,
        )
    )
    if pipeline.emit.early is not None:
        # counts are the same in every cut where each key lives in one partition
        log = [(min("AB".index(user), partitions - 1), user, minute, amount) for _, user, minute, amount in log]
    values = [(partition, record(user, base + minute, amount)) for partition, user, minute, amount in log]
    cuts = draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    steps: list[list[tuple[int, bytes]]] = [[]]
    for value, cut in zip(values, cuts, strict=True):
        if cut and steps[-1]:
            steps.append([])
        steps[-1].append(value)
    return Case(pipeline, list(steps), keyed=pipeline.emit.early is not None, seed=draw(st.integers(0, 99)))


def search(windows: st.SearchStrategy[Window], early: st.SearchStrategy[Any], examples: int = scaled(4)) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(cases(windows, early))
    def find(case: Case) -> None:
        hold_to_the_oracle("memory", case)

    find()


def test_windows_fired_by_the_watermark() -> None:
    search(CLOSED, st.none())


def test_early_panes_by_event_time() -> None:
    search(CLOSED | st.just(Global()), st.integers(1, 9).map(lambda minutes: EveryEventTime(minutes * MINUTE)))


def test_early_panes_by_count() -> None:
    search(CLOSED, COUNTS)


def test_early_panes_of_composed_triggers() -> None:
    search(CLOSED, TRIGGERS)


def test_global_windows() -> None:
    search(st.just(Global()), COUNTS | TRIGGERS)


@pytest.mark.long
def test_every_window_and_trigger_in_many_cases() -> None:
    search(CLOSED, st.none() | COUNTS | TRIGGERS, 200)
    search(st.just(Global()), COUNTS | TRIGGERS, 60)
