"""Sessions by their definition, in the plainest Python: the reference that the operator is held to.

A record is its event time, partition, offset and watermark; a session's value is the set of its records.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

BEFORE_ALL = -(2**63)


class R(NamedTuple):
    time: int
    partition: int
    offset: int
    watermark: int


Component = frozenset[R]


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
    """The changelog of one key where each record is a step: rows (op, pane, revision, window, records)."""

    gap: int
    rows: list[Row] = field(default_factory=list)
    waiting: list[R] = field(default_factory=list)
    changes: list[Any] = field(default_factory=list)

    def run(self, records: Sequence[R], lateness: int, low: int, *, at_end: bool) -> list[Any]:
        judged = Judged.of(records, self.gap, lateness)
        panes = on_time_panes(judged.on_time, self.gap, low, at_end=at_end)
        for record in records:
            while panes and window(panes[0], self.gap)[1] <= record.watermark:
                self.fire(panes.pop(0))
            if record in judged.late:
                self.take_late(record, [r for r in judged.on_time if r.offset < record.offset])
        for pane in panes:
            self.fire(pane)
        return self.changes

    def fire(self, pane: Component) -> None:
        before = frozenset[R]().union(*(row.records for row in self.put(pane, "on_time")))
        if before - pane:
            self.put(before | pane, "late")
        for record in self.linked_waiting(pane):
            self.waiting.remove(record)
            self.apply(record)

    def take_late(self, record: R, came: Sequence[R]) -> None:
        open_ = [c for c in components(came, self.gap) if window(c, self.gap)[1] > record.watermark]
        waits = any(self.touch({record}, c) for c in [*open_, *({w} for w in self.waiting)])
        if waits and not any(self.touch({record}, row.records) for row in self.rows):
            self.waiting.append(record)
        else:
            self.apply(record)

    def apply(self, record: R) -> None:
        touched = [row.records for row in self.rows if self.touch({record}, row.records)]
        self.put(frozenset({record}).union(*touched), "late")

    def touch(self, one: Iterable[R], other: Iterable[R]) -> bool:
        return any(abs(a.time - b.time) < self.gap for a in one for b in other)

    def linked_waiting(self, pane: Component) -> list[R]:
        linked = set(pane)
        while more := {w for w in self.waiting if w not in linked and self.touch({w}, linked)}:
            linked |= more
        return sorted((w for w in self.waiting if w in linked), key=lambda r: r.offset)

    def put(self, records: Component, pane: str) -> list[Row]:
        gone = [row for row in self.rows if self.touch(records, row.records)]
        bounds = window(records, self.gap)
        if [window(row.records, self.gap) for row in gone] == [bounds]:
            self.changes.append(("update_before", pane, gone[0].revision, bounds, gone[0].records))
            new = Row(records, gone[0].revision + 1)
            self.changes.append(("update_after", pane, new.revision, bounds, records))
        else:
            for row in sorted(gone, key=lambda row: window(row.records, self.gap)):
                self.changes.append(("delete", pane, row.revision, window(row.records, self.gap), row.records))
            new = Row(records, 0)
            self.changes.append(("insert", pane, 0, bounds, records))
        self.rows = [row for row in self.rows if row not in gone] + [new]
        return gone
