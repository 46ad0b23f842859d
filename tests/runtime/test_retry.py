"""How long a run tries again."""

from __future__ import annotations

from windrow.runtime.stream.following import RetryPolicy


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_wait_is_twice_as_long_until_the_limit() -> None:
    clock = Clock()
    patience = RetryPolicy(20.0, clock)
    waits = []
    while (pause := patience.after(3)) is not None:
        waits.append(pause)
        clock.now += pause
    assert waits == [0.5, 1, 2, 4, 8, 8]
    assert patience.waited == 23.5


def test_a_step_between_two_faults_renews_it() -> None:
    clock = Clock()
    patience = RetryPolicy(20.0, clock)
    assert [patience.after(-1), patience.after(-1)] == [0.5, 1]
    clock.now += 19
    assert patience.after(0) == 0.5
    clock.now += 19
    assert patience.after(0) == 1


def test_where_a_step_takes_longer_than_the_limit_it_is_tried_three_times() -> None:
    clock = Clock()
    patience = RetryPolicy(20.0, clock)
    for pause in (0.5, 1, 2):
        assert patience.after(0) == pause
        clock.now += 90
    assert patience.after(0) is None
