"""Sessions without values: which records are in what is written, in every cut, against the definition."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from tests.engine.operators.session.session_reference import (
    BEFORE_ALL,
    Component,
    Judged,
    OnePartition,
    R,
    components,
    logs,
    on_time_panes,
    watermarks,
    window,
)
from tests.examples import examples

from windrow.engine.operators.session.fragments import (
    FIRED,
    Fragments,
    Numbers,
    SessionRecords,
    SessionSpec,
    SessionTime,
    make_fragments,
)
from windrow.engine.operators.session.plan import SessionPlan, plan_step

Entry = tuple[int, R]
"""The number of a key, and a record."""


class Told(NamedTuple):
    key: int
    op: str
    pane: str
    revision: int
    bounds: tuple[int, int]
    records: Component


@dataclass
class Sessions:
    """Takes steps; an accumulator is the set of its records, and no record may be in it twice."""

    rules: SessionSpec
    every: int | None = None
    low: int = BEFORE_ALL
    stored: Fragments = field(default_factory=lambda: make_fragments(0))
    values: list[Component] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def step(self, entries: Sequence[Entry], low: int, *, end: bool = False, now: int | None = None) -> None:
        due = None if now is None or self.every is None else now - self.every
        moment = SessionTime(self.low, low, end, due)
        self.low = low
        worked = plan_step(self.rules, moment, self.stored, arrivals(entries, self.rules.gap, now))
        totals: dict[int, Component] = {}
        members = [*zip(worked.place.tolist(), (frozenset([record]) for _, record in entries), strict=True)]
        members += zip(worked.stored.tolist(), self.values, strict=True)
        for place, records in members:
            if place >= 0:
                totals[place] = joined([totals.get(place, frozenset()), records])
        self.told += changes(worked, totals)
        stays = [place < 0 and not gone for place, gone in zip(worked.stored, worked.dropped, strict=True)]
        kept = [value for value, stay in zip(self.values, stays, strict=True) if stay]
        kept += [totals[place] for place in worked.made_of[worked.kept].tolist()]
        kept += [joined([totals[part + worked.slow_from] for part in parts]) for parts in worked.slow.made_of]
        slow = np.array(worked.slow.made, dtype=self.stored.dtype)
        self.stored = np.concatenate([self.stored[np.array(stays, dtype=bool)], worked.made[worked.kept], slow])
        self.values = kept


def arrivals(entries: Sequence[Entry], gap: int, now: int | None) -> SessionRecords:
    def column(values: Sequence[int]) -> Numbers:
        return np.array(values, dtype=np.int64)

    return SessionRecords(
        keys=column([key for key, _ in entries]),
        times=column([record.time for _, record in entries]),
        watermarks=column([record.watermark for _, record in entries]),
        late=np.array([record.watermark >= record.time + gap for _, record in entries], dtype=bool),
        partitions=column([record.partition for _, record in entries]),
        offsets=column([record.offset for _, record in entries]),
        since=BEFORE_ALL if now is None else now,
        lasts=column([record.time for _, record in entries]),
    )


def joined(parts: Sequence[Component]) -> Component:
    together = frozenset[R]().union(*parts)
    assert sum(map(len, parts)) == len(together)
    return together


def changes(worked: SessionPlan, totals: dict[int, Component]) -> list[Told]:
    """The changes in the order of their clusters."""
    found = [
        (
            int(made["first"]),
            0,
            Told(
                int(made["key"]),
                "insert",
                "on_time" if made["seen"] == FIRED else "early",
                0,
                (int(made["start"]), int(made["end"])),
                totals[place],
            ),
        )
        for made, place in zip(worked.made[worked.written], worked.made_of[worked.written].tolist(), strict=True)
    ]
    for rank, (key, first, change) in enumerate(worked.slow.changes):
        records = joined(
            [
                totals[part + worked.slow_from]
                for history, place, part in worked.slow.histories.added
                if history == change.history and place <= change.place
            ]
        )
        found.append(
            (first, rank, Told(key, change.op, change.pane, change.revision, (change.start, change.end), records))
        )
    return [told for _, _, told in sorted(found, key=lambda one: (one[2].key, *one[:2]))]


def fold(told: Sequence[Told], gap: int) -> dict[Any, Component]:
    """The table that a changelog makes; every change must fit what is there, and bounds their records."""
    table: dict[Any, Told] = {}
    taken: dict[Any, Told] = {}
    for one in told:
        assert window(one.records, gap) == one.bounds
        name = (one.key, one.bounds)
        there, before = table.pop(name, None), taken.pop(name, None)
        match one.op:
            case "insert":
                assert (there, before, one.revision) == (None, None, 0)
                table[name] = one
            case "update_after":
                assert there is None
                assert before is not None
                assert one.revision == before.revision + 1
                table[name] = one
            case _:
                assert there is not None
                assert (there.revision, there.records) == (one.revision, one.records)
                if one.op == "update_before":
                    taken[name] = one
    assert not taken
    return {name: one.records for name, one in table.items()}


class Case(NamedTuple):
    gap: int
    delay: int
    lateness: int
    late: Literal["each", "batch"]
    at_end: bool
    every: int
    cut: list[int]
    ticks: list[int]


CASES = st.builds(
    Case,
    gap=st.sampled_from([1, 2, 3, 5, 8]),
    delay=st.sampled_from([0, 1, 2, 5, 10]),
    lateness=st.sampled_from([0, 1, 3, 10, 50]),
    late=st.sampled_from(["each", "each", "batch"]),
    at_end=st.booleans(),
    every=st.sampled_from([1, 3]),
    cut=st.lists(st.integers(0, 45), max_size=8).map(sorted),
    ticks=st.lists(st.integers(0, 4), min_size=9, max_size=9),
)


def lows(log: Sequence[tuple[int, str, int]], delay: int) -> list[int]:
    """The low watermark before the first record and after each; every partition that occurs is there from the start."""
    reached = dict.fromkeys((partition for partition, _, _ in log), BEFORE_ALL)
    found = [BEFORE_ALL]
    for partition, _, time in log:
        reached[partition] = max(reached[partition], time - delay)
        found.append(min(reached.values()))
    return found


def play(
    case: Case, entries: Sequence[Entry | None], low: Sequence[int], cuts: Sequence[int], every: int | None
) -> Sessions:
    """Take all steps; None is a record that has expired."""
    sessions = Sessions(SessionSpec(case.gap, case.lateness, case.late), every)
    now = 100
    for step, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(entries)], strict=True)):
        now += case.ticks[step % len(case.ticks)]
        some = [entry for entry in entries[first:last] if entry is not None]
        sessions.step(some, low[last], now=now if every else None)
    if case.at_end:
        sessions.step([], low[-1], end=True)
    return sessions


# an on-time record touches a row of a late record alone: the row is deleted until the session fires
MEETS_LATE = [(0, "a", time) for time in (0, 0, 0, 0, 1, 1, 17, 9, 10)]


@examples(200)
@given(log=logs(), case=CASES)
@example(log=MEETS_LATE, case=Case(8, 0, 1, "each", at_end=False, every=1, cut=[], ticks=[0] * 9))
def test_every_cut_tells_what_the_definition_says(log: list[tuple[int, str, int]], case: Case) -> None:
    named, _ = watermarks(log, case.delay)
    low = lows(log, case.delay)
    judged = [Judged.of([r for key, r in named if key == name], case.gap, case.lateness) for name in "ab"]
    on_time: list[Any] = []
    final: dict[Any, Component] = {}
    changelog: list[Told] = []
    for key, one in enumerate(judged):
        panes = on_time_panes(one.on_time, case.gap, low[-1], at_end=case.at_end)
        on_time += [(key, window(pane, case.gap), pane) for pane in panes]
        final |= {(key, window(c, case.gap)): c for c in components([*one.on_time, *one.late], case.gap)}
        its = [record for name, record in named if name == "ab"[key]]
        written = OnePartition(case.gap).run(its, case.lateness, low[-1], at_end=case.at_end)
        changelog += [Told(key, *change) for change in written]
    good = {record for one in judged for record in [*one.on_time, *one.late]}
    entries = [("ab".index(name), record) if record in good else None for name, record in named]
    count = len(entries)
    cut = [min(place, count) for place in case.cut]

    for cuts, every in (([], None), (cut, None), (range(1, count), None), (cut, case.every)):
        sessions = play(case, entries, low, list(cuts), every)
        table = fold(sessions.told, case.gap)
        if case.at_end:
            assert table == final
        panes_told = [
            (one.key, one.bounds, one.records)
            for one in sessions.told
            if one.pane == "on_time" and one.op in ("insert", "update_after")
        ]
        assert sorted(panes_told, key=str) == sorted(on_time, key=str)
        if len({partition for partition, _, _ in log}) == 1 and case.late == "each" and every is None:
            assert by_window(sessions.told) == by_window(changelog)
        if case.at_end:
            for far in range(10**6, 4 * 10**6, 10**6):
                sessions.step([], far)
            assert len(sessions.stored) == 0


def by_window(told: Sequence[Told]) -> dict[Any, list[Told]]:
    grouped: dict[Any, list[Told]] = {}
    for one in told:
        grouped.setdefault((one.key, one.bounds), []).append(one)
    return grouped
