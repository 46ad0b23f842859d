"""When a live stream begins its next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.runtime.test_end import Counter

from windrow.connectors.source import Loss
from windrow.errors import ClockSetBackError
from windrow.runtime.stream.control import ControlReader
from windrow.runtime.stream.steps import WORTH, ClockGuard, StepOffsets, Trigger

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

SECOND = 1_000_000


class Clock:
    """A clock that a test sets, in nanoseconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> int:
        return round(self.seconds * 1_000_000_000)


def steps(counter: Counter, looks: list[tuple[float, int]], limit: ReadLimit) -> list[tuple[float, int]]:
    """Look at some seconds, when the log has come to some records; return where steps ended, and when they began."""
    clock, at, found = Clock(0), StepOffsets({"n": 0}), []
    reader = ControlReader(counter, at, 1, trigger=Trigger(SECOND, clock))
    for clock.seconds, counter.last in looks:
        end = StepOffsets.of(reader.latestOffset(at.to_json(), limit))
        if end != at:
            found.append((clock.seconds, end.at["n"]))
            at = end
    return found


def test_a_step_begins_at_once_after_a_pause_and_then_once_a_turn() -> None:
    looks = [(4.25, 0), (4.375, 1), (4.5, 2), (4.875, 3), (5.0, 3), (5.125, 4), (5.9, 5), (6.0, 5), (7.5, 5), (7.6, 6)]
    assert steps(Counter(0, WORTH), looks, ReadAllAvailable()) == [(4.375, 1), (5.0, 3), (6.0, 5), (7.6, 6)]


def test_a_step_begins_earlier_if_much_waits() -> None:
    looks = [(4.0, 10), (4.25, 9 + WORTH), (4.375, 10 + WORTH), (4.5, 11 + WORTH), (5.0, 11 + WORTH)]
    assert steps(Counter(0, 2 * WORTH), looks, ReadAllAvailable()) == [
        (4.0, 10),
        (4.375, 10 + WORTH),
        (5.0, 11 + WORTH),
    ]


def test_a_step_begins_earlier_if_as_much_waits_as_it_takes() -> None:
    looks = [(4.0, 250), (4.1, 250), (4.2, 250), (4.3, 250)]
    assert steps(Counter(0, 1), looks, ReadMaxRows(100)) == [(4.0, 100), (4.1, 200)]


def test_a_loss_is_not_kept_waiting() -> None:
    counter = Counter(5, WORTH)
    reader = ControlReader(counter, StepOffsets({"n": 0}), 1, trigger=Trigger(SECOND, Clock(4.0)))
    reader.latestOffset(StepOffsets({"n": 0}).to_json(), ReadAllAvailable())
    lost = StepOffsets({"n": 5}, lost=(Loss(0, 0, 5, "gone"),))
    assert reader.latestOffset(lost.to_json(), ReadAllAvailable()) != lost.to_json()


@pytest.mark.parametrize(
    ("every", "poll", "rate", "intervals"),
    [
        (SECOND, 250_000, 1_000, [1.0]),
        (SECOND, 250_000, 20_000, [0.5, 0.75, 1.0]),
        (SECOND, 250_000, 1_000_000, [0.25, 0.5, 0.75, 1.0]),
        (100_000, 100_000, 20_000, [0.1]),
        (10 * SECOND, SECOND, 1_000, [9.0, 10.0]),
        (3_600 * SECOND, SECOND, 1.0, [3_600.0]),
        (0, 0, 1_000, [0.0]),
    ],
)
def test_steps_follow_on_each_other_as_the_rate_says(
    every: int, poll: int, rate: float, intervals: list[float]
) -> None:
    trigger = Trigger(every)
    assert (trigger.poll, trigger.intervals(rate)) == (poll, intervals)


def test_a_clock_that_is_set_back_is_noticed_whatever_it_has_shown_before() -> None:
    clock, steady = 1_000_000.0, 50.0
    guard = ClockGuard(lambda: clock, lambda: steady)
    for passed, ahead in ((1, 0), (1, -5), (100, 0), (1, 86_400), (1, -2), (7, 0), (1, -3)):
        clock, steady = clock + passed + ahead, steady + passed
        guard.check()
    clock -= 1
    with pytest.raises(ClockSetBackError, match=r"the clock of this machine was set back by 6 s"):
        guard.check()
