"""Triggers of early panes, either as rules that SQL evaluates or as state that Python evaluates for each record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, assert_never

import numpy as np

from windrow import model as m
from windrow.engine.user_code import qualified_name, raise_user_code_error


@dataclass(frozen=True)
class SqlTrigger:
    """A stateless rule: fire every `records`, or `micros` after the first unseen record, at most `times` times."""

    records: int | None
    micros: int | None
    times: int | None


def sql_trigger(trigger: m.Trigger) -> SqlTrigger | None:
    """Return a trigger as a rule that SQL can evaluate, or None if it needs Python."""
    found: SqlTrigger | None = None
    match trigger:
        case m.Records(number):
            found = SqlTrigger(number, None, None)
        case m.Every(micros):
            found = SqlTrigger(None, micros, None)
        case m.Repeat(inner, times):
            part = sql_trigger(inner)
            if part is not None:
                found = replace(part, times=min(times, part.times or times))
        case m.AnyOf(triggers):
            parts = [part for part in map(sql_trigger, triggers) if part is not None and part.times is None]
            if len(parts) == len(triggers):
                records = [part.records for part in parts if part.records is not None]
                spans = [part.micros for part in parts if part.micros is not None]
                found = SqlTrigger(min(records, default=None), min(spans, default=None), None)
        case m.AllOf() | m.When() | m.EveryEventTime():
            pass
        case _:
            assert_never(trigger)
    return found


def trigger_periods(trigger: m.Trigger) -> Iterator[int]:
    """Yield the processing-time periods of a trigger, in microseconds."""
    match trigger:
        case m.Every(micros):
            yield micros
        case m.AnyOf(triggers) | m.AllOf(triggers):
            for part in triggers:
                yield from trigger_periods(part)
        case m.Repeat(inner):
            yield from trigger_periods(inner)
        case m.EveryEventTime() | m.Records() | m.When():
            return
        case _:
            assert_never(trigger)


RecordPlace = Callable[[], str]
"""Returns the coordinates and key of a record as text."""


TriggerState: TypeAlias = "_SimpleTrigger | _CombinedTrigger | _RepeatTrigger"
"""The trigger of one window and key; its `memory` is plain JSON.

`at_record` returns True if the trigger fires after another record of the window; it calls `place` only for an error
message. `at_tick` returns True if it fires `waited` microseconds after the first unseen record. `reset` prepares it for
the next pane.
"""


def start_trigger(trigger: m.Trigger) -> TriggerState:
    """Return the initial state of a trigger."""
    match trigger:
        case m.Every() | m.Records() | m.When():
            return _SimpleTrigger(trigger)
        case m.AnyOf(triggers):
            return _CombinedTrigger(triggers, needed=1)
        case m.AllOf(triggers):
            return _CombinedTrigger(triggers, needed=len(triggers))
        case m.Repeat(inner, times):
            return _RepeatTrigger(inner, times)
        case m.EveryEventTime():
            msg = "early panes by event time have no trigger state"
            raise TypeError(msg)
        case _:
            assert_never(trigger)


class _SimpleTrigger:
    """A stateless trigger."""

    def __init__(self, trigger: m.Every | m.Records | m.When) -> None:
        self._trigger = trigger
        self.memory: Any = None

    def at_record(self, pane: m.PaneSoFar, place: RecordPlace) -> bool:
        match self._trigger:
            case m.Records(number):
                return pane.since % number == 0
            case m.When(predicate):
                return _evaluate_predicate(predicate, pane, place)
            case m.Every():
                return False
            case _:
                assert_never(self._trigger)

    def at_tick(self, waited: int) -> bool:
        return isinstance(self._trigger, m.Every) and waited >= self._trigger.micros

    def reset(self) -> None:
        pass


def _evaluate_predicate(predicate: Callable[[m.PaneSoFar], object], pane: m.PaneSoFar, place: RecordPlace) -> bool:
    try:
        fires = predicate(pane)
        if not isinstance(fires, bool | np.bool_):
            msg = f"it returned {type(fires).__name__}, but must return True or False: convert it with bool(...)"
            raise TypeError(msg)  # noqa: TRY301 - reported with the place, as an error of its own
    except BaseException as exc:  # noqa: BLE001 - the same
        raise_user_code_error(exc, f"the trigger {qualified_name(predicate)} failed {place()}, {pane}")
    return bool(fires)


class _CombinedTrigger:
    """Evaluates all of its parts each time, and remembers which have fired since the last pane."""

    def __init__(self, triggers: tuple[m.Trigger, ...], needed: int) -> None:
        self._parts = [start_trigger(trigger) for trigger in triggers]
        self._fired = [False] * len(triggers)
        self._needed = needed

    @property
    def memory(self) -> Any:  # noqa: ANN401 - plain JSON
        return [self._fired, [part.memory for part in self._parts]]

    @memory.setter
    def memory(self, memory: Any) -> None:  # noqa: ANN401 - the same
        self._fired, parts = memory
        for part, part_memory in zip(self._parts, parts, strict=True):
            part.memory = part_memory

    def at_record(self, pane: m.PaneSoFar, place: RecordPlace) -> bool:
        return self._combine([part.at_record(pane, place) for part in self._parts])

    def at_tick(self, waited: int) -> bool:
        return self._combine([part.at_tick(waited) for part in self._parts])

    def reset(self) -> None:
        self._fired = [False] * len(self._parts)
        for part in self._parts:
            part.reset()

    def _combine(self, fire: list[bool]) -> bool:
        self._fired = [before or now for before, now in zip(self._fired, fire, strict=True)]
        return sum(self._fired) >= self._needed


class _RepeatTrigger:
    """Fires at most `times` times. A pane counts only if the inner trigger has fired since the previous pane."""

    def __init__(self, trigger: m.Trigger, times: int) -> None:
        self._trigger = start_trigger(trigger)
        self._left = times
        self._fired = False

    @property
    def memory(self) -> Any:  # noqa: ANN401 - plain JSON
        return [self._left, self._fired, self._trigger.memory]

    @memory.setter
    def memory(self, memory: Any) -> None:  # noqa: ANN401 - the same
        self._left, self._fired, self._trigger.memory = memory

    def at_record(self, pane: m.PaneSoFar, place: RecordPlace) -> bool:
        return self._limit(fires=self._trigger.at_record(pane, place))

    def at_tick(self, waited: int) -> bool:
        return self._limit(fires=self._trigger.at_tick(waited))

    def reset(self) -> None:
        self._left -= self._fired
        self._fired = False
        self._trigger.reset()

    def _limit(self, *, fires: bool) -> bool:
        fires = fires and self._left > 0
        self._fired = self._fired or fires
        return fires
