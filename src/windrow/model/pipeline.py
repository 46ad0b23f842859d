"""Settings of every pipeline: the number of key groups, and how a live run takes its records."""

from __future__ import annotations

from typing import Literal

DEFAULT_KEY_GROUPS = 8
RunMode = Literal["micro-batch", "realtime"]
"""How a live run takes its records: on the stream host in steps, or on the realtime host as they come."""
_MOST_STATE_PARTITIONS = 16


def state_partitions(key_groups: int) -> int:
    """Return how many parts the state of so many key groups is in on a cluster: the number of tasks of a level.

    It divides 5040, for which key groups are spread evenly over tasks, and is 16 at most.
    """
    return max(n for n in range(1, _MOST_STATE_PARTITIONS + 1) if n <= key_groups and 5040 % n == 0)
