"""What a step makes of the panes of windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa

from windrow.core import duck, schema
from windrow.core.aggregates import Results
from windrow.core.micros import to_micros
from windrow.core.operators.clock_step import ClockStep
from windrow.core.operators.late_chunks import LateChunks
from windrow.core.operators.pane_store import load_panes, store_panes, windows_in, within
from windrow.core.operators.slices import Slices
from windrow.core.operators.statements import statements
from windrow.core.operators.window_summary import WindowSummary
from windrow.core.records import WINDOW
from windrow.core.state import State
from windrow.core.windows import window_ends
from windrow.model import Hopping, Pipeline, Session


@dataclass(frozen=True)
class PaneStep:
    """What happens to windows in a step.

    `on_time` are records of windows that have not fired before, `whole` those of slices (WINDOW is the slice's start),
    `parts` panes that salted key groups made of such records (of hopping windows, slices),
    `due` late records of windows that have fired by now. `firing` are the windows that fire in this step, `known` those
    that had something before it, `gone` those that nothing can reach after it. Those that end by `reached`
    have fired.
    """

    time: ClockStep
    on_time: pa.Table
    whole: pa.Table
    parts: pa.Table
    due: pa.Table
    firing: frozenset[int]
    known: frozenset[int]
    gone: frozenset[int]
    reached: int


class Panes(Protocol):
    """How panes are kept and written."""

    def take(self, step: PaneStep, summary: WindowSummary, state: State) -> pa.Table:
        """Take a step; return its changes, those of a window and key in the order of effect."""
        ...


class WatermarkPanes:
    """Panes that the watermark fires: one pane of the records on time, then the revisions of late ones."""

    def __init__(self, pipeline: Pipeline, connection: duckdb.DuckDBPyConnection, no_records: pa.Table) -> None:
        self._pipeline = pipeline
        self._duck = connection
        self._sql = statements(pipeline)
        self._results = Results(pipeline)
        self._no_panes = duck.query(self._duck, self._sql.begin, records=no_records)
        self._no_changes = schema.changes(pipeline).empty_table()
        self._chunks = LateChunks(pipeline, connection)
        self._slices = (
            Slices(pipeline.window, connection, self._sql, self._no_panes)
            if isinstance(pipeline.window, Hopping)
            else None
        )

    def take(self, step: PaneStep, summary: WindowSummary, state: State) -> pa.Table:
        """Take a step; return its changes: on-time panes by window and key, then the revisions."""
        fired = self._fill(step, summary, state)
        changes = self._no_changes
        if fired.num_rows:
            changes = self._changes(duck.query(self._duck, self._sql.fired, panes=fired))
        revised = windows_in(step.due) - step.firing
        panes = fired if not revised else pa.concat_tables([fired, self._load(revised & step.known, state)])
        if step.due.num_rows:
            revisions, panes = self._revise(panes, step)
            changes = pa.concat_tables([changes, revisions])
        else:
            panes = _staying(panes, step.gone)
        store_panes(state, "panes", panes)
        for start in sorted(step.gone & step.known):
            state.drop("panes", start)
        return changes

    def _revise(self, panes: pa.Table, step: PaneStep) -> tuple[pa.Table, pa.Table]:
        """Return the revisions that late records make, and the panes that stay, as they are after them."""
        revisions: list[pa.Table] = []
        chunks = deque(self._chunks.of(step.due))
        while chunks:
            history = duck.query(self._duck, self._sql.revise, base=panes, late=chunks.popleft())
            revisions.append(self._changes(duck.query(self._duck, self._sql.revised, history=history)))
            if not chunks:
                panes, history = _staying(panes, step.gone), _staying(history, step.gone)
            panes = duck.query(self._duck, self._sql.settle, base=panes, history=history)
        return self._chunks.joined(revisions), panes

    def _fill(self, step: PaneStep, summary: WindowSummary, state: State) -> pa.Table:
        """Add on-time records to the panes of their windows; return the panes that fire and store the others."""
        parts = self._no_panes if self._slices else step.parts
        touched = windows_in(step.on_time) | windows_in(parts) | step.firing
        panes = self._sql.added(self._duck, step.on_time, parts, self._load(touched & step.known, state))
        fires = within(to_micros(panes.column(WINDOW)), step.firing)
        store_panes(state, "panes", panes.filter(pa.array(~fires)))
        fired = panes.filter(pa.array(fires))
        if self._slices is None:
            return fired
        parts = self._slices.take(step.firing, step.whole, step.parts, summary, state, low=step.reached)
        if parts.num_rows == 0:
            return fired
        return duck.query(self._duck, self._sql.merge, panes=pa.concat_tables([fired, parts]))

    def _load(self, windows: Collection[int], state: State) -> pa.Table:
        return load_panes(state, "panes", windows, self._no_panes)

    def _changes(self, rows: pa.Table) -> pa.Table:
        """Return changes of what a statement made."""
        return self._results.of(with_ends(self._pipeline, rows))


def _staying(panes: pa.Table, gone: Collection[int]) -> pa.Table:
    """Return the panes of windows that something can still reach."""
    return panes.filter(pa.array(~within(to_micros(panes.column(WINDOW)), gone)))


def with_ends(pipeline: Pipeline, changes: pa.Table) -> pa.Table:
    """Put the ends of windows into changes as statements make them."""
    if isinstance(pipeline.window, Session):
        msg = "the end of a session is not known by its start"
        raise TypeError(msg)
    starts, places = np.unique(to_micros(changes.column("window_start")), return_inverse=True)
    ends = pa.array(window_ends(pipeline.window, starts)[places])
    return changes.set_column(changes.column_names.index("window_end"), "window_end", ends)
