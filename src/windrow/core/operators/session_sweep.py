"""One cluster of a key's sessions, event by event: for what touches rows of the table, and for late records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from windrow.core.micros import BEFORE_ALL
from windrow.core.operators.session_atoms import EARLY, FIRED, JOINED, ON_TIME, SETTLED, UNSEEN, WAITING
from windrow.core.operators.session_table import Part, Row, Table

T = TypeVar("T")


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

    Late records that are linked with an open session, and with no row that has on-time records, are `waiting` for it.
    What was in a row waits together.
    """

    gap: int
    low: int
    table: Table
    late: Literal["each", "batch"]
    open: list[Segment] = field(default_factory=list)
    fired: list[Segment] = field(default_factory=list)
    waiting: list[list[Part]] = field(default_factory=list)
    owed: list[Part] = field(default_factory=list)

    def begin(self, parts: Sequence[Part], before: int) -> None:
        """Take up what was there before the step; the low watermark was at `before`."""
        on_time = [part for part in parts if part.role == ON_TIME]
        for part in on_time:
            if part.closes + self.gap <= before:
                self.fired.append(_segment([part]))
        self.fired.sort(key=lambda one: one.last)
        self._open([part for part in on_time if part.closes + self.gap > before])
        self.waiting += [[part] for part in parts if part.role == WAITING]

    def add(self, parts: Sequence[Part]) -> None:
        """Add on-time records; rows of late ones that they touch wait for their session."""
        self._open(parts)
        for part in parts:
            self._hide(self.table.touched(part.first, part.last + self.gap))

    def _open(self, parts: Iterable[Part]) -> None:
        """Open sessions: one that others cover is no longer one of its own."""
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
        start, end = late.first, late.last + self.gap
        rows = self.table.touched(start, end)
        if not all(row.is_late_only for row in rows):
            self.table.join([late, *(part for together in self._freed(start, end) for part in together)])
        elif self._is_open(start, end) or any(_touches(together, start, end, self.gap) for together in self.waiting):
            self._hide(rows)
            self.waiting.append([late])
        else:
            self.table.join([late])

    def _is_open(self, start: int, end: int) -> bool:
        return any(one.first < end and start < one.last + self.gap for one in self.open)

    def _hide(self, rows: Iterable[Row]) -> None:
        """Let late records wait that are in rows of their own."""
        self.waiting += [self.table.take(row) for row in rows if row.is_late_only]

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
        """Apply what late records there are together, but let those wait that are linked with open sessions only."""
        coming = [*self.waiting, *([part] for part in [*self.owed, *late])]
        self.waiting, self.owed = [], []
        for linked, rows in self._linked_late(coming):
            parts = [part for together in linked for part in together]
            start, end = min(part.first for part in parts), max(part.last for part in parts) + self.gap
            if all(row.is_late_only for row in rows) and self._is_open(start, end):
                self._hide(rows)
                self.waiting += linked
            else:
                self.table.join(parts)

    def _linked_late(self, coming: Iterable[list[Part]]) -> list[tuple[list[list[Part]], list[Row]]]:
        """Return late records by what links them, each other or rows, and these rows."""
        spans: list[tuple[int, int, list[Part] | Row]] = [(*_span(parts, self.gap), parts) for parts in coming]
        groups = _grouped([*spans, *((row.start, row.end, row) for row in self.table.rows)])
        split = [
            ([one for one in group if isinstance(one, list)], [one for one in group if isinstance(one, Row)])
            for group in groups
        ]
        return [group for group in split if group[0]]

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
        if any(part.role in {JOINED, SETTLED} for part in left):
            if self.late == "each":
                self.table.join(left)
            else:
                self.owed += left
        else:
            for part in left:
                part.seen = UNSEEN
        if pane == "on_time" and self.late == "each":
            for late in self._freed(start, end):
                self.table.join(late)

    def _freed(self, start: int, end: int) -> list[list[Part]]:
        """Take out the late records that are linked with a window, also through others that wait, in log order."""
        window: list[Part] = []
        spans = [(*_span(together, self.gap), together) for together in self.waiting]
        free: list[list[Part]] = []
        self.waiting = []
        for linked in _grouped([*spans, (start, end, window)]):
            if window in linked:
                free = [together for together in linked if together]
            else:
                self.waiting += linked
        return sorted(free, key=lambda parts: min((part.partition, part.offset) for part in parts))


def _grouped(spans: Iterable[tuple[int, int, T]]) -> list[list[T]]:
    """Return what is linked together; each has its start and its end before it."""
    groups: list[list[T]] = []
    reached = BEFORE_ALL
    for start, end, one in sorted(spans, key=lambda span: span[:2]):
        if start >= reached:
            groups.append([])
        groups[-1].append(one)
        reached = max(reached, end)
    return groups


def _span(parts: Sequence[Part], gap: int) -> tuple[int, int]:
    return min(part.first for part in parts), max(part.last for part in parts) + gap


def _touches(parts: Sequence[Part], start: int, end: int, gap: int) -> bool:
    first, last = _span(parts, gap)
    return first < end and start < last


def _segment(parts: Sequence[Part]) -> Segment:
    return Segment(
        min(part.first for part in parts),
        max(part.closes for part in parts),
        min(part.cover for part in parts),
        list(parts),
    )
