"""Times of the parts of a step, for its report alone: of the driver, and of the tasks of Spark."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class PartTime:
    """The seconds spent on a part of a step, from `began` to `ended`, with pauses for other parts.

    Both are microseconds of the wall clock of the machine that ran it. `level` is that of the part ``operate``.
    """

    part: str
    seconds: float
    began: int
    ended: int
    level: int = 0


def join_part_times(times: Iterable[PartTime]) -> tuple[PartTime, ...]:
    """Join the times of several tasks by part and level: seconds add up, from the first beginning to the last end."""
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
        """The seconds so far."""
        return time.monotonic() - self._since

    def lap(self) -> float:
        """Return the seconds and start again."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds


@contextmanager
def timing(times: list[PartTime], part: str, level: int = 0) -> Iterator[None]:
    """Add the time of a block to `times`."""
    since = time.monotonic()
    yield
    times.append(ending_now(part, time.monotonic() - since, level))


def ending_now(part: str, seconds: float, level: int = 0) -> PartTime:
    """Return the time of a part that has taken some seconds, up to now."""
    now = time.time_ns() // 1_000
    return PartTime(part, seconds, now - round(seconds * 1_000_000), now, level)
