from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windrow.connectors.stream_reader import share_partitions


@given(
    parts=st.dictionaries(st.integers(0, 99), st.integers(1, 1000)), tasks=st.integers(1, 8), worth=st.integers(1, 2000)
)
def test_each_partition_is_in_one_task_and_none_has_much_more_than_another(
    parts: dict[int, int], tasks: int, worth: int
) -> None:
    shares = [dict(share.parts) for share in share_partitions(parts, lambda size: size, tasks, worth)]
    # a task is worth it
    assert len(shares) == min(tasks, len(parts), -(-sum(parts.values()) // worth))
    assert all(shares)
    assert sorted(item for share in shares for item in share.items()) == sorted(parts.items())
    if shares:
        # who has most would not have been given the last part while another had less
        most = max(shares, key=lambda share: sum(share.values()))
        assert sum(most.values()) - min(most.values()) <= min(sum(share.values()) for share in shares)
