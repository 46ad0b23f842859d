"""Counts of the windows of each node and key group: how many are open, have fired, and are closed.

A window opens with the first record that it counts in a key group. It fires when the low watermark passes its end or
the input ends. It is closed when no later record can revise it, and its state is dropped. So a window adds one to each
count, and the counts up to a position in the log do not depend on how the log is divided into steps. An early pane does
not fire the window: it is an insert or a revision. The global window stays open.

All keys of a key group share a window, but a session belongs to one key. Two sessions that merge before they fire count
as one window from then on. A session that has fired fires again when it grows, but is closed only once. A session with
only late records is closed without firing; other windows do open and fire with late records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import NamedTuple


class GroupWindows(NamedTuple):
    """Windows of one key group: the number `open` after a step, and the numbers that `fired` and `closed` in it."""

    open: int = 0
    fired: int = 0
    closed: int = 0

    def plus(self, other: GroupWindows) -> GroupWindows:
        """Add the counts of other windows in the same step."""
        return GroupWindows(self.open + other.open, self.fired + other.fired, self.closed + other.closed)


@dataclass(frozen=True)
class WindowCounts:
    """Window counts of each key group, in numerical order: `open` after a step, `fired` and `closed` in it."""

    open: tuple[int, ...] = ()
    fired: tuple[int, ...] = ()
    closed: tuple[int, ...] = ()

    @staticmethod
    def of(groups: Iterable[GroupWindows]) -> WindowCounts:
        """Combine the counts of all key groups, given in order."""
        return WindowCounts(*zip(*groups, strict=True))

    def __add__(self, later: WindowCounts) -> WindowCounts:
        """Add the counts of a later step. Key groups that no longer exist have no open windows."""
        fired, closed = _sum(self.fired, later.fired), _sum(self.closed, later.closed)
        return WindowCounts(_sum((0,) * len(fired), later.open), fired, closed)

    @property
    def again(self) -> WindowCounts:
        """The counts to report for a step that was already counted, in which only open windows are not zero."""
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
        """Parse the result of `plain`."""
        return WindowCounts(**{name: tuple(counts) for name, counts in made.items()})


def _sum(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    # the number of key groups may have changed with a savepoint
    return tuple(map(sum, zip_longest(first, second, fillvalue=0)))
