"""Session merging, one cluster at a time: the slow path of `plan_step`.

A cluster is a sequence of events in the order of watermarks: its records, the ends of its sessions, and the end of the
step. `SessionMerger` applies one event after the other to the sessions and their rows (`rows`).

If other streams read the rows of sessions, the sessions are traced: each record is an event of its own, so every change
has the position of its cause. When a record links a row with an open session, directly or through late records, the row
is retracted. It is inserted again, as part of the longer session, when that session fires. So the rows at a watermark
are exactly the rows that no open session can change, and no row is retracted long after its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal, TypeVar

import numpy as np

from windrow.engine.columns import MAX_TIME, MIN_TIME
from windrow.engine.operators.session import fragments
from windrow.engine.operators.session.fragments import EARLY, FIRED, JOINED, ON_TIME, SETTLED, UNSEEN, WAITING, Numbers
from windrow.engine.operators.session.rows import (
    RowHistory,
    SessionChange,
    SessionPart,
    SessionRow,
    SessionRows,
    is_on_time,
    window_of,
)
from windrow.engine.schema import LAST_PARTITION

_STORED, _ON_TIME, _LATE = range(3)
"""The kinds of parts of a cluster, in the order in which the parts of a turn are merged."""


@dataclass
class MergeResult:
    """Result of the slow path.

    `changes` are tuples (key number, first event time of the cluster, change). For each fragment in `made`, given by
    its fields, `made_of` lists the places whose accumulators it combines. `closed` is the number of rows that are no
    longer kept.
    """

    histories: RowHistory = field(default_factory=RowHistory)
    changes: list[tuple[int, int, SessionChange]] = field(default_factory=list)
    made: list[tuple[int, ...]] = field(default_factory=list)
    made_of: list[list[int]] = field(default_factory=list)
    closed: int = 0


@dataclass(frozen=True)
class ClusteredFragments:
    """The fragments of a step; the first `stored` fragments come from the state.

    `cluster` has the cluster of each fragment, and `part_of` the fragment of each record.
    """

    parts: fragments.Fragments
    stored: int
    cluster: Numbers
    part_of: Numbers


def merge_clusters(
    rules: fragments.SessionSpec,
    moment: fragments.SessionTime,
    clustered: ClusteredFragments,
    slow: fragments.Mask,
    arrivals: fragments.SessionRecords,
) -> tuple[MergeResult, Numbers]:
    """Merge the clusters marked as `slow`; return the result, and the part of each record.

    Parts are the fragments, by number. If late records are reported one by one, there are additional parts: on-time
    records are coalesced again, but only with records that arrive between the same two late records. If all records are
    processed one by one, every record is a part.
    """
    parts, cluster, part_of = clustered.parts, clustered.cluster, clustered.part_of
    is_stored = np.arange(len(parts)) < clustered.stored
    kinds = np.where(is_stored, _STORED, np.where(parts["role"] == WAITING, _LATE, _ON_TIME))
    turns = np.zeros(len(parts), dtype=np.int64)
    watermarks = np.where(kinds == _LATE, parts["cover"], 0)
    takes_part = slow[cluster]
    split = slow if rules.is_record_by_record else np.zeros(len(slow), dtype=np.bool_)
    if rules.late == "each" and not rules.is_record_by_record:
        split[cluster[kinds == _LATE]] = True
    if split.any():
        within = np.flatnonzero(split[cluster[part_of]])
        turn = _turns(arrivals, cluster[part_of], within, alone=rules.is_record_by_record)
        late = arrivals.late[within]
        turns[part_of[within[late]]] = turn[late]
        takes_part &= ~(split[cluster] & (kinds == _ON_TIME))
        on_time, stride = within[~late], int(turn.max(initial=0)) + 1
        records = arrivals.take(on_time)
        by_turn = cluster[part_of[on_time]] * stride + turn[~late]
        again, again_of = fragments.coalesce(replace(records, keys=by_turn), rules.gap)
        its_cluster, its_turn = np.divmod(again["key"], stride)
        key_of = np.empty(len(slow), dtype=np.int64)
        key_of[cluster] = parts["key"]
        again["key"] = key_of[its_cluster]
        if rules.is_record_by_record:
            again["partition"][again_of] = records.partitions
            again["offset"][again_of] = records.offsets
        first_watermarks = np.zeros(len(again), dtype=np.int64)
        first_watermarks[again_of] = records.watermarks
        watermarks = np.concatenate([watermarks, first_watermarks])
        part_of = part_of.copy()
        part_of[on_time] = len(parts) + again_of
        turns = np.concatenate([turns, its_turn])
        kinds = np.concatenate([kinds, np.full(len(again), _ON_TIME)])
        takes_part = np.concatenate([takes_part, np.ones(len(again), dtype=np.bool_)])
        cluster = np.concatenate([cluster, its_cluster])
        parts = np.concatenate([parts, again])
    result = MergeResult()
    chosen = np.flatnonzero(takes_part)
    chosen = chosen[np.lexsort((kinds[chosen], turns[chosen], cluster[chosen]))]
    columns = [turns[chosen], kinds[chosen], chosen, watermarks[chosen]]
    columns += [parts[name][chosen] for name in fragments.FRAGMENT_FIELDS]
    members = zip(cluster[chosen].tolist(), map(SessionPart, *(column.tolist() for column in columns)), strict=True)
    for _, group in groupby(members, key=lambda member: member[0]):
        _merge_cluster(rules, moment, [part for _, part in group], result)
    return result, part_of


def _turns(arrivals: fragments.SessionRecords, cluster: Numbers, within: Numbers, *, alone: bool) -> Numbers:
    """Return, for each record, the number of late records in its cluster that precede it in the merged order.

    With `alone`, count all records, not only late ones.
    """
    cluster, records = cluster[within], arrivals.take(within)
    events = np.lexsort((records.offsets, records.partitions, records.watermarks, cluster))
    late = np.ones(len(within), dtype=np.int64) if alone else records.late[events].astype(np.int64)
    before = np.cumsum(late) - late
    _, firsts, numbers = np.unique(cluster[events], return_index=True, return_inverse=True)
    turn = np.empty(len(within), dtype=np.int64)
    turn[events] = before - before[firsts][numbers]
    return turn


def _merge_cluster(
    rules: fragments.SessionSpec, moment: fragments.SessionTime, parts: list[SessionPart], result: MergeResult
) -> None:
    """Merge one cluster and add it to the result; its parts are ordered by turn, then kind."""
    table = SessionRows(rules.gap, result.histories, _rows_of(parts))
    merger = SessionMerger(rules, moment.low, table)
    merger.begin([part for part in parts if part.kind == _STORED], moment.before)
    late = list(_merge_records(merger, parts))
    merger.fire(MAX_TIME if moment.end and rules.is_traced else moment.low)
    if moment.end:
        merger.end()
    elif moment.due is not None:
        merger.early(moment.due)
    if rules.late == "batch":
        merger.join_late(late)
    key, first = parts[0].key, min(part.first for part in parts)
    result.changes += [(key, first, change) for change in table.changes]
    for fields, members in _remaining_fragments(rules, moment, merger):
        result.made.append(fields)
        result.made_of.append([part.number for part in members])
    if not merger.open:
        result.closed += sum(rules.is_past(row.end, moment) for row in table.rows)


def _merge_records(merger: SessionMerger, parts: Iterable[SessionPart]) -> Iterator[SessionPart]:
    """Add the records of a cluster to its sessions; yield the late records to be joined at the end of the step."""
    for (_, kind), group in groupby(parts, key=lambda part: (part.turn, part.kind)):
        if kind == _STORED:
            continue
        if merger.rules.is_traced:
            for part in group:
                merger.add_traced(part)
        elif merger.rules.count is not None and kind == _ON_TIME:
            for part in group:
                merger.fire(part.watermark)
                merger.add([part])
                merger.early_by_count(part, merger.rules.count)
        elif kind == _ON_TIME:
            merger.add(list(group))
        elif merger.rules.late == "each":
            for part in group:
                merger.add_late(part)
        else:
            yield from group


def _rows_of(parts: Iterable[SessionPart]) -> list[SessionRow]:
    """Return the rows that contain the stored parts."""
    rows: dict[int, SessionRow] = {}
    for part in parts:
        if part.seen != UNSEEN:
            row = rows.setdefault(part.start, SessionRow(part.start, part.end, part.revision, [], is_late_only=True))
            row.parts.append(part)
            row.is_early = row.is_early or part.seen == EARLY
            row.is_late_only = row.is_late_only and not is_on_time(part)
    return list(rows.values())


def _remaining_fragments(
    rules: fragments.SessionSpec, moment: fragments.SessionTime, merger: SessionMerger
) -> Iterator[tuple[tuple[int, ...], list[SessionPart]]]:
    """Yield the fragments that remain of a cluster, coalesced if no later record can separate them."""
    rows = merger.table.rows
    row_of = {id(part): row for row in rows for part in row.parts}
    # open sessions, and late records that wait for them, may still touch any row around them
    at_rest = not merger.open
    final = {id(row) for row in rows if at_rest and rules.is_past(row.end, moment)}
    with_late = {id(row) for row in rows if any(part.role == JOINED for part in row.parts)}
    for segment in merger.open:
        for members in _split_by_row(segment, row_of):
            yield _coalesced_fields(members, row_of.get(id(members[0])), segment.last), members
    for segment in merger.fired:
        row = row_of.get(id(segment.parts[0]))  # None if it waits for an open session
        is_settled = at_rest and segment.last + rules.gap + rules.reach <= moment.low
        if is_settled and row is not None and id(row) in with_late:
            # no on-time record can extend it any more: late records change only its row
            for part in segment.parts:
                part.role = SETTLED
        elif id(row) not in final:
            yield _coalesced_fields(segment.parts, row), segment.parts
    late: list[tuple[list[SessionPart], SessionRow | None]] = [
        ([part for part in row.parts if part.role in {JOINED, SETTLED}], row) for row in rows if id(row) not in final
    ]
    # the on-time parts that wait with them are in `fired`
    late += [([part for part in together if part.role == WAITING], None) for together in merger.waiting]
    yield from ((_coalesced_fields(members, row), members) for members, row in late if members)


def _split_by_row(segment: SessionSegment, row_of: dict[int, SessionRow]) -> Iterable[list[SessionPart]]:
    """Group the parts of an open session by row and by whether a pane has shown them."""
    alike: dict[tuple[int, int], list[SessionPart]] = {}
    for part in segment.parts:
        alike.setdefault((id(row_of.get(id(part))), part.seen), []).append(part)
    return alike.values()


def _coalesced_fields(members: list[SessionPart], row: SessionRow | None, closes: int | None = None) -> tuple[int, ...]:
    """Return the fields of a coalesced fragment; `closes` is given if its session is still open."""
    last = max(part.last for part in members)
    return (
        members[0].key,
        min(part.first for part in members),
        last,
        last if closes is None else closes,
        min(part.cover for part in members),
        max(part.role for part in members),
        members[0].seen,
        *((0, 0, 0) if row is None else (row.start, row.end, row.revision)),
        min(part.since for part in members),
        *min((part.partition, part.offset) for part in members),
        sum(part.count for part in members),
    )


T = TypeVar("T")


@dataclass
class SessionSegment:
    """The on-time records of a session, as far as they are known."""

    first: int
    last: int
    cover: int
    parts: list[SessionPart]
    unseen: int


@dataclass
class SessionMerger:
    """The sessions of a cluster, to which events are applied one after the other.

    Sessions fire in the order of their ends. Before a record is added, the sessions that its watermark has passed must
    fire. `fired` holds the on-time sessions that end by the low watermark, and `open` the other sessions, which are all
    later.

    Late records wait for an open session if they are linked with it and with no row that has on-time records. They are
    in `waiting`, where records that were in the same row wait together. `pending_late` are late records to be joined at
    the end of the step.

    If sessions are traced, all records that are linked with an open session wait for it.
    """

    rules: fragments.SessionSpec
    low: int
    table: SessionRows
    open: list[SessionSegment] = field(default_factory=list)
    fired: list[SessionSegment] = field(default_factory=list)
    waiting: list[list[SessionPart]] = field(default_factory=list)
    pending_late: list[SessionPart] = field(default_factory=list)

    @property
    def gap(self) -> int:
        """The gap of the sessions, in microseconds."""
        return self.rules.gap

    def begin(self, parts: Sequence[SessionPart], before: int) -> None:
        """Start with the stored parts. `before` is the low watermark before the step."""
        on_time = [part for part in parts if part.role == ON_TIME]
        self.fired += [_segment_of([part]) for part in on_time if part.closes + self.gap <= before]
        self.fired.sort(key=lambda segment: segment.last)
        self._open([part for part in on_time if part.closes + self.gap > before])
        self.waiting += [[part] for part in parts if part.role == WAITING]
        if self.rules.is_traced:
            # they were retracted together with the records that they are linked with
            self.waiting += [[part] for segment in self.fired for part in segment.parts if part.seen == UNSEEN]

    def add(self, parts: Sequence[SessionPart]) -> None:
        """Add on-time records; the late records of rows that they touch wait for the new session."""
        self._open(parts)
        for part in parts:
            self._hide(self.table.find_touching(part.first, part.last + self.gap))

    def add_traced(self, part: SessionPart) -> None:
        """Add a record to traced sessions; the record is the cause of all changes that result."""
        self.fire(part.watermark)
        self.table.cause = part.cause
        start, end = part.first, part.last + self.gap
        if part.role == ON_TIME:
            self._open([part])
        elif self._is_linked(start, end):
            self.waiting.append([part])
        else:
            self.table.join([part])
            return
        self.waiting += [self.table.take(row) for row in self.table.find_touching(start, end)]

    def _open(self, parts: Iterable[SessionPart]) -> None:
        """Open a session for each part; merge sessions if a later one covers the end of an earlier one."""
        merged: list[SessionSegment] = []
        for segment in sorted([*self.open, *(_segment_of([part]) for part in parts)], key=lambda opened: opened.last):
            while merged and (merged[-1].last > segment.cover or merged[-1].last == segment.last):
                below = merged.pop()
                segment.first = min(segment.first, below.first)
                segment.cover = min(segment.cover, below.cover)
                segment.unseen += below.unseen
                if len(below.parts) > len(segment.parts):
                    segment.parts, below.parts = below.parts, segment.parts
                segment.parts += below.parts
            merged.append(segment)
        self.open = merged

    def add_late(self, late: SessionPart) -> None:
        """Add a late record that is reported on its own."""
        self.fire(late.cover if self.rules.is_record_by_record else min(late.cover, self.low))
        start, end = late.first, late.last + self.gap
        rows = self.table.find_touching(start, end)
        if not all(row.is_late_only for row in rows):
            self.table.join([late, *(part for together in self._take_waiting(start, end) for part in together)])
        elif self._is_linked(start, end):
            self._hide(rows)
            self.waiting.append([late])
        else:
            self.table.join([late])

    def _is_open(self, start: int, end: int) -> bool:
        return any(segment.first < end and start < segment.last + self.gap for segment in self.open)

    def _is_linked(self, start: int, end: int) -> bool:
        """Return True if a window touches an open session, or records that wait for one."""
        windows = (window_of(together, self.gap) for together in self.waiting)
        return self._is_open(start, end) or any(first < end and start < last for first, last in windows)

    def _hide(self, rows: Iterable[SessionRow]) -> None:
        """Remove the rows that contain only late records from the table; their records wait again."""
        self.waiting += [self.table.take(row) for row in rows if row.is_late_only]

    def fire(self, until: int) -> None:
        """Fire the sessions that end at or before the given time."""
        while self.open and self.open[0].last + self.gap <= until:
            segment = self._join_fired(self.open.pop(0))
            self._write(segment, "on_time")
            self.fired.append(segment)

    def end(self) -> None:
        """Fire all open sessions; linked sessions become one, because no later record can separate them."""
        for chain in self._chains():
            self._write(chain, "on_time")

    def early_by_count(self, part: SessionPart, count: int) -> None:
        """Write an early pane for an on-time record's session if `count` of the session's records are unseen.

        In the merged order, no two open sessions are linked, because a session that has ended has fired.
        """
        segment = next(segment for segment in self.open if segment.first <= part.first <= segment.last)
        if segment.unseen < count:
            return
        before = [fired for fired in self.fired if segment.first - fired.last < self.gap]
        self._write(_segment_of([part for linked in (*before, segment) for part in linked.parts]), "early")
        segment.unseen = 0

    def early(self, due: int) -> None:
        """Write early panes for the sessions whose first unseen record arrived at `due` or earlier."""
        for chain in self._chains():
            if any(part.seen == UNSEEN and part.since <= due for part in chain.parts):
                self._write(chain, "early")

    def join_late(self, late: Iterable[SessionPart]) -> None:
        """Join all late records with the rows; late records that are linked only with open sessions keep waiting."""
        coming = [*self.waiting, *([part] for part in [*self.pending_late, *late])]
        self.waiting, self.pending_late = [], []
        spans: list[tuple[int, int, list[SessionPart] | SessionRow]] = [
            *((*window_of(parts, self.gap), parts) for parts in coming),
            *((row.start, row.end, row) for row in self.table.rows),
        ]
        for group in _group_overlapping(spans):
            linked = [parts for parts in group if isinstance(parts, list)]
            rows = [row for row in group if isinstance(row, SessionRow)]
            parts = [part for together in linked for part in together]
            if parts and all(row.is_late_only for row in rows) and self._is_open(*window_of(parts, self.gap)):
                self._hide(rows)
                self.waiting += linked
            elif parts:
                self.table.join(parts)

    def _join_fired(self, segment: SessionSegment) -> SessionSegment:
        """Join an open session with the fired sessions that are linked with it, which are the last ones."""
        while self.fired and segment.first - self.fired[-1].last < self.gap:
            segment = _segment_of([*self.fired.pop().parts, *segment.parts])
        return segment

    def _chains(self) -> list[SessionSegment]:
        """Return the open sessions, each joined with the open and fired sessions that are linked with it."""
        chains: list[SessionSegment] = []
        for segment in [*self.fired, *self.open]:
            chain = segment
            while chains and chain.first - chains[-1].last < self.gap:
                chain = _segment_of([*chains.pop().parts, *chain.parts])
            chains.append(chain)
        is_open = {id(part) for segment in self.open for part in segment.parts}
        return [chain for chain in chains if any(id(part) in is_open for part in chain.parts)]

    def _write(self, session: SessionSegment, pane: Literal["on_time", "early"]) -> None:
        """Write a pane, followed by the changes that late records make to it."""
        if pane == "on_time" and all(part.seen == FIRED for part in session.parts):
            return  # the end of an input has fired it
        start, end = session.first, session.last + self.gap
        if self.rules.is_traced:
            self.table.cause = end - 1, LAST_PARTITION, MAX_TIME
            self._write_linked(session, start, end)
            return
        left = self.table.put(start, end, session.parts, pane)
        self.pending_late = [part for part in self.pending_late if part not in session.parts]
        for part in session.parts:
            part.seen = FIRED if pane == "on_time" else max(part.seen, EARLY)
        if any(part.role in {JOINED, SETTLED} for part in left):
            if self.rules.late == "each":
                self.table.join(left)
            else:
                self.pending_late += left
        else:
            for part in left:
                part.seen = UNSEEN
        if pane == "on_time" and self.rules.late == "each":
            for late in self._take_waiting(start, end):
                self.table.join(late)

    def _write_linked(self, session: SessionSegment, start: int, end: int) -> None:
        """Write a pane and join the records linked with it.

        If an open session is linked too, the session and its linked records wait for it instead.
        """
        own = set(map(id, session.parts))
        linked = [part for together in self._take_waiting(start, end) for part in together if id(part) not in own]
        if self._is_open(*window_of([*session.parts, *linked], self.gap)):
            self.waiting.append([*session.parts, *linked])
            return
        self.table.put(start, end, session.parts, "on_time")
        for part in session.parts:
            part.seen = FIRED
        if linked:
            self.table.join(linked)

    def _take_waiting(self, start: int, end: int) -> list[list[SessionPart]]:
        """Remove and return the late records linked with a window, directly or through others, in log order."""
        window: list[SessionPart] = []
        spans = [(*window_of(together, self.gap), together) for together in self.waiting]
        free: list[list[SessionPart]] = []
        self.waiting = []
        for linked in _group_overlapping([*spans, (start, end, window)]):
            if window in linked:
                free = [together for together in linked if together]
            else:
                self.waiting += linked
        return sorted(free, key=lambda parts: min((part.partition, part.offset) for part in parts))


def _group_overlapping(spans: Iterable[tuple[int, int, T]]) -> list[list[T]]:
    """Group (start, end, value) spans that overlap; return the values of each group."""
    groups: list[list[T]] = []
    reached = MIN_TIME
    for start, end, value in sorted(spans, key=lambda span: span[:2]):
        if start >= reached:
            groups.append([])
        groups[-1].append(value)
        reached = max(reached, end)
    return groups


def _segment_of(parts: Sequence[SessionPart]) -> SessionSegment:
    return SessionSegment(
        min(part.first for part in parts),
        max(part.closes for part in parts),
        min(part.cover for part in parts),
        list(parts),
        sum(part.count for part in parts if part.seen == UNSEEN),
    )
