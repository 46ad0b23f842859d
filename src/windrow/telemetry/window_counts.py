"""Counts of windows by node and key group: how many are open, fired and closed.

A window opens with the first record that it counts in a key group, fires when the low watermark passes its end (or the
input ends), and is closed when no later record can revise it: then its state is dropped. So each is counted once each
way, and the counts up to a place in the log are the same however the log is cut into steps. An early pane fires
nothing: it is an insert or a revision. The global window stays open.

A window is one for all keys that a key group has in it; a session is one of a key. A session that another one reaches
before it fires is one window with that from then on. One that has fired already fires again, as the longer session, and
is closed with it, once. What late records alone make is closed and never fires where it is a session; other windows
open and fire with them.
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
        """Return these windows and others of the same step together."""
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
        """Return the counts of this step and a later one as one; key groups that are not any more have none open."""
        fired, closed = _sum(self.fired, later.fired), _sum(self.closed, later.closed)
        return WindowCounts(_sum((0,) * len(fired), later.open), fired, closed)

    @property
    def again(self) -> WindowCounts:
        """The counts of a step that was counted before: what is open is open still."""
        return WindowCounts(self.open, (0,) * len(self.fired), (0,) * len(self.closed))

    @property
    def total(self) -> GroupWindows:
        """The counts of all key groups together."""
        return GroupWindows(sum(self.open), sum(self.fired), sum(self.closed))

    def plain(self) -> dict[str, list[int]]:
        """Return them as plain JSON."""
        return {name: list(counts) for name, counts in asdict(self).items()}

    @staticmethod
    def of_plain(made: Mapping[str, Iterable[int]]) -> WindowCounts:
        """Return what `plain` wrote."""
        return WindowCounts(**{name: tuple(counts) for name, counts in made.items()})


def add_windows(
    one: Mapping[str, WindowCounts] | None, later: Mapping[str, WindowCounts] | None
) -> dict[str, WindowCounts] | None:
    """Add up counts by node; None are not known, and add nothing."""
    if one is None or later is None:
        known = one if later is None else later
        return None if known is None else dict(known)
    return {
        node: one.get(node, WindowCounts()) + later[node] if node in later else one[node] for node in {**one, **later}
    }


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    # the number of key groups may have changed with a savepoint
    return tuple(map(sum, zip_longest(one, other, fillvalue=0)))
