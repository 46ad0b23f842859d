"""What a topic has no more of what a run was to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.sources.loss import Found, Loss


def find_losses(topic: str, offset: Any, ends: Mapping[int, tuple[int, int]], *, made_anew: bool | None) -> Found:  # noqa: ANN401 - plain JSON
    """Hold where a run stands, as Spark notes it, to the first offset and the end of each partition.

    A partition that came after the run began is read from offset 0. All of a topic that was made anew is other records.
    Of one that was not, a partition that ends too early was cut back: what is before its end was read. Where that is
    not known (None), it may be another topic's, and is read from its first offset.
    """
    stands = {int(partition): int(at) for partition, at in offset.get(topic, {}).items()}
    moved: dict[str, int] = {}
    losses = []
    for partition, stood in sorted((dict.fromkeys(ends, 0) | stands).items()):
        first, end = ends.get(partition, (0, 0))
        if made_anew or stood < first:
            goes_on = first
        elif stood <= end:
            goes_on = stood
        else:
            goes_on = first if made_anew is None else end
        if partition in ends:
            moved[str(partition)] = goes_on
        if made_anew:
            what = f"the topic was made anew, read up to offset {stood} before"
        elif partition not in ends:
            what = f"it is gone, read up to offset {stood}"
        elif stood < first:
            what = f"offsets {stood} to {first - 1} are gone"
        else:
            what = f"it ends at offset {end}, and had been read up to {stood}"
        # of what nothing was read, nothing is lost
        if (made_anew and stood > 0) or not first <= stood <= end:
            losses.append(Loss(partition, stood, goes_on, what))
    return Found(tuple(losses), {topic: moved})
