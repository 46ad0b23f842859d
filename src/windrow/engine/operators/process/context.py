"""The context of a call to a user's function: the record, state, times and timers, and the rows that the call emits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, NamedTuple, NoReturn, assert_never

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
from windrow.expressions import ProcessSpec, emitted_rows

_YEAR_1: Final = -62_135_596_800_000_000


class CallContext:
    """The key's state, times and timers, and a method that emits rows.

    The same object is used for all calls, so data that belongs to a key must be kept in `state`.
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
        handles = {state.name: _state_handle(call, number, state) for number, state in enumerate(process.state)}
        self.state = StateHandles(**handles)
        self._is_made = True

    def __setattr__(self, name: str, value: object) -> None:
        """Raise AttributeError after construction, because keys share the object and restarts lose its attributes."""
        if "_is_made" in vars(self):
            ways = _suggest_write(vars(self.state))
            msg = f"ctx.{name} = ... would be shared by all keys and lost at a restart; {ways}"
            raise AttributeError(msg)
        super().__setattr__(name, value)

    @property
    def key(self) -> Mapping[str, Any]:
        """The key fields by name."""
        return MappingProxyType(dict(zip(self._names, self._call.memory.key, strict=True)))

    @property
    def event_time(self) -> datetime | None:
        """The event time of the record or timer; None for a processing-time timer if no event time is known yet."""
        return _datetime_or_none(self._call.time)

    @property
    def watermark(self) -> datetime | None:
        """The watermark at this call; None before the partition's first record."""
        return _datetime_or_none(self._call.watermark)

    def emit(self, /, *rows: object, **values: Any) -> None:  # noqa: ANN401 - of the declared types
        """Write the row of the key, replacing its previous row. Each declared column takes a value or None.

        Raise TypeError if a column is missing or undeclared, or if a value has the wrong type.
        """
        if rows or values.keys() != self._columns:
            takes = ", ".join(name for name, _ in self._returns)
            given = ", ".join([*(f"{type(row).__name__} without a name" for row in rows), *values])
            msg = f"emit takes {takes}, but was given {given or 'nothing'}: write ctx.emit({self._returns[0][0]}=...)"
            raise TypeError(msg)
        row = tuple([None if values[name] is None else accept(values[name]) for name, accept in self._returns])
        memory = self._call.memory
        if self._call.trace is not None:
            self._call.rows.append(self._call.trace.emit(self._call.time, memory.key, row))
        before = memory.row
        self._call.changes.append(EmittedChange(self._call.early, memory.key, memory.revision, before, row))
        if before is not None:
            memory.revision += 1
        memory.row = row

    def timer(self, *, at: datetime, name: str = "") -> None:
        """Call `on_timer` when the watermark reaches the time `at`, or right after this call if it already has.

        A timer replaces the key's earlier timer with the same name. Raise ValueError if `on_timer` sets a timer that is
        not later than its own, because it would be called forever.
        """
        if not self._has_timers:
            msg = "no on_timer is defined: pass it to process(...)"
            raise ValueError(msg)
        watermark = self._call.watermark
        due = max(micros_of(self._accept_time(at)), watermark)
        if self._call.in_timer and due == watermark:
            msg = f"on_timer must set timers later than {self.watermark}, not at {at}: it would be called forever"
            raise ValueError(msg)
        self._call.memory.set_timer(_checked_name(name), KeyTimer("event", due))

    def processing_timer(self, *, after: str | timedelta, name: str = "") -> None:
        """Call `on_processing_timer` at the first tick that is at least `after` from now in processing time.

        A timer replaces the key's earlier timer with the same name.
        """
        if not self._has_processing_timers:
            msg = "no on_processing_timer is defined: pass it to process(...)"
            raise ValueError(msg)
        wait = after // timedelta(microseconds=1) if isinstance(after, timedelta) else m.parse_duration(after)
        if wait <= 0:
            msg = f"after must be longer than 0, not {after}"
            raise ValueError(msg)
        now = self._call.now
        alarm = KeyTimer("wait", wait) if now is None else KeyTimer("tick", min(now + wait, NEVER - 1))
        self._call.memory.set_timer(_checked_name(name), alarm)

    def cancel(self, name: str = "") -> None:
        """Cancel the key's timer with this name, if there is one."""
        self._call.memory.cancel(name)


def _checked_name(name: object) -> str:
    if isinstance(name, str):
        return name
    msg = f"a timer's name must be text, not {name!r}"
    raise TypeError(msg)


def _datetime_or_none(micros: int) -> datetime | None:
    return None if micros == MIN_TIME or micros < _YEAR_1 else time_of(micros)


Accept = Callable[[Any], Any]


class EmittedRow(NamedTuple):
    """A row of a stream: event time, position in the merged order, identity, key and values."""

    time: int
    place: tuple[int, int, int]
    id: str
    key: tuple[Any, ...]
    values: tuple[Any, ...]


@dataclass(slots=True)
class EmissionTrace:
    """Assigns a position and an identity to the rows that a key's calls emit: those of the record or timer of the call.

    A timer is due when the watermark reaches its time, after all records below that time, so no other call of the key
    can precede it. A timer whose time the watermark of its call had already reached belongs to that call. If the
    process function has a `name`, it reads rows emitted by other process functions, whose identities have the same
    form. Then all of its own rows carry a number and the name.
    """

    name: str = ""
    place: tuple[int, int, int] = (MIN_TIME, -1, -1)
    cause: str = ""
    number: int = 0

    def begin(self) -> None:
        """Start processing the calls of a key."""
        self.cause = ""

    def record(self, place: tuple[int, int, int], cause: str) -> None:
        """Start the call for a record, given its position and identity."""
        self.place, self.cause, self.number = place, cause, 0

    def timer(self, key: tuple[Any, ...], due: int, number: int) -> None:
        """Start the call for a timer; `number` is the number of rows emitted so far by timers with the same time."""
        timer = f"{'/'.join(map(_escaped, key))}@{time_of(due).isoformat()}"
        # a time cannot be mistaken for a name
        cause = f"{timer}@{self.name}" if self.name else timer
        if cause != self.cause:
            self.place, self.cause, self.number = (due - 1, LAST_PARTITION, MAX_TIME), cause, number

    def emit(self, time: int, key: tuple[Any, ...], values: tuple[Any, ...]) -> EmittedRow:
        """Return a row that the call emits."""
        # padded, so that the rows of a call sort as text
        name = f"{self.cause}#{self.number:04d}" if self.number or self.name else self.cause
        self.number += 1
        return EmittedRow(time, self.place, name, key, values)


def _escaped(value: object) -> str:
    """Return a key value as text in which slashes are escaped, because slashes separate values."""
    return str(value).replace("\\", "\\\\").replace("/", "\\/")


@dataclass(slots=True)
class CurrentCall:
    """The current call: the memory of its key, its event time and watermark, and whether its rows are early.

    Entries written at or before `horizon` have expired. All times are in microseconds. `trace` is set if other streams
    read the rows. `changes` and `rows` collect the output of all calls of the step, and `now` is the processing time of
    the step.
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


def _suggest_write(handles: Mapping[str, Handle]) -> str:
    """Return advice for code that tries to set an attribute."""
    ways = [f"ctx.state.{name}.{handle.WRITE}" for name, handle in handles.items()]
    if ways:
        return f"write {' or '.join(ways)}"
    return "declare a state, process(..., state={'NAME': wr.value_state('long')}), and write ctx.state.NAME.set(value)"


class StateHandles(SimpleNamespace):
    """The state handles of a process function, as attributes with the names of the states."""

    def __setattr__(self, name: str, value: object) -> None:
        """Raise AttributeError, because a state is written through its handle."""
        own = {name: vars(self)[name]} if name in vars(self) else vars(self)
        msg = (
            f"ctx.state.{name} = ... does not set a state: the value would be shared by all keys and lost;"
            f" {_suggest_write(own)}"
        )
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> None:
        """Raise AttributeError, because a state is cleared through its handle."""
        msg = f"del ctx.state.{name} does not clear the state; write ctx.state.{name}.clear()"
        raise AttributeError(msg)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never returns
        """Raise AttributeError, because no such state is declared."""
        msg = f"there is no state {name!r}; process(...) declares {', '.join(vars(self)) or 'none'}"
        raise AttributeError(msg)


_NO_VALUE: Final = "a value state must be read with get(): write ctx.state.NAME.get()"


class _Handle:
    """Gives the current call access to a declared state; `accept` checks values."""

    __slots__ = ("_accept", "_call", "_number")

    def __init__(self, call: CurrentCall, number: int, accept: Accept) -> None:
        self._call = call
        self._number = number
        self._accept = accept


class ValueHandle(_Handle):
    """A single value for each key."""

    __slots__ = ()
    WRITE: Final = "set(value)"

    def get(self, default: Any = None) -> Any:  # noqa: ANN401 - of the declared type
        """Return the value, or `default` if there is none."""
        entry = self._call.memory.slots[self._number]
        return default if entry is None or entry[1] <= self._call.horizon else entry[0]

    def set(self, value: Any) -> None:  # noqa: ANN401 - of the declared type
        """Replace the value; raise TypeError if it does not have the declared type."""
        self._call.memory.slots[self._number] = (self._accept(value), self._call.time)

    def clear(self) -> None:
        """Remove the value."""
        self._call.memory.slots[self._number] = None

    def _refuse(self, *_: object) -> NoReturn:
        """Raise TypeError, because code that uses the handle as if it were the value would give wrong results."""
        raise TypeError(_NO_VALUE)

    __bool__ = __eq__ = __format__ = _refuse
    __hash__ = None  # type: ignore[assignment] # nor is a state a key of a dict


class ListHandle(_Handle):
    """A list of values for each key, in the order in which they were appended."""

    __slots__ = ()
    WRITE: Final = "append(value)"

    def append(self, value: Any) -> None:  # noqa: ANN401 - of the declared type
        """Append a value; raise TypeError if it does not have the declared type."""
        self._call.memory.slots[self._number].append((self._accept(value), self._call.time))

    def get(self) -> list[Any]:
        """Return the values in the order in which they were appended."""
        horizon = self._call.horizon
        return [value for value, time in self._call.memory.slots[self._number] if time > horizon]

    def clear(self) -> None:
        """Remove all values."""
        self._call.memory.slots[self._number] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self.get())


class MapHandle(_Handle):
    """A map of values for each key, in the order in which the map keys were first set."""

    __slots__ = ("_accept_key",)
    WRITE: Final = "set(key, value)"

    def __init__(self, call: CurrentCall, number: int, accept_key: Accept, accept: Accept) -> None:
        super().__init__(call, number, accept)
        self._accept_key = accept_key

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401 - of the declared types
        """Return the value of a map key, or `default` if there is none."""
        entry = self._call.memory.slots[self._number].get(key)
        return default if entry is None or entry[1] <= self._call.horizon else entry[0]

    def set(self, key: Any, value: Any) -> None:  # noqa: ANN401 - of the declared types
        """Set the value of a map key; raise TypeError if the key or the value does not have the declared type."""
        entries, key = self._call.memory.slots[self._number], self._accept_key(key)
        entry = entries.get(key)
        if entry is not None and entry[1] <= self._call.horizon:
            # the entry has expired, whether or not a step has dropped it yet: the key is added again, at the end
            del entries[key]
        entries[key] = (self._accept(value), self._call.time)

    def delete(self, key: Any) -> None:  # noqa: ANN401 - of the declared type
        """Remove a map key and its value, if present."""
        self._call.memory.slots[self._number].pop(key, None)

    def items(self) -> list[tuple[Any, Any]]:
        """Return the map keys with their values."""
        horizon = self._call.horizon
        return [(key, value) for key, (value, time) in self._call.memory.slots[self._number].items() if time > horizon]

    def clear(self) -> None:
        """Remove all values."""
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
    """The fields of many records as Python values; each column is converted on first use."""

    def __init__(self, records: pa.Table) -> None:
        super().__init__()
        self._records = records
        own = [PARTITION, OFFSET, TIME, WATERMARK, *([ID] if ID in records.column_names else [])]
        self.table = records.drop_columns(own)

    def coordinates(self, row: int) -> tuple[int, int]:
        """Return the partition and offset of a record."""
        return self._records.column(PARTITION)[row].as_py(), self._records.column(OFFSET)[row].as_py()

    def __missing__(self, name: str) -> list[Any]:
        """Convert a column; raise KeyError if records have no such field."""
        if name not in self.table.column_names:
            msg = f"a record has no field {name!r}; it has {', '.join(self.table.column_names)}"
            raise KeyError(msg)
        values = self[name] = to_values(self.table.column(name))
        return values


class Record(Mapping[str, Any]):
    """The fields of a record by name, as str, bool, int, float, Decimal and datetime (UTC); null is None."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: RecordColumns, row: int) -> None:
        self._columns = columns
        self._row = row

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a field of any type
        """Return the value of a field; raise KeyError if there is no such field."""
        return self._columns[name][self._row]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the field names."""
        return iter(self._columns.table.column_names)

    def __len__(self) -> int:
        """Return the number of fields."""
        return self._columns.table.num_columns  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Record({dict(self)!r})"


_OPS = pa.array(["insert", "update_before", "update_after", "delete"])
_INSERT, _BEFORE, _AFTER, _DELETE = range(4)
_PANES = pa.array(["on_time", "early"])


class EmittedChange(NamedTuple):
    """A change of a key's row: the old row, with its revision, and the new row. Either can be None, for no row."""

    early: bool
    key: tuple[Any, ...]
    revision: int
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None


def change_rows(spec: ProcessSpec, changes: Sequence[EmittedChange]) -> pa.Table:
    """Convert changes to the schema of the pipeline's changelog, in order; their window is all time."""
    fields = schema.changes(emitted_rows(spec))
    if not changes:
        return fields.empty_table()
    had = np.array([change.before is not None for change in changes])
    has = np.array([change.after is not None for change in changes])
    revisions = np.array([change.revision for change in changes], dtype=np.int32)
    # a change has a row for before and a row for after; `index` is the position of each row's change in `changes`
    there = np.stack([had, has], axis=1)
    index = np.nonzero(there)[0]
    ops = np.stack([np.where(has, _BEFORE, _DELETE), np.where(had, _AFTER, _INSERT)], axis=1)[there]
    counted = np.stack([revisions, revisions + had], axis=1)[there]
    panes = np.array([change.early for change in changes], dtype=np.int8)[index]
    rows = [row for change in changes for row in (change.before, change.after) if row is not None]
    keys = [change.key for change in changes]
    columns = {
        "op": _OPS.take(pa.array(ops)),
        "pane": _PANES.take(pa.array(panes)),
        "revision": pa.array(counted, pa.int32()),
        "window_start": _constant_time(GLOBAL_START, len(rows)),
        "window_end": _constant_time(GLOBAL_END, len(rows)),
    }
    own_keys = pa.table(_columns(fields, spec.key, keys)).take(pa.array(index))
    columns |= {name: own_keys.column(name) for name in spec.key}
    columns |= _columns(fields, [field.name for field in spec.node.process.returns], rows)
    return pa.table(columns, schema=fields)


def stream_rows(spec: ProcessSpec, rows: Sequence[EmittedRow]) -> pa.Table:
    """Convert emitted rows to the records of a stream."""
    fields = schema.changes(emitted_rows(spec))
    columns = {
        PARTITION: pa.array([row.place[1] for row in rows], pa.int32()),
        OFFSET: pa.array([row.place[2] for row in rows], pa.int64()),
        TIME: pa.array([row.time for row in rows], pa.int64()),
        WATERMARK: pa.array([row.place[0] for row in rows], pa.int64()),
    }
    columns |= _columns(fields, spec.key, [row.key for row in rows])
    columns |= _columns(fields, [field.name for field in spec.node.process.returns], [row.values for row in rows])
    return pa.table(columns | {ID: pa.array([row.id for row in rows], pa.string())})


def _columns(fields: pa.Schema, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, pa.Array]:
    """Convert rows of Python values to columns with the types of the named fields."""
    return {name: pa.array([row[number] for row in rows], fields.field(name).type) for number, name in enumerate(names)}


def _constant_time(micros: int, length: int) -> pa.Array:
    return pa.array(np.full(length, micros, dtype=np.int64)).cast(schema.MICROS)
