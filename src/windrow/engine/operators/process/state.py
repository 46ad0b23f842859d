"""State of a key: its declared state, timers and last row, and how they are written as JSON."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, assert_never

from windrow import model as m
from windrow.engine.columns import MIN_TIME
from windrow.engine.schema import arrow_type, record_schema
from windrow.engine.state.keyed import NEVER
from windrow.engine.value_codec import ValueCodec, value_codec
from windrow.expressions import ProcessSpec

_MOST_STALE: Final = 16
"""So many timers that were moved or cancelled are never worth a new heap."""
# made once: `json.dumps` and `json.loads` would make them for each key
_write_json = json.JSONEncoder(separators=(",", ":")).encode
_read_json = json.JSONDecoder().decode


@dataclass(eq=False)
class KeyTimer:
    """A timer that is set: of event time, of processing time, or so long after a first tick that has not come yet."""

    kind: Literal["event", "tick", "wait"]
    due: int


class KeyState:
    """A key's values, state, timers and last row; times are microseconds.

    `slots` are in the order of the declared states: an entry (value, event time of its writing) or None, a list of
    entries, or a dict of them. `due` is when something is to happen by event time, the least of `alarm` (the timers)
    and `expiry` (when all is forgotten). `reached` is the greatest watermark of a call. `ended` has the number of rows
    that timers emitted, by their time, until the low watermark reaches that: at an end of the input they are ahead.
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
        # the timers of event time by (due, name); those that were moved or cancelled stay until they are the first
        self._heap: list[tuple[int, str]] = []

    def set_timers(self, timers: dict[str, KeyTimer]) -> None:
        """Set all timers."""
        self.timers = timers
        self._sort()
        self._look()

    def set_timer(self, name: str, alarm: KeyTimer) -> None:
        """Set a timer, in the place of one of that name."""
        self.timers[name] = alarm
        if alarm.kind == "event":
            heapq.heappush(self._heap, (alarm.due, name))
        if len(self._heap) > _MOST_STALE + 2 * len(self.timers):
            self._sort()
        self._look()

    def next_timer(self) -> tuple[str, KeyTimer]:
        """Return the timer of event time that is due first, at `alarm`: of several the first by name."""
        name = self._heap[0][1]
        return name, self.timers[name]

    def cancel(self, name: str) -> None:
        """Forget a timer, if it is set."""
        if self.timers.pop(name, None) is not None:
            self._look()

    def lives_until(self, expiry: int) -> None:
        """Keep the key at least until then."""
        if expiry > self.expiry or self.expiry == NEVER:
            self.expiry = expiry
            self.due = min(self.alarm, expiry)

    def forget(self) -> None:
        """Forget all but the timers."""
        self.row = None
        self.revision = 0
        self.expiry = NEVER
        self.due = self.alarm
        self.slots = [None if slot is None or isinstance(slot, tuple) else type(slot)() for slot in self.slots]

    @property
    def tick(self) -> int:
        """When the next timer of processing time is due."""
        return min(
            (
                MIN_TIME if alarm.kind == "wait" else alarm.due
                for alarm in self.timers.values()
                if alarm.kind != "event"
            ),
            default=NEVER,
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep; a time to live runs from the last call, even if that left nothing."""
        is_known = self.expiry != NEVER or self.row is not None or self.ended
        return not (is_known or self.timers or any(self.slots))

    def _sort(self) -> None:
        self._heap = [(alarm.due, name) for name, alarm in self.timers.items() if alarm.kind == "event"]
        heapq.heapify(self._heap)

    def _look(self) -> None:
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
    """Creates, encodes and decodes the state of a pipeline's keys."""

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
        """Drop the entries that no call will see, and the times of timers that the low watermark has reached."""
        memory.ended = {due: rows for due, rows in memory.ended.items() if due > low}
        if self._ttl is not None:
            horizon = memory.reached - self._ttl
            memory.slots = [slot.pruned(held, horizon) for slot, held in zip(self._slots, memory.slots, strict=True)]

    def encode(self, memory: KeyState) -> bytes:
        """Write as JSON."""
        row = memory.row
        return _write_json(
            [
                [one.written(value) for one, value in zip(self._key, memory.key, strict=True)],
                memory.expiry,
                memory.reached,
                memory.revision,
                None if row is None else [one.written(value) for one, value in zip(self._row, row, strict=True)],
                [[name, alarm.kind, alarm.due] for name, alarm in memory.timers.items()],
                *(slot.written(held) for slot, held in zip(self._slots, memory.slots, strict=True)),
                *([list(memory.ended.items())] if memory.ended else []),
            ]
        ).encode()

    def decode(self, blob: bytes) -> KeyState:
        """Read what `encode` wrote."""
        key, expiry, reached, revision, row, timers, *rest = _read_json(blob.decode())
        slots, ended = rest[: len(self._slots)], rest[len(self._slots) :]
        memory = KeyState(
            tuple(one.kept(value) for one, value in zip(self._key, key, strict=True)),
            [slot.kept(held) for slot, held in zip(self._slots, slots, strict=True)],
        )
        memory.expiry, memory.reached, memory.revision = expiry, reached, revision
        memory.ended = dict(*ended)
        if row is not None:
            memory.row = tuple(one.kept(value) for one, value in zip(self._row, row, strict=True))
        memory.set_timers({name: KeyTimer(kind, due) for name, kind, due in timers})
        return memory


class StateCodec(Protocol):
    """Conversion of one declared state between Python and JSON; an empty state is falsy."""

    def empty(self) -> Any:  # noqa: ANN401 - its own
        """Return what holds no entries."""
        ...

    def pruned(self, held: Any, horizon: int) -> Any:  # noqa: ANN401 - its own
        """Return the entries that were written after `horizon` (microseconds)."""
        ...

    def written(self, held: Any) -> Any:  # noqa: ANN401 - its own, and plain JSON
        """Return the entries as JSON holds them."""
        ...

    def kept(self, plain: Any) -> Any:  # noqa: ANN401 - the same
        """Return the entries from what `written` returned."""
        ...


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
    """None, or one entry: (value, time)."""

    value: ValueCodec

    def empty(self) -> None:
        """Return None."""

    def pruned(self, held: tuple[Any, int] | None, horizon: int) -> tuple[Any, int] | None:
        """Return the entry if it was written after that."""
        return None if held is None or held[1] <= horizon else held

    def written(self, held: tuple[Any, int] | None) -> Any:  # noqa: ANN401 - plain JSON
        """Return [value, time], or None."""
        return None if held is None else [self.value.written(held[0]), held[1]]

    def kept(self, plain: Any) -> tuple[Any, int] | None:  # noqa: ANN401 - plain JSON
        """Read what `written` returned."""
        return None if plain is None else (self.value.kept(plain[0]), plain[1])


@dataclass(frozen=True)
class ListStateCodec:
    """A list of (value, time)."""

    value: ValueCodec

    def empty(self) -> list[tuple[Any, int]]:
        """Return an empty list."""
        return []

    def pruned(self, held: list[tuple[Any, int]], horizon: int) -> list[tuple[Any, int]]:
        """Return the entries that were written after that."""
        return [entry for entry in held if entry[1] > horizon]

    def written(self, held: list[tuple[Any, int]]) -> Any:  # noqa: ANN401 - plain JSON
        """Return [[value, time], ...]."""
        return held if self.value.write is None else [(self.value.write(value), time) for value, time in held]

    def kept(self, plain: Any) -> list[tuple[Any, int]]:  # noqa: ANN401 - plain JSON
        """Read what `written` returned."""
        return [(self.value.kept(value), time) for value, time in plain]


@dataclass(frozen=True)
class MapStateCodec:
    """A dict of (value, time)."""

    key: ValueCodec
    value: ValueCodec

    def empty(self) -> dict[Any, tuple[Any, int]]:
        """Return an empty dict."""
        return {}

    def pruned(self, held: dict[Any, tuple[Any, int]], horizon: int) -> dict[Any, tuple[Any, int]]:
        """Return the entries that were written after that."""
        return {key: entry for key, entry in held.items() if entry[1] > horizon}

    def written(self, held: dict[Any, tuple[Any, int]]) -> Any:  # noqa: ANN401 - plain JSON
        """Return [[key, value, time], ...]."""
        return [(self.key.written(key), self.value.written(value), time) for key, (value, time) in held.items()]

    def kept(self, plain: Any) -> dict[Any, tuple[Any, int]]:  # noqa: ANN401 - plain JSON
        """Read what `written` returned."""
        return {self.key.kept(key): (self.value.kept(value), time) for key, value, time in plain}
