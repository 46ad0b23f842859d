"""The calls of a user's functions for one key after another, in the order that the definition gives."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from windrow.core.code_name import code_name
from windrow.core.micros import BEFORE_ALL
from windrow.core.process.changes import Change
from windrow.core.process.codec import time_of
from windrow.core.process.context import CallContext
from windrow.core.process.handles import Call
from windrow.core.process.memory import NEVER, Alarm, Memory
from windrow.core.process.record import Columns, Record
from windrow.errors import RunError
from windrow.model import ProcessPipeline, Timer

_Called = Callable[[CallContext, Any], object]
"""A function of the user's as it may be: what it returns is looked at."""


class Calls:
    """Calls the functions of a pipeline, and gathers what they emit.

    A key's watermark goes on with its calls: a timer's call has the timer's time as event time and as watermark, so it
    is the same whether the timer is found due at the end of a step or before the key's next record.
    """

    def __init__(self, pipeline: ProcessPipeline) -> None:
        process = pipeline.process
        self._pipeline = pipeline
        self._function = process.function
        self._on_timer = process.on_timer
        self._on_processing_timer = process.on_processing_timer
        self._ttl = process.ttl
        self._call = Call()
        self._context = CallContext(pipeline, self._call)

    def begin(self, now: int | None) -> None:
        """Begin a step; `now` is the last processing time that is known."""
        self._context.changes = []
        self._context.now = now

    @property
    def changes(self) -> list[Change]:
        """What was emitted since `begin`."""
        return self._context.changes

    def records(self, memory: Memory, columns: Columns, rows: range, times: list[int], watermarks: list[int]) -> None:
        """Give a key its records, each after the timers that its watermark has reached."""
        call, context, function, ttl = self._call, self._context, self._function, self._ttl
        call.memory = memory
        row = -1
        try:
            for row in rows:
                watermark = watermarks[row]
                if memory.due <= watermark:
                    self.sweep(memory, watermark)
                call.time = time = times[row]
                call.watermark = watermark
                if ttl is not None:
                    memory.reached = max(memory.reached, watermark)
                    call.horizon = memory.reached - ttl
                    returned = function(context, Record(columns, row))
                    memory.lives_until(time + ttl)
                else:
                    returned = function(context, Record(columns, row))
                if returned is not None:
                    _refuse(returned)
        except RunError:
            raise  # a timer's
        except Exception as exc:
            raise self._failure(function, exc, memory, self._place(columns, row)) from exc

    def sweep(self, memory: Memory, bound: int) -> None:
        """Let all happen to a key that is due up to a watermark: timers, and the end of its life, in order of time."""
        while memory.due <= bound:
            if memory.expiry < memory.alarm:
                self._expire(memory)
            else:
                name, alarm = min(
                    ((name, alarm) for name, alarm in memory.timers.items() if alarm.kind == "event"),
                    key=lambda pair: (pair[1].due, pair[0]),
                )
                self._fire(memory, name, alarm)

    def end(self, memory: Memory) -> None:
        """Fire each timer of event time that is set now once, in order of time."""
        alarms = [(alarm.due, name, alarm) for name, alarm in memory.timers.items() if alarm.kind == "event"]
        for due, name, alarm in sorted(alarms, key=lambda each: each[:2]):
            if memory.timers.get(name) is alarm:
                if memory.expiry < due:
                    self._expire(memory)
                self._fire(memory, name, alarm)

    def tick(self, memory: Memory, now: int, low: int) -> None:
        """Fire the timers of processing time that are due."""
        for name, alarm in list(memory.timers.items()):
            if alarm.kind == "wait":
                memory.set_timer(name, Alarm("tick", now + alarm.due))
        due = [(alarm.due, name, alarm) for name, alarm in memory.timers.items() if alarm.kind == "tick"]
        for at, name, alarm in sorted(due, key=lambda each: each[:2]):
            if at <= now and memory.timers.get(name) is alarm and self._on_processing_timer is not None:
                memory.cancel(name)
                self._call.early = True
                try:
                    self._timed(memory, self._on_processing_timer, Timer(name, time_of(at)), self._known(memory, low))
                finally:
                    self._call.early = False

    def _known(self, memory: Memory, low: int) -> int:
        """Return the event time of a call that no record's or timer's event time explains."""
        time = max(low, memory.reached)
        if time == BEFORE_ALL and memory.expiry != NEVER and self._ttl is not None:
            return memory.expiry - self._ttl
        return time

    def _fire(self, memory: Memory, name: str, alarm: Alarm) -> None:
        memory.cancel(name)
        if self._on_timer is None:  # it was set when there was one
            return
        self._context.in_timer = True
        try:
            self._timed(memory, self._on_timer, Timer(name, time_of(alarm.due)), alarm.due)
        finally:
            self._context.in_timer = False

    def _timed(self, memory: Memory, function: _Called, timer: Timer, time: int) -> None:
        call, ttl = self._call, self._ttl
        call.memory, call.time, call.watermark = memory, time, time
        if ttl is not None:
            memory.reached = max(memory.reached, time)
            call.horizon = memory.reached - ttl
        try:
            returned = function(self._context, timer)
            if returned is not None:
                _refuse(returned)
        except Exception as exc:
            where = f"in the timer {timer.name!r} of {timer.at.isoformat()}"
            raise self._failure(function, exc, memory, where) from exc
        if ttl is not None and time != BEFORE_ALL:
            memory.lives_until(time + ttl)

    def _expire(self, memory: Memory) -> None:
        """Forget a key whose time to live is over, and take its row out of the table."""
        if memory.row is not None:
            self.changes.append(
                Change(early=False, key=memory.key, revision=memory.revision, before=memory.row, after=None)
            )
        memory.forget()

    def _place(self, columns: Columns, row: int) -> str:
        partition, offset = columns.coordinates(row)
        return f"at partition {partition}, offset {offset} of {self._pipeline.source.label}"

    def _failure(self, function: _Called, exc: Exception, memory: Memory, where: str) -> RunError:
        key = ", ".join(f"{name}={value!r}" for name, value in zip(self._pipeline.key, memory.key, strict=True))
        # the last line of the user's own: below it there is only ours
        frames = [
            frame for frame in traceback.extract_tb(exc.__traceback__) if "windrow/core/process/" not in frame.filename
        ]
        line = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        said = " ".join(str(exc).split())
        return RunError(
            f"the function {code_name(function)} failed {where}, key {key}: {type(exc).__name__}: {said}{line}; "
            "what was committed stays; mend it and start again"
        )


def _refuse(returned: object) -> None:
    """Raise TypeError for what a function returned: to drop it in silence would drop a row that was meant."""
    msg = f"it returned a value ({type(returned).__name__}), and must return nothing: a row is written by ctx.emit(...)"
    raise TypeError(msg)
