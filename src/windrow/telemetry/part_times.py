"""Times of the parts of a step, for its report alone: of the driver, and of the tasks of Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class PartTime:
    """The seconds that were spent on a part of a step, from `began` to `ended`, with pauses for other parts.

    Both are microseconds of the wall clock of the machine that did it. `level` is that of the part ``operate``.
    """

    part: str
    seconds: float
    began: int
    ended: int
    level: int = 0


def join_part_times(times: Iterable[PartTime]) -> tuple[PartTime, ...]:
    """Return the times of several tasks as one for each part and level: from the first beginning to the last end."""
    found: dict[tuple[str, int], PartTime] = {}
    for time in times:
        place = time.part, time.level
        so_far = found.get(place, time)
        seconds = time.seconds + (so_far.seconds if place in found else 0.0)
        began, ended = min(time.began, so_far.began), max(time.ended, so_far.ended)
        found[place] = PartTime(time.part, seconds, began, ended, time.level)
    return tuple(found[place] for place in sorted(found))
