"""Timings of the parts of a step, in the driver and in Spark tasks. They are used only in reports."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class PartTime:
    """The seconds spent on a part of a step between `began` and `ended`, not counting pauses for other parts.

    Both are wall-clock times in microseconds on the machine that ran the part. For the part ``operate``, `level` is the
    level of the graph.
    """

    part: str
    seconds: float
    began: int
    ended: int
    level: int = 0


def join_part_times(times: Iterable[PartTime]) -> tuple[PartTime, ...]:
    """Merge the timings of several tasks by part and level.

    Seconds are summed. Each result spans the time from the earliest beginning to the latest end.
    """
    found: dict[tuple[str, int], PartTime] = {}
    for task in times:
        place = task.part, task.level
        so_far = found.get(place, task)
        seconds = task.seconds + (so_far.seconds if place in found else 0.0)
        began, ended = min(task.began, so_far.began), max(task.ended, so_far.ended)
        found[place] = PartTime(task.part, seconds, began, ended, task.level)
    return tuple(found[place] for place in sorted(found))


class Stopwatch:
    """Measures the seconds since it was created or last read."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds elapsed so far."""
        return time.monotonic() - self._since

    def lap(self) -> float:
        """Return the elapsed seconds and restart."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds


@contextmanager
def timing(times: list[PartTime], part: str, level: int = 0) -> Iterator[None]:
    """Append the time spent in a block to `times`."""
    since = time.monotonic()
    yield
    times.append(ending_now(part, time.monotonic() - since, level))


def ending_now(part: str, seconds: float, level: int = 0) -> PartTime:
    """Return the timing of a part that took `seconds` and ends now."""
    now = time.time_ns() // 1_000
    return PartTime(part, seconds, now - round(seconds * 1_000_000), now, level)
