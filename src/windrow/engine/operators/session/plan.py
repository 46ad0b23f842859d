"""Session plans: which sessions fire, join, are revised or dropped in a step, and which fragments each is made of.

Only the fragments' times are looked at, not their values; `sql` merges the accumulators as the plan says.

`plan_step` makes fragments of the records, and clusters of fragments that touch. A cluster that is one session, has no
row in the table and no late records takes the fast path: all such clusters at once, in columns. Every other cluster
takes the slow path (`merge_clusters`), one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windrow.engine.operators.session import fragments
from windrow.engine.operators.session.fragments import EARLY, FIRED, ON_TIME, UNSEEN, WAITING, Fragments, Mask, Numbers
from windrow.engine.operators.session.merge import ClusteredFragments, MergeResult, merge_clusters


@dataclass(frozen=True)
class SessionPlan:
    """The plan of a step. A place is the number of a group whose accumulators are merged.

    `place` is the place of each record, `stored` that of each stored fragment: -1 if it stays unchanged or is
    `dropped`. `made` are the fragments that the fast path leaves, with the accumulators of the places `made_of`; the
    `written` ones are inserts, those that are not `kept` are dropped. Parts of the slow path have the place
    `slow_from` + their number. `closed` rows are kept no longer.
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
        slow = sum(
            change.pane == "on_time" and change.op in {"insert", "update_after"} for _, _, change in self.slow.changes
        )
        return int(np.count_nonzero(self.made["seen"] == FIRED)) + slow


def plan_step(
    rules: fragments.SessionSpec,
    moment: fragments.SessionTime,
    stored: Fragments,
    arrivals: fragments.SessionRecords,
) -> SessionPlan:
    """Plan a step: which sessions fire, join, are revised or dropped."""
    came, part_of = _fragments_of_records(rules, arrivals)
    parts = np.concatenate([stored, came])
    part_of += len(stored)
    order, by_end, begins = fragments.cluster_fragments(parts, rules.gap)
    if len(parts) == 0:
        nothing = np.zeros(0, dtype=np.int64)
        none = nothing == 1
        return SessionPlan(part_of, nothing, none, parts, nothing, none, none, 0, MergeResult(), 0)
    ordered = parts[order]
    cluster = np.empty(len(parts), dtype=np.int64)
    cluster[order] = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(parts)))

    moved, held = np.ones(len(parts), dtype=np.bool_), np.ones(len(parts), dtype=np.bool_)
    moved[: len(stored)] = rules.is_moved(stored, moment)
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
    made = fragments.make_fragments(
        len(begins),
        key=ordered["key"][begins],
        **{name: np.maximum.reduceat(ordered[name], begins) for name in ("last", "closes")},
        **{name: np.minimum.reduceat(ordered[name], begins) for name in ("first", "cover", "since")},
        count=np.add.reduceat(ordered["count"], begins),
    )[fast]
    written = _mark_panes(rules, moment, made)
    kept = (made["seen"] != FIRED) | ~rules.is_past(made["end"], moment)

    slow_from = len(begins)
    outcome = MergeResult()
    of_record = part_of
    if slow.any():
        clustered = ClusteredFragments(parts, len(stored), cluster, part_of)
        outcome, of_record = merge_clusters(rules, moment, clustered, slow, arrivals)
    place = np.where(fast[cluster], cluster, slow_from + np.arange(len(parts)))
    place[~moves[cluster]] = -1
    dropped = rules.is_evictable(stored, moment) & ~holds[cluster[: len(stored)]]
    of_record = np.where(of_record < len(parts), place[np.minimum(of_record, len(parts) - 1)], slow_from + of_record)
    closed = int(np.count_nonzero(~kept)) + outcome.closed
    if dropped.any():
        closed += len(fragments.distinct_fragments(stored[dropped], "start"))
    return SessionPlan(
        of_record, place[: len(stored)], dropped, made, np.flatnonzero(fast), written, kept, slow_from, outcome, closed
    )


def _fragments_of_records(
    rules: fragments.SessionSpec, arrivals: fragments.SessionRecords
) -> tuple[Fragments, Numbers]:
    """Return the fragments of the records, and the fragment of each record."""
    if not arrivals.late.any():
        return fragments.coalesce(arrivals, rules.gap)
    on_time, late = np.flatnonzero(~arrivals.late), np.flatnonzero(arrivals.late)
    coalesced, fragment_of = fragments.coalesce(arrivals.take(on_time), rules.gap)
    records = arrivals.take(late)
    waiting = fragments.make_fragments(
        len(late),
        key=records.keys,
        first=records.times,
        last=records.lasts,
        closes=records.lasts,
        cover=records.watermarks,
        role=WAITING,
        partition=records.partitions,
        offset=records.offsets,
        count=1,
    )
    part_of = np.empty(len(arrivals.keys), dtype=np.int64)
    part_of[on_time] = fragment_of
    part_of[late] = len(coalesced) + np.arange(len(late))
    return np.concatenate([coalesced, waiting]), part_of


def _is_one_session(by_end: Fragments, begins: Numbers) -> Mask:
    """Return the mask of clusters that are one session: the next fragment covers the time at which each closes.

    (A fragment further on could cover it too. That is rare, and left to the slow path.)
    """
    last, cover = by_end["closes"], by_end["cover"]
    linked = np.ones(len(by_end), dtype=np.bool_)
    linked[1:] = (cover[1:] < last[:-1]) | (last[1:] == last[:-1])
    linked[begins] = True
    return np.logical_and.reduceat(linked, begins)


def _mark_panes(rules: fragments.SessionSpec, moment: fragments.SessionTime, made: Fragments) -> Mask:
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
