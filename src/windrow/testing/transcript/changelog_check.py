"""Applies a changelog to an empty table. Every change must fit the rows left by the changes before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, assert_never

from windrow import model as m
from windrow.testing.transcript.story import ChangeRow, Tabled, TableRow

ChangelogMode = m.Mode | Literal["alerts"]

WindowKey = tuple[object, ...]
"""The window's start and end, followed by the key's fields."""


@dataclass(frozen=True)
class Entry:
    """An entry of the changelog, with its revision."""

    row: ChangeRow
    revision: int

    @property
    def window_key(self) -> WindowKey:
        """The window's start and end, then the key's fields."""
        return (*self.row.window, *self.row.key)


@dataclass
class Folded:
    """The last change of each row, and the changes that did not fit.

    A change fits if it inserts a new row (with revision 0), retracts an existing row without altering it, or replaces a
    row with its next revision. In mode retract the row must just have been retracted; in mode accumulate it must not.
    In mode discard each pane is a row, identified by its revision, which counts up from 0. Alerts follow mode retract,
    but each change of an alert is a new revision, even if the alert is retracted and inserted again. If formulas can
    fail, failing revisions are missing: an insert may have any revision, and the numbers of panes may have gaps.
    """

    rows: dict[WindowKey, Entry] = field(default_factory=dict)
    misfits: list[Entry] = field(default_factory=list)


def mode_of(pipeline: Tabled) -> ChangelogMode:
    """Return the mode in which a pipeline's changelog builds its table."""
    return "alerts" if isinstance(pipeline.node, m.RulesNode) else pipeline.node.emit.mode


def fold_changelog(pipeline: Tabled, changes: Iterable[Entry]) -> Folded:
    """Apply a pipeline's changelog to an empty table."""
    aggregates = () if isinstance(pipeline.node, m.RulesNode) else pipeline.node.aggregates
    return apply_changelog(
        changes, mode_of(pipeline), gaps=any(isinstance(aggregate.function, m.Formula) for aggregate in aggregates)
    )


def apply_changelog(changes: Iterable[Entry], mode: ChangelogMode, *, gaps: bool = False) -> Folded:
    """Apply a changelog to an empty table. With `gaps`, revisions may be missing."""
    match mode:
        case "retract" | "alerts":
            return _apply_retracting(changes, counts_on=mode == "alerts", gaps=gaps)
        case "accumulate":
            return _apply_accumulating(changes, gaps=gaps)
        case "discard":
            return _apply_discarding(changes, gaps=gaps)
        case _:
            assert_never(mode)


def table_rows(folded: Folded) -> tuple[TableRow, ...]:
    """Return the rows of the table, ordered by window and key."""
    entries = sorted(folded.rows.values(), key=lambda entry: (entry.window_key, entry.revision))
    return tuple(TableRow(entry.row.window, entry.row.key, entry.row.values) for entry in entries)


def _apply_retracting(changes: Iterable[Entry], *, counts_on: bool, gaps: bool) -> Folded:
    folded = Folded()
    deleted: dict[WindowKey, int] = {}
    retracted: dict[WindowKey, Entry] = {}
    for change in changes:
        name = change.window_key
        there, before = folded.rows.pop(name, None), retracted.pop(name, None)
        match change.row.op:
            case "insert":
                fits = there is None and before is None and (gaps or change.revision == deleted.get(name, -1) + 1)
                folded.rows[name] = change
            case "update_after":
                fits = there is None and before is not None and change.revision == before.revision + 1
                folded.rows[name] = change
            case "delete" if counts_on:
                fits = there is not None and _same(there, change, revisions=1)
                deleted[name] = change.revision
            case op:
                fits = there is not None and _same(there, change)
                if op == "update_before":
                    retracted[name] = change
        if not fits:
            folded.misfits.append(change)
    folded.misfits.extend(retracted.values())
    return folded


def _apply_accumulating(changes: Iterable[Entry], *, gaps: bool) -> Folded:
    folded = Folded()
    for change in changes:
        there = folded.rows.pop(change.window_key, None)
        match change.row.op:
            case "insert":
                fits = there is None and (gaps or change.revision == 0)
            case "update_after":
                fits = there is not None and change.revision == there.revision + 1
            case "delete":
                fits = there is not None and _same(there, change)
            case _:
                fits = False
        if change.row.op != "delete":
            folded.rows[change.window_key] = change
        if not fits:
            folded.misfits.append(change)
    return folded


def _apply_discarding(changes: Iterable[Entry], *, gaps: bool) -> Folded:
    folded = Folded()
    panes: dict[WindowKey, int] = {}
    for change in changes:
        number = panes.get(change.window_key, 0)
        panes[change.window_key] = change.revision + 1
        if change.row.op != "insert" or change.revision < number or (change.revision > number and not gaps):
            folded.misfits.append(change)
        folded.rows[*change.window_key, change.revision] = change
    return folded


def _same(there: Entry, change: Entry, revisions: int = 0) -> bool:
    return (there.row.values, there.revision + revisions) == (change.row.values, change.revision)
