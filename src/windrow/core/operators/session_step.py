"""A step of sessions without their values: what is written, and which atoms and records make it up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windrow.core.operators.session_atoms import (
    EARLY,
    FIRED,
    ON_TIME,
    UNSEEN,
    WAITING,
    Atoms,
    Mask,
    atoms,
    clusters,
    melt,
)
from windrow.core.operators.session_moment import Arrivals, Moment, Numbers, Rules
from windrow.core.operators.session_slow import Clustered, Outcome, sweep_slow


@dataclass(frozen=True)
class Worked:
    """What a step does. A place is where accumulators come together.

    `place` is that of each record, `stored` that of each stored atom, -1 if nothing happens to it but that it may
    be `dropped`. `made` are the atoms
    that the fast path leaves, with the accumulators of the places `made_of`; those that are `written` are inserts,
    those that are not `kept` are gone. Parts of the slow path are at the place `slow_from` + their number.
    """

    place: Numbers
    stored: Numbers
    dropped: Mask
    made: Atoms
    made_of: Numbers
    written: Mask
    kept: Mask
    slow_from: int
    slow: Outcome


def work(rules: Rules, moment: Moment, stored: Atoms, arrivals: Arrivals) -> Worked:
    """Take a step: fire, join, revise, forget."""
    came, of = _arrive(rules, arrivals)
    parts = np.concatenate([stored, came])
    of += len(stored)
    order, by_end, begins = clusters(parts, rules.gap)
    if len(parts) == 0:
        nothing = np.zeros(0, dtype=np.int64)
        none = nothing == 1
        return Worked(of, nothing, none, parts, nothing, none, none, 0, Outcome())
    ordered = parts[order]
    cluster = np.empty(len(parts), dtype=np.int64)
    cluster[order] = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(parts)))

    moved, held = np.ones(len(parts), dtype=np.bool_), np.ones(len(parts), dtype=np.bool_)
    moved[: len(stored)] = rules.moved(stored, moment)
    held[: len(stored)] = rules.open(stored, moment) | (stored["role"] == WAITING)
    moves = np.logical_or.reduceat(moved[order], begins)
    holds = np.logical_or.reduceat(held[order], begins)
    plain = np.logical_and.reduceat((ordered["role"] == ON_TIME) & (ordered["seen"] == UNSEEN), begins)
    fast = moves & plain & _one_session(parts[by_end], begins)
    slow = moves & ~fast
    made = atoms(
        len(begins),
        key=ordered["key"][begins],
        first=ordered["first"][begins],
        last=np.maximum.reduceat(ordered["last"], begins),
        closes=np.maximum.reduceat(ordered["closes"], begins),
        cover=np.minimum.reduceat(ordered["cover"], begins),
        since=np.minimum.reduceat(ordered["since"], begins),
    )[fast]
    written = _write(rules, moment, made)
    kept = (made["seen"] != FIRED) | (made["end"] + rules.gap + rules.lateness > moment.low)

    slow_from = len(begins)
    outcome = Outcome()
    of_record = of
    if slow.any():
        outcome, of_record = sweep_slow(rules, moment, Clustered(parts, len(stored), cluster, of), slow, arrivals)
    place = np.where(fast[cluster], cluster, slow_from + np.arange(len(parts)))
    place[~moves[cluster]] = -1
    dropped = rules.gone(stored, moment) & ~holds[cluster[: len(stored)]]
    of_record = np.where(of_record < len(parts), place[np.minimum(of_record, len(parts) - 1)], slow_from + of_record)
    return Worked(
        of_record, place[: len(stored)], dropped, made, np.flatnonzero(fast), written, kept, slow_from, outcome
    )


def _arrive(rules: Rules, arrivals: Arrivals) -> tuple[Atoms, Numbers]:
    """Return the atoms that the records come as, and the atom of each record."""
    if not arrivals.late.any():
        came, of = melt(arrivals.keys, arrivals.times, arrivals.watermarks, rules.gap)
        came["since"] = arrivals.since
        return came, of
    on_time, late = np.flatnonzero(~arrivals.late), np.flatnonzero(arrivals.late)
    melted, melted_of = melt(arrivals.keys[on_time], arrivals.times[on_time], arrivals.watermarks[on_time], rules.gap)
    melted["since"] = arrivals.since
    waiting = atoms(
        len(late),
        key=arrivals.keys[late],
        first=arrivals.times[late],
        last=arrivals.times[late],
        closes=arrivals.times[late],
        cover=arrivals.watermarks[late],
        role=WAITING,
        partition=arrivals.partitions[late],
        offset=arrivals.offsets[late],
    )
    of = np.empty(len(arrivals.keys), dtype=np.int64)
    of[on_time] = melted_of
    of[late] = len(melted) + np.arange(len(late))
    return np.concatenate([melted, waiting]), of


def _one_session(by_end: Atoms, begins: Numbers) -> Mask:
    """Return which clusters are one session: where each atom closes is covered by the next atom.

    (One further on could cover it too. That is rare: the slow path sees it.)
    """
    last, cover = by_end["closes"], by_end["cover"]
    linked = np.ones(len(by_end), dtype=np.bool_)
    linked[1:] = (cover[1:] < last[:-1]) | (last[1:] == last[:-1])
    linked[begins] = True
    return np.logical_and.reduceat(linked, begins)


def _write(rules: Rules, moment: Moment, made: Atoms) -> Mask:
    """Mark the sessions that fire or have an early pane, and return which they are."""
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
