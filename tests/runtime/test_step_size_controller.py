"""The size of steps follows how long they take, and comes to rest."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import assume, example, given
from hypothesis import strategies as st

from windrow.runtime.stream.step_size import LEAST, SLOW, StepSizeController

TARGET = 10.0
MOST = 500_000

fixed_costs = st.floats(0, 60)
record_costs = st.floats(1e-7, 1e-1)


def steps(
    pace: StepSizeController, count: int, fixed: float, each: float, noise: random.Random | None = None
) -> list[int]:
    """Take full steps that cost so many seconds by themselves and for each record; return their sizes."""
    sizes = []
    for _ in range(count):
        sizes.append(pace.size)
        pace.after(pace.size, (fixed + each * pace.size) * (1 if noise is None else noise.uniform(0.85, 1.15)))
    return sizes


def is_fit(size: int, fixed: float, each: float, target: float = TARGET) -> bool:
    """Whether steps of a size take as long as they should, or cannot be shorter for a reason."""
    seconds = fixed + each * size
    is_short = seconds <= SLOW * target * 1.001
    # the half would cost more by itself than for its records, or is too small
    is_least = fixed >= each * size / 4 or size // 2 < LEAST
    return is_short or is_least


def is_noticed(size: int, was: tuple[float, float], now: tuple[float, float]) -> bool:
    """Whether steps of a size take another time than they did; a smaller change is taken for noise."""
    before, after = (fixed + each * size for fixed, each in (was, now))
    return not before / 1.5 < after < before * 1.5


@given(st.integers(1, 10_000_000), st.floats(0.1, 100), fixed_costs, record_costs)
def test_it_comes_to_rest_at_a_size_that_fits(most: int, target: float, fixed: float, each: float) -> None:
    pace = StepSizeController(most, target)
    sizes = steps(pace, 60, fixed, each)
    assert all(min(most, LEAST) <= size <= most for size in sizes)
    assert len(set(sizes[-30:])) == 1
    assert is_fit(pace.size, fixed, each, target)
    turns = sum(a != b for a, b in pairwise(sizes))
    assert turns <= 4


@given(st.integers(1, 10_000_000), fixed_costs, record_costs)
@example(most=500_000, fixed=0.0, each=1.4e-4)
def test_a_step_that_was_planned_before_its_size_changed_leads_to_no_other(
    most: int, fixed: float, each: float
) -> None:
    """Each step is told when the next one is planned already."""
    at_once, late = StepSizeController(most, TARGET), StepSizeController(most, TARGET)
    steps(at_once, 60, fixed, each)
    planned = late.size
    for _ in range(120):
        records, planned = planned, late.size
        late.after(records, fixed + each * records)
    assert is_fit(late.size, fixed, each)
    assert planned == late.size
    if fixed == 0:
        assert late.size == at_once.size


@given(fixed_costs, record_costs, fixed_costs, record_costs)
@example(fixed=20.0, each=1e-07, then=0.0, then_each=6.103515625e-05)
def test_it_follows_a_sink_that_changes(fixed: float, each: float, then: float, then_each: float) -> None:
    pace = StepSizeController(MOST, TARGET)
    steps(pace, 60, fixed, each)
    assume(is_noticed(pace.size, (fixed, each), (then, then_each)))
    sizes = steps(pace, 100, then, then_each)
    assert len(set(sizes[-30:])) == 1
    assert is_fit(pace.size, then, then_each)


@given(fixed_costs, record_costs, st.floats(0, 5), st.floats(1e-8, 5e-6))
@example(fixed=0.0, each=0.001, then=4.0, then_each=4.66779151061771e-06)  # half of 500,000 six times is 7,812.5
def test_a_sink_that_is_quick_again_is_given_all_it_can_take(
    fixed: float, each: float, then: float, then_each: float
) -> None:
    pace = StepSizeController(MOST, TARGET)
    steps(pace, 60, fixed, each)
    assume(is_noticed(pace.size, (fixed, each), (then, then_each)))
    assert steps(pace, 40, then, then_each)[-1] == MOST


@given(st.floats(0, 5), record_costs, st.integers(0, 1000))
def test_noise_does_not_make_it_go_back_and_forth(fixed: float, each: float, seed: int) -> None:
    pace = StepSizeController(MOST, TARGET)
    noise = random.Random(seed)
    steps(pace, 20, fixed, each, noise)
    sizes = steps(pace, 200, fixed, each, noise)
    assert sum(a != b for a, b in pairwise(sizes)) <= 4


@given(st.lists(st.tuples(st.integers(0, 20_000_000), st.floats(0, 1e6)), max_size=50), st.integers(1, 10_000_000))
def test_it_stays_in_its_bounds_whatever_comes(seen: list[tuple[int, float]], most: int) -> None:
    pace = StepSizeController(most, TARGET)
    for records, seconds in seen:
        before = pace.size
        assert pace.after(records, seconds) == (pace.size != before)
        assert min(most, LEAST) <= pace.size <= most


def test_a_backlog_behind_a_slow_sink() -> None:
    """50 s for 500,000 records, where 10 s were asked for: two slow steps after the first one, then an eighth."""
    assert steps(StepSizeController(MOST, TARGET), 8, 0, 1e-4) == [MOST, MOST, MOST, *[62_500] * 5]
    # ten minutes a step: the first one is enough
    assert steps(StepSizeController(MOST, TARGET), 3, 0, 1.2e-3) == [MOST, 7_812, 7_812]


def test_what_a_step_costs_by_itself_is_not_paid_more_often_for_nothing() -> None:
    """20 s a step, whatever is in it: smaller steps would be no shorter, only more."""
    sizes = steps(StepSizeController(MOST, TARGET), 20, 20.0, 1e-6)
    assert sizes[-10:] == [MOST] * 10


def test_a_step_that_read_all_there_was_says_nothing() -> None:
    pace = StepSizeController(MOST, TARGET)
    assert not any(pace.after(300, seconds) for seconds in (0.7, 0.7, 30.0, 30.0, 900.0, 0.7))
    assert pace.size == MOST


def test_one_long_step_is_an_accident() -> None:
    pace = StepSizeController(MOST, TARGET)
    assert not any(pace.after(MOST, seconds) for seconds in (12.0, 5.0, 40.0, 5.0, 40.0, 5.0))
