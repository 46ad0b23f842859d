"""Sessions: which on-time panes fire, how late records join them, and the resulting changes.

A record's own window is [time, time + gap). Records of a key are linked if their windows overlap. A component of linked
records has the union of their windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from windrow import model as m
from windrow.testing.oracle.answer import Change, JudgedRecord, Value, WindowedSource, WindowKey
from windrow.testing.oracle.totals import results

Key = tuple[Value, ...]


@dataclass(frozen=True)
class Component:
    """A set of linked records, and their window."""

    start: int
    end: int
    records: frozenset[JudgedRecord]

    def touches(self, other: Component) -> bool:
        """Return True if records of both components are linked."""
        return self.start < other.end and other.start < self.end


def components(records: Iterable[JudgedRecord]) -> list[Component]:
    """Return the components of some records, earliest first."""
    found: list[Component] = []
    for record in sorted(records, key=lambda record: record.time):
        if found and record.time < found[-1].end:
            last = found.pop()
            found.append(Component(last.start, max(last.end, record.end), last.records | {record}))
        else:
            found.append(_alone(record))
    return found


def changelog(
    pipeline: WindowedSource, judged: Sequence[tuple[WindowKey, JudgedRecord]], low: float, *, alone: bool
) -> dict[WindowKey, list[Change]]:
    """Return the changes of all windows and keys.

    If `alone`, there is one partition, which is read as if each record were a step. For several partitions, the on-time
    panes and the table are defined, but the order of changes is not.
    """
    changes: dict[WindowKey, list[Change]] = {}
    by_key: dict[Key, list[JudgedRecord]] = {}
    for window_key, record in judged:
        by_key.setdefault(window_key[2:], []).append(record)
    for key, records in by_key.items():
        table = _Table(pipeline, key, changes)
        if alone:
            _one_by_one(table, records, low)
        else:
            _all_at_once(table, records, low)
    return changes


def fired_on_time(on_time: Sequence[JudgedRecord], low: float, *, at_end: bool) -> list[Component]:
    """Return the components that fire on time, in order of their ends.

    A component that the low watermark has passed consists of the records that arrived before its end. The end of the
    input fires the others if `at_end`.
    """
    fired = []
    for end in sorted({record.end for record in on_time}):
        if end <= low:
            came = [record for record in on_time if record.watermark < end]
        elif at_end:
            came = list(on_time)
        else:
            break
        fired += [component for component in components(came) if component.end == end]
    return fired


def _alone(record: JudgedRecord) -> Component:
    return Component(record.time, record.end, frozenset([record]))


def _is_late(record: JudgedRecord) -> bool:
    return record.watermark >= record.end


def _all_at_once(table: _Table, records: Sequence[JudgedRecord], low: float) -> None:
    """Fire components, then join late records with them, except those that wait for components that have not fired."""
    late = [record for record in records if _is_late(record)]
    on_time = [record for record in records if not _is_late(record)]
    for component in fired_on_time(on_time, low, at_end=table.fires_at_end):
        table.fire(component)
    unfired = components([record for record in on_time if record not in table.fired])
    for component in components([*table.fired, *late]):
        waits = any(component.touches(other) for other in unfired)
        if not component.records.isdisjoint(late) and (component.records & table.fired or not waits):
            table.join(component.records)


def _one_by_one(table: _Table, records: Sequence[JudgedRecord], low: float) -> None:
    """Process one partition. Before each record, the components that the record's watermark has passed fire.

    The session of an on-time record gets an early pane once enough of its on-time records have not been in any pane.
    """
    count = _early_count(table.pipeline.node.emit.early)
    on_time: list[JudgedRecord] = []
    done: set[Component] = set()
    all_on_time = [record for record in records if not _is_late(record)]

    def fire(watermark: float, *, at_end: bool = False) -> None:
        for component in fired_on_time(all_on_time, watermark, at_end=at_end):
            if component not in done:
                done.add(component)
                table.fire(component)

    for record in records:
        fire(record.watermark)
        if _is_late(record):
            table.take_late(record, components([known for known in on_time if known not in table.fired]))
        else:
            on_time.append(record)
            table.hide(_alone(record))
            (session,) = [component for component in components(on_time) if record in component.records]
            if count is not None and len(session.records - table.seen) >= count:
                table.show(session)
    fire(low, at_end=table.fires_at_end)


def _early_count(trigger: m.Trigger | None) -> int | None:
    """Return the number of records that trigger an early pane, or None."""
    match trigger:
        case m.Records(number):
            return number
        case m.AnyOf(triggers):
            return min((count for trigger in triggers if (count := _early_count(trigger)) is not None), default=None)
        case _:
            return None


@dataclass
class _Row:
    component: Component
    revision: int
    values: tuple[Value, ...]


@dataclass
class _Table:
    """The rows of one key, its fired records, its waiting late records, and the changes written so far.

    A late record waits, and is in no row, if it is linked with a component that has not fired and with no component
    that has. Late records that shared a row wait together.
    """

    pipeline: WindowedSource
    key: Key
    changes: dict[WindowKey, list[Change]]
    rows: list[_Row] = field(default_factory=list)
    fired: set[JudgedRecord] = field(default_factory=set)
    seen: set[JudgedRecord] = field(default_factory=set)
    waiting: list[Component] = field(default_factory=list)

    @property
    def fires_at_end(self) -> bool:
        return self.pipeline.node.emit.at_end == "fire"

    def fire(self, component: Component) -> None:
        """Write an on-time pane, followed by the changes that late records make."""
        replaced = self._put("on_time", component)
        self.fired |= component.records
        self.seen |= component.records
        self._join_again(component, replaced)
        for waited in self._waiting_for(component):
            self._apply(waited)

    def show(self, component: Component) -> None:
        """Write an early pane."""
        self.seen |= component.records
        self._join_again(component, self._put("early", component))

    def _join_again(self, component: Component, replaced: Sequence[_Row]) -> None:
        """Join the records of replaced rows that the new pane does not include."""
        before = frozenset[JudgedRecord]().union(*(row.component.records for row in replaced))
        if before - component.records:
            self.join(before | component.records)

    def take_late(self, record: JudgedRecord, unfired: Sequence[Component]) -> None:
        """Apply a late record, or let it wait for an on-time component that has not fired."""
        own = _alone(record)
        if not all(self._is_late_only(row) for row in self._touched(own)):
            linked = frozenset[JudgedRecord]().union(*(waiting.records for waiting in self._waiting_for(own)))
            (joined,) = components([record, *linked])
            self._apply(joined)
        elif any(own.touches(other) for other in [*unfired, *self.waiting]):
            self.hide(own)
            self.waiting.append(own)
        else:
            self._apply(own)

    def hide(self, component: Component) -> None:
        """Remove rows that touch a component and consist only of late records; their records wait with it."""
        for row in self._touched(component):
            if self._is_late_only(row):
                self._write("delete", "late", row)
                self.rows.remove(row)
                self.waiting.append(row.component)

    def join(self, records: frozenset[JudgedRecord]) -> None:
        """Put linked records into one row, which is early as long as it has on-time records that have not fired."""
        (merged,) = components(records)
        is_early = any(not _is_late(record) and record not in self.fired for record in records)
        self._put("early" if is_early else "late", merged)

    def _is_late_only(self, row: _Row) -> bool:
        return all(_is_late(record) for record in row.component.records)

    def _apply(self, late: Component) -> None:
        """Join late records with the rows that they touch."""
        self.join(late.records.union(*(row.component.records for row in self._touched(late))))

    def _touched(self, component: Component) -> list[_Row]:
        return [row for row in self.rows if row.component.touches(component)]

    def _waiting_for(self, component: Component) -> list[Component]:
        """Remove and return the waiting records linked with a component, directly or indirectly, in log order."""
        linked = [component]
        found: list[Component] = []
        while more := [late for late in self.waiting if any(late.touches(other) for other in linked)]:
            self.waiting = [late for late in self.waiting if late not in more]
            found += more
            linked += more
        return sorted(found, key=lambda late: min((record.partition, record.offset) for record in late.records))

    def _put(self, pane: str, component: Component) -> list[_Row]:
        """Replace the rows that a component touches with a row for the component, and return the replaced rows."""
        replaced = self._touched(component)
        values = results(self.pipeline, sorted(component.records, key=lambda record: (record.partition, record.offset)))
        bounds = (component.start, component.end)
        if [(row.component.start, row.component.end) for row in replaced] == [bounds]:
            (row,) = replaced
            if self.pipeline.node.emit.mode == "retract":
                self._write("update_before", pane, row)
            new = _Row(component, row.revision + 1, values)
            self._write("update_after", pane, new)
        else:
            for row in replaced:
                self._write("delete", pane, row)
            new = _Row(component, 0, values)
            self._write("insert", pane, new)
        self.rows = [row for row in self.rows if row not in replaced] + [new]
        return replaced

    def _write(self, op: str, pane: str, row: _Row) -> None:
        window_key = (row.component.start, row.component.end, *self.key)
        self.changes.setdefault(window_key, []).append(Change(op, pane, row.revision, row.values))
