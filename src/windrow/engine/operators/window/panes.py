"""Panes that only the watermark fires, and late records in batches of revisions.

`WatermarkPanes` writes one on-time pane for each window and key, then a revision for each late record or for all late
records of a step. `EarlyPanes` (see `early`) could do the same work; this form exists because it needs fewer and
cheaper queries in each step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.columns import MAX_TIME, rescale, to_micros
from windrow.engine.operators.base import StepTime
from windrow.engine.operators.window.late import LateChunks
from windrow.engine.operators.window.slices import SliceTree
from windrow.engine.operators.window.sql import window_sql
from windrow.engine.schema import LAST_PARTITION, PLACE, WINDOW
from windrow.engine.state.store import OperatorState
from windrow.engine.state.window_store import WindowSummary, is_in_windows, load_panes, store_panes, windows_in
from windrow.engine.windows import window_bounds
from windrow.expressions import WindowSpec, made_rows


@dataclass(frozen=True)
class PaneStep:
    """The input of a step, judged: records and the windows that they concern.

    `on_time` are records of windows that have not fired before, `whole` those of slices (WINDOW is the slice's start),
    `parts` panes that salted key groups made of such records (of windows that overlap, slices),
    `due` late records of windows that have fired by now. `firing` are the windows that fire in this step, `known` those
    that had something before it, `evicted` those that nothing can reach after it. Those that end by `reached`
    have fired.
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


class Panes(Protocol):
    """The contract of an engine that stores and emits panes."""

    def take(self, step: PaneStep, summary: WindowSummary, state: OperatorState) -> pa.Table:
        """Run a step; return its changes, those of a window and key in the order of effect."""
        ...


class WatermarkPanes:
    """Panes that the watermark fires: one pane of the records on time, then the revisions of late ones."""

    def __init__(
        self,
        spec: WindowSpec,
        connection: duckdb_sql.Connection,
        no_records: pa.Table,
        *,
        is_traced: bool = False,
    ) -> None:
        self._spec = spec
        self._duck = connection
        self._is_traced = is_traced
        self._sql = window_sql(spec, is_traced=is_traced)
        self._schema = schema.changes(made_rows(spec))
        self._no_panes = duckdb_sql.query(self._duck, self._sql.begin, records=no_records)
        self._no_changes = self._schema.empty_table()
        if is_traced:
            self._no_changes = with_pane_places(self._no_changes)
        self._chunks = LateChunks(spec, connection, PLACE if is_traced else PLACE[1:])
        self._slices = (
            SliceTree(spec.node.window, connection, self._sql, self._no_panes)
            if isinstance(spec.node.window, m.Sliced)
            else None
        )

    def take(self, step: PaneStep, summary: WindowSummary, state: OperatorState) -> pa.Table:
        """Run a step; return its changes: on-time panes by window and key, then the revisions."""
        fired = self._fill(step, summary, state)
        changes = self._no_changes
        if fired.num_rows:
            changes = self._changes(duckdb_sql.query(self._duck, self._sql.fired, panes=fired))
            changes = with_pane_places(changes) if self._is_traced else changes
        revised = windows_in(step.due) - step.firing
        panes = fired if not revised else pa.concat_tables([fired, self._load(revised & step.known, state)])
        if step.due.num_rows:
            revisions, panes = self._revise(panes, step)
            changes = pa.concat_tables([changes, revisions])
        else:
            panes = _retained(panes, step.evicted)
        store_panes(state, "panes", panes)
        for start in sorted(step.evicted & step.known):
            state.drop("panes", start)
        return changes

    def _revise(self, panes: pa.Table, step: PaneStep) -> tuple[pa.Table, pa.Table]:
        """Return the revisions that late records make, and the panes that stay, as they are after them."""
        revisions: list[pa.Table] = []
        chunks = deque(self._chunks.of(step.due))
        while chunks:
            history = duckdb_sql.query(self._duck, self._sql.revise, base=panes, late=chunks.popleft())
            revised = duckdb_sql.query(self._duck, self._sql.revised, history=history)
            revisions.append(self._traced_changes(revised) if self._is_traced else self._changes(revised))
            if not chunks:
                panes, history = _retained(panes, step.evicted), _retained(history, step.evicted)
            panes = duckdb_sql.query(self._duck, self._sql.settle, base=panes, history=history)
        return self._chunks.joined(revisions), panes

    def _fill(self, step: PaneStep, summary: WindowSummary, state: OperatorState) -> pa.Table:
        """Add on-time records to the panes of their windows; return the panes that fire and store the others."""
        parts = self._no_panes if self._slices else step.parts
        touched = windows_in(step.on_time) | windows_in(parts) | step.firing
        panes = self._sql.added(self._duck, step.on_time, parts, self._load(touched & step.known, state))
        fires = is_in_windows(to_micros(panes.column(WINDOW)), step.firing)
        store_panes(state, "panes", panes.filter(pa.array(~fires)))
        fired = panes.filter(pa.array(fires))
        if self._slices is None:
            return fired
        parts = self._slices.take(step.firing, step.whole, step.parts, summary, state, low=step.reached)
        if parts.num_rows == 0:
            return fired
        return duckdb_sql.query(self._duck, self._sql.merge, panes=pa.concat_tables([fired, parts]))

    def _load(self, windows: Collection[int], state: OperatorState) -> pa.Table:
        return load_panes(state, "panes", windows, self._no_panes)

    def _traced_changes(self, rows: pa.Table) -> pa.Table:
        """Return changes of what a statement made, with the places of the records that made them."""
        changes = self._changes(rows.drop_columns(list(PLACE)))
        for name, type_ in PLACE_TYPES:
            changes = changes.append_column(name, rows.column(name).cast(type_))
        return changes

    def _changes(self, rows: pa.Table) -> pa.Table:
        """Return changes of what a statement made."""
        return rescale(with_window_bounds(self._spec, rows), self._schema)


PLACE_TYPES: Final = tuple(zip(PLACE, (pa.int64(), pa.int32(), pa.int64()), strict=True))


def with_pane_places(changes: pa.Table) -> pa.Table:
    """Give on-time panes their places: at the last watermark before the end of the window, behind all its records."""
    watermarks = to_micros(changes.column("window_end")) - 1
    places = watermarks, np.full_like(watermarks, LAST_PARTITION), np.full_like(watermarks, MAX_TIME)
    for (name, type_), values in zip(PLACE_TYPES, places, strict=True):
        changes = changes.append_column(name, pa.array(values).cast(type_))
    return changes


def _retained(panes: pa.Table, evicted: Collection[int]) -> pa.Table:
    """Return the panes of windows that something can still reach."""
    return panes.filter(pa.array(~is_in_windows(to_micros(panes.column(WINDOW)), evicted)))


def with_window_bounds(spec: WindowSpec, changes: pa.Table) -> pa.Table:
    """Put the starts and ends of windows into changes as statements make them, where both are a window's number."""
    if isinstance(spec.node.window, m.Session):
        msg = "the end of a session is not known by its start"
        raise TypeError(msg)
    windows, places = np.unique(to_micros(changes.column("window_start")), return_inverse=True)
    for name, bounds in zip(("window_start", "window_end"), window_bounds(spec.node.window, windows), strict=True):
        changes = changes.set_column(changes.column_names.index(name), name, pa.array(bounds[places]))
    return changes
