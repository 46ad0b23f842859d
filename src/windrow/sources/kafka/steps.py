"""How far a step goes."""

from __future__ import annotations

from windrow.sources.base import Cut


def up_to(begin: Cut, ends: Cut, max_records: int | None) -> dict[int, int]:
    """Return where a step ends that takes at most `max_records` of what is between two cuts.

    Each partition gives in proportion to what it has, so that all come to their end together, and at least one gives
    something. A partition that `begin` leaves out is read from offset 0.
    """
    left = {partition: end - begin.get(partition, 0) for partition, end in ends.items()}
    total = sum(left.values())
    if max_records is None or total <= max_records:
        return dict(ends)
    taken, reached = 0, {}
    behind = 0
    for partition, count in left.items():
        # the shares are cut where their sums are whole, so they add up to the limit
        behind += count
        share = max_records * behind // total - taken
        taken += share
        reached[partition] = begin.get(partition, 0) + share
    return reached
