from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windrow.sources.kafka.steps import up_to

logs = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), min_size=1)


@given(log=logs, limit=st.integers(1, 10**6))
def test_steps_share_the_limit_and_come_to_the_end_together(log: dict[int, tuple[int, int]], limit: int) -> None:
    begin = {partition: at for partition, (at, _) in log.items()}
    ends = {partition: at + more for partition, (at, more) in log.items()}
    left = sum(more for _, more in log.values())
    reached = up_to(begin, ends, limit)
    assert sum(reached.values()) - sum(begin.values()) == min(limit, left)
    assert reached.keys() == ends.keys()
    for partition, (at, more) in log.items():
        assert abs((reached[partition] - at) * left - more * min(limit, left)) <= left


def test_without_a_limit_a_step_goes_to_the_end() -> None:
    assert up_to({0: 3}, {0: 5, 1: 2}, None) == {0: 5, 1: 2}


def test_a_new_partition_is_read_from_its_first_record() -> None:
    assert up_to({0: 8}, {0: 10, 1: 2}, 2) == {0: 9, 1: 1}
