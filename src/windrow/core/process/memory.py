"""What is kept of one key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from windrow.core.micros import BEFORE_ALL
from windrow.core.process.codec import codec
from windrow.core.process.slots import slot_of
from windrow.core.records import record_schema
from windrow.core.schema import arrow_type
from windrow.model import ProcessPipeline

NEVER: Final = 2**63 - 1
"""Later than everything."""

# made once: `json.dumps` and `json.loads` would make them for each key
_write = json.JSONEncoder(separators=(",", ":")).encode
_read = json.JSONDecoder().decode


@dataclass(eq=False)
class Alarm:
    """A timer that is set: of event time, of processing time, or so long after a first tick that has not come yet."""

    kind: Literal["event", "tick", "wait"]
    due: int


class Memory:
    """A key's values, state, timers and last row; times are microseconds.

    `slots` are in the order of the declared states: an entry (value, event time of its writing) or None, a list of
    entries, or a dict of them. `due` is when something is to happen by event time, the least of `alarm` (the timers)
    and `expiry` (when all is forgotten). `reached` is the greatest watermark of a call.
    """

    __slots__ = ("alarm", "due", "expiry", "key", "reached", "revision", "row", "slots", "timers")

    def __init__(self, key: tuple[Any, ...], slots: list[Any]) -> None:
        self.key = key
        self.slots = slots
        self.timers: dict[str, Alarm] = {}
        self.row: tuple[Any, ...] | None = None
        self.revision = 0
        self.expiry = NEVER
        self.reached = BEFORE_ALL
        self.alarm = NEVER
        self.due = NEVER

    def set_timers(self, timers: dict[str, Alarm]) -> None:
        """Set all timers."""
        self.timers = timers
        self._look()

    def set_timer(self, name: str, alarm: Alarm) -> None:
        """Set a timer, in the place of one of that name."""
        self.timers[name] = alarm
        self._look()

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
                BEFORE_ALL if alarm.kind == "wait" else alarm.due
                for alarm in self.timers.values()
                if alarm.kind != "event"
            ),
            default=NEVER,
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep."""
        return self.row is None and not self.timers and not any(self.slots)

    def _look(self) -> None:
        self.alarm = min((alarm.due for alarm in self.timers.values() if alarm.kind == "event"), default=NEVER)
        self.due = min(self.alarm, self.expiry)


class Memories:
    """Makes, writes and reads the memories of a pipeline's keys."""

    def __init__(self, pipeline: ProcessPipeline) -> None:
        process = pipeline.process
        fields = record_schema(pipeline)
        self._key = [codec(fields.field(name).type, name) for name in pipeline.key]
        self._row = [codec(arrow_type(field.type), field.name) for field in process.returns]
        self._slots = [slot_of(state) for state in process.state]
        self._ttl = process.ttl

    def new(self, key: tuple[Any, ...]) -> Memory:
        """Return the memory of a key that has none."""
        return Memory(key, [slot.empty() for slot in self._slots])

    def prune(self, memory: Memory) -> None:
        """Drop the entries that no call will see."""
        if self._ttl is not None:
            horizon = memory.reached - self._ttl
            memory.slots = [slot.pruned(held, horizon) for slot, held in zip(self._slots, memory.slots, strict=True)]

    def encode(self, memory: Memory) -> bytes:
        """Write as JSON."""
        row = memory.row
        return _write(
            [
                [one.written(value) for one, value in zip(self._key, memory.key, strict=True)],
                memory.expiry,
                memory.reached,
                memory.revision,
                None if row is None else [one.written(value) for one, value in zip(self._row, row, strict=True)],
                [[name, alarm.kind, alarm.due] for name, alarm in memory.timers.items()],
                *(slot.written(held) for slot, held in zip(self._slots, memory.slots, strict=True)),
            ]
        ).encode()

    def decode(self, blob: bytes) -> Memory:
        """Read what `encode` wrote."""
        key, expiry, reached, revision, row, timers, *slots = _read(blob.decode())
        memory = Memory(
            tuple(one.kept(value) for one, value in zip(self._key, key, strict=True)),
            [slot.kept(held) for slot, held in zip(self._slots, slots, strict=True)],
        )
        memory.expiry, memory.reached, memory.revision = expiry, reached, revision
        if row is not None:
            memory.row = tuple(one.kept(value) for one, value in zip(self._row, row, strict=True))
        memory.set_timers({name: Alarm(kind, due) for name, kind, due in timers})
        return memory
