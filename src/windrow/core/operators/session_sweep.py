"""One cluster of a key's sessions, event by event: for what touches rows of the table, and for late records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from windrow.core.operators.session_atoms import EARLY, FIRED, JOINED, ON_TIME, UNSEEN, WAITING
from windrow.core.operators.session_table import Part, Table, touches


@dataclass
class Segment:
    """On-time records that end one session, as far as is known now."""

    first: int
    last: int
    cover: int
    parts: list[Part]


@dataclass
class Sweep:
    """A cluster's sessions in the order in which things happen to them.

    Sessions fire in the order of their ends; a record comes after those that its watermark has passed. `fired` holds
    the on-time sessions up to the low watermark, `open` those after it: all of these are later than all of those.
    """

    gap: int
    low: int
    table: Table
    late: Literal["each", "batch"]
    open: list[Segment] = field(default_factory=list)
    fired: list[Segment] = field(default_factory=list)
    waiting: list[Part] = field(default_factory=list)
    owed: list[Part] = field(default_factory=list)

    def begin(self, parts: Sequence[Part], before: int) -> None:
        """Take up what was there before the step; the low watermark was at `before`."""
        on_time = [part for part in parts if part.role == ON_TIME]
        for part in on_time:
            if part.closes + self.gap <= before:
                self.fired.append(_segment([part]))
        self.fired.sort(key=lambda one: one.last)
        self.add([part for part in on_time if part.closes + self.gap > before])
        self.waiting += [part for part in parts if part.role == WAITING]

    def add(self, parts: Iterable[Part]) -> None:
        """Add on-time records: a session that they cover is no longer one of its own."""
        merged: list[Segment] = []
        for segment in sorted([*self.open, *(_segment([part]) for part in parts)], key=lambda one: one.last):
            while merged and (merged[-1].last > segment.cover or merged[-1].last == segment.last):
                below = merged.pop()
                segment.first = min(segment.first, below.first)
                segment.cover = min(segment.cover, below.cover)
                segment.parts += below.parts
            merged.append(segment)
        self.open = merged

    def come(self, late: Part) -> None:
        """Take a late record, where each of them is a change."""
        self.fire(min(late.cover, self.low))
        free = not any(touches(late, one.first, one.last + self.gap, self.gap) for one in self.open) and not any(
            abs(late.first - other.first) < self.gap for other in self.waiting
        )
        if free or self.table.touched(late.first, late.last + self.gap):
            self.table.join([late])
        else:
            self.waiting.append(late)

    def fire(self, until: int) -> None:
        """Fire the sessions that end by then."""
        while self.open and self.open[0].last + self.gap <= until:
            segment = self._linked(self.open.pop(0))
            self._write(segment, "on_time")
            self.fired.append(segment)

    def end(self) -> None:
        """Fire everything: what is linked is one session, as no later record can come between."""
        for chain in self._chains():
            self._write(chain, "on_time")

    def early(self, due: int) -> None:
        """Write early panes of the sessions whose first unseen record came at `due` or before."""
        for chain in self._chains():
            if any(part.seen == UNSEEN and part.since <= due for part in chain.parts):
                self._write(chain, "early")

    def join_late(self, late: Iterable[Part]) -> None:
        """Apply what late records there are together, but let those wait that touch nothing but open sessions."""
        coming = [*self.waiting, *self.owed, *late]
        self.waiting, self.owed = [], []
        for parts, in_table in self._linked_late(coming):
            start, end = parts[0].first, max(part.last for part in parts) + self.gap
            if not in_table and any(one.first < end and start < one.last + self.gap for one in self.open):
                self.waiting += parts
            else:
                self.table.join(parts)

    def _linked_late(self, parts: Iterable[Part]) -> list[tuple[list[Part], bool]]:
        """Return late records by what links them, each other or a row, and whether a row is among that."""
        spans: list[tuple[int, int, Part | None]] = [(part.first, part.last + self.gap, part) for part in parts]
        spans += [(row.start, row.end, None) for row in self.table.rows]
        groups: list[tuple[list[Part], bool]] = []
        reached = 0
        for start, end, part in sorted(spans, key=lambda span: span[:2]):
            linked, in_table = groups.pop() if groups and start < reached else ([], False)
            reached = end if not linked and not in_table else max(reached, end)
            groups.append(([*linked, part], in_table) if part else (linked, True))
        return [group for group in groups if group[0]]

    def _linked(self, segment: Segment) -> Segment:
        """Return an open session with the fired one that it goes on from, if there is one."""
        if self.fired and segment.first - self.fired[-1].last < self.gap:
            return _segment([*self.fired.pop().parts, *segment.parts])
        return segment

    def _chains(self) -> list[Segment]:
        """Return the open sessions joined to those that they are linked with, fired ones too."""
        chains: list[Segment] = []
        for segment in [*self.fired[-1:], *self.open]:
            if chains and segment.first - chains[-1].last < self.gap:
                chains[-1] = _segment([*chains[-1].parts, *segment.parts])
            else:
                chains.append(segment)
        is_open = {id(part) for segment in self.open for part in segment.parts}
        return [chain for chain in chains if any(id(part) in is_open for part in chain.parts)]

    def _write(self, session: Segment, pane: Literal["on_time", "early"]) -> None:
        """Write a pane, then what late records make of it."""
        if pane == "on_time" and all(part.seen == FIRED for part in session.parts):
            return  # the end of an input has fired it
        start, end = session.first, session.last + self.gap
        left = self.table.put(start, end, session.parts, pane)
        self.owed = [part for part in self.owed if part not in session.parts]
        for part in session.parts:
            part.seen = FIRED if pane == "on_time" else max(part.seen, EARLY)
        if any(part.role == JOINED for part in left):
            if self.late == "each":
                self.table.join(left)
            else:
                self.owed += left
        else:
            for part in left:
                part.seen = UNSEEN
        if pane == "on_time" and self.late == "each":
            for late in self._freed(start, end):
                self.table.join([late])

    def _freed(self, start: int, end: int) -> list[Part]:
        """Take out the late records that wait for a session, also through others that wait, in log order."""
        after = sorted((part for part in self.waiting if part.first >= start), key=lambda part: part.first)
        before = sorted((part for part in self.waiting if part.first < start), key=lambda part: -part.first)
        free: list[Part] = []
        kept: list[Part] = []
        # linked ones lie around the session: outwards from it, each is less than the gap from the one before
        for part in after:
            if part.first < end:
                free.append(part)
                end = max(end, part.last + self.gap)
            else:
                kept.append(part)
        for part in before:
            if start < part.last + self.gap:
                free.append(part)
                start = part.first
            else:
                kept.append(part)
        self.waiting = kept
        return sorted(free, key=lambda one: (one.partition, one.offset))


def _segment(parts: Sequence[Part]) -> Segment:
    return Segment(
        min(part.first for part in parts),
        max(part.closes for part in parts),
        min(part.cover for part in parts),
        list(parts),
    )
