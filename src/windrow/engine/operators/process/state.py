"""The state of a key: its declared states, timers and last row, and their JSON encoding."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, assert_never

from windrow import model as m
from windrow.engine.columns import MIN_TIME
from windrow.engine.schema import arrow_type, record_schema
from windrow.engine.state.keyed import NEVER
from windrow.engine.value_codec import ValueCodec, value_codec
from windrow.expressions import ProcessSpec

_MOST_STALE: Final = 16
"""The number of stale entries, of moved or cancelled timers, above which the heap is rebuilt."""
# created once, as `json.dumps` and `json.loads` would create them for each key
_write_json = json.JSONEncoder(separators=(",", ":")).encode
_read_json = json.JSONDecoder().decode


@dataclass(eq=False)
class KeyTimer:
    """A timer that is due at `due` in event time ("event") or processing time ("tick").

    A timer of the kind "wait" is due `due` microseconds after the first tick.
    """

    kind: Literal["event", "tick", "wait"]
    due: int


class KeyState:
    """A key's values, declared states, timers and last row. Times are in microseconds.

    `slots` are in the order of the declared states: an entry (value, event time of the write) or None, a list of
    entries, or a dict of entries. `due` is the next event time with work to do, the lesser of `alarm` (the next timer)
    and `expiry` (the end of the time to live). `reached` is the greatest watermark of a call so far. Since timers run
    ahead at an end of the input, `ended` maps the times of timers to the number of rows that they emitted, until the
    low watermark reaches the time.
    """

    __slots__ = ("_heap", "alarm", "due", "ended", "expiry", "key", "reached", "revision", "row", "slots", "timers")

    def __init__(self, key: tuple[Any, ...], slots: list[Any]) -> None:
        self.key = key
        self.slots = slots
        self.timers: dict[str, KeyTimer] = {}
        self.ended: dict[int, int] = {}
        self.row: tuple[Any, ...] | None = None
        self.revision = 0
        self.expiry = NEVER
        self.reached = MIN_TIME
        self.alarm = NEVER
        self.due = NEVER
        # event-time timers by (due, name); moved and cancelled timers stay until they reach the front
        self._heap: list[tuple[int, str]] = []

    def set_timers(self, timers: dict[str, KeyTimer]) -> None:
        """Replace all timers of the key."""
        self.timers = timers
        self._build_heap()
        self._find_alarm()

    def set_timer(self, name: str, alarm: KeyTimer) -> None:
        """Set a timer, replacing the timer with the same name."""
        self.timers[name] = alarm
        if alarm.kind == "event":
            heapq.heappush(self._heap, (alarm.due, name))
        if len(self._heap) > _MOST_STALE + 2 * len(self.timers):
            self._build_heap()
        self._find_alarm()

    def next_timer(self) -> tuple[str, KeyTimer]:
        """Return the event-time timer that is due at `alarm`; among several, the first by name."""
        name = self._heap[0][1]
        return name, self.timers[name]

    def cancel(self, name: str) -> None:
        """Cancel a timer, if it is set."""
        if self.timers.pop(name, None) is not None:
            self._find_alarm()

    def extend_life(self, expiry: int) -> None:
        """Keep the key at least until the given event time."""
        if expiry > self.expiry or self.expiry == NEVER:
            self.expiry = expiry
            self.due = min(self.alarm, expiry)

    def forget(self) -> None:
        """Forget the row and the declared states, but keep the timers."""
        self.row = None
        self.revision = 0
        self.expiry = NEVER
        self.due = self.alarm
        self.slots = [None if slot is None or isinstance(slot, tuple) else type(slot)() for slot in self.slots]

    @property
    def tick(self) -> int:
        """The processing time at which the next processing-time timer is due."""
        timers = (timer for timer in self.timers.values() if timer.kind != "event")
        return min((MIN_TIME if timer.kind == "wait" else timer.due for timer in timers), default=NEVER)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store.

        A time to live starts with the last call, so the key is kept even if that call stored nothing.
        """
        is_known = self.expiry != NEVER or self.row is not None or self.ended
        return not (is_known or self.timers or any(self.slots))

    def _build_heap(self) -> None:
        self._heap = [(alarm.due, name) for name, alarm in self.timers.items() if alarm.kind == "event"]
        heapq.heapify(self._heap)

    def _find_alarm(self) -> None:
        heap, timers = self._heap, self.timers
        while heap:
            due, name = heap[0]
            alarm = timers.get(name)
            if alarm is not None and alarm.kind == "event" and alarm.due == due:
                break
            heapq.heappop(heap)
        self.alarm = heap[0][0] if heap else NEVER
        self.due = min(self.alarm, self.expiry)


class KeyStateCodec:
    """Creates, encodes and decodes the state of each key of a pipeline."""

    def __init__(self, spec: ProcessSpec) -> None:
        process = spec.node.process
        fields = record_schema(spec)
        self._key = [value_codec(fields.field(name).type, name) for name in spec.key]
        self._row = [value_codec(arrow_type(field.type), field.name) for field in process.returns]
        self._slots = [state_codec(state) for state in process.state]
        self._ttl = process.ttl

    def new(self, key: tuple[Any, ...]) -> KeyState:
        """Return the state of a new key."""
        return KeyState(key, [slot.empty() for slot in self._slots])

    def prune(self, memory: KeyState, low: int) -> None:
        """Drop entries that no call can see any more, and row counts of timers that the low watermark has reached."""
        memory.ended = {due: rows for due, rows in memory.ended.items() if due > low}
        if self._ttl is not None:
            horizon = memory.reached - self._ttl
            memory.slots = [slot.prune(held, horizon) for slot, held in zip(self._slots, memory.slots, strict=True)]

    def encode(self, memory: KeyState) -> bytes:
        """Encode the state of a key as JSON."""
        row = memory.row
        return _write_json(
            [
                [codec.written(value) for codec, value in zip(self._key, memory.key, strict=True)],
                memory.expiry,
                memory.reached,
                memory.revision,
                None if row is None else [codec.written(value) for codec, value in zip(self._row, row, strict=True)],
                [[name, alarm.kind, alarm.due] for name, alarm in memory.timers.items()],
                *(slot.encode(held) for slot, held in zip(self._slots, memory.slots, strict=True)),
                *([list(memory.ended.items())] if memory.ended else []),
            ]
        ).encode()

    def decode(self, blob: bytes) -> KeyState:
        """Decode the JSON that `encode` returned."""
        key, expiry, reached, revision, row, timers, *rest = _read_json(blob.decode())
        slots, ended = rest[: len(self._slots)], rest[len(self._slots) :]
        memory = KeyState(
            tuple(codec.kept(value) for codec, value in zip(self._key, key, strict=True)),
            [slot.decode(held) for slot, held in zip(self._slots, slots, strict=True)],
        )
        memory.expiry, memory.reached, memory.revision = expiry, reached, revision
        memory.ended = dict(*ended)
        if row is not None:
            memory.row = tuple(codec.kept(value) for codec, value in zip(self._row, row, strict=True))
        memory.set_timers({name: KeyTimer(kind, due) for name, kind, due in timers})
        return memory


def state_codec(state: m.KeyedState) -> StateCodec:
    """Return the codec of a declared state."""
    value = value_codec(arrow_type(state.type), state.name)
    match state:
        case m.ValueState():
            return ValueStateCodec(value)
        case m.ListState():
            return ListStateCodec(value)
        case m.MapState():
            return MapStateCodec(value_codec(arrow_type(state.key), f"a key of {state.name}"), value)
        case _:
            assert_never(state)


@dataclass(frozen=True)
class ValueStateCodec:
    """Converts a value state between Python and JSON; the state is None or an entry (value, time).

    In all codecs, an empty state is falsy, and `prune` drops the entries written at or before a horizon in
    microseconds.
    """

    value: ValueCodec

    def empty(self) -> None:
        """Return None, the empty state."""

    def prune(self, held: tuple[Any, int] | None, horizon: int) -> tuple[Any, int] | None:
        """Return the entry if it was written after the horizon, else None."""
        return None if held is None or held[1] <= horizon else held

    def encode(self, held: tuple[Any, int] | None) -> Any:  # noqa: ANN401 - plain JSON
        """Return [value, time], or None."""
        return None if held is None else [self.value.written(held[0]), held[1]]

    def decode(self, plain: Any) -> tuple[Any, int] | None:  # noqa: ANN401 - plain JSON
        """Decode the JSON that `encode` returned."""
        return None if plain is None else (self.value.kept(plain[0]), plain[1])


@dataclass(frozen=True)
class ListStateCodec:
    """Converts a list state between Python and JSON; the state is a list of entries (value, time)."""

    value: ValueCodec

    def empty(self) -> list[tuple[Any, int]]:
        """Return an empty list."""
        return []

    def prune(self, held: list[tuple[Any, int]], horizon: int) -> list[tuple[Any, int]]:
        """Return the entries that were written after the horizon."""
        return [entry for entry in held if entry[1] > horizon]

    def encode(self, held: list[tuple[Any, int]]) -> Any:  # noqa: ANN401 - plain JSON
        """Return [[value, time], ...]."""
        return held if self.value.write is None else [(self.value.write(value), time) for value, time in held]

    def decode(self, plain: Any) -> list[tuple[Any, int]]:  # noqa: ANN401 - plain JSON
        """Decode the JSON that `encode` returned."""
        return [(self.value.kept(value), time) for value, time in plain]


@dataclass(frozen=True)
class MapStateCodec:
    """Converts a map state between Python and JSON; the state is a dict of entries (value, time)."""

    key: ValueCodec
    value: ValueCodec

    def empty(self) -> dict[Any, tuple[Any, int]]:
        """Return an empty dict."""
        return {}

    def prune(self, held: dict[Any, tuple[Any, int]], horizon: int) -> dict[Any, tuple[Any, int]]:
        """Return the entries that were written after the horizon."""
        return {key: entry for key, entry in held.items() if entry[1] > horizon}

    def encode(self, held: dict[Any, tuple[Any, int]]) -> Any:  # noqa: ANN401 - plain JSON
        """Return [[key, value, time], ...]."""
        return [(self.key.written(key), self.value.written(value), time) for key, (value, time) in held.items()]

    def decode(self, plain: Any) -> dict[Any, tuple[Any, int]]:  # noqa: ANN401 - plain JSON
        """Decode the JSON that `encode` returned."""
        return {self.key.kept(key): (self.value.kept(value), time) for key, value, time in plain}


StateCodec: TypeAlias = ValueStateCodec | ListStateCodec | MapStateCodec
