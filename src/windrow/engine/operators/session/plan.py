"""Session plans: which sessions fire, join, are revised or dropped in a step, and the fragments that form each.

Planning uses only the times of fragments, not their values; `sql` merges the accumulators according to the plan.

`plan_step` turns records into fragments, and groups fragments that touch into clusters. A cluster takes the fast path
if it is a single session without a row in the table and without late records. All such clusters are processed together
as columns. Every other cluster takes the slow path (`merge_clusters`), one at a time.
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

    `place` has the place of each record, and `stored` the place of each stored fragment, or -1 if the fragment is
    unchanged or `dropped`. `made` are the fragments that result from the fast path, with the accumulators of the places
    `made_of`. Fragments marked in `written` are inserted into the table, and those not marked in `kept` are dropped. A
    part of the slow path has the place `slow_from` + its number. `closed` is the number of rows that are no longer
    kept.
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
        """The number of rows that are written because a session fires."""
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
    """Return the fragments made from the records, and the fragment of each record."""
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
    """Return the mask of clusters that are a single session: each fragment covers the end of the previous one.

    A fragment further on could also cover that end. This is rare, and such clusters take the slow path.
    """
    last, cover = by_end["closes"], by_end["cover"]
    linked = np.ones(len(by_end), dtype=np.bool_)
    linked[1:] = (cover[1:] < last[:-1]) | (last[1:] == last[:-1])
    linked[begins] = True
    return np.logical_and.reduceat(linked, begins)


def _mark_panes(rules: fragments.SessionSpec, moment: fragments.SessionTime, made: Fragments) -> Mask:
    """Mark the sessions that fire or have an early pane, and return their mask."""
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
