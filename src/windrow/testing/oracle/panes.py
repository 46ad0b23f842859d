"""The changelog of one window and key, for all windows except sessions, and the triggers of early panes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from windrow import model as m
from windrow.testing.oracle.answer import Change, JudgedRecord, WindowedSource
from windrow.testing.oracle.totals import results


@dataclass
class Pane:
    """The on-time and the late records of a window and key, both ordered by partition and offset."""

    start: int
    end: int
    on_time: list[JudgedRecord] = field(default_factory=list)
    late: list[JudgedRecord] = field(default_factory=list)


@dataclass
class _Writing:
    """The panes written so far. `total` are all records, `new` those since the last pane."""

    pipeline: WindowedSource
    changes: list[Change] = field(default_factory=list)
    total: list[JudgedRecord] = field(default_factory=list)
    new: list[JudgedRecord] = field(default_factory=list)
    panes: int = 0

    def add(self, record: JudgedRecord) -> None:
        self.total.append(record)
        self.new.append(record)

    def write(self, pane: str) -> None:
        """Write a pane in the pipeline's mode."""
        if self.pipeline.node.emit.mode == "discard":
            if self.new:
                self.changes.append(Change("insert", pane, self.panes, results(self.pipeline, self.new)))
                self.panes += 1
        else:
            values = results(self.pipeline, self.total)
            if self.panes and self.pipeline.node.emit.mode == "retract":
                self.changes.append(Change("update_before", pane, self.panes - 1, self.changes[-1].values))
            self.changes.append(Change("update_after" if self.panes else "insert", pane, self.panes, values))
            self.panes += 1
        self.new = []


def changelog(pipeline: WindowedSource, pane: Pane, *, fired: bool, reached: float) -> list[Change]:
    """Return the early panes and, if the window has fired, the on-time pane and a revision for each late record.

    The low watermark is `reached`.
    """
    writing = _Writing(pipeline)
    trigger = pipeline.node.emit.early
    if isinstance(trigger, m.EveryEventTime):
        _write_by_event_time(writing, pane, trigger.micros, reached)
        trigger = None
    early = None if trigger is None else trigger_state(trigger)
    for record in pane.on_time:
        if record in writing.total:
            continue
        writing.add(record)
        if early is not None and early.fires(
            m.PaneSoFar(pane.start, pane.end, len(writing.total), len(writing.new), writing.panes, record.time)
        ):
            writing.write("early")
            early.reset()
    if not fired:
        return writing.changes
    if writing.total and (writing.new or not isinstance(pipeline.node.window, m.Global)):
        writing.write("on_time")
    late = pipeline.node.emit.late
    for number, record in enumerate(pane.late, start=1):
        writing.add(record)
        # the log does not say which records share a step: as if each had a step of its own
        if not isinstance(late, m.Records) or number % late.number == 0:
            writing.write("late")
    if (
        isinstance(late, m.Records)
        and len(pane.late) % late.number
        and reached >= pane.end + pipeline.node.emit.lateness
    ):
        writing.write("late")
    return writing.changes


def _write_by_event_time(writing: _Writing, pane: Pane, period: int, reached: float) -> None:
    """Write an early pane for each period of event time since the window's start that has a new record."""

    def shown_at(record: JudgedRecord) -> int:
        since = max(0, int(max(record.watermark, pane.start)) - pane.start)
        return pane.start + since - since % period + period

    for at in sorted(set(map(shown_at, pane.on_time))):
        if at < pane.end and at <= reached:
            writing.new = [record for record in pane.on_time if shown_at(record) == at]
            writing.total = [record for record in pane.on_time if record.watermark < at]
            writing.write("early")


class TriggerState:
    """The state of a trigger for one window and key.

    This class is used for processing-time triggers. They never fire, because the log has no processing time.
    """

    def fires(self, pane: m.PaneSoFar) -> bool:
        """Return True if the trigger fires for the window after one more record."""
        del pane
        return False

    def reset(self) -> None:
        """Restart after a pane."""


def trigger_state(trigger: m.Trigger) -> TriggerState:
    """Return the initial state of a trigger."""
    match trigger:
        case m.Every():
            return TriggerState()
        case m.EveryEventTime():
            msg = "it cannot be a part of other triggers"
            raise TypeError(msg)
        case m.Records(number):
            return _Records(number)
        case m.When():
            return _When(trigger)
        case m.AnyOf(triggers):
            return _Several(triggers, all_of_them=False)
        case m.AllOf(triggers):
            return _Several(triggers, all_of_them=True)
        case m.Repeat(inner, times):
            return _Repeat(inner, times)
        case _:
            assert_never(trigger)


class _Records(TriggerState):
    def __init__(self, number: int) -> None:
        self._number = number

    def fires(self, pane: m.PaneSoFar) -> bool:
        return pane.since % self._number == 0


class _When(TriggerState):
    def __init__(self, when: m.When) -> None:
        self._when = when

    def fires(self, pane: m.PaneSoFar) -> bool:
        return bool(self._when.predicate(pane))


class _Several(TriggerState):
    """Evaluates every part for every record. A part that has fired counts until the next pane."""

    def __init__(self, triggers: tuple[m.Trigger, ...], *, all_of_them: bool) -> None:
        self._parts = [trigger_state(trigger) for trigger in triggers]
        self._fired = [False] * len(triggers)
        self._enough = all if all_of_them else any

    def fires(self, pane: m.PaneSoFar) -> bool:
        now = [part.fires(pane) for part in self._parts]
        self._fired = [before or fires for before, fires in zip(self._fired, now, strict=True)]
        return self._enough(self._fired)

    def reset(self) -> None:
        self._fired = [False] * len(self._parts)
        for part in self._parts:
            part.reset()


class _Repeat(TriggerState):
    """Counts a pane if the inner trigger has fired since the last pane."""

    def __init__(self, trigger: m.Trigger, times: int) -> None:
        self._trigger = trigger_state(trigger)
        self._left = times
        self._fired = False

    def fires(self, pane: m.PaneSoFar) -> bool:
        fires = self._trigger.fires(pane) and self._left > 0
        self._fired = self._fired or fires
        return fires

    def reset(self) -> None:
        if self._fired:
            self._left -= 1
        self._fired = False
        self._trigger.reset()
