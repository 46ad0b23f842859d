"""The changelog of one window and key, for windows that are known before their records."""

from __future__ import annotations

from dataclasses import dataclass, field

from windrow.model import Global, PaneSoFar, Pipeline
from windrow.testing.oracle.answer import Change
from windrow.testing.oracle.record import Record
from windrow.testing.oracle.totals import results
from windrow.testing.oracle.triggers import asked


@dataclass
class Pane:
    """The records of a window and key: those on time, and the late ones, both in (partition, offset) order."""

    start: int
    end: int
    on_time: list[Record] = field(default_factory=list)
    late: list[Record] = field(default_factory=list)


@dataclass
class _Writing:
    """What has been written so far; `total` are all records, `new` those since the last pane."""

    pipeline: Pipeline
    changes: list[Change] = field(default_factory=list)
    total: list[Record] = field(default_factory=list)
    new: list[Record] = field(default_factory=list)
    panes: int = 0

    def add(self, record: Record) -> None:
        self.total.append(record)
        self.new.append(record)

    def write(self, pane: str) -> None:
        """Write a pane in the pipeline's mode."""
        if self.pipeline.emit.mode == "discard":
            if self.new:
                self.changes.append(Change("insert", pane, self.panes, results(self.pipeline, self.new)))
                self.panes += 1
        else:
            values = results(self.pipeline, self.total)
            if self.panes and self.pipeline.emit.mode == "retract":
                self.changes.append(Change("update_before", pane, self.panes - 1, self.changes[-1].values))
            self.changes.append(Change("update_after" if self.panes else "insert", pane, self.panes, values))
            self.panes += 1
        self.new = []


def changelog(pipeline: Pipeline, pane: Pane, *, fired: bool) -> list[Change]:
    """Return early panes, then, if the window has fired, the on-time pane and a revision for each late record."""
    writing = _Writing(pipeline)
    early = None if pipeline.emit.early is None else asked(pipeline.emit.early)
    for record in pane.on_time:
        writing.add(record)
        if early is not None and early.says(
            PaneSoFar(pane.start, pane.end, len(writing.total), len(writing.new), writing.panes, record.time)
        ):
            writing.write("early")
            early.begin_anew()
    if not fired:
        return writing.changes
    if writing.total and (writing.new or not isinstance(pipeline.window, Global)):
        writing.write("on_time")
    for record in pane.late:
        writing.add(record)
        writing.write("late")
    return writing.changes
