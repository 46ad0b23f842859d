"""The changelog of one window and key, for windows that are known before their records, and triggers of early panes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, assert_never

from windrow import model as m
from windrow.testing.oracle.answer import Change, JudgedRecord, WindowedSource
from windrow.testing.oracle.totals import results


@dataclass
class Pane:
    """The records of a window and key: those on time, and the late ones, both in (partition, offset) order."""

    start: int
    end: int
    on_time: list[JudgedRecord] = field(default_factory=list)
    late: list[JudgedRecord] = field(default_factory=list)


@dataclass
class _Writing:
    """The panes written so far; `total` are all records, `new` those since the last pane."""

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
    """Return early panes, then, if the window has fired, the on-time pane and a revision for each late record.

    `reached` is how far the low watermark has come.
    """
    writing = _Writing(pipeline)
    trigger = pipeline.node.emit.early
    if isinstance(trigger, m.EveryEventTime):
        _write_by_event_time(writing, pane, trigger.micros, reached)
        trigger = None
    early = None if trigger is None else asked(trigger)
    for record in pane.on_time:
        if record in writing.total:
            continue
        writing.add(record)
        if early is not None and early.says(
            m.PaneSoFar(pane.start, pane.end, len(writing.total), len(writing.new), writing.panes, record.time)
        ):
            writing.write("early")
            early.begin_anew()
    if not fired:
        return writing.changes
    if writing.total and (writing.new or not isinstance(pipeline.node.window, m.Global)):
        writing.write("on_time")
    late = pipeline.node.emit.late
    for number, record in enumerate(pane.late, start=1):
        writing.add(record)
        # how many come in a step is not in the log: as if each were in one of its own
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
    """Write a pane for each period of the watermark since the start, if there is a record that the last had not."""

    def shown_at(record: JudgedRecord) -> int:
        since = max(0, int(max(record.watermark, pane.start)) - pane.start)
        return pane.start + since - since % period + period

    for at in sorted(set(map(shown_at, pane.on_time))):
        if at < pane.end and at <= reached:
            writing.new = [record for record in pane.on_time if shown_at(record) == at]
            writing.total = [record for record in pane.on_time if record.watermark < at]
            writing.write("early")


class Asked(Protocol):
    """A trigger of one window and key."""

    def says(self, pane: m.PaneSoFar) -> bool:
        """Look at the window as it is after one more record."""
        ...

    def begin_anew(self) -> None:
        """A pane was made."""
        ...


def asked(trigger: m.Trigger) -> Asked:
    """Return a trigger at its beginning."""
    match trigger:
        case m.Every():
            return _Never()
        case m.EveryEventTime():
            msg = "it has no part in other triggers"
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


class _Never:
    """Processing time, which is not in the log."""

    def says(self, pane: m.PaneSoFar) -> bool:
        del pane
        return False

    def begin_anew(self) -> None:
        pass


class _Records:
    def __init__(self, number: int) -> None:
        self._number = number

    def says(self, pane: m.PaneSoFar) -> bool:
        return pane.since % self._number == 0

    def begin_anew(self) -> None:
        pass


class _When:
    def __init__(self, when: m.When) -> None:
        self._when = when

    def says(self, pane: m.PaneSoFar) -> bool:
        return bool(self._when.predicate(pane))

    def begin_anew(self) -> None:
        pass


class _Several:
    """Every part is asked at every record, and remembered to have said so until the next pane."""

    def __init__(self, triggers: tuple[m.Trigger, ...], *, all_of_them: bool) -> None:
        self._parts = [asked(trigger) for trigger in triggers]
        self._said = [False] * len(triggers)
        self._enough = all if all_of_them else any

    def says(self, pane: m.PaneSoFar) -> bool:
        now = [part.says(pane) for part in self._parts]
        self._said = [before or says for before, says in zip(self._said, now, strict=True)]
        return self._enough(self._said)

    def begin_anew(self) -> None:
        self._said = [False] * len(self._parts)
        for part in self._parts:
            part.begin_anew()


class _Repeat:
    """A pane counts if the trigger has said so since the pane before it."""

    def __init__(self, trigger: m.Trigger, times: int) -> None:
        self._trigger = asked(trigger)
        self._left = times
        self._said = False

    def says(self, pane: m.PaneSoFar) -> bool:
        says = self._trigger.says(pane) and self._left > 0
        self._said = self._said or says
        return says

    def begin_anew(self) -> None:
        if self._said:
            self._left -= 1
        self._said = False
        self._trigger.begin_anew()
