"""The slow path of sessions: clusters with rows of the table or late records in them, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np

from windrow.core.operators.session_atoms import (
    EARLY,
    JOINED,
    SETTLED,
    UNSEEN,
    WAITING,
    Atoms,
    Mask,
    melt,
)
from windrow.core.operators.session_moment import Arrivals, Moment, Numbers, Rules
from windrow.core.operators.session_sweep import Segment, Sweep
from windrow.core.operators.session_table import Change, Histories, Part, Row, Table, is_on_time

_STORED, _COMING, _LATE = range(3)


class _Given(NamedTuple):
    """A part that takes part: its turn (on-time records of a turn come before its late one), and its fields."""

    cluster: int
    turn: int
    kind: int
    number: int
    fields: tuple[int, ...]


@dataclass
class Outcome:
    """What the slow path gives.

    `changes` stand beside the number of their key and where their cluster begins. An atom in `made` (the fields of an
    atom) has the accumulators of the places in `made_of`.
    """

    histories: Histories = field(default_factory=Histories)
    changes: list[tuple[int, int, Change]] = field(default_factory=list)
    made: list[tuple[int, ...]] = field(default_factory=list)
    made_of: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class Clustered:
    """The atoms of a step, the first `stored` of them from before; the cluster of each, and the atom of each record."""

    parts: Atoms
    stored: int
    cluster: Numbers
    of: Numbers


def sweep_slow(
    rules: Rules, moment: Moment, given: Clustered, slow: Mask, arrivals: Arrivals
) -> tuple[Outcome, Numbers]:
    """Take the clusters that are `slow` through a step; return what comes of it, and the part of each record.

    Parts are the atoms by their numbers. Where late records come one by one there are more of them: on-time records are
    melted anew with those that come between the same two late records.
    """
    parts, cluster, of = given.parts, given.cluster, given.of
    kinds = np.where(np.arange(len(parts)) < given.stored, _STORED, np.where(parts["role"] == WAITING, _LATE, _COMING))
    turns = np.zeros(len(parts), dtype=np.int64)
    takes_part = slow[cluster]
    if rules.late == "each" and (kinds == _LATE).any():
        with_late = np.zeros(len(slow), dtype=np.bool_)
        with_late[cluster[kinds == _LATE]] = True
        within = np.flatnonzero(with_late[cluster[of]])
        turn = _turns(arrivals, cluster[of], within)
        late = arrivals.late[within]
        turns[of[within[late]]] = turn[late]
        takes_part &= ~(with_late[cluster] & (kinds == _COMING))
        on_time, stride = within[~late], int(turn.max(initial=0)) + 1
        by_turn = cluster[of[on_time]] * stride + turn[~late]
        again, again_of = melt(by_turn, arrivals.times[on_time], arrivals.watermarks[on_time], rules.gap)
        its_cluster, its_turn = np.divmod(again["key"], stride)
        key_of = np.empty(len(slow), dtype=np.int64)
        key_of[cluster] = parts["key"]
        again["key"], again["since"] = key_of[its_cluster], arrivals.since
        of = of.copy()
        of[on_time] = len(parts) + again_of
        turns = np.concatenate([turns, its_turn])
        kinds = np.concatenate([kinds, np.full(len(again), _COMING)])
        takes_part = np.concatenate([takes_part, np.ones(len(again), dtype=np.bool_)])
        cluster = np.concatenate([cluster, its_cluster])
        parts = np.concatenate([parts, again])
    outcome = Outcome()
    chosen = np.flatnonzero(takes_part)
    chosen = chosen[np.lexsort((kinds[chosen], turns[chosen], cluster[chosen]))]
    columns = (cluster[chosen], turns[chosen], kinds[chosen], chosen, parts[chosen])
    rows = map(_Given, *(column.tolist() for column in columns))
    for _, together in groupby(rows, key=lambda one: one.cluster):
        _sweep(rules, moment, list(together), outcome)
    return outcome, of


def _turns(arrivals: Arrivals, cluster: Numbers, within: Numbers) -> Numbers:
    """Return how many late records of its cluster come before each record, in the order of watermarks."""
    events = np.lexsort(
        (arrivals.offsets[within], arrivals.partitions[within], arrivals.watermarks[within], cluster[within])
    )
    late = arrivals.late[within][events].astype(np.int64)
    before = np.cumsum(late) - late
    _, firsts, numbers = np.unique(cluster[within][events], return_index=True, return_inverse=True)
    turn = np.empty(len(within), dtype=np.int64)
    turn[events] = before - before[firsts][numbers]
    return turn


def _sweep(rules: Rules, moment: Moment, given: list[_Given], outcome: Outcome) -> None:
    """Take one cluster through a step; its parts come by turn, then kind."""
    parts, rows = _read(given)
    table = Table(rules.gap, outcome.histories, rows)
    sweep = Sweep(rules.gap, moment.low, table, rules.late)
    sweep.begin([part for one, part in parts if one.kind == _STORED], moment.before)
    late = []
    for (_, kind), group in groupby(parts, key=lambda pair: pair[0][1:3]):
        coming = [part for _, part in group]
        if kind == _COMING:
            sweep.add(coming)
        elif kind == _LATE and rules.late == "each":
            for part in coming:
                sweep.come(part)
        elif kind == _LATE:
            late += coming
    sweep.fire(moment.low)
    if moment.end:
        sweep.end()
    elif moment.due is not None:
        sweep.early(moment.due)
    if rules.late == "batch":
        sweep.join_late(late)
    key, begins = given[0].fields[0], min(part.first for _, part in parts)
    outcome.changes += [(key, begins, change) for change in table.changes]
    for fields, members in _leave(rules, moment, sweep):
        outcome.made.append((key, *fields))
        outcome.made_of.append([part.number for part in members])


def _read(given: list[_Given]) -> tuple[list[tuple[_Given, Part]], list[Row]]:
    """Return what takes part, and the rows that it is in."""
    rows: dict[int, Row] = {}
    parts: list[tuple[_Given, Part]] = []
    for one in given:
        _, first, last, closes, cover, role, seen, start, end, revision, since, partition, offset = one.fields
        part = Part(one.number, first, last, closes, cover, role, seen, since, partition, offset)
        parts.append((one, part))
        if seen != UNSEEN:
            row = rows.setdefault(start, Row(start, end, revision, [], is_late_only=True))
            row.parts.append(part)
            row.is_early = row.is_early or seen == EARLY
            row.is_late_only = row.is_late_only and not is_on_time(part)
    return parts, list(rows.values())


def _leave(rules: Rules, moment: Moment, sweep: Sweep) -> Iterator[tuple[tuple[int, ...], list[Part]]]:
    """Yield the atoms that a cluster is left as, melted where nothing will tell them apart again."""
    row_of = {id(part): row for row in sweep.table.rows for part in row.parts}
    # what is open, and what waits for it, may still touch any row around it
    at_rest = not sweep.open
    with_late = {id(row) for row in sweep.table.rows if any(part.role == JOINED for part in row.parts)}
    for segment in sweep.open:
        for members in _alike(segment, row_of):
            yield _melted(members, row_of.get(id(members[0])), segment.last), members
    for segment in sweep.fired:
        row = row_of[id(segment.parts[0])]
        if at_rest and segment.last + 2 * rules.gap <= moment.low and id(row) in with_late:
            # no on-time record can go on from it any more: what late records do to it, they do to the row
            for part in segment.parts:
                part.role = SETTLED
        elif not (at_rest and _is_gone(rules, moment, row)):
            yield _melted(segment.parts, row), segment.parts
    for row in sweep.table.rows:
        members = [part for part in row.parts if part.role in {JOINED, SETTLED}]
        if members and not (at_rest and _is_gone(rules, moment, row)):
            yield _melted(members, row), members
    for together in sweep.waiting:
        yield _melted(together, None), together


def _alike(segment: Segment, row_of: dict[int, Row]) -> Iterable[list[Part]]:
    """Split the parts of an open session by how the table has them."""
    alike: dict[tuple[int, int], list[Part]] = {}
    for part in segment.parts:
        alike.setdefault((id(row_of.get(id(part))), part.seen), []).append(part)
    return alike.values()


def _is_gone(rules: Rules, moment: Moment, row: Row) -> bool:
    return row.end + rules.gap + rules.lateness <= moment.low


def _melted(members: list[Part], row: Row | None, closes: int | None = None) -> tuple[int, ...]:
    """Return the fields of an atom, but for the key; `closes` is that of its session if this is still open."""
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
    )
