"""Panes that only the watermark fires, and batches of revisions for late records.

`WatermarkPanes` writes the on-time pane of each window and key, followed by a revision for each late record or for all
late records of a step. `EarlyPanes` (see `early`) could do the same work, but `WatermarkPanes` needs fewer and cheaper
queries in each step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.columns import MAX_TIME, rescale, to_micros
from windrow.engine.operators.base import StepTime
from windrow.engine.operators.window.late import LateChunks
from windrow.engine.operators.window.slices import SliceStep, SliceTree
from windrow.engine.operators.window.sql import WindowSql
from windrow.engine.schema import LAST_PARTITION, OFFSET, PARTITION, PLACE, WATERMARK
from windrow.engine.state import window_store
from windrow.engine.state.store import OperatorState
from windrow.engine.state.window_store import WindowSummary, drop_windows, windows_in
from windrow.engine.windows import window_bounds
from windrow.expressions import WindowSpec, emitted_rows


@dataclass(frozen=True)
class PaneStep:
    """The judged input of a step: its records, and the windows that they affect.

    `on_time` are records of windows that had not fired before the step. `whole` are on-time records for slices; their
    WINDOW is the start of the slice. `parts` are panes that key groups of salted keys made from such records; if
    windows overlap, they are panes of slices. `due` are late records of windows that have fired by now. `firing` are
    the windows that fire in this step, `known` the windows that had state before it, and `evicted` the windows that no
    record can reach after it. Windows that end at or before `reached` have fired.
    """

    time: StepTime
    on_time: pa.Table
    whole: pa.Table
    parts: pa.Table
    due: pa.Table
    firing: frozenset[int]
    known: frozenset[int]
    evicted: frozenset[int]
    reached: int


class WatermarkPanes:
    """Panes that the watermark fires: one pane for the on-time records, then the revisions for late records."""

    def __init__(
        self, spec: WindowSpec, connection: duckdb_sql.Connection, no_records: pa.Table, *, is_traced: bool
    ) -> None:
        self._spec = spec
        self._duck = connection
        self._is_traced = is_traced
        self._sql = WindowSql(spec, is_traced=is_traced)
        self._schema = schema.changes(emitted_rows(spec))
        self._no_panes = duckdb_sql.query(self._duck, self._sql.begin, records=no_records)
        self._no_changes = pa.schema([*self._schema, *(PLACES if is_traced else ())]).empty_table()
        self._chunks = LateChunks(spec, connection, PLACE if is_traced else PLACE[1:])
        self._slices = (
            SliceTree(spec.node.window, connection, self._sql, self._no_panes)
            if isinstance(spec.node.window, m.Sliced)
            else None
        )

    def process(self, step: PaneStep, summary: WindowSummary, state: OperatorState) -> pa.Table:
        """Run a step; return the changes of on-time panes by window and key, followed by the revisions."""
        fired = self._fill(step, summary, state)
        changes = self._no_changes
        if fired.num_rows:
            changes = self._changes(duckdb_sql.query(self._duck, self._sql.fired, panes=fired))
            changes = _append_pane_places(changes) if self._is_traced else changes
        revised = windows_in(step.due) - step.firing
        panes = fired if not revised else pa.concat_tables([fired, self._load(revised & step.known, state)])
        if step.due.num_rows:
            revisions, panes = self._revise(panes, step)
            changes = pa.concat_tables([changes, revisions])
        else:
            panes = drop_windows(panes, step.evicted)
        window_store.store_panes(state, "panes", panes)
        for start in sorted(step.evicted & step.known):
            state.drop("panes", start)
        return changes

    def _revise(self, panes: pa.Table, step: PaneStep) -> tuple[pa.Table, pa.Table]:
        """Return the revisions that late records make, and the revised panes that are still needed."""
        revisions: list[pa.Table] = []
        chunks = deque(self._chunks.of(step.due))
        while chunks:
            history = duckdb_sql.query(self._duck, self._sql.revise, base=panes, late=chunks.popleft())
            revised = duckdb_sql.query(self._duck, self._sql.revised, history=history)
            places = [revised.column(name) for name in PLACE] if self._is_traced else []
            changes = self._changes(revised.drop_columns(list(PLACE)) if places else revised)
            revisions.append(append_places(changes, places) if places else changes)
            if not chunks:
                panes, history = drop_windows(panes, step.evicted), drop_windows(history, step.evicted)
            panes = duckdb_sql.query(self._duck, self._sql.settle, base=panes, history=history)
        return self._chunks.join(revisions), panes

    def _fill(self, step: PaneStep, summary: WindowSummary, state: OperatorState) -> pa.Table:
        """Add on-time records to the panes of their windows; return the panes that fire, and store the other panes."""
        parts = self._no_panes if self._slices else step.parts
        touched = windows_in(step.on_time) | windows_in(parts) | step.firing
        panes = self._sql.add_records(self._duck, step.on_time, parts, self._load(touched & step.known, state))
        window_store.store_panes(state, "panes", drop_windows(panes, step.firing))
        fired = window_store.take_windows(panes, step.firing)
        if self._slices is None:
            return fired
        parts = self._slices.update(step.firing, step.whole, step.parts, SliceStep(summary, state, step.reached))
        if parts.num_rows == 0:
            return fired
        return duckdb_sql.query(self._duck, self._sql.merge, panes=pa.concat_tables([fired, parts]))

    def _load(self, windows: Collection[int], state: OperatorState) -> pa.Table:
        return window_store.load_panes(state, "panes", windows, self._no_panes)

    def _changes(self, rows: pa.Table) -> pa.Table:
        """Convert the result of a query to the schema of changes."""
        return rescale(with_window_bounds(self._spec, rows), self._schema)


PLACES: Final = pa.schema([(WATERMARK, pa.int64()), (PARTITION, pa.int32()), (OFFSET, pa.int64())])
"""The schema of the columns of `PLACE` in changes."""


def append_places(changes: pa.Table, places: Iterable[pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Append the position of each change as the columns of `PLACE`."""
    for field, column in zip(PLACES, places, strict=True):
        changes = changes.append_column(field, column.cast(field.type))
    return changes


def _append_pane_places(changes: pa.Table) -> pa.Table:
    """Append the positions of on-time panes: the last watermark before the window's end, after all of its records."""
    watermarks = to_micros(changes.column("window_end")) - 1
    places = watermarks, np.full_like(watermarks, LAST_PARTITION), np.full_like(watermarks, MAX_TIME)
    return append_places(changes, map(pa.array, places))


def with_window_bounds(spec: WindowSpec, changes: pa.Table) -> pa.Table:
    """Set the start and end of each window in the result of a query, in which both columns hold the window's number."""
    if isinstance(spec.node.window, m.Session):
        msg = "the end of a session cannot be determined from its start"
        raise TypeError(msg)
    windows, places = np.unique(to_micros(changes.column("window_start")), return_inverse=True)
    for name, bounds in zip(m.WINDOW_BOUNDS, window_bounds(spec.node.window, windows), strict=True):
        changes = changes.set_column(changes.column_names.index(name), name, pa.array(bounds[places]))
    return changes
