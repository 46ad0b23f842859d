"""Counts of windows by node and key group: how many are open, fired and closed.

A window opens with the first record that it counts in a key group, fires when the low watermark passes its end (or the
input ends), and is closed when no later record can revise it: then its state is dropped. So each window is counted once
in each count, and the counts up to a place in the log are the same however the log is cut into steps. An early pane
does not fire the window: it is an insert or a revision. The global window stays open.

All keys of a key group share a window; a session belongs to one key. Two sessions that grow together before they fire
are one window from then on. A session that has fired fires again when it grows, and is closed once. A session of late
records alone is closed and never fires; other windows open and fire with late records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import NamedTuple


class GroupWindows(NamedTuple):
    """Windows of one key group: `open` after a step, and how many `fired` and `closed` in it."""

    open: int = 0
    fired: int = 0
    closed: int = 0

    def plus(self, other: GroupWindows) -> GroupWindows:
        """Add windows of the same step."""
        return GroupWindows(self.open + other.open, self.fired + other.fired, self.closed + other.closed)


@dataclass(frozen=True)
class WindowCounts:
    """Windows by key group, in the order of their numbers: `open` after a step, `fired` and `closed` in it."""

    open: tuple[int, ...] = ()
    fired: tuple[int, ...] = ()
    closed: tuple[int, ...] = ()

    @staticmethod
    def of(groups: Iterable[GroupWindows]) -> WindowCounts:
        """Return the counts of all key groups, given in their order."""
        return WindowCounts(*zip(*groups, strict=True))

    def __add__(self, later: WindowCounts) -> WindowCounts:
        """Sum up this step and a later one; key groups that no longer exist have no open windows."""
        fired, closed = _sum(self.fired, later.fired), _sum(self.closed, later.closed)
        return WindowCounts(_sum((0,) * len(fired), later.open), fired, closed)

    @property
    def again(self) -> WindowCounts:
        """The counts of a step that was counted before: only open windows remain."""
        return WindowCounts(self.open, (0,) * len(self.fired), (0,) * len(self.closed))

    @property
    def total(self) -> GroupWindows:
        """The counts of all key groups together."""
        return GroupWindows(sum(self.open), sum(self.fired), sum(self.closed))

    def plain(self) -> dict[str, list[int]]:
        """Return the counts as plain JSON."""
        return {name: list(counts) for name, counts in asdict(self).items()}

    @staticmethod
    def of_plain(made: Mapping[str, Iterable[int]]) -> WindowCounts:
        """Read the JSON of `plain`."""
        return WindowCounts(**{name: tuple(counts) for name, counts in made.items()})


def _sum(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    # the number of key groups may have changed with a savepoint
    return tuple(map(sum, zip_longest(first, second, fillvalue=0)))
