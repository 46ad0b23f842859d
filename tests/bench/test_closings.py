"""When windows close, and how long their rows take."""

from __future__ import annotations

from math import inf

import numpy as np
from bench.closings import Edges, closed, latencies, percentile
from hypothesis import given
from hypothesis import strategies as st

TIMES = st.lists(st.integers(0, 5_000), min_size=1, max_size=60)


@given(TIMES, st.integers(1, 700), st.integers(0, 900), st.data())
def test_a_window_is_passed_once_by_the_first_record_that_reaches_its_end(
    times: list[int], size: int, delay: int, data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(times)), max_size=5).map(sorted))
    edges, found, done = Edges(size, delay), {}, 0
    for cut in [*cuts, len(times)]:
        for row, start in edges.passed(3, np.array(times[done:cut], dtype=np.int64)):
            assert start not in found
            found[start] = done + row
        done = cut
    expected = {}
    for row in range(1, len(times)):
        before, now = max(times[:row]) - delay, max(times[: row + 1]) - delay
        starts = range((before // size) * size - size, now, size)
        expected.update({start: row for start in starts if before < start + size <= now})
    assert found == expected


def test_a_window_closes_with_the_last_partition() -> None:
    assert closed([{0: 1.0, 10: 2.0}, {10: 3.0, 20: 3.5}]) == {10: 3.0}
    assert closed([]) == {}


def test_a_window_is_there_with_the_first_look_that_finds_it_or_a_newer_one() -> None:
    seen = [(0.5, 0), (4.0, 20), (6.0, 30)]
    assert latencies({0: 0.25, 10: 2.0, 20: 3.0, 30: 5.0}, seen, 1.0) == {10: 2.0, 20: 1.0, 30: 1.0}
    assert latencies({30: 5.0, 40: 6.0}, seen, 1.0) == {30: 1.0, 40: inf}
    assert latencies({0: 1.0}, [], 0.0) == {0: inf}


@given(st.lists(st.floats(0, 10), min_size=1))
def test_a_percentile_is_one_of_the_values(values: list[float]) -> None:
    for part in (0, 50, 99, 100):
        value = percentile(values, part)
        assert value in values
        assert sum(one <= value for one in values) >= len(values) * part / 100
    assert percentile(values, 100) == max(values)
