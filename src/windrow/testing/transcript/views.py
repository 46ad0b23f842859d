"""The output of a host as plain Python values, and views of it that must be the same for every cut of a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from windrow import model as m
from windrow.engine.changelog import StepOutput
from windrow.model.triggers import has_every
from windrow.testing.oracle import Missed
from windrow.testing.transcript.changelog_check import Entry, fold_changelog
from windrow.testing.transcript.rows import change_text, dead_text, late_text, table_text
from windrow.testing.transcript.story import ChangeRow, DeadRow, LateRow, Story, Tabled, TableRow
from windrow.testing.transcript.values import ALERT

PUTS = frozenset({"insert", "update_after"})
"""The operations that put a row into the table; the others remove a row."""


@dataclass(frozen=True)
class Observed:
    """The output of some steps, with rows in the order in which they were emitted.

    `is_of_tables` says whether they are made of the rows of tables, which have no event time, and so no on-time panes.
    """

    changes: tuple[Entry, ...]
    late: tuple[LateRow, ...]
    missed: tuple[Missed, ...]
    dead: tuple[DeadRow, ...]
    is_of_tables: bool = False


def observe(
    pipeline: Tabled, outputs: Iterable[StepOutput], *, has_sources: bool = False, is_of_tables: bool = False
) -> Observed:
    """Convert the outputs of some steps. With several sources, partitions are written as ``SOURCE/NUMBER``."""
    steps = list(outputs)
    late = [row for step in steps for row in _rows(step.late)]

    def partition(row: dict[str, Any]) -> int | str:
        return f"{row['source']}/{row['partition']}" if has_sources else int(row["partition"])

    def dead_row(row: dict[str, Any]) -> DeadRow:
        return DeadRow(None if row["partition"] is None else partition(row), row["offset"], row["reason"])

    return Observed(
        changes=tuple(_entry(pipeline, row) for step in steps for row in _rows(step.changes)),
        late=tuple(LateRow(partition(row), row["offset"], _window(row)) for row in late),
        missed=tuple(map(_missed, late)),
        dead=tuple(dead_row(row) for step in steps for row in _rows(step.dead)),
        is_of_tables=is_of_tables,
    )


def _window(row: dict[str, Any]) -> tuple[int, int] | None:
    """Return the window that a record missed, or None if it is the one-microsecond window of an alert."""
    start, end = row["window_start"], row["window_end"]
    return None if end - start == 1 else (start, end)


def on_time_panes(observed: Observed) -> list[Entry]:
    """Return the on-time panes as they were first written."""
    if observed.is_of_tables:
        return []
    return [entry for entry in observed.changes if entry.row.pane == "on_time" and entry.row.op in PUTS]


def repeated(observed: Observed) -> list[str]:
    """Return messages about duplicate on-time panes, expired records and dead letters."""
    panes = Counter(str(entry.window_key) for entry in on_time_panes(observed))
    missed = Counter(str((row.partition, row.offset, row.window)) for row in observed.late)
    # dead letters without a place are of rows, which can fail in each revision
    dead = Counter(str((row.partition, row.offset)) for row in observed.dead if row.partition is not None)
    return [
        f"{what} {row} came {times} times"
        for what, rows in (("on-time pane", panes), ("expired record", missed), ("dead letter", dead))
        for row, times in rows.items()
        if times > 1
    ]


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table, with times as microseconds."""
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(number, column.name, table.column(number).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _entry(pipeline: Tabled, row: dict[str, Any]) -> Entry:
    if isinstance(pipeline.node, m.RulesNode):
        key = tuple(row[name] for name in (*pipeline.key, *ALERT))
        at = row["event_time"]
        return Entry(ChangeRow(row["op"], row["pane"], (at, at + 1), key, (row["text"],)), row["revision"])
    return Entry(
        ChangeRow(
            op=row["op"],
            pane=row["pane"],
            window=(row["window_start"], row["window_end"]),
            key=tuple(row[name] for name in pipeline.key),
            values=tuple(row[aggregate.name] for aggregate in pipeline.node.aggregates),
        ),
        row["revision"],
    )


def _missed(row: dict[str, Any]) -> Missed:
    return Missed(row["partition"], row["offset"], row["window_start"], row["window_end"], row["lateness_ms"])


R = TypeVar("R", LateRow, DeadRow)
View = Callable[[Tabled, Observed], list[str]]


def views(story: Story, pipeline: Tabled) -> list[tuple[str, View]]:
    """Return the views of a stream to compare, as (name, view) pairs.

    With several partitions, ``late: batch``, or early panes by processing time, the changelog may depend on the cut. So
    may dead letters of its rows, single panes of late records in mode discard, and the late records in a revision by
    count. Such views are left out.
    """
    found: list[tuple[str, View]] = [("on-time panes", _on_time), ("late", _late)]
    if isinstance(pipeline.node, m.RulesNode):
        return [*found, ("dead", _dead), ("final", _final), ("changelog", _changelog)]
    emit = pipeline.node.emit
    one_order = len(story.log) == 1 and emit.late != "batch" and not has_every(emit.early)
    found.append(("dead", _dead if one_order else _dead_records))
    if one_order or (emit.mode != "discard" and not isinstance(emit.late, m.Records)):
        found.append(("final", _final))
    if one_order:
        found.append(("changelog", _changelog))
    return found


def by_log(rows: Iterable[R]) -> list[R]:
    """Return rows ordered by partition and offset. Rows without these come last, ordered by their text."""
    return sorted(rows, key=lambda row: (row.offset is None, str(row.partition), row.offset or 0, str(row)))


def _on_time(pipeline: Tabled, observed: Observed) -> list[str]:
    """Return windows, keys and values, regardless of whether a pane replaces an early one."""
    rows = [entry.row for entry in _in_order(on_time_panes(observed))]
    return [table_text(pipeline, TableRow(row.window, row.key, row.values)) for row in rows]


def _late(pipeline: Tabled, observed: Observed) -> list[str]:
    return [late_text(pipeline, row) for row in by_log(observed.late)]


def _dead(_: Tabled, observed: Observed) -> list[str]:
    return [dead_text(row) for row in by_log(observed.dead)]


def _dead_records(_: Tabled, observed: Observed) -> list[str]:
    return [dead_text(row) for row in by_log(observed.dead) if row.partition is not None]


def _final(pipeline: Tabled, observed: Observed) -> list[str]:
    """Return the table, without early panes if they depend on processing time."""
    early_too = isinstance(pipeline.node, m.RulesNode) or not has_every(pipeline.node.emit.early)
    entries = _in_order(fold_changelog(pipeline, observed.changes).rows.values())
    rows = [entry.row for entry in entries if early_too or entry.row.pane != "early"]
    return [table_text(pipeline, TableRow(row.window, row.key, row.values)) for row in rows]


def _changelog(pipeline: Tabled, observed: Observed) -> list[str]:
    return [f"{change_text(pipeline, entry.row)}  # revision {entry.revision}" for entry in _in_order(observed.changes)]


def _in_order(changes: Iterable[Entry]) -> list[Entry]:
    return sorted(changes, key=lambda entry: entry.window_key)
