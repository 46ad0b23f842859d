"""Settings of every pipeline: the number of key groups, and the mode of a live run."""

from __future__ import annotations

from typing import Literal

DEFAULT_KEY_GROUPS = 8
RunMode = Literal["micro-batch", "realtime"]
"""How a live run processes records: in steps on the stream host, or one by one as they arrive on the realtime host."""
_MOST_STATE_PARTITIONS = 16


def state_partitions(key_groups: int) -> int:
    """Return the number of state partitions for a number of key groups on a cluster.

    It is the number of tasks for each level. It is a divisor of 5040, so that key groups are spread evenly over tasks,
    and at most 16.
    """
    return max(n for n in range(1, _MOST_STATE_PARTITIONS + 1) if n <= key_groups and 5040 % n == 0)
