"""How far a step goes."""

from __future__ import annotations

from windrow.sources.base import Cut
from windrow.sources.portions import portions


def up_to(begin: Cut, ends: Cut, max_records: int | None) -> dict[int, int]:
    """Return where a step ends that takes at most `max_records` of what is between two cuts.

    The partitions share them, and take what others leave. Each that has something gives one at the least, whatever the
    limit. A partition that `begin` leaves out is read from offset 0.
    """
    if max_records is None:
        return dict(ends)
    reached = {partition: begin.get(partition, 0) for partition in ends}
    waiting = {partition: end - reached[partition] for partition, end in ends.items() if end > reached[partition]}
    left = max(max_records, len(waiting))
    while left and waiting:
        for partition, portion in portions(waiting, left).items():
            taken = min(portion, waiting[partition])
            left -= taken
            reached[partition] += taken
        waiting = {partition: ends[partition] - at for partition, at in reached.items() if at < ends[partition]}
    return reached
