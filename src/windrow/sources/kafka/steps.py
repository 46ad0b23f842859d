"""How far a step goes."""

from __future__ import annotations

from windrow.sources.base import Cut


def up_to(begin: Cut, ends: Cut, max_records: int | None) -> dict[int, int]:
    """Return where a step ends that takes at most `max_records` of what is between two cuts.

    The partitions share them equally, and take what others leave. Each that has something gives one at the least,
    whatever the limit: one that gave nothing for long could be taken for idle. A partition that `begin` leaves out is
    read from offset 0.
    """
    if max_records is None:
        return dict(ends)
    waiting = {partition: end - begin.get(partition, 0) for partition, end in ends.items()}
    left, reached = max_records, {}
    for place, partition in enumerate(sorted(waiting, key=lambda one: (waiting[one], one))):
        share = min(waiting[partition], max(1, left // (len(waiting) - place)))
        left = max(0, left - share)
        reached[partition] = begin.get(partition, 0) + share
    return reached
