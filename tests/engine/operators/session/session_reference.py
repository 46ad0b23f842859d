"""Sessions by their definition, in the plainest Python: the reference that the operator is held to.

A record is its event time, partition, offset and watermark; a session's value is the set of its records.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

BEFORE_ALL = -(2**63)


class R(NamedTuple):
    time: int
    partition: int
    offset: int
    watermark: int


Component = frozenset[R]


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, str, int]]:
    """(partition, key, time): partitions are skewed, or are read one after the other."""
    partitions, keys = draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from(["a", "ab"]))
    pace, spread = draw(st.sampled_from([0.3, 1, 2, 4])), draw(st.sampled_from([1, 3, 10, 20]))
    base, one_by_one = draw(st.sampled_from([0, -1000])), draw(st.booleans())
    skews = [draw(st.sampled_from([0, 0, 5, 15, 30])) for _ in range(partitions)]
    jitters = draw(st.lists(st.integers(-spread, spread), min_size=1, max_size=45))
    found = []
    for number, jitter in enumerate(jitters):
        partition = number * partitions // len(jitters) if one_by_one else draw(st.integers(0, partitions - 1))
        turn = number % (len(jitters) // partitions + 1) if one_by_one else number
        found.append((partition, draw(st.sampled_from(keys)), base + int(turn * pace) + skews[partition] + jitter))
    return found


def watermarks(log: Sequence[tuple[int, str, int]], delay: int) -> tuple[list[tuple[str, R]], dict[int, int]]:
    """(partition, key, time) in the order in which they are read: the records, and the last watermarks."""
    reached: dict[int, int] = {}
    offsets: dict[int, int] = {}
    records = []
    for partition, key, time in log:
        offset = offsets.get(partition, 0)
        offsets[partition] = offset + 1
        records.append((key, R(time, partition, offset, reached.get(partition, BEFORE_ALL))))
        reached[partition] = max(reached.get(partition, BEFORE_ALL), time - delay)
    return records, reached


def components(records: Sequence[R], gap: int) -> list[Component]:
    found: list[list[R]] = []
    for record in sorted(records):
        if found and record.time - found[-1][-1].time < gap:
            found[-1].append(record)
        else:
            found.append([record])
    return [frozenset(one) for one in found]


def window(component: Component, gap: int) -> tuple[int, int]:
    return min(r.time for r in component), max(r.time for r in component) + gap


@dataclass
class Judged:
    on_time: list[R]
    late: list[R]
    expired: list[R]

    @staticmethod
    def of(records: Sequence[R], gap: int, lateness: int) -> "Judged":
        judged = Judged([], [], [])
        for r in records:
            end = r.time + gap
            (
                judged.on_time if r.watermark < end else judged.late if r.watermark < end + lateness else judged.expired
            ).append(r)
        return judged


def on_time_panes(on_time: Sequence[R], gap: int, low: int, *, at_end: bool) -> list[Component]:
    """In the order of their ends."""
    fired = []
    for end in sorted({r.time + gap for r in on_time}):
        if end <= low:
            known = [r for r in on_time if r.watermark < end]
        elif at_end:
            known = list(on_time)
        else:
            continue
        fired += [c for c in components(known, gap) if window(c, gap)[1] == end]
    return fired


@dataclass
class Row:
    records: Component
    revision: int


@dataclass
class OnePartition:
    """The changelog of one key where each record is a step: rows (op, pane, revision, window, records).

    A late record that is linked with a session that has not fired, also through other late records, and with none that
    has, waits for it. A row of late records alone that such a session reaches is deleted and waits too. What waits
    joins the table right after the on-time pane; what was one row waits as one.
    """

    gap: int
    rows: list[Row] = field(default_factory=list)
    fired: set[R] = field(default_factory=set)
    waiting: list[Component] = field(default_factory=list)
    changes: list[Any] = field(default_factory=list)

    def run(self, records: Sequence[R], lateness: int, low: int, *, at_end: bool) -> list[Any]:
        judged = Judged.of(records, self.gap, lateness)
        panes = on_time_panes(judged.on_time, self.gap, low, at_end=at_end)
        for record in records:
            while panes and window(panes[0], self.gap)[1] <= record.watermark:
                self.fire(panes.pop(0))
            if record in judged.late:
                self.take_late(record, [r for r in judged.on_time if r.offset < record.offset])
            elif record in judged.on_time:
                self.delete_late_rows({record})
        for pane in panes:
            self.fire(pane)
        return self.changes

    def fire(self, pane: Component) -> None:
        before = frozenset[R]().union(*(row.records for row in self.put(pane, "on_time")))
        self.fired |= pane
        if before - pane:
            self.put(before | pane, "late")
        for records in self.linked_waiting(pane):
            self.apply(records)

    def take_late(self, record: R, came: Sequence[R]) -> None:
        open_ = [c for c in components(came, self.gap) if window(c, self.gap)[1] > record.watermark]
        if any(self.touch({record}, row.records) for row in self.rows if row.records & self.fired):
            self.apply(frozenset({record}).union(*self.linked_waiting({record})))
        elif any(self.touch({record}, c) for c in [*open_, *self.waiting]):
            self.delete_late_rows({record})
            self.waiting.append(frozenset({record}))
        else:
            self.apply(frozenset({record}))

    def delete_late_rows(self, records: Iterable[R]) -> None:
        """Rows of late records alone that touch some records wait with them."""
        for row in [row for row in self.rows if self.touch(records, row.records) and not row.records & self.fired]:
            self.delete(row, "late")
            self.rows.remove(row)
            self.waiting.append(row.records)

    def apply(self, records: Component) -> None:
        touched = [row.records for row in self.rows if self.touch(records, row.records)]
        self.put(records.union(*touched), "late")

    def touch(self, one: Iterable[R], other: Iterable[R]) -> bool:
        return any(abs(a.time - b.time) < self.gap for a in one for b in other)

    def linked_waiting(self, records: Iterable[R]) -> list[Component]:
        """Take out what waits and is linked with some records, in log order."""
        linked, found = set(records), list[Component]()
        while more := [one for one in self.waiting if self.touch(one, linked)]:
            self.waiting = [one for one in self.waiting if one not in more]
            linked = linked.union(*more)
            found += more
        return sorted(found, key=lambda one: min(r.offset for r in one))

    def put(self, records: Component, pane: str) -> list[Row]:
        gone = [row for row in self.rows if self.touch(records, row.records)]
        bounds = window(records, self.gap)
        if [window(row.records, self.gap) for row in gone] == [bounds]:
            self.changes.append(("update_before", pane, gone[0].revision, bounds, gone[0].records))
            new = Row(records, gone[0].revision + 1)
            self.changes.append(("update_after", pane, new.revision, bounds, records))
        else:
            for row in sorted(gone, key=lambda row: window(row.records, self.gap)):
                self.delete(row, pane)
            new = Row(records, 0)
            self.changes.append(("insert", pane, 0, bounds, records))
        self.rows = [row for row in self.rows if row not in gone] + [new]
        return gone

    def delete(self, row: Row, pane: str) -> None:
        self.changes.append(("delete", pane, row.revision, window(row.records, self.gap), row.records))
