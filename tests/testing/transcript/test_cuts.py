"""Cuts hold the whole log, each partition in its order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windrow.testing.transcript.cuts import cuts

LOGS = st.dictionaries(st.integers(0, 3), st.lists(st.binary(max_size=2), min_size=1, max_size=6), min_size=1)


@given(LOGS, st.integers(0, 5), st.integers())
def test_cut_is_the_log_in_other_steps(log: dict[int, list[bytes]], number: int, seed: int) -> None:
    found = list(cuts(log, number, seed))
    assert [cut.name for cut in found[:2]] == ["all in one step", "one record a step"]
    assert len(found) == number + 2
    for cut in found:
        assert all(cut.steps)
        fed: dict[int, list[bytes]] = {}
        for partition, value in (record for step in cut.steps for record in step):
            fed.setdefault(partition, []).append(value)
        assert fed == log
    assert len(found[0].steps) == 1
    assert all(len(step) == 1 for step in found[1].steps)


def test_seed_decides() -> None:
    log = {0: [bytes([number]) for number in range(50)], 1: [b"x"] * 50}
    assert list(cuts(log, 3, 1)) == list(cuts(log, 3, 1))
    assert list(cuts(log, 3, 1)) != list(cuts(log, 3, 2))
    first, second, third = list(cuts(log, 3, 1))[2:]
    assert len({first.steps, second.steps, third.steps}) == 3
