"""The rows of a key's sessions in the result table, and the changes that a step makes to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from windrow.engine.operators.session.fragments import EARLY, FIRED, JOINED, ON_TIME, SETTLED, UNSEEN, WAITING

Op = Literal["insert", "update_before", "update_after", "delete"]
PaneName = Literal["early", "on_time", "late"]
Cause = tuple[int, int, int]
"""A position in the merged order: watermark, partition and offset."""


@dataclass(eq=False, slots=True)
class SessionPart:
    """A fragment with its number and its fields (`FRAGMENT_FIELDS`); a step changes some of the fields.

    The parts of a cluster are merged by `turn`, then `kind`: the on-time records of a turn precede its late record. If
    a part has a single record, `watermark` is the watermark at that record.
    """

    turn: int
    kind: int
    number: int
    watermark: int
    key: int
    first: int
    last: int
    closes: int
    cover: int
    role: int
    seen: int
    start: int
    end: int
    revision: int
    since: int
    partition: int
    offset: int
    count: int

    @property
    def cause(self) -> Cause:
        """The position of the part's record, if it has a single record."""
        return self.watermark, self.partition, self.offset


@dataclass(eq=False)
class SessionRow:
    """A row of the table. Its values are those of `history` at `place`.

    A row is early if it holds on-time records that no on-time pane has held yet, and late-only if it holds only late
    records.
    """

    start: int
    end: int
    revision: int
    parts: list[SessionPart]
    history: int | None = None
    place: int = 0
    is_early: bool = False
    is_late_only: bool = False


class SessionChange(NamedTuple):
    """A change; the first fields are in the order of the columns of changes.

    Its values are those of `history` at `place`. `cause` is the position of its cause if sessions are traced.
    """

    op: Op
    pane: PaneName
    revision: int
    start: int
    end: int
    history: int
    place: int
    cause: Cause


@dataclass
class RowHistory:
    """The parts that are added to rows, in order. The values of a row are the merged values of all its parts so far.

    As a result, a session that a thousand late records revise costs a thousand additions, not a thousand sums.
    """

    number: int = 0
    added: list[tuple[int, int, int]] = field(default_factory=list)
    """Tuples (history, place, number of the part)."""

    def open(self, parts: Iterable[SessionPart]) -> int:
        """Begin a history with the given parts at place 0, and return its number."""
        history = self.number
        self.number += 1
        self.add(history, 0, parts)
        return history

    def add(self, history: int, place: int, parts: Iterable[SessionPart]) -> None:
        """Add parts to a history at the given place."""
        self.added += [(history, place, part.number) for part in parts]


@dataclass
class SessionRows:
    """The rows of a cluster, which do not touch each other."""

    gap: int
    histories: RowHistory
    rows: list[SessionRow] = field(default_factory=list)
    changes: list[SessionChange] = field(default_factory=list)
    cause: Cause = (0, 0, 0)
    """The position of the record, or of the end of the window, that causes the next changes."""

    def find_touching(self, start: int, end: int) -> list[SessionRow]:
        """Return the rows that touch a window, ordered by start."""
        return sorted((row for row in self.rows if row.start < end and start < row.end), key=lambda row: row.start)

    def put(self, start: int, end: int, parts: Sequence[SessionPart], pane: PaneName) -> list[SessionPart]:
        """Replace the rows that a session touches by one row with exactly these parts; return their other parts."""
        replaced = self.find_touching(start, end)
        within = set(map(id, parts))
        left = [part for row in replaced for part in row.parts if id(part) not in within]
        base = None if left else max(replaced, key=_number_of_parts, default=None)
        had = set() if base is None else set(map(id, base.parts))
        added = [part for part in parts if id(part) not in had]
        self._replace(replaced, base, added, SessionRow(start, end, 0, [], is_early=pane == "early"), pane)
        return left

    def take(self, row: SessionRow) -> list[SessionPart]:
        """Delete a row and return its parts, which now wait.

        On-time records keep their role, because a longer session may hold them.
        """
        self._begin(row)
        self._write("delete", "late" if row.is_late_only else "on_time", row)
        self.rows.remove(row)
        for part in row.parts:
            part.seen = UNSEEN
            if part.role != ON_TIME:
                part.role = WAITING
        return row.parts

    def join(self, parts: Sequence[SessionPart]) -> None:
        """Join late records, and the parts that waited with them, with the rows that they touch.

        A row with records that no on-time pane has held yet remains early, because it depends on processing time.
        """
        start, end = window_of(parts, self.gap)
        replaced = self.find_touching(start, end)
        base = max(replaced, key=_number_of_parts, default=None)
        added = [*parts, *(part for row in replaced if row is not base for part in row.parts)]
        new = SessionRow(
            min([start, *(row.start for row in replaced)]),
            max([end, *(row.end for row in replaced)]),
            0,
            [],
            is_early=any(row.is_early for row in replaced) or any(part.seen == EARLY for part in parts),
            is_late_only=all(row.is_late_only for row in replaced) and not any(is_on_time(part) for part in parts),
        )
        self._replace(replaced, base, added, new, "early" if new.is_early else "late")
        for part in parts:
            if part.role == WAITING:
                part.role = JOINED
            if part.seen == UNSEEN:
                part.seen = FIRED

    def _replace(
        self,
        replaced: list[SessionRow],
        base: SessionRow | None,
        added: list[SessionPart],
        new: SessionRow,
        pane: PaneName,
    ) -> None:
        """Replace rows by a new row with the parts of `base`, whose history it continues, and the `added` parts."""
        for row in replaced:
            self._begin(row)
        if base is None or base.history is None:
            new.parts, new.history = added, self.histories.open(added)
        else:
            base.parts += added
            # a row with the same parts has the same values
            new.parts, new.history, new.place = base.parts, base.history, base.place + bool(added)
            self.histories.add(base.history, new.place, added)
        if [(row.start, row.end) for row in replaced] == [(new.start, new.end)]:
            new.revision = replaced[0].revision + 1
            self._write("update_before", pane, replaced[0])
            self._write("update_after", pane, new)
        else:
            for row in replaced:
                self._write("delete", pane, row)
            self._write("insert", pane, new)
        self.rows = [row for row in self.rows if row not in replaced]
        self.rows.append(new)

    def _begin(self, row: SessionRow) -> None:
        """Open a history for a row that was written in an earlier step."""
        if row.history is None:
            row.history = self.histories.open(row.parts)

    def _write(self, op: Op, pane: PaneName, row: SessionRow) -> None:
        if row.history is None:
            msg = "a row must have values before it is written"
            raise ValueError(msg)
        self.changes.append(
            SessionChange(op, pane, row.revision, row.start, row.end, row.history, row.place, self.cause)
        )


def is_on_time(part: SessionPart) -> bool:
    """Return True if a part has on-time records."""
    return part.role in {ON_TIME, SETTLED}


def window_of(parts: Sequence[SessionPart], gap: int) -> tuple[int, int]:
    """Return the start and end of the window that spans the given parts."""
    return min(part.first for part in parts), max(part.last for part in parts) + gap


def _number_of_parts(row: SessionRow) -> int:
    return len(row.parts)
