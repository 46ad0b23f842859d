"""Session merging: which sessions fire, join, are revised or dropped in a step, and which fragments each is made of.

Only the fragments' times are looked at, not their values; `sql` brings the accumulators together as the plan says.

`plan_step` makes fragments of the records, and clusters of fragments that touch. A cluster that is one session, has no
row in the table and no late records takes the fast path: all such clusters at once, in columns. Every other cluster
takes the slow path (`merge_clusters`), one at a time, as a sequence of events in the order of watermarks
(`SessionMerger`).

Sessions whose rows other streams take are traced: the slow path takes each record as an event of its own, so that every
change has the place of its cause. A row that an open session touches, directly or through late records, is taken back
when the record that links them comes, and comes again, in the longer session, when that fires: the rows at a watermark
are those that no session that is open then can change, and no row is taken back long after its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from windrow.engine.columns import MAX_TIME, MIN_TIME
from windrow.engine.operators.session.fragments import (
    EARLY,
    FIRED,
    JOINED,
    ON_TIME,
    SETTLED,
    UNSEEN,
    WAITING,
    Fragments,
    Mask,
    Numbers,
    SessionRecords,
    SessionSpec,
    SessionTime,
    cluster_fragments,
    coalesce,
    distinct_fragments,
    make_fragments,
)
from windrow.engine.operators.session.rows import (
    RowHistory,
    SessionChange,
    SessionPart,
    SessionRow,
    SessionRows,
    is_on_time,
)
from windrow.engine.schema import LAST_PARTITION


@dataclass(frozen=True)
class SessionPlan:
    """The plan of a step. A place is the number of a group whose accumulators are merged.

    `place` is that of each record, `stored` that of each stored fragment, -1 if it stays as it is or is `dropped`.
    `made` are the fragments that the fast path leaves, with the accumulators of the places `made_of`; those that are
    `written` are inserts, those that are not `kept` are dropped. Parts of the slow path have the place `slow_from` +
    their number. Rows that are `closed` are kept no longer.
    """

    place: Numbers
    stored: Numbers
    dropped: Mask
    made: Fragments
    made_of: Numbers
    written: Mask
    kept: Mask
    slow_from: int
    slow: MergeResult
    closed: int

    @property
    def fired(self) -> int:
        """How many rows are written as sessions fire."""
        slow = sum(one.pane == "on_time" and one.op in _WRITTEN for _, _, one in self.slow.changes)
        return int(np.count_nonzero(self.made["seen"] == FIRED)) + slow


def plan_step(rules: SessionSpec, moment: SessionTime, stored: Fragments, arrivals: SessionRecords) -> SessionPlan:
    """Plan a step: which sessions fire, join, are revised or dropped."""
    came, of = _fragments_of_records(rules, arrivals)
    parts = np.concatenate([stored, came])
    of += len(stored)
    order, by_end, begins = cluster_fragments(parts, rules.gap)
    if len(parts) == 0:
        nothing = np.zeros(0, dtype=np.int64)
        none = nothing == 1
        return SessionPlan(of, nothing, none, parts, nothing, none, none, 0, MergeResult(), 0)
    ordered = parts[order]
    cluster = np.empty(len(parts), dtype=np.int64)
    cluster[order] = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(parts)))

    moved, held = np.ones(len(parts), dtype=np.bool_), np.ones(len(parts), dtype=np.bool_)
    moved[: len(stored)] = rules.moved(stored, moment)
    held[: len(stored)] = rules.open(stored, moment) | (stored["role"] == WAITING)
    moves = np.logical_or.reduceat(moved[order], begins)
    holds = np.logical_or.reduceat(held[order], begins)
    is_fired = ordered["closes"] + rules.gap <= moment.before
    is_plain = (ordered["role"] == ON_TIME) & (ordered["seen"] == UNSEEN) & ~is_fired
    plain = np.logical_and.reduceat(is_plain, begins)
    fast = moves & plain & _is_one_session(parts[by_end], begins)
    if rules.count is not None:
        fast &= np.add.reduceat(ordered["count"], begins) < rules.count
    slow = moves & ~fast
    made = make_fragments(
        len(begins),
        key=ordered["key"][begins],
        first=ordered["first"][begins],
        last=np.maximum.reduceat(ordered["last"], begins),
        closes=np.maximum.reduceat(ordered["closes"], begins),
        cover=np.minimum.reduceat(ordered["cover"], begins),
        since=np.minimum.reduceat(ordered["since"], begins),
        count=np.add.reduceat(ordered["count"], begins),
    )[fast]
    written = _mark_panes(rules, moment, made)
    kept = (made["seen"] != FIRED) | (made["end"] + rules.reach + rules.lateness > moment.low)

    slow_from = len(begins)
    outcome = MergeResult()
    of_record = of
    if slow.any():
        outcome, of_record = merge_clusters(
            rules, moment, ClusteredFragments(parts, len(stored), cluster, of), slow, arrivals
        )
    place = np.where(fast[cluster], cluster, slow_from + np.arange(len(parts)))
    place[~moves[cluster]] = -1
    dropped = rules.is_evictable(stored, moment) & ~holds[cluster[: len(stored)]]
    of_record = np.where(of_record < len(parts), place[np.minimum(of_record, len(parts) - 1)], slow_from + of_record)
    closed = int(np.count_nonzero(~kept)) + outcome.closed
    if dropped.any():
        closed += len(distinct_fragments(stored[dropped], "start"))
    return SessionPlan(
        of_record, place[: len(stored)], dropped, made, np.flatnonzero(fast), written, kept, slow_from, outcome, closed
    )


def _fragments_of_records(rules: SessionSpec, arrivals: SessionRecords) -> tuple[Fragments, Numbers]:
    """Return the fragments of the records, and the fragment of each record."""
    if not arrivals.late.any():
        came, of = coalesce(arrivals.keys, arrivals.times, arrivals.lasts, arrivals.watermarks, rules.gap)
        came["since"] = arrivals.since
        return came, of
    on_time, late = np.flatnonzero(~arrivals.late), np.flatnonzero(arrivals.late)
    melted, melted_of = coalesce(
        arrivals.keys[on_time],
        arrivals.times[on_time],
        arrivals.lasts[on_time],
        arrivals.watermarks[on_time],
        rules.gap,
    )
    melted["since"] = arrivals.since
    waiting = make_fragments(
        len(late),
        key=arrivals.keys[late],
        first=arrivals.times[late],
        last=arrivals.lasts[late],
        closes=arrivals.lasts[late],
        cover=arrivals.watermarks[late],
        role=WAITING,
        partition=arrivals.partitions[late],
        offset=arrivals.offsets[late],
        count=1,
    )
    of = np.empty(len(arrivals.keys), dtype=np.int64)
    of[on_time] = melted_of
    of[late] = len(melted) + np.arange(len(late))
    return np.concatenate([melted, waiting]), of


def _is_one_session(by_end: Fragments, begins: Numbers) -> Mask:
    """Return the mask of clusters that are one session: the next fragment covers the time at which each one closes.

    (A fragment further on could cover it too. That is rare, and left to the slow path.)
    """
    last, cover = by_end["closes"], by_end["cover"]
    linked = np.ones(len(by_end), dtype=np.bool_)
    linked[1:] = (cover[1:] < last[:-1]) | (last[1:] == last[:-1])
    linked[begins] = True
    return np.logical_and.reduceat(linked, begins)


def _mark_panes(rules: SessionSpec, moment: SessionTime, made: Fragments) -> Mask:
    """Mark the sessions that fire or have an early pane, and return the mask of them."""
    ends = made["last"] + rules.gap
    fires = (ends <= moment.low) | moment.end
    early = np.zeros(len(made), dtype=np.bool_)
    if moment.due is not None:
        early = ~fires & (made["since"] <= moment.due)
    written: Mask = fires | early
    made["seen"] = np.where(fires, FIRED, np.where(early, EARLY, UNSEEN))
    made["start"] = np.where(written, made["first"], 0)
    made["end"] = np.where(written, ends, 0)
    return written


_STORED, _ON_TIME, _LATE = range(3)
_WRITTEN = frozenset({"insert", "update_after"})


class _ClusterPart(NamedTuple):
    """A fragment in a cluster: its turn (on-time records of a turn come before its late one), and its fields.

    `watermark` is that at its record if it has one of its own.
    """

    cluster: int
    turn: int
    kind: int
    number: int
    watermark: int
    fields: tuple[int, ...]


@dataclass
class MergeResult:
    """Result of the slow path.

    `changes` are (number of the key, first event time of the cluster, change). A fragment in `made` (its fields) has
    the accumulators of the places in `made_of`. Rows that are `closed` are kept no longer.
    """

    histories: RowHistory = field(default_factory=RowHistory)
    changes: list[tuple[int, int, SessionChange]] = field(default_factory=list)
    made: list[tuple[int, ...]] = field(default_factory=list)
    made_of: list[list[int]] = field(default_factory=list)
    closed: int = 0


@dataclass(frozen=True)
class ClusteredFragments:
    """Fragments of a step, the first `stored` of them from the state; their clusters; the fragment of each record."""

    parts: Fragments
    stored: int
    cluster: Numbers
    of: Numbers


def merge_clusters(
    rules: SessionSpec, moment: SessionTime, given: ClusteredFragments, slow: Mask, arrivals: SessionRecords
) -> tuple[MergeResult, Numbers]:
    """Merge the clusters that are `slow`; return the result, and the part of each record.

    Parts are the fragments by their numbers. Where late records are reported one by one there are more parts: on-time
    records are coalesced anew, each only with those that come between the same two late records. Where they come one by
    one every record is a part.
    """
    parts, cluster, of = given.parts, given.cluster, given.of
    kinds = np.where(np.arange(len(parts)) < given.stored, _STORED, np.where(parts["role"] == WAITING, _LATE, _ON_TIME))
    turns = np.zeros(len(parts), dtype=np.int64)
    watermarks = np.where(kinds == _LATE, parts["cover"], 0)
    takes_part = slow[cluster]
    split = slow if rules.is_one_by_one else np.zeros(len(slow), dtype=np.bool_)
    if rules.late == "each" and not rules.is_one_by_one:
        split[cluster[kinds == _LATE]] = True
    if split.any():
        within = np.flatnonzero(split[cluster[of]])
        turn = _turns(arrivals, cluster[of], within, alone=rules.is_one_by_one)
        late = arrivals.late[within]
        turns[of[within[late]]] = turn[late]
        takes_part &= ~(split[cluster] & (kinds == _ON_TIME))
        on_time, stride = within[~late], int(turn.max(initial=0)) + 1
        by_turn = cluster[of[on_time]] * stride + turn[~late]
        again, again_of = coalesce(
            by_turn, arrivals.times[on_time], arrivals.lasts[on_time], arrivals.watermarks[on_time], rules.gap
        )
        its_cluster, its_turn = np.divmod(again["key"], stride)
        key_of = np.empty(len(slow), dtype=np.int64)
        key_of[cluster] = parts["key"]
        again["key"], again["since"] = key_of[its_cluster], arrivals.since
        if rules.is_one_by_one:
            again["partition"][again_of] = arrivals.partitions[on_time]
            again["offset"][again_of] = arrivals.offsets[on_time]
        first_watermarks = np.zeros(len(again), dtype=np.int64)
        first_watermarks[again_of] = arrivals.watermarks[on_time]
        watermarks = np.concatenate([watermarks, first_watermarks])
        of = of.copy()
        of[on_time] = len(parts) + again_of
        turns = np.concatenate([turns, its_turn])
        kinds = np.concatenate([kinds, np.full(len(again), _ON_TIME)])
        takes_part = np.concatenate([takes_part, np.ones(len(again), dtype=np.bool_)])
        cluster = np.concatenate([cluster, its_cluster])
        parts = np.concatenate([parts, again])
    outcome = MergeResult()
    chosen = np.flatnonzero(takes_part)
    chosen = chosen[np.lexsort((kinds[chosen], turns[chosen], cluster[chosen]))]
    columns = (cluster[chosen], turns[chosen], kinds[chosen], chosen, watermarks[chosen], parts[chosen])
    rows = map(_ClusterPart, *(column.tolist() for column in columns))
    for _, together in groupby(rows, key=lambda one: one.cluster):
        _merge_cluster(rules, moment, list(together), outcome)
    return outcome, of


def _turns(arrivals: SessionRecords, cluster: Numbers, within: Numbers, *, alone: bool) -> Numbers:
    """Return how many late records of its cluster (with `alone`: records) come before each, in merged order."""
    events = np.lexsort(
        (arrivals.offsets[within], arrivals.partitions[within], arrivals.watermarks[within], cluster[within])
    )
    late = np.ones(len(within), dtype=np.int64) if alone else arrivals.late[within][events].astype(np.int64)
    before = np.cumsum(late) - late
    _, firsts, numbers = np.unique(cluster[within][events], return_index=True, return_inverse=True)
    turn = np.empty(len(within), dtype=np.int64)
    turn[events] = before - before[firsts][numbers]
    return turn


def _merge_cluster(rules: SessionSpec, moment: SessionTime, given: list[_ClusterPart], outcome: MergeResult) -> None:
    """Merge one cluster; its parts are ordered by turn, then kind."""
    parts, rows = _parts_and_rows(given)
    table = SessionRows(rules.gap, outcome.histories, rows)
    sweep = SessionMerger(rules, moment.low, table)
    sweep.begin([part for one, part in parts if one.kind == _STORED], moment.before)
    late = list(_take_records(sweep, parts))
    sweep.fire(MAX_TIME if moment.end and rules.is_traced else moment.low)
    if moment.end:
        sweep.end()
    elif moment.due is not None:
        sweep.early(moment.due)
    if rules.late == "batch":
        sweep.join_late(late)
    key, begins = given[0].fields[0], min(part.first for _, part in parts)
    outcome.changes += [(key, begins, change) for change in table.changes]
    for fields, members in _remaining_fragments(rules, moment, sweep):
        outcome.made.append((key, *fields))
        outcome.made_of.append([part.number for part in members])
    if not sweep.open:
        outcome.closed += sum(_is_final(rules, moment, row) for row in table.rows)


def _take_records(sweep: SessionMerger, parts: Iterable[tuple[_ClusterPart, SessionPart]]) -> Iterator[SessionPart]:
    """Give the records of a cluster to its sessions; yield the late ones that the end of the step is to join."""
    for (_, kind), group in groupby(parts, key=lambda pair: pair[0][1:3]):
        coming = [part for _, part in group]
        if kind == _STORED:
            continue
        if sweep.rules.is_traced:
            for part in coming:
                sweep.trace(part)
        elif sweep.rules.count is not None and kind == _ON_TIME:
            for part in coming:
                sweep.fire(part.watermark)
                sweep.add([part])
                sweep.early_by_count(part, sweep.rules.count)
        elif kind == _ON_TIME:
            sweep.add(coming)
        elif sweep.rules.late == "each":
            for part in coming:
                sweep.come(part)
        else:
            yield from coming


def _parts_and_rows(given: list[_ClusterPart]) -> tuple[list[tuple[_ClusterPart, SessionPart]], list[SessionRow]]:
    """Return the parts of a cluster, and the rows that they are in."""
    rows: dict[int, SessionRow] = {}
    parts: list[tuple[_ClusterPart, SessionPart]] = []
    for one in given:
        _, first, last, closes, cover, role, seen, start, end, revision, since, partition, offset, count = one.fields
        part = SessionPart(
            one.number, first, last, closes, cover, role, seen, since, partition, offset, count, one.watermark
        )
        parts.append((one, part))
        if seen != UNSEEN:
            row = rows.setdefault(start, SessionRow(start, end, revision, [], is_late_only=True))
            row.parts.append(part)
            row.is_early = row.is_early or seen == EARLY
            row.is_late_only = row.is_late_only and not is_on_time(part)
    return parts, list(rows.values())


def _remaining_fragments(
    rules: SessionSpec, moment: SessionTime, sweep: SessionMerger
) -> Iterator[tuple[tuple[int, ...], list[SessionPart]]]:
    """Yield the fragments that remain of a cluster, coalesced where no later record can separate them."""
    row_of = {id(part): row for row in sweep.table.rows for part in row.parts}
    # open sessions, and late records that wait for them, may still touch any row around them
    at_rest = not sweep.open
    with_late = {id(row) for row in sweep.table.rows if any(part.role == JOINED for part in row.parts)}
    for segment in sweep.open:
        for members in _split_by_row(segment, row_of):
            yield _coalesced_fields(members, row_of.get(id(members[0])), segment.last), members
    for segment in sweep.fired:
        row = row_of.get(id(segment.parts[0]))  # None if it waits for an open session
        if (
            at_rest
            and row is not None
            and segment.last + rules.gap + rules.reach <= moment.low
            and id(row) in with_late
        ):
            # no on-time record can extend it any more: late records change only its row
            for part in segment.parts:
                part.role = SETTLED
        elif not (at_rest and row is not None and _is_final(rules, moment, row)):
            yield _coalesced_fields(segment.parts, row), segment.parts
    for row in sweep.table.rows:
        members = [part for part in row.parts if part.role in {JOINED, SETTLED}]
        if members and not (at_rest and _is_final(rules, moment, row)):
            yield _coalesced_fields(members, row), members
    for members in sweep.late_waiting:
        yield _coalesced_fields(members, None), members


def _split_by_row(segment: SessionSegment, row_of: dict[int, SessionRow]) -> Iterable[list[SessionPart]]:
    """Split the parts of an open session by their row, and how they are seen."""
    alike: dict[tuple[int, int], list[SessionPart]] = {}
    for part in segment.parts:
        alike.setdefault((id(row_of.get(id(part))), part.seen), []).append(part)
    return alike.values()


def _is_final(rules: SessionSpec, moment: SessionTime, row: SessionRow) -> bool:
    return row.end + rules.reach + rules.lateness <= moment.low


def _coalesced_fields(members: list[SessionPart], row: SessionRow | None, closes: int | None = None) -> tuple[int, ...]:
    """Return the fields of a fragment without the key; `closes` is that of its session if this is still open."""
    one = members[0]
    last = max(part.last for part in members)
    return (
        min(part.first for part in members),
        last,
        last if closes is None else closes,
        min(part.cover for part in members),
        max(part.role for part in members),
        one.seen,
        *((0, 0, 0) if row is None else (row.start, row.end, row.revision)),
        min(part.since for part in members),
        *min((part.partition, part.offset) for part in members),
        sum(part.count for part in members),
    )


T = TypeVar("T")


@dataclass
class SessionSegment:
    """On-time records of one session, as far as is known now."""

    first: int
    last: int
    cover: int
    parts: list[SessionPart]
    unseen: int


@dataclass
class SessionMerger:
    """The sessions of one cluster, changed by one event after the other.

    Sessions fire in the order of their ends; a record is added after the sessions that its watermark has passed.
    `fired` holds the on-time sessions that end by the low watermark, `open` the others, which are all later.

    Late records that are linked with an open session, and with no row that has on-time records, are `waiting` for it.
    Records that were in one row wait together. `pending_late` are late records to be joined at the end of the step.

    Where sessions are traced, all that is linked with an open session waits for it, whatever it is.
    """

    rules: SessionSpec
    low: int
    table: SessionRows
    open: list[SessionSegment] = field(default_factory=list)
    fired: list[SessionSegment] = field(default_factory=list)
    waiting: list[list[SessionPart]] = field(default_factory=list)
    pending_late: list[SessionPart] = field(default_factory=list)

    @property
    def gap(self) -> int:
        """The gap."""
        return self.rules.gap

    @property
    def late_waiting(self) -> list[list[SessionPart]]:
        """The late records that wait; the on-time ones that wait with them are `fired`."""
        late = ([part for part in together if part.role == WAITING] for together in self.waiting)
        return [together for together in late if together]

    def begin(self, parts: Sequence[SessionPart], before: int) -> None:
        """Start with the stored parts; the low watermark before the step was `before`."""
        on_time = [part for part in parts if part.role == ON_TIME]
        for part in on_time:
            if part.closes + self.gap <= before:
                self.fired.append(_segment_of([part]))
        self.fired.sort(key=lambda one: one.last)
        self._open([part for part in on_time if part.closes + self.gap > before])
        self.waiting += [[part] for part in parts if part.role == WAITING]
        if self.rules.is_traced:
            # they were taken back, with what they are linked with
            self.waiting += [[part] for one in self.fired for part in one.parts if part.seen == UNSEEN]

    def add(self, parts: Sequence[SessionPart]) -> None:
        """Add on-time records; rows of late ones that they touch wait for their session."""
        self._open(parts)
        for part in parts:
            self._hide(self.table.touched(part.first, part.last + self.gap))

    def trace(self, part: SessionPart) -> None:
        """Add a record, where each of them is a cause of its own."""
        self.fire(part.watermark)
        self.table.cause = part.cause
        start, end = part.first, part.last + self.gap
        if part.role == ON_TIME:
            self._open([part])
        elif self._is_open(start, end) or any(_overlaps(together, start, end, self.gap) for together in self.waiting):
            self.waiting.append([part])
        else:
            self.table.join([part])
            return
        self.waiting += [self.table.take(row) for row in self.table.touched(start, end)]

    def _open(self, parts: Iterable[SessionPart]) -> None:
        """Open sessions; merge those whose end another one covers."""
        merged: list[SessionSegment] = []
        for segment in sorted([*self.open, *(_segment_of([part]) for part in parts)], key=lambda one: one.last):
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

    def come(self, late: SessionPart) -> None:
        """Add a late record, where each of them is a change of its own."""
        self.fire(late.cover if self.rules.is_one_by_one else min(late.cover, self.low))
        start, end = late.first, late.last + self.gap
        rows = self.table.touched(start, end)
        if not all(row.is_late_only for row in rows):
            self.table.join([late, *(part for together in self._freed(start, end) for part in together)])
        elif self._is_open(start, end) or any(_overlaps(together, start, end, self.gap) for together in self.waiting):
            self._hide(rows)
            self.waiting.append([late])
        else:
            self.table.join([late])

    def _is_open(self, start: int, end: int) -> bool:
        return any(one.first < end and start < one.last + self.gap for one in self.open)

    def _hide(self, rows: Iterable[SessionRow]) -> None:
        """Remove rows that consist of late records only from the table; their records wait."""
        self.waiting += [self.table.take(row) for row in rows if row.is_late_only]

    def fire(self, until: int) -> None:
        """Fire the sessions that end by then."""
        while self.open and self.open[0].last + self.gap <= until:
            segment = self._linked(self.open.pop(0))
            self._write(segment, "on_time")
            self.fired.append(segment)

    def end(self) -> None:
        """Fire all open sessions; those that are linked are one session, as no later record can come between."""
        for chain in self._chains():
            self._write(chain, "on_time")

    def early_by_count(self, part: SessionPart, count: int) -> None:
        """Write an early pane of the session of an on-time record if it has so many records that no pane has had.

        In the merged order no two open sessions are linked: one that has ended has fired.
        """
        segment = next(one for one in self.open if one.first <= part.first <= one.last)
        if segment.unseen < count:
            return
        before = [one for one in self.fired if segment.first - one.last < self.gap]
        self._write(_segment_of([part for one in (*before, segment) for part in one.parts]), "early")
        segment.unseen = 0

    def early(self, due: int) -> None:
        """Write early panes of the sessions whose first unseen record came at `due` or before."""
        for chain in self._chains():
            if any(part.seen == UNSEEN and part.since <= due for part in chain.parts):
                self._write(chain, "early")

    def join_late(self, late: Iterable[SessionPart]) -> None:
        """Join all late records together; those that are linked with open sessions only wait."""
        coming = [*self.waiting, *([part] for part in [*self.pending_late, *late])]
        self.waiting, self.pending_late = [], []
        for linked, rows in self._linked_late(coming):
            parts = [part for together in linked for part in together]
            start, end = min(part.first for part in parts), max(part.last for part in parts) + self.gap
            if all(row.is_late_only for row in rows) and self._is_open(start, end):
                self._hide(rows)
                self.waiting += linked
            else:
                self.table.join(parts)

    def _linked_late(
        self, coming: Iterable[list[SessionPart]]
    ) -> list[tuple[list[list[SessionPart]], list[SessionRow]]]:
        """Return the groups of late records that are linked with each other or the same rows, and these rows."""
        spans: list[tuple[int, int, list[SessionPart] | SessionRow]] = [
            (*_window_of(parts, self.gap), parts) for parts in coming
        ]
        groups = _group_overlapping([*spans, *((row.start, row.end, row) for row in self.table.rows)])
        split = [
            ([one for one in group if isinstance(one, list)], [one for one in group if isinstance(one, SessionRow)])
            for group in groups
        ]
        return [group for group in split if group[0]]

    def _linked(self, segment: SessionSegment) -> SessionSegment:
        """Return an open session, joined with the fired ones that it is less than a gap after: the last of them."""
        while self.fired and segment.first - self.fired[-1].last < self.gap:
            segment = _segment_of([*self.fired.pop().parts, *segment.parts])
        return segment

    def _chains(self) -> list[SessionSegment]:
        """Return the open sessions joined to those that they are linked with, fired ones too."""
        chains: list[SessionSegment] = []
        for segment in [*self.fired, *self.open]:
            chain = segment
            while chains and chain.first - chains[-1].last < self.gap:
                chain = _segment_of([*chains.pop().parts, *chain.parts])
            chains.append(chain)
        is_open = {id(part) for segment in self.open for part in segment.parts}
        return [chain for chain in chains if any(id(part) in is_open for part in chain.parts)]

    def _write(self, session: SessionSegment, pane: Literal["on_time", "early"]) -> None:
        """Write a pane, then the changes that late records make to it."""
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
            for late in self._freed(start, end):
                self.table.join(late)

    def _write_linked(self, session: SessionSegment, start: int, end: int) -> None:
        """Write a pane and what is linked with it, unless an open session is, too: then all of it waits for that."""
        own = set(map(id, session.parts))
        linked = [part for together in self._freed(start, end) for part in together if id(part) not in own]
        if self._is_open(*_window_of([*session.parts, *linked], self.gap)):
            self.waiting.append([*session.parts, *linked])
            return
        self.table.put(start, end, session.parts, "on_time")
        for part in session.parts:
            part.seen = FIRED
        if linked:
            self.table.join(linked)

    def _freed(self, start: int, end: int) -> list[list[SessionPart]]:
        """Remove and return the late records that are linked with a window, also through others, in log order."""
        window: list[SessionPart] = []
        spans = [(*_window_of(together, self.gap), together) for together in self.waiting]
        free: list[list[SessionPart]] = []
        self.waiting = []
        for linked in _group_overlapping([*spans, (start, end, window)]):
            if window in linked:
                free = [together for together in linked if together]
            else:
                self.waiting += linked
        return sorted(free, key=lambda parts: min((part.partition, part.offset) for part in parts))


def _group_overlapping(spans: Iterable[tuple[int, int, T]]) -> list[list[T]]:
    """Group (start, end, value) by overlap; return the values of each group."""
    groups: list[list[T]] = []
    reached = MIN_TIME
    for start, end, one in sorted(spans, key=lambda span: span[:2]):
        if start >= reached:
            groups.append([])
        groups[-1].append(one)
        reached = max(reached, end)
    return groups


def _window_of(parts: Sequence[SessionPart], gap: int) -> tuple[int, int]:
    return min(part.first for part in parts), max(part.last for part in parts) + gap


def _overlaps(parts: Sequence[SessionPart], start: int, end: int, gap: int) -> bool:
    first, last = _window_of(parts, gap)
    return first < end and start < last


def _segment_of(parts: Sequence[SessionPart]) -> SessionSegment:
    return SessionSegment(
        min(part.first for part in parts),
        max(part.closes for part in parts),
        min(part.cover for part in parts),
        list(parts),
        sum(part.count for part in parts if part.seen == UNSEEN),
    )
