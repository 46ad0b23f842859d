"""What process functions mean, in plain Python: the calls of each key, one by one, and what they leave.

A key's calls are a sequence that the log alone decides. Before the call for a record come the timers, and the expiry of
the key, that the record's watermark has reached; right after a call the timers that it set for a time which its own
watermark has reached. There are no steps here, and no code of the operator.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from windrow.model import Process, Session, WindowNode
from windrow.testing.oracle.windows import windows_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEFORE_ALL = -(10**18)
LAST = 2**31 - 1
BEHIND = 2**30
FOREVER = 2**62

Values = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A record, or a row that a function emitted: event time, place in the merged order, what it is made of, fields.

    `part` is the number of ends of the input before it.
    """

    time: int
    watermark: int
    partition: int
    offset: int
    id: str
    values: Values
    part: int = 0

    @property
    def order(self) -> tuple[Any, ...]:
        """Its place in the merged order; ids are compared by the numbers in them."""
        numbers = re.sub(r"([/#])(\d+)", lambda found: found[1] + found[2].zfill(20), self.id)
        return self.watermark, self.partition, self.offset, numbers, self.id


@dataclass(frozen=True)
class Part:
    """The records up to an end of the input, or to where the run stops: the low watermark there, and if it ended."""

    rows: tuple[Row, ...]
    low: int
    is_ended: bool


@dataclass
class Answer:
    """The changes of each key's row, the rows that were emitted, and the records that are late."""

    changes: dict[str, list[tuple[Any, ...]]]
    rows: list[Row]
    late: list[str]


def answer(process: Process, parts: Sequence[Part], *, name: str = "", has_ids: bool = False) -> Answer:
    """Return what a function over some records gives; `name` is that of one whose records are rows of others."""
    in_event_time = process.order == "event_time"
    keys: dict[str, _Key] = {}
    late: list[str] = []
    held: list[Row] = []
    for number, part in enumerate(parts):
        given = [replace(one, part=number) for one in part.rows]
        if in_event_time:
            late += [one.id for one in given if one.watermark > one.time]
            given = held + [one for one in given if one.watermark <= one.time]
            held = [] if part.is_ended else [one for one in given if one.time >= part.low]
            called = [one for one in given if part.is_ended or one.time < part.low]
            given = [replace(one, watermark=one.time, partition=one.partition | BEHIND) for one in called]
        given.sort(key=lambda one: one.order)
        for one in given:
            user = one.values["user"]
            if user not in keys:
                keys[user] = _Key(process, user, name, has_ids=has_ids)
            keys[user].record(one)
        for key in keys.values():
            key.part = number
            key.sweep(part.low)
            if part.is_ended:
                key.end()
    rows = [row for key in keys.values() for row in key.rows]
    return Answer({user: key.changes for user, key in keys.items() if key.changes}, rows, late)


Group = tuple[int, int, tuple[Any, ...]]
"""A start, an end, and a key."""


@dataclass
class Windows:
    """The final table of a window over rows, its on-time panes, and how many rows missed a window of theirs.

    A window that began by the time that event time of its rows had come to at an end of the input has fired there,
    whether or not a key had rows in it: what comes after that revises it. `fired` has the number of that end.
    """

    table: dict[Group, list[Row]]
    on_time: dict[Group, list[Row]]
    missed: int

    @staticmethod
    def of(node: WindowNode, rows: Sequence[Row], reached: Sequence[int]) -> Windows:
        """Return those of a node; `reached` is by end how far event time of the rows had come."""
        assert not isinstance(node.window, Session)
        found = Windows(defaultdict(list), defaultdict(list), 0)
        for row in rows:
            for start, end in windows_of(node.window, row.time):
                group = start, end, tuple(row.values[name] for name in node.key)
                if row.watermark >= end + node.emit.lateness:
                    found.missed += 1
                    continue
                found.table[group].append(row)
                if row.watermark < end and row.part <= fired_at(start, reached):
                    found.on_time[group].append(row)
        return found

    def again(self, node: WindowNode, reached: Sequence[int]) -> Windows:
        """Return those of a window over the rows of this one, which are made of its rows."""
        found = Windows(defaultdict(list), defaultdict(list), self.missed)
        for (_, at, _), rows in self.table.items():
            key = tuple(rows[0].values[name] for name in node.key)
            for start, end in windows_of(node.window, at - 1):
                found.table[start, end, key] += rows
                fired = fired_at(start, reached)
                found.on_time[start, end, key] += [one for one in rows if one.watermark < end and one.part <= fired]
        found.on_time = {group: rows for group, rows in found.on_time.items() if rows}
        return found


def row_times(node: WindowNode, reached: Sequence[int]) -> list[int]:
    """Return by end how far event time of a window's rows had come: to the last time of those that had begun."""
    return [max(end for _, end in windows_of(node.window, time)) - 1 for time in reached]


def fired_at(start: int, reached: Sequence[int]) -> int:
    """Return the number of the first end of the input at which a window had begun."""
    return next(number for number, time in enumerate(reached) if start <= time)


class _Key:
    """A key: the context of its calls as well."""

    def __init__(self, process: Process, user: str, name: str, *, has_ids: bool) -> None:
        self.process, self.user, self.name, self.has_ids = process, user, name, has_ids
        self.changes: list[tuple[Any, ...]] = []
        self.rows: list[Row] = []
        self.timers: dict[str, int] = {}
        self.since_end: set[str] = set()
        self.fired: defaultdict[str, int] = defaultdict(int)
        self.expiry: int | None = None
        self.row: tuple[Any, ...] | None = None
        self.revision = 0
        self.reached = BEFORE_ALL
        self.now, self.low, self.part = 0, BEFORE_ALL, 0
        self.place, self.cause = (0, 0, 0), ""
        self.key = {"user": user}
        self.state = SimpleNamespace(n=_Value(self), l=_List(self), m=_Map(self))

    # what a function is given

    @property
    def event_time(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.now)

    @property
    def watermark(self) -> datetime | None:
        return None if self.low == BEFORE_ALL else EPOCH + timedelta(microseconds=self.low)

    def emit(self, **values: Any) -> None:  # noqa: ANN401 - of any type
        row = tuple(values.values())
        if self.row is None:
            self.changes.append(("insert", self.revision, *row))
        else:
            self.changes.append(("update_before", self.revision, *self.row))
            self.revision += 1
            self.changes.append(("update_after", self.revision, *row))
        self.row = row
        number = self.fired[self.cause]
        self.fired[self.cause] += 1
        id_ = f"{self.cause}#{number:04d}" if number or self.name else self.cause
        self.rows.append(Row(self.now, *self.place, id_, {"user": self.user, **values}, self.part))

    def timer(self, *, at: datetime, name: str = "") -> None:
        self.timers[name] = max((at - EPOCH) // timedelta(microseconds=1), self.low)
        self.since_end.add(name)

    def cancel(self, name: str = "") -> None:
        self.timers.pop(name, None)

    # the calls

    def record(self, one: Row) -> None:
        self.part = one.part
        self.sweep(one.watermark)
        self.place, self.cause = (one.watermark, one.partition, one.offset), one.id
        self._call(self.process.function, one.values, one.time, one.watermark)
        while set_now := sorted(name for name, due in self.timers.items() if due <= one.watermark):
            del self.timers[set_now[0]]
            self._ring(set_now[0], one.watermark)

    def sweep(self, bound: int) -> None:
        while True:
            alarm = min(self.timers.values(), default=None)
            if self.expiry is not None and self.expiry <= bound and (alarm is None or self.expiry < alarm):
                self._expire()
            elif alarm is not None and alarm <= bound:
                self._fire(min((due, name) for name, due in self.timers.items())[1])
            else:
                return

    def end(self) -> None:
        self.since_end = set()
        for due, name in sorted((due, name) for name, due in self.timers.items()):
            if name in self.timers and name not in self.since_end:
                if self.expiry is not None and self.expiry < due:
                    self._expire()
                self._fire(name)

    def _fire(self, name: str) -> None:
        due = self.timers.pop(name)
        self.place = due - 1, LAST, FOREVER
        self.cause = f"{self.user}@{(EPOCH + timedelta(microseconds=due)).isoformat()}"
        self.cause += f"@{self.name}" if self.name else ""
        self._ring(name, due)

    def _ring(self, name: str, due: int) -> None:
        at = EPOCH + timedelta(microseconds=due)
        self._call(self.process.on_timer, SimpleNamespace(name=name, at=at), due, due)

    def _call(self, function: Any, given: Any, time: int, watermark: int) -> None:  # noqa: ANN401 - a user's
        self.now, self.low = time, watermark
        self.reached = max(self.reached, watermark)
        function(self, given)
        if self.process.ttl is not None:
            self.expiry = max(self.expiry or BEFORE_ALL, time + self.process.ttl)

    def _expire(self) -> None:
        if self.row is not None:
            self.changes.append(("delete", self.revision, *self.row))
        self.row, self.revision, self.expiry = None, 0, None
        self.state = SimpleNamespace(n=_Value(self), l=_List(self), m=_Map(self))

    @property
    def horizon(self) -> int:
        return 2 * BEFORE_ALL if self.process.ttl is None else self.reached - self.process.ttl


class _Value:
    def __init__(self, key: _Key) -> None:
        self.key = key
        self.entry: tuple[Any, int] | None = None

    def get(self, default: Any = None) -> Any:  # noqa: ANN401 - of any type
        return self.entry[0] if self.entry is not None and self.entry[1] > self.key.horizon else default

    def set(self, value: Any) -> None:  # noqa: ANN401 - of any type
        self.entry = value, self.key.now

    def clear(self) -> None:
        self.entry = None


class _List:
    def __init__(self, key: _Key) -> None:
        self.key = key
        self.entries: list[tuple[Any, int]] = []

    def get(self) -> list[Any]:
        return [value for value, time in self.entries if time > self.key.horizon]

    def append(self, value: Any) -> None:  # noqa: ANN401 - of any type
        self.entries.append((value, self.key.now))

    def clear(self) -> None:
        self.entries = []

    def __len__(self) -> int:
        return len(self.get())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())


class _Map:
    def __init__(self, key: _Key) -> None:
        self.key = key
        self.entries: dict[str, tuple[Any, int]] = {}

    def items(self) -> list[tuple[str, Any]]:
        self.entries = {name: entry for name, entry in self.entries.items() if entry[1] > self.key.horizon}
        return [(name, value) for name, (value, _) in self.entries.items()]

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - of any type
        return dict(self.items()).get(name, default)

    def set(self, name: str, value: Any) -> None:  # noqa: ANN401 - of any type
        self.items()
        self.entries[name] = value, self.key.now

    def delete(self, name: str) -> None:
        self.entries.pop(name, None)

    def clear(self) -> None:
        self.entries = {}

    def __len__(self) -> int:
        return len(self.items())
