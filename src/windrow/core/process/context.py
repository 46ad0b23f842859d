"""What a user's function is given beside the record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from windrow.core.micros import BEFORE_ALL
from windrow.core.process.changes import Change
from windrow.core.process.codec import codec, micros_of, time_of
from windrow.core.process.handles import Call, StateHandles, handles
from windrow.core.process.memory import NEVER, Alarm
from windrow.core.schema import MICROS, arrow_type
from windrow.model import ProcessPipeline, parse_duration

_YEAR_1: Final = -62_135_596_800_000_000


class CallContext:
    """The key's state, times and timers, and the way out for rows.

    One object serves all calls: what is to be kept belongs in `state`.
    """

    def __init__(self, pipeline: ProcessPipeline, call: Call) -> None:
        process = pipeline.process
        self._call = call
        self._names = pipeline.key
        self._returns = [(field.name, codec(arrow_type(field.type), field.name).accept) for field in process.returns]
        self._has_timers = process.on_timer is not None
        self._has_processing_timers = process.on_processing_timer is not None
        self._accept_time = codec(MICROS, "at").accept
        self.in_timer = False
        self.changes: list[Change] = []
        self._columns = {name for name, _ in self._returns}
        self.now: int | None = None
        self.state: StateHandles = handles(call, process.state)

    @property
    def key(self) -> Mapping[str, Any]:
        """The key's fields by name."""
        return MappingProxyType(dict(zip(self._names, self._call.memory.key, strict=True)))

    @property
    def event_time(self) -> datetime | None:
        """The event time of the record or the timer; None for a processing-time timer before any event time."""
        return _time(self._call.time)

    @property
    def watermark(self) -> datetime | None:
        """How far event time is complete at this call; None before the partition's first record."""
        return _time(self._call.watermark)

    def emit(self, /, **values: Any) -> None:  # noqa: ANN401 - of the declared types
        """Write the key's row, in the place of the one that was there: a value, or None, for each declared column.

        Raise TypeError if a column is missing or is not declared, or if a value is not of its type.
        """
        if values.keys() != self._columns:
            takes = ", ".join(name for name, _ in self._returns)
            msg = f"emit takes {takes}, and was given {', '.join(values) or 'nothing'}"
            raise TypeError(msg)
        row = tuple([None if values[name] is None else accept(values[name]) for name, accept in self._returns])
        memory = self._call.memory
        before = memory.row
        self.changes.append(Change(self._call.early, memory.key, memory.revision, before, row))
        if before is not None:
            memory.revision += 1
        memory.row = row

    def timer(self, *, at: datetime, name: str = "") -> None:
        """Call `on_timer` when the watermark reaches a time; one that it has reached is due right away.

        A timer replaces the key's other timer of that name. Raise ValueError if `on_timer` sets one that is not later
        than itself, which would go on for ever.
        """
        if not self._has_timers:
            msg = "there is no on_timer to call: give it to process(...)"
            raise ValueError(msg)
        watermark = self._call.watermark
        due = max(micros_of(self._accept_time(at)), watermark)
        if self.in_timer and due == watermark:
            msg = f"on_timer must set timers later than {self.watermark}, not at {at}: it would be called for ever"
            raise ValueError(msg)
        self._call.memory.set_timer(_name(name), Alarm("event", due))

    def processing_timer(self, *, after: str | timedelta, name: str = "") -> None:
        """Call `on_processing_timer` so long after now by processing time, at the first tick then.

        A timer replaces the key's other timer of that name.
        """
        if not self._has_processing_timers:
            msg = "there is no on_processing_timer to call: give it to process(...)"
            raise ValueError(msg)
        wait = after // timedelta(microseconds=1) if isinstance(after, timedelta) else parse_duration(after)
        if wait <= 0:
            msg = f"after must be longer than nothing, not {after}"
            raise ValueError(msg)
        alarm = Alarm("wait", wait) if self.now is None else Alarm("tick", min(self.now + wait, NEVER - 1))
        self._call.memory.set_timer(_name(name), alarm)

    def cancel(self, name: str = "") -> None:
        """Forget the key's timer of that name, if it is set."""
        self._call.memory.cancel(name)


def _name(name: object) -> str:
    if isinstance(name, str):
        return name
    msg = f"a timer's name is text, not {name!r}"
    raise TypeError(msg)


def _time(micros: int) -> datetime | None:
    return None if micros == BEFORE_ALL or micros < _YEAR_1 else time_of(micros)
