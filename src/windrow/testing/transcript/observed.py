"""What a host gave, as plain Python values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from windrow.core.changelog import StepOutput
from windrow.model import Pipeline
from windrow.testing.oracle import Answer, Change, Missed
from windrow.testing.transcript.folded import Entry, fold
from windrow.testing.transcript.story import ChangeRow, DeadRow, LateRow

PUTS = frozenset({"insert", "update_after"})
"""The changes that put a row into the table; the others take one out."""


@dataclass(frozen=True)
class Observed:
    """What one step gave, or several: rows in the order in which they came."""

    changes: tuple[Entry, ...]
    late: tuple[LateRow, ...]
    missed: tuple[Missed, ...]
    dead: tuple[DeadRow, ...]


def observe(pipeline: Pipeline, outputs: Iterable[StepOutput]) -> Observed:
    """Read the outputs of some steps."""
    steps = list(outputs)
    missed = tuple(_missed(row) for step in steps for row in _rows(step.late))
    return Observed(
        changes=tuple(_entry(pipeline, row) for step in steps for row in _rows(step.changes)),
        late=tuple(LateRow(m.partition, m.offset, (m.window_start, m.window_end)) for m in missed),
        missed=missed,
        dead=tuple(DeadRow(r["partition"], r["offset"], r["reason"]) for step in steps for r in _rows(step.dead)),
    )


def answer(pipeline: Pipeline, observed: Observed) -> Answer:
    """Return what was observed in the oracle's form."""
    changelog: dict[Any, list[Change]] = {}
    for entry in observed.changes:
        row = entry.row
        changelog.setdefault(entry.window_key, []).append(Change(row.op, row.pane, entry.revision, row.values))
    table: dict[Any, Any] = {
        name: (*entry.row.values, entry.row.pane, entry.revision)
        for name, entry in fold(observed.changes, pipeline.emit.mode).rows.items()
    }
    on_time: dict[Any, Any] = {entry.window_key: entry.row.values for entry in on_time_panes(observed)}
    dead = {(row.partition, row.offset): row.reason.partition(":")[0] for row in observed.dead}
    return Answer(table, on_time, set(observed.missed), dead, changelog)


def on_time_panes(observed: Observed) -> list[Entry]:
    """Return the on-time panes, as they were written first."""
    return [entry for entry in observed.changes if entry.row.pane == "on_time" and entry.row.op in PUTS]


def repeated(observed: Observed) -> list[str]:
    """Return what was told twice and must be told once: on-time panes, expired records, dead letters."""
    panes = Counter(str(entry.window_key) for entry in on_time_panes(observed))
    missed = Counter(str(tuple(row)) for row in observed.missed)
    dead = Counter(str((row.partition, row.offset)) for row in observed.dead)
    return [
        f"{what} {row} came {times} times"
        for what, rows in (("on-time pane", panes), ("expired record", missed), ("dead letter", dead))
        for row, times in rows.items()
        if times > 1
    ]


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return a table's rows, times as microseconds."""
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(number, column.name, table.column(number).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _entry(pipeline: Pipeline, row: dict[str, Any]) -> Entry:
    return Entry(
        ChangeRow(
            op=row["op"],
            pane=row["pane"],
            window=(row["window_start"], row["window_end"]),
            key=tuple(row[name] for name in pipeline.key),
            values=tuple(row[aggregate.name] for aggregate in pipeline.aggregates),
        ),
        row["revision"],
    )


def _missed(row: dict[str, Any]) -> Missed:
    return Missed(row["partition"], row["offset"], row["window_start"], row["window_end"], row["lateness_ms"])
