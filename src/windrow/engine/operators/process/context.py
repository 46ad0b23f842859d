"""Context of a call: what a user's function is given (record, state, times, timers), and the rows that it emits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, NamedTuple, assert_never

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import schema
from windrow.engine.columns import MAX_TIME, MIN_TIME
from windrow.engine.operators.process.state import KeyState, KeyTimer
from windrow.engine.schema import ID, LAST_PARTITION, MICROS, OFFSET, PARTITION, TIME, WATERMARK, arrow_type
from windrow.engine.state.keyed import NEVER
from windrow.engine.value_codec import micros_of, time_of, to_values, value_codec
from windrow.engine.windows import GLOBAL_END, GLOBAL_START
from windrow.expressions import ProcessSpec, made_rows

_YEAR_1: Final = -62_135_596_800_000_000


class CallContext:
    """The key's state, times and timers, and the way out for rows.

    One object serves all calls: what is to be kept belongs in `state`.
    """

    def __init__(self, spec: ProcessSpec, call: CurrentCall) -> None:
        process = spec.node.process
        self._call = call
        self._names = spec.key
        self._returns = [
            (field.name, value_codec(arrow_type(field.type), field.name).accept) for field in process.returns
        ]
        self._has_timers = process.on_timer is not None
        self._has_processing_timers = process.on_processing_timer is not None
        self._accept_time = value_codec(MICROS, "at").accept
        self._columns = {name for name, _ in self._returns}
        self.state: StateHandles = state_handles(call, process.state)
        self._is_made = True

    def __setattr__(self, name: str, value: object) -> None:
        """Raise AttributeError once it is made: all keys have the same object, and no run restores it."""
        if "_is_made" in vars(self):
            ways = _what_to_write(vars(self.state))
            msg = f"ctx.{name} = ... would be shared by all keys and lost at a restart; {ways}"
            raise AttributeError(msg)
        super().__setattr__(name, value)

    @property
    def key(self) -> Mapping[str, Any]:
        """The key's fields by name."""
        return MappingProxyType(dict(zip(self._names, self._call.memory.key, strict=True)))

    @property
    def event_time(self) -> datetime | None:
        """The event time of the record or the timer; None for a processing-time timer before any event time."""
        return _datetime_or_none(self._call.time)

    @property
    def watermark(self) -> datetime | None:
        """The watermark at this call; None before the partition's first record."""
        return _datetime_or_none(self._call.watermark)

    def emit(self, /, *rows: object, **values: Any) -> None:  # noqa: ANN401 - of the declared types
        """Write the key's row, in the place of the one that was there: a value, or None, for each declared column.

        Raise TypeError if a column is missing or is not declared, or if a value is not of its type.
        """
        if rows or values.keys() != self._columns:
            takes = ", ".join(name for name, _ in self._returns)
            given = ", ".join([*(f"{type(row).__name__} without a name" for row in rows), *values])
            msg = f"emit takes {takes}, and was given {given or 'nothing'}: write ctx.emit({self._returns[0][0]}=...)"
            raise TypeError(msg)
        row = tuple([None if values[name] is None else accept(values[name]) for name, accept in self._returns])
        memory = self._call.memory
        if self._call.trace is not None:
            self._call.rows.append(self._call.trace.emitted(self._call.time, memory.key, row))
        before = memory.row
        self._call.changes.append(EmittedChange(self._call.early, memory.key, memory.revision, before, row))
        if before is not None:
            memory.revision += 1
        memory.row = row

    def timer(self, *, at: datetime, name: str = "") -> None:
        """Call `on_timer` when the watermark reaches a time; right after this call if its watermark has reached that.

        A timer replaces the key's other timer of that name. Raise ValueError if `on_timer` sets one that is not later
        than itself, which would go on for ever.
        """
        if not self._has_timers:
            msg = "there is no on_timer to call: give it to process(...)"
            raise ValueError(msg)
        watermark = self._call.watermark
        due = max(micros_of(self._accept_time(at)), watermark)
        if self._call.in_timer and due == watermark:
            msg = f"on_timer must set timers later than {self.watermark}, not at {at}: it would be called for ever"
            raise ValueError(msg)
        self._call.memory.set_timer(_checked_name(name), KeyTimer("event", due))

    def processing_timer(self, *, after: str | timedelta, name: str = "") -> None:
        """Call `on_processing_timer` so long after now by processing time, at the first tick then.

        A timer replaces the key's other timer of that name.
        """
        if not self._has_processing_timers:
            msg = "there is no on_processing_timer to call: give it to process(...)"
            raise ValueError(msg)
        wait = after // timedelta(microseconds=1) if isinstance(after, timedelta) else m.parse_duration(after)
        if wait <= 0:
            msg = f"after must be longer than 0, not {after}"
            raise ValueError(msg)
        now = self._call.now
        alarm = KeyTimer("wait", wait) if now is None else KeyTimer("tick", min(now + wait, NEVER - 1))
        self._call.memory.set_timer(_checked_name(name), alarm)

    def cancel(self, name: str = "") -> None:
        """Forget the key's timer of that name, if it is set."""
        self._call.memory.cancel(name)


def _checked_name(name: object) -> str:
    if isinstance(name, str):
        return name
    msg = f"a timer's name is text, not {name!r}"
    raise TypeError(msg)


def _datetime_or_none(micros: int) -> datetime | None:
    return None if micros == MIN_TIME or micros < _YEAR_1 else time_of(micros)


Accept = Callable[[Any], Any]


class EmittedRow(NamedTuple):
    """A row of a stream: its event time, its place in the merged order, what it is made of, key and values."""

    time: int
    place: tuple[int, int, int]
    id: str
    key: tuple[Any, ...]
    values: tuple[Any, ...]


@dataclass(slots=True)
class EmissionTrace:
    """The place of what a key's calls emit, and what it is made of: a record, or a timer.

    A timer is due when the watermark reaches its time, after all records below that: before it, no other call of the
    key can come. One that its call's watermark had reached belongs to that call. The process function called `name`
    takes rows that others emitted, which are known in the same way: so its own have all numbers, and its name.
    """

    name: str = ""
    place: tuple[int, int, int] = (MIN_TIME, -1, -1)
    cause: str = ""
    number: int = 0

    def begin(self) -> None:
        """Begin with the calls of a key."""
        self.cause = ""

    def record(self, place: tuple[int, int, int], cause: str) -> None:
        """Go on to the call for a record."""
        self.place, self.cause, self.number = place, cause, 0

    def timer(self, key: tuple[Any, ...], due: int, number: int) -> None:
        """Go on to the call for a timer; `number` is that of the rows which timers of its time emitted at an end."""
        timer = f"{'/'.join(map(_escaped, key))}@{time_of(due).isoformat()}"
        # no time ends like a name
        cause = f"{timer}@{self.name}" if self.name else timer
        if cause != self.cause:
            self.place, self.cause, self.number = (due - 1, LAST_PARTITION, MAX_TIME), cause, number

    def emitted(self, time: int, key: tuple[Any, ...], values: tuple[Any, ...]) -> EmittedRow:
        """Return a row of the call."""
        # in the order of text: the rows of one call stay in theirs
        name = f"{self.cause}#{self.number:04d}" if self.number or self.name else self.cause
        self.number += 1
        return EmittedRow(time, self.place, name, key, values)


def _escaped(value: object) -> str:
    """Return a value of a key as text in which a slash is not taken for one between two values."""
    return str(value).replace("\\", "\\\\").replace("/", "\\/")


@dataclass(slots=True)
class CurrentCall:
    """The call that is being made: its key's memory, its event time and watermark, and whether what it emits is early.

    Entries that were written at or before `horizon` are gone. All times are microseconds. There is a `trace` where
    other streams take the rows. `changes` and `rows` are those of the step's calls, and `now` is its processing time.
    """

    memory: KeyState = field(default_factory=lambda: KeyState((), []))
    time: int = 0
    watermark: int = MIN_TIME
    horizon: int = MIN_TIME - 1
    early: bool = False
    trace: EmissionTrace | None = None
    in_timer: bool = False
    now: int | None = None
    changes: list[EmittedChange] = field(default_factory=list)
    rows: list[EmittedRow] = field(default_factory=list)


def state_handles(call: CurrentCall, states: tuple[m.KeyedState, ...]) -> StateHandles:
    """Return an object with a handle for each declared state, by its name."""
    return StateHandles(**{state.name: _state_handle(call, number, state) for number, state in enumerate(states)})


def _state_handle(call: CurrentCall, number: int, state: m.KeyedState) -> Handle:
    accept = value_codec(arrow_type(state.type), f"state {state.name}").accept
    match state:
        case m.ValueState():
            return ValueHandle(call, number, accept)
        case m.ListState():
            return ListHandle(call, number, accept)
        case m.MapState():
            return MapHandle(
                call, number, value_codec(arrow_type(state.key), f"a key of state {state.name}").accept, accept
            )
        case _:
            assert_never(state)


def _what_to_write(handles: Mapping[str, Handle]) -> str:
    """Return what to write in place of setting an attribute."""
    ways = [f"ctx.state.{name}.{handle.WRITE}" for name, handle in handles.items()]
    if ways:
        return f"write {' or '.join(ways)}"
    return "declare a state, process(..., state={'NAME': wr.value_state('long')}), and write ctx.state.NAME.set(value)"


class StateHandles(SimpleNamespace):
    """The handles by their names."""

    def __setattr__(self, name: str, value: object) -> None:
        """Raise AttributeError: a value is set by its handle."""
        own = {name: vars(self)[name]} if name in vars(self) else vars(self)
        msg = f"ctx.state.{name} = ... sets no state: it would be shared by all keys and lost; {_what_to_write(own)}"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> None:
        """Raise AttributeError: a value is cleared by its handle."""
        msg = f"del ctx.state.{name} clears no state; write ctx.state.{name}.clear()"
        raise AttributeError(msg)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never returns
        """Raise AttributeError: there is no such state."""
        msg = f"there is no state {name!r}; process(...) declares {', '.join(vars(self)) or 'none'}"
        raise AttributeError(msg)


_NO_VALUE: Final = "a value state is not its value: write ctx.state.NAME.get()"


class ValueHandle:
    """One value of the key."""

    __slots__ = ("_accept", "_call", "_number")
    WRITE: Final = "set(value)"

    def __init__(self, call: CurrentCall, number: int, accept: Accept) -> None:
        self._call = call
        self._number = number
        self._accept = accept

    def get(self, default: Any = None) -> Any:  # noqa: ANN401 - of the declared type
        """Return the value, or `default` if there is none."""
        entry = self._call.memory.slots[self._number]
        return default if entry is None or entry[1] <= self._call.horizon else entry[0]

    def set(self, value: Any) -> None:  # noqa: ANN401 - of the declared type
        """Replace the value; raise TypeError if it is not of the declared type."""
        self._call.memory.slots[self._number] = (self._accept(value), self._call.time)

    def clear(self) -> None:
        """Forget the value."""
        self._call.memory.slots[self._number] = None

    def __bool__(self) -> bool:
        """Raise TypeError: the state of every key would be true."""
        raise TypeError(_NO_VALUE)

    def __eq__(self, other: object) -> bool:
        """Raise TypeError: the state would equal no value."""
        raise TypeError(_NO_VALUE)

    __hash__ = None  # type: ignore[assignment] # a state is no key of a dict either

    def __format__(self, spec: str) -> str:
        """Raise TypeError: the text would be that of an object."""
        raise TypeError(_NO_VALUE)


class ListHandle:
    """Values of the key in the order in which they were appended."""

    __slots__ = ("_accept", "_call", "_number")
    WRITE: Final = "append(value)"

    def __init__(self, call: CurrentCall, number: int, accept: Accept) -> None:
        self._call = call
        self._number = number
        self._accept = accept

    def append(self, value: Any) -> None:  # noqa: ANN401 - of the declared type
        """Add a value; raise TypeError if it is not of the declared type."""
        self._call.memory.slots[self._number].append((self._accept(value), self._call.time))

    def get(self) -> list[Any]:
        """Return the values."""
        horizon = self._call.horizon
        return [value for value, time in self._call.memory.slots[self._number] if time > horizon]

    def clear(self) -> None:
        """Forget all values."""
        self._call.memory.slots[self._number] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self.get())


class MapHandle:
    """Values of the key by keys of their own, in the order in which these were first set."""

    __slots__ = ("_accept", "_accept_key", "_call", "_number")
    WRITE: Final = "set(key, value)"

    def __init__(self, call: CurrentCall, number: int, accept_key: Accept, accept: Accept) -> None:
        self._call = call
        self._number = number
        self._accept_key = accept_key
        self._accept = accept

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401 - of the declared types
        """Return the value of a key, or `default` if there is none."""
        entry = self._call.memory.slots[self._number].get(key)
        return default if entry is None or entry[1] <= self._call.horizon else entry[0]

    def set(self, key: Any, value: Any) -> None:  # noqa: ANN401 - of the declared types
        """Set the value of a key; raise TypeError if one of them is not of the declared type."""
        entries, key = self._call.memory.slots[self._number], self._accept_key(key)
        entry = entries.get(key)
        if entry is not None and entry[1] <= self._call.horizon:
            # it is gone, whether or not a step has ended since and taken it out: the key begins anew, at the end
            del entries[key]
        entries[key] = (self._accept(value), self._call.time)

    def delete(self, key: Any) -> None:  # noqa: ANN401 - of the declared type
        """Forget the value of a key, if there is one."""
        self._call.memory.slots[self._number].pop(key, None)

    def items(self) -> list[tuple[Any, Any]]:
        """Return the keys with their values."""
        horizon = self._call.horizon
        return [(key, value) for key, (value, time) in self._call.memory.slots[self._number].items() if time > horizon]

    def clear(self) -> None:
        """Forget all values."""
        self._call.memory.slots[self._number] = {}

    def __contains__(self, key: object) -> bool:
        entry = self._call.memory.slots[self._number].get(key)
        return entry is not None and entry[1] > self._call.horizon

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self.items()])

    def __len__(self) -> int:
        horizon = self._call.horizon
        return sum(time > horizon for _, time in self._call.memory.slots[self._number].values())


Handle = ValueHandle | ListHandle | MapHandle


class RecordColumns(dict[str, list[Any]]):
    """The fields of many records as Python values; a column that nobody asks for is never made."""

    def __init__(self, records: pa.Table) -> None:
        super().__init__()
        self._records = records
        own = [PARTITION, OFFSET, TIME, WATERMARK, *([ID] if ID in records.column_names else [])]
        self.table = records.drop_columns(own)

    def coordinates(self, row: int) -> tuple[int, int]:
        """Return the partition and offset of a record."""
        return self._records.column(PARTITION)[row].as_py(), self._records.column(OFFSET)[row].as_py()

    def __missing__(self, name: str) -> list[Any]:
        """Make a column."""
        if name not in self.table.column_names:
            msg = f"a record has no field {name!r}; it has {', '.join(self.table.column_names)}"
            raise KeyError(msg)
        values = self[name] = to_values(self.table.column(name))
        return values


class Record(Mapping[str, Any]):
    """The fields of a record by name: str, bool, int, float, Decimal and datetime (UTC); a null is None."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: RecordColumns, row: int) -> None:
        self._columns = columns
        self._row = row

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a field of any type
        """Return a field's value; raise KeyError if there is no such field."""
        return self._columns[name][self._row]

    def __iter__(self) -> Iterator[str]:
        """Go through the names of the fields."""
        return iter(self._columns.table.column_names)

    def __len__(self) -> int:
        """Return how many fields there are."""
        return self._columns.table.num_columns  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Record({dict(self)!r})"


_OPS = pa.array(["insert", "update_before", "update_after", "delete"])
_INSERT, _BEFORE, _AFTER, _DELETE = range(4)
_PANES = pa.array(["on_time", "early"])


class EmittedChange(NamedTuple):
    """A change of a key's row: what it was, with its revision, and what it is; None where there is none."""

    early: bool
    key: tuple[Any, ...]
    revision: int
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None


def change_rows(spec: ProcessSpec, changes: Sequence[EmittedChange]) -> pa.Table:
    """Return changes, in their order, in the schema of the pipeline's changelog; their window is all time."""
    fields = schema.changes(made_rows(spec))
    if not changes:
        return fields.empty_table()
    had = np.array([change.before is not None for change in changes])
    has = np.array([change.after is not None for change in changes])
    revisions = np.array([change.revision for change in changes], dtype=np.int32)
    # a change is a row of what was and one of what is; the place of a change in `changes` is `index` for its rows
    there = np.stack([had, has], axis=1)
    index = np.nonzero(there)[0]
    ops = np.stack([np.where(has, _BEFORE, _DELETE), np.where(had, _AFTER, _INSERT)], axis=1)[there]
    counted = np.stack([revisions, revisions + had], axis=1)[there]
    panes = np.array([change.early for change in changes], dtype=np.int8)[index]
    rows = [row for change in changes for row in (change.before, change.after) if row is not None]
    keys = [change.key for change in changes]
    given = {
        "op": _OPS.take(pa.array(ops)),
        "pane": _PANES.take(pa.array(panes)),
        "revision": pa.array(counted, pa.int32()),
        "window_start": _constant_time(GLOBAL_START, len(rows)),
        "window_end": _constant_time(GLOBAL_END, len(rows)),
    }
    places = pa.array(index)
    given |= {
        name: pa.array([key[number] for key in keys], fields.field(name).type).take(places)
        for number, name in enumerate(spec.key)
    }
    given |= {
        field.name: pa.array([row[number] for row in rows], fields.field(field.name).type)
        for number, field in enumerate(spec.node.process.returns)
    }
    return pa.table(given, schema=fields)


def stream_rows(spec: ProcessSpec, rows: Sequence[EmittedRow]) -> pa.Table:
    """Return rows as the records of a stream."""
    fields = schema.changes(made_rows(spec))
    given = {
        PARTITION: pa.array([row.place[1] for row in rows], pa.int32()),
        OFFSET: pa.array([row.place[2] for row in rows], pa.int64()),
        TIME: pa.array([row.time for row in rows], pa.int64()),
        WATERMARK: pa.array([row.place[0] for row in rows], pa.int64()),
    }
    given |= {
        name: pa.array([row.key[number] for row in rows], fields.field(name).type)
        for number, name in enumerate(spec.key)
    }
    given |= {
        field.name: pa.array([row.values[number] for row in rows], fields.field(field.name).type)
        for number, field in enumerate(spec.node.process.returns)
    }
    return pa.table(given | {ID: pa.array([row.id for row in rows], pa.string())})


def _constant_time(micros: int, length: int) -> pa.Array:
    return pa.array(np.full(length, micros, dtype=np.int64)).cast(schema.MICROS)
