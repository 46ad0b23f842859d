"""Histograms: exact at their bounds, added up in any grouping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.telemetry.histogram import BOUNDS, Histogram

MINUTE = 60_000_000
durations = st.lists(st.integers(-(10**6), 4 * 10**12) | st.sampled_from(BOUNDS), max_size=50)


def histogram(values: list[int]) -> Histogram:
    return Histogram.of(np.array(values, dtype=np.int64))


@given(durations, durations)
def test_merging_is_addition(one: list[int], two: list[int]) -> None:
    assert histogram(one) + histogram(two) == histogram(one + two)
    assert Histogram.sum([histogram([value]) for value in one]) == histogram(one)
    assert histogram(one).total == len(one)


@given(durations, st.sampled_from(BOUNDS))
def test_what_is_above_a_bound_is_exact(values: list[int], bound: int) -> None:
    assert histogram(values).above(bound) == sum(value > bound for value in values)


@given(durations.filter(bool), st.floats(0.01, 1))
def test_a_quantile_is_in_the_bucket_of_the_true_one(values: list[int], share: float) -> None:
    clipped = sorted(min(max(value, 0), BOUNDS[-1]) for value in values)
    true = clipped[max(0, int(np.ceil(share * len(clipped))) - 1)]
    found = histogram(values).quantile(share)
    assert found is not None
    bucket = int(np.searchsorted(BOUNDS, true))
    assert BOUNDS[max(0, bucket - 1)] <= found <= BOUNDS[bucket]


def test_no_durations_have_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None


def test_quantiles_are_interpolated() -> None:
    assert histogram([90_000_000] * 10).quantile(0.5) == 1.5 * MINUTE


@given(durations, st.integers(0, 10**9))
def test_moved_durations_are_at_most_a_bucket_too_high(values: list[int], more: int) -> None:
    moved, true = histogram(values).shift(more), histogram([max(0, value) + more for value in values])
    assert moved.total == true.total
    for bound in BOUNDS:
        assert moved.above(bound) >= true.above(bound)


def test_the_longest_delays_are_moved_from_their_bound() -> None:
    assert histogram([0, 3 * MINUTE]).shift(2 * MINUTE) == histogram([2 * MINUTE, 5 * MINUTE])
    assert histogram([MINUTE]).shift(-2 * MINUTE) == histogram([0])


@pytest.mark.parametrize("delay", [MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, 60 * MINUTE])
def test_usual_delays_are_bounds(delay: int) -> None:
    assert delay in BOUNDS
