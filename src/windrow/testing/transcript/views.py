"""What must be the same in every cut of a log, as texts that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from windrow.model import AllOf, AnyOf, Every, Pipeline, Repeat, Trigger
from windrow.testing.transcript.folded import Entry, fold
from windrow.testing.transcript.observed import Observed, on_time_panes
from windrow.testing.transcript.story import DeadRow, LateRow, Story, TableRow
from windrow.testing.transcript.text import change_text, dead_text, late_text, table_text

R = TypeVar("R", LateRow, DeadRow)
View = Callable[[Pipeline, Observed], list[str]]


def views(story: Story) -> list[tuple[str, View]]:
    """Return what to compare, by name.

    With several partitions, ``late: batch``, or early panes by processing time the changelog is no promise, and what
    late records make of single panes in mode discard is none either.
    """
    emit = story.pipeline.emit
    one_order = len(story.log) == 1 and emit.late == "each" and not looks_at_ticks(emit.early)
    found: list[tuple[str, View]] = [("on-time panes", _on_time), ("late", _late), ("dead", _dead)]
    if one_order or emit.mode != "discard":
        found.append(("final", _final))
    if one_order:
        found.append(("changelog", _changelog))
    return found


def looks_at_ticks(early: Trigger | None) -> bool:
    """Whether early panes depend on processing time."""
    match early:
        case Every():
            return True
        case AnyOf(triggers) | AllOf(triggers):
            return any(map(looks_at_ticks, triggers))
        case Repeat(trigger):
            return looks_at_ticks(trigger)
        case _:
            return False


def by_log(rows: Iterable[R]) -> list[R]:
    """Return rows in (partition, offset) order."""
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def _on_time(pipeline: Pipeline, observed: Observed) -> list[str]:
    """Return windows, keys and values: whether a pane replaces an early one is another matter."""
    rows = [entry.row for entry in _in_order(on_time_panes(observed))]
    return [table_text(pipeline, TableRow(row.window, row.key, row.values)) for row in rows]


def _late(pipeline: Pipeline, observed: Observed) -> list[str]:
    return [late_text(pipeline, row) for row in by_log(observed.late)]


def _dead(_: Pipeline, observed: Observed) -> list[str]:
    return [dead_text(row) for row in by_log(observed.dead)]


def _final(pipeline: Pipeline, observed: Observed) -> list[str]:
    """Return the table, without early panes where they depend on processing time."""
    early_too = not looks_at_ticks(pipeline.emit.early)
    entries = _in_order(fold(observed.changes, pipeline.emit.mode).rows.values())
    rows = [entry.row for entry in entries if early_too or entry.row.pane != "early"]
    return [table_text(pipeline, TableRow(row.window, row.key, row.values)) for row in rows]


def _changelog(pipeline: Pipeline, observed: Observed) -> list[str]:
    return [f"{change_text(pipeline, entry.row)}  # revision {entry.revision}" for entry in _in_order(observed.changes)]


def _in_order(changes: Iterable[Entry]) -> list[Entry]:
    return sorted(changes, key=lambda entry: entry.window_key)
