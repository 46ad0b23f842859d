"""Early panes: panes that a trigger fires before the watermark, followed by the on-time pane and the revisions.

A trigger that SQL can evaluate (`SqlTrigger`) needs no loop. Neither do panes by event time, because a record's own
watermark determines the first pane that shows it. Any other trigger is evaluated in Python for each record, in log
order.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.columns import MAX_TIME, MIN_TIME, rescale, to_micros
from windrow.engine.merged_order import in_log_order
from windrow.engine.operators.window import sql
from windrow.engine.operators.window.late import LateChunks
from windrow.engine.operators.window.panes import PaneStep, with_window_bounds
from windrow.engine.operators.window.triggers import RecordPlace, sql_trigger, start_trigger, trigger_periods
from windrow.engine.schema import OFFSET, PARTITION, REVISION, TIME, WATERMARK, WINDOW
from windrow.engine.state.store import OperatorState
from windrow.engine.state.window_store import WindowSummary, drop_windows, load_panes, store_panes, windows_in
from windrow.engine.user_code import key_text, record_place
from windrow.engine.windows import GLOBAL_END, window_bounds
from windrow.expressions import WindowSpec, emitted_rows

_LAST_PANE: Final = GLOBAL_END - 1
"""The last time at which an early pane can be due, since none is due at the end of a window."""

_MANY_PANES: Final = 4
"""Number of panes per record above which finding the panes that a step touches is cheaper than reading all."""


class EarlyPanes:
    """Writes early panes, the on-time pane, and the revisions for late records."""

    def __init__(
        self, spec: WindowSpec, trigger: m.Trigger, connection: duckdb_sql.Connection, no_records: pa.Table
    ) -> None:
        if isinstance(spec.node.window, m.Session):
            msg = "sessions have an operator of their own"
            raise TypeError(msg)
        self._spec = spec
        self._window = spec.node.window
        self._trigger = trigger
        self._plain = trigger if isinstance(trigger, m.EveryEventTime) else sql_trigger(trigger)
        self._is_by_time = isinstance(trigger, m.Every | m.EveryEventTime)
        self._shortest = min(trigger_periods(trigger), default=None)
        self._duck = connection
        self._sql = sql.EarlyPaneSql(spec, self._plain, has_periods=self._shortest is not None)
        self._no_changes = schema.changes(emitted_rows(spec)).empty_table()
        self._chunks = LateChunks(spec, connection)
        self._no_panes = duckdb_sql.query(connection, self._sql.empty, records=no_records)

    def process(self, step: PaneStep, summary: WindowSummary, state: OperatorState) -> pa.Table:
        """Run a step; return its changes by window and key, in order of effect."""
        windows = windows_in(step.on_time) | windows_in(step.due) | step.firing | self._due_windows(step, summary)
        panes = load_panes(state, "panes", windows & step.known, self._no_panes)
        changes = self._no_changes
        if not self._is_by_time:
            step = replace(step, on_time=_number_rows(step.on_time))
        if panes.num_rows + step.on_time.num_rows + step.due.num_rows:
            clock = _clock(step)
            panes, rest = self._split_touched(step, panes, clock)
            changes, settled = self._fire(step, panes, clock)
            settled = pa.concat_tables([settled, rest])
            store_panes(state, "panes", drop_windows(settled, step.evicted))
            self._update_pending(settled, windows, summary)
        for start in sorted(step.evicted & step.known):
            state.drop("panes", start)
        return changes

    def _split_touched(self, step: PaneStep, panes: pa.Table, clock: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the panes that the step can change, and the other panes."""
        if panes.num_rows <= _MANY_PANES * (step.on_time.num_rows + step.due.num_rows):
            return panes, panes.slice(0, 0)
        tables = {"records": step.on_time, "late": step.due, "firing": _firing(step), "clock": clock}
        marked = duckdb_sql.query(self._duck, self._sql.touched, panes=panes, **tables)
        is_touched = marked.column(sql.TOUCHED)
        panes = marked.select(panes.column_names)
        return panes.filter(is_touched), panes.filter(pc.invert(is_touched))

    def _fire(self, step: PaneStep, panes: pa.Table, clock: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the changes of the step, and the panes after it."""
        changes: list[pa.Table] = []
        for late in self._chunks.of(step.due):
            if changes:
                # all other input was in the first chunk
                still = replace(step.time, now=None)
                step = replace(step, time=still, on_time=step.on_time.slice(0, 0), firing=frozenset())
                clock = _clock(step)
            events = self._events(replace(step, due=late), panes, clock)
            panes = duckdb_sql.query(self._duck, self._sql.settle, events=events, clock=clock)
            rows = duckdb_sql.query(self._duck, self._sql.changes, events=events)
            if rows.num_rows:
                changes.append(rescale(with_window_bounds(self._spec, rows), self._no_changes.schema))
            else:
                changes.append(self._no_changes)
        return self._chunks.join(changes), panes

    def due(self, summary: WindowSummary) -> int:
        """Return the processing time of the first tick at which an early pane may be due; `MAX_TIME` if none is."""
        if self._shortest is None:
            return MAX_TIME
        return min((since + self._shortest for since in summary.pending.values()), default=MAX_TIME)

    def _due_windows(self, step: PaneStep, summary: WindowSummary) -> set[int]:
        """Return the windows that may have an early pane due."""
        if isinstance(self._trigger, m.EveryEventTime):
            reached = min(step.reached, _LAST_PANE)
            return {window for window, at in summary.pending.items() if at <= reached}
        if step.time.now is None or self._shortest is None:
            return set()
        return {window for window, since in summary.pending.items() if step.time.now - since >= self._shortest}

    def _update_pending(self, panes: pa.Table, windows: set[int], summary: WindowSummary) -> None:
        """Update the processing time since which each window has waited for an early pane.

        The time is `MIN_TIME` before the first tick. If early panes are by event time, update the watermark at which
        the next pane is due instead.
        """
        if self._shortest is None and not isinstance(self._trigger, m.EveryEventTime):
            return
        for window in windows:
            summary.pending.pop(window, None)
        waiting = panes.filter(pc.is_null(panes.column(REVISION)))
        since = waiting.append_column("since", pc.fill_null(waiting.column(sql.SINCE), MIN_TIME))
        least = since.group_by(WINDOW).aggregate([("since", "min")])
        summary.pending.update(zip(*(least.column(name).to_pylist() for name in (WINDOW, "since_min")), strict=True))

    def _events(self, step: PaneStep, panes: pa.Table, clock: pa.Table) -> pa.Table:
        """Return the events of each window and key in the step, in order of effect."""
        tables = {"panes": panes, "late": step.due, "firing": _firing(step), "clock": clock}
        if self._plain is not None:
            records = step.on_time
            if isinstance(self._trigger, m.EveryEventTime):
                records = records.append_column(sql.SINCE, self._shown_at(records, self._trigger.micros))
            return duckdb_sql.query(self._duck, self._sql.events, records=records, **tables)
        records, memory = self._evaluate(step, panes)
        return duckdb_sql.query(self._duck, self._sql.events, records=records, memory=memory, **tables)

    def _shown_at(self, records: pa.Table, period: int) -> pa.Array:
        """Return the watermark at which an early pane first shows each on-time record; GLOBAL_END if no pane does."""
        starts, ends = window_bounds(self._window, to_micros(records.column(WINDOW)))
        at = starts + ((np.maximum(to_micros(records.column(WATERMARK)), starts) - starts) // period + 1) * period
        return pa.array(np.where(at < ends, at, GLOBAL_END))

    def _evaluate(self, step: PaneStep, panes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Evaluate the trigger at each on-time record in log order, and at the tick.

        Return the records with CHUNK (the number of early panes of the record's window and key earlier in the step) and
        EARLY (whether an early pane follows). Also return, for each window and key, the state of the trigger and
        whether a pane is due by processing time.
        """
        observed = duckdb_sql.query(self._duck, self._sql.observed, records=step.on_time, panes=panes)
        bounds = window_bounds(self._window, to_micros(observed.column(WINDOW)))
        chunks = np.zeros(step.on_time.num_rows, dtype=np.int64)
        early = np.zeros(step.on_time.num_rows, dtype=np.bool_)
        firsts: list[int] = []
        runs: list[_TriggerRun] = []
        states = sql.COUNT, sql.WAITING, sql.PANES, sql.SINCE, sql.MEMORY
        columns = (observed.column(name).to_pylist() for name in (WINDOW, sql.ROW, TIME, sql.NTH, *states))
        for place, (window, row, time, nth, *known) in enumerate(zip(*columns, strict=True)):
            if nth is None or nth == 1:
                firsts.append(place)
                start, end = int(bounds.starts[place]), int(bounds.ends[place])
                runs.append(_TriggerRun(self._trigger, window, start, end, tuple(known)))
            if nth is not None:
                describe = partial(_record_place, self._spec, step.on_time, row)
                chunks[row], early[row] = runs[-1].at_record(time, describe)
        now, latest = step.time.now, step.time.latest
        due = [
            now is not None and latest is not None and run.window not in step.firing and run.at_tick(now, latest)
            for run in runs
        ]
        memory = observed.select([WINDOW, *self._spec.key]).take(pa.array(firsts, pa.int64()))
        memory = memory.append_column(sql.MEMORY, pa.array([run.memory for run in runs], pa.string()))
        return (
            step.on_time.append_column(sql.CHUNK, pa.array(chunks)).append_column(sql.EARLY, pa.array(early)),
            memory.append_column("__due", pa.array(due, pa.bool_())),
        )


def _firing(step: PaneStep) -> pa.Table:
    return pa.table({WINDOW: pa.array(sorted(step.firing), pa.int64())})


def _clock(step: PaneStep) -> pa.Table:
    """Return a table with one row: the processing time of the step's tick and of the latest tick, and the watermark."""
    times = {"now": step.time.now, "latest": step.time.latest, "reached": min(step.reached, _LAST_PANE)}
    return pa.table({name: pa.array([time], pa.int64()) for name, time in times.items()})


def _number_rows(records: pa.Table) -> pa.Table:
    return in_log_order(records).append_column(sql.ROW, pa.array(np.arange(records.num_rows)))


_Known = tuple[int, int, int, int | None, str | None]
"""State of a window and key before the step: records, pending records, early panes, SINCE, and trigger state."""


class _TriggerRun:
    """Evaluates the trigger of one window and key during a step."""

    def __init__(self, trigger: m.Trigger, window: int, start: int, end: int, known: _Known) -> None:
        self.window = window
        self._bounds = start, end
        self._records, self._waiting, self._panes, self._since, memory = known
        self._before = self._panes
        self._trigger = start_trigger(trigger)
        if memory is not None:
            self._trigger.memory = json.loads(memory)

    def at_record(self, time: int, place: RecordPlace) -> tuple[int, bool]:
        """Return the chunk of a record, and whether an early pane follows it."""
        chunk = self._panes - self._before
        self._records += 1
        self._waiting += 1
        pane = m.PaneSoFar(*self._bounds, self._records, self._waiting, self._panes, time)
        fires = self._trigger.at_record(pane, place)
        if fires:
            self._reset()
        return chunk, fires

    def at_tick(self, now: int, latest: int) -> bool:
        if self._waiting == 0:
            return False
        fires = self._trigger.at_tick(now - (latest if self._since is None else self._since))
        if fires:
            self._reset()
        return fires

    @property
    def memory(self) -> str:
        """The state of the trigger, as JSON text."""
        return json.dumps(self._trigger.memory)

    def _reset(self) -> None:
        self._panes += 1
        self._waiting, self._since = 0, None
        self._trigger.reset()


def _record_place(spec: WindowSpec, records: pa.Table, row: int) -> str:
    """Return the coordinates and key of a record for an error message."""
    row_of = records.slice(row, 1)
    partition, offset, *key = (row_of.column(name)[0].as_py() for name in (PARTITION, OFFSET, *spec.key))
    return f"{record_place(spec.source.label, partition, offset)}, {key_text(spec.key, key)}"
