from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windrow.connectors.kafka.stream import up_to

logs = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), min_size=1)


@given(log=logs, limit=st.integers(1, 10**6))
def test_partitions_share_a_limit_and_take_what_others_leave(log: dict[int, tuple[int, int]], limit: int) -> None:
    begin = {partition: at for partition, (at, _) in log.items()}
    ends = {partition: at + more for partition, (at, more) in log.items()}
    waiting = {partition: more for partition, (_, more) in log.items() if more}
    reached = up_to(begin, ends, limit)
    assert reached.keys() == ends.keys()
    taken = {partition: reached[partition] - begin[partition] for partition in log}
    assert all(0 < taken[partition] <= more for partition, more in waiting.items())  # none is left out
    total = sum(waiting.values())
    assert sum(taken.values()) == min(max(limit, len(waiting)), total)
    # but for what each is given, by what waits in it
    least = max(1, limit // (16 * max(1, len(waiting))))
    for partition, more in waiting.items():
        assert taken[partition] >= min(more, max(least, (limit - least * len(waiting)) * more // total))


def test_partitions_stay_abreast() -> None:
    """One that holds ten times as much is not read ten times as long."""
    assert up_to({}, {0: 1_000_000, 1: 100_000}, 110_000) == {0: 97_187, 1: 12_813}


def test_without_a_limit_a_step_goes_to_the_end() -> None:
    assert up_to({0: 3}, {0: 5, 1: 2}, None) == {0: 5, 1: 2}


def test_a_new_partition_is_read_from_its_first_record() -> None:
    assert up_to({0: 8}, {0: 10, 1: 2}, 2) == {0: 9, 1: 1}
