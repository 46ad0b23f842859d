"""Cuts hold the whole log, each partition in its order, and ticks between the same records."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from windrow.engine.tick import Crash, PlayStep, Tick, with_crashes
from windrow.testing.transcript.run import cuts

RECORD = st.tuples(st.integers(0, 3), st.binary(max_size=2))
FEEDS = st.lists(st.lists(RECORD, min_size=1, max_size=6) | st.integers(0, 9).map(Tick), max_size=8)


def by_stretch(feed: Sequence[PlayStep]) -> list[Tick | dict[int, list[bytes]]]:
    """Return ticks, and between them each partition's values."""
    found: list[Tick | dict[int, list[bytes]]] = [{}]
    for step in feed:
        if isinstance(step, Tick):
            found += [step, {}]
            continue
        assert step
        for partition, value in step:
            last = found[-1]
            assert isinstance(last, dict)
            last.setdefault(partition, []).append(value)
    return found


@given(FEEDS, st.integers(0, 5), st.integers())
def test_cut_is_the_log_in_other_steps(feed: list[PlayStep], number: int, seed: int) -> None:
    found = list(cuts(feed, number, seed))
    assert [cut.name for cut in found[:2]] == ["all in one step", "one record a step"]
    assert len(found) == number + 2
    for cut in found:
        assert by_stretch(cut.steps) == by_stretch(feed)
    ticks = sum(isinstance(step, Tick) for step in feed)
    assert len(found[0].steps) <= 2 * ticks + 1
    assert all(isinstance(step, Tick) or len(step) == 1 for step in found[1].steps)


def test_cuts_have_no_crashes() -> None:
    (whole, *_) = cuts([[(0, b"x")], Crash(is_committed=True), [(0, b"y")]], 1, 0)
    assert whole.steps == (((0, b"x"), (0, b"y")),)


def test_what_was_not_committed_is_there_after_the_crash() -> None:
    steps: list[PlayStep | Crash] = [[], Crash(is_committed=False), [], Crash(is_committed=True), Tick(0)]
    assert with_crashes(steps, "abce", "-") == ["-", "a", "b", "-", "c", "e"]


def test_seed_decides() -> None:
    feed = [[(0, bytes([number])), (1, b"x")] for number in range(50)]
    assert list(cuts(feed, 3, 1)) == list(cuts(feed, 3, 1))
    assert list(cuts(feed, 3, 1)) != list(cuts(feed, 3, 2))
    first, second, third = list(cuts(feed, 3, 1))[2:]
    assert len({first.steps, second.steps, third.steps}) == 3
