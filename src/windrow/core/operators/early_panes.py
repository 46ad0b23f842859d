"""Panes of windows that are written before the watermark too."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duck, schema
from windrow.core.aggregates import Results
from windrow.core.micros import BEFORE_ALL, to_micros
from windrow.core.operators.early_statements import (
    CHUNK,
    EARLY,
    MEMORY,
    ROW,
    SINCE,
    early_statements,
)
from windrow.core.operators.following import follow
from windrow.core.operators.late_chunks import LateChunks
from windrow.core.operators.pane_store import load_panes, store_panes, windows_in, within
from windrow.core.operators.panes import PaneStep, with_ends
from windrow.core.operators.triggers import periods, plain
from windrow.core.operators.window_summary import WindowSummary
from windrow.core.records import REVISION, WINDOW
from windrow.core.state import State
from windrow.core.windows import window_ends
from windrow.model import Pipeline, Session, Trigger


class EarlyPanes:
    """Early panes, the on-time pane, and the revisions of late records."""

    def __init__(
        self, pipeline: Pipeline, trigger: Trigger, connection: duckdb.DuckDBPyConnection, no_records: pa.Table
    ) -> None:
        if isinstance(pipeline.window, Session):
            msg = "sessions have an operator of their own"
            raise TypeError(msg)
        self._pipeline = pipeline
        self._window = pipeline.window
        self._trigger = trigger
        self._plain = plain(trigger)
        self._shortest = min(periods(trigger), default=None)
        self._duck = connection
        self._sql = early_statements(pipeline, self._plain)
        self._results = Results(pipeline)
        self._chunks = LateChunks(pipeline, connection)
        self._no_panes = duck.query(connection, self._sql.empty, records=no_records)

    def take(self, step: PaneStep, summary: WindowSummary, state: State) -> pa.Table:
        """Take a step; return its changes, by window and key in the order of effect."""
        windows = windows_in(step.on_time) | windows_in(step.due) | step.firing | self._ticked(step, summary)
        panes = load_panes(state, "panes", windows & step.known, self._no_panes)
        changes = schema.changes(self._pipeline).empty_table()
        if panes.num_rows + step.on_time.num_rows + step.due.num_rows:
            changes, settled = self._change(step, panes)
            stays = ~within(to_micros(settled.column(WINDOW)), step.gone)
            store_panes(state, "panes", settled.filter(pa.array(stays)))
            self._note_pending(settled, windows, summary)
        for start in sorted(step.gone & step.known):
            state.drop("panes", start)
        return changes

    def _change(self, step: PaneStep, panes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the step's changes, and the panes as they are after it."""
        changes: list[pa.Table] = []
        for late in self._chunks.of(step.due):
            if changes:
                # all else was in the first chunk
                still = replace(step.time, now=None)
                step = replace(step, time=still, on_time=step.on_time.slice(0, 0), firing=frozenset())
            clock = pa.table({"now": pa.array([step.time.now], pa.int64()),
                              "latest": pa.array([step.time.latest], pa.int64())})  # fmt: skip
            atoms = self._atoms(replace(step, due=late), panes, clock)
            panes = duck.query(self._duck, self._sql.settle, atoms=atoms, clock=clock)
            rows = duck.query(self._duck, self._sql.changes, atoms=atoms)
            changes.append(
                self._results.of(with_ends(self._pipeline, rows))
                if rows.num_rows
                else schema.changes(self._pipeline).empty_table()
            )
        return self._chunks.joined(changes), panes

    def _ticked(self, step: PaneStep, summary: WindowSummary) -> set[int]:
        """Return the windows that an early pane may be due for by now."""
        if step.time.now is None or self._shortest is None:
            return set()
        return {window for window, since in summary.pending.items() if step.time.now - since >= self._shortest}

    def _note_pending(self, panes: pa.Table, windows: set[int], summary: WindowSummary) -> None:
        """Note from when on windows wait for an early pane; where no tick has come yet, at the first one."""
        if self._shortest is None:
            return
        for window in windows:
            summary.pending.pop(window, None)
        waiting = panes.filter(pc.is_null(panes.column(REVISION)))
        since = waiting.append_column("since", pc.fill_null(waiting.column(SINCE), BEFORE_ALL))
        least = since.group_by(WINDOW).aggregate([("since", "min")])
        summary.pending.update(zip(*(least.column(name).to_pylist() for name in (WINDOW, "since_min")), strict=True))

    def _atoms(self, step: PaneStep, panes: pa.Table, clock: pa.Table) -> pa.Table:
        """Return what happens to each window and key, in order."""
        firing = pa.table({WINDOW: pa.array(sorted(step.firing), pa.int64())})
        tables = {"panes": panes, "late": step.due, "firing": firing, "clock": clock}
        if self._plain is not None:
            return duck.query(self._duck, self._sql.atoms, records=step.on_time, **tables)
        records, memory = self._follow(step, panes)
        return duck.query(self._duck, self._sql.atoms, records=records, memory=memory, **tables)

    def _follow(self, step: PaneStep, panes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Ask the trigger at each record, and at the tick; return the records in chunks, and what it remembers."""
        rows = pa.array(np.arange(step.on_time.num_rows))
        told = duck.query(self._duck, self._sql.told, records=step.on_time.append_column(ROW, rows), panes=panes)
        found = follow(self._trigger, told, window_ends(self._window, to_micros(told.column(WINDOW))), step)
        memory = told.select([WINDOW, *self._pipeline.key]).take(found.firsts)
        return (
            step.on_time.append_column(CHUNK, found.chunks).append_column(EARLY, found.early),
            memory.append_column(MEMORY, found.memories).append_column("__due", found.due),
        )
