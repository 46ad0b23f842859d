"""The window operator: assigns records to windows, fires panes, revises them, and drops what is no longer needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duckdb_sql, schema
from windrow.core.changelog import StepOutput, late_output
from windrow.core.columns import MAX_TIME, MIN_TIME, pack, to_micros, unpack, unscale
from windrow.core.operators.base import GroupOutput, GroupStats, StepInput
from windrow.core.operators.window.assigner import assign
from windrow.core.operators.window.early import EarlyPanes
from windrow.core.operators.window.panes import Panes, PaneStep, WatermarkPanes
from windrow.core.operators.window.slices import windows_of_slices
from windrow.core.operators.window.sql import window_sql
from windrow.core.schema import END, WINDOW, record_schema
from windrow.core.state.store import State
from windrow.core.state.window_store import WindowSummary, is_in_windows, split_by_window, windows_in
from windrow.core.watermarks.clocks import PartitionClocks
from windrow.core.watermarks.tracker import advance_clocks
from windrow.core.windows import window_ends
from windrow.model import Global, Hopping, Pipeline, Session


class WindowOperator:
    """The aggregate of each window and key, by the definition of on time, late and expired; not of sessions.

    It keeps nothing between steps: what is to be remembered is in the state that a step is given, so one object serves
    all key groups. `partitions` are those that the source had when the pipeline was first started.
    """

    def __init__(self, pipeline: Pipeline, partitions: Iterable[int]) -> None:
        if isinstance(pipeline.window, Session):
            msg = "sessions have an operator of their own"
            raise TypeError(msg)
        self._pipeline = pipeline
        self._window = pipeline.window
        self._partitions = tuple(partitions)
        self._duck = duckdb_sql.connect()
        empty = unscale(record_schema(pipeline).empty_table())
        for name in (WINDOW, END):
            empty = empty.append_column(name, pa.array([], pa.int64()))
        self._no_records = empty
        self._no_parts = duckdb_sql.query(self._duck, window_sql(pipeline).begin, records=empty)
        self._panes: Panes = (
            WatermarkPanes(pipeline, self._duck, empty)
            if pipeline.emit.early is None
            else EarlyPanes(pipeline, pipeline.emit.early, self._duck, empty)
        )

    def step(self, group: int, given: StepInput, state: State) -> GroupOutput:
        """Run one step of one key group: assign windows and verdicts, fire, revise, drop."""
        blob = state.summary()
        summary = WindowSummary(PartitionClocks.start(self._partitions)) if blob is None else WindowSummary.decode(blob)
        time = advance_clocks(self._pipeline, summary.clocks, given)
        judged = assign(self._pipeline, given.records, time.watermarks, summary.ended, summary.forgotten_until)

        missed = late_output(self._duck, self._pipeline, judged.rows.filter(pa.array(judged.expired)))
        rows, whole = unscale(judged.rows), unscale(judged.whole)
        parts = pa.concat_tables([self._no_parts, *given.parts])
        windows = to_micros(rows.column(WINDOW))
        touched = set(np.unique(windows[~judged.expired]).tolist())
        slices = windows_in(whole)
        if isinstance(self._window, Hopping):
            slices |= windows_in(parts)
        else:
            touched |= windows_in(parts)
        known = frozenset(summary.open | summary.fired)
        endless = isinstance(self._window, Global)
        if not endless:
            summary.fired |= {start for start in touched if start <= summary.ended}
        on_time = judged.on_time & ~is_in_windows(windows, summary.fired)
        summary.open |= touched - summary.fired
        reached = MAX_TIME if given.end else time.low
        firing = self._passed(summary.open | self._of_slices(slices, summary, summary.low), reached)
        due = self._due(rows.filter(pa.array(~on_time & ~judged.expired)), firing, summary, state)
        summary.waiting -= firing
        if not endless:
            summary.open -= firing
            summary.fired |= firing
        evicted = self._passed(summary.fired, time.low - self._pipeline.emit.lateness)
        summary.fired -= evicted
        if given.end:
            summary.ended = max(summary.ended, time.reached)

        changes = self._panes.take(
            PaneStep(
                time=time,
                on_time=rows.filter(pa.array(on_time)),
                whole=whole,
                parts=parts,
                due=due,
                firing=firing,
                known=known,
                evicted=evicted,
                reached=reached,
            ),
            summary,
            state,
        )
        summary.low = time.low
        state.set_summary(summary.encode())
        operations = changes.column("op")
        return GroupOutput(
            StepOutput(
                changes=changes,
                late=missed,
                dead=given.dead,
                # clocks are identical in every key group, so only group 0 writes the journal
                clocks=time.journal if group == 0 else schema.CLOCKS.empty_table(),
            ),
            GroupStats(
                records=given.records.num_rows + given.spread,
                late=int(np.count_nonzero(~judged.on_time & ~judged.expired)),
                expired=missed.num_rows,
                dead=given.dead.num_rows,
                inserts=pc.sum(pc.equal(operations, "insert")).as_py() or 0,
                revisions=pc.sum(pc.equal(operations, "update_after")).as_py() or 0,
                open_windows=len(summary.open | self._of_slices(set(), summary, reached)),
                watermarks=dict(summary.clocks.watermarks),
                offsets=dict(summary.clocks.next),
                low=time.low,
                idle=sorted(summary.clocks.idle),
            ),
        )

    def _of_slices(self, more: set[int], summary: WindowSummary, after: int) -> set[int]:
        """Return the windows of slices, those of the state and some more, that end after a time."""
        if not isinstance(self._window, Hopping):
            return set()
        return windows_of_slices(self._window, summary.slices.get(0, set()) | more, after)

    def _passed(self, windows: Collection[int], time: int) -> frozenset[int]:
        """Return the windows that end by a time; the global one ends after all time."""
        starts = np.fromiter(windows, dtype=np.int64, count=len(windows))
        if isinstance(self._window, Global):
            return frozenset(windows if time == MAX_TIME else ())
        return frozenset(starts[window_ends(self._window, starts) <= max(time, MIN_TIME)].tolist())

    def _due(self, late: pa.Table, firing: Collection[int], summary: WindowSummary, state: State) -> pa.Table:
        """Return the late records whose windows have fired by now; let the others wait."""
        waits = is_in_windows(to_micros(late.column(WINDOW)), summary.open - set(firing))
        for start, part in split_by_window(late.filter(pa.array(waits))):
            blob = state.get("waiting", start) if start in summary.waiting else None
            state.set("waiting", start, pack(part if blob is None else pa.concat_tables([unpack(blob), part])))
            summary.waiting.add(start)
        due = [late.filter(pa.array(~waits))]
        for start in sorted(summary.waiting & set(firing)):
            blob = state.get("waiting", start)
            if blob is not None:
                due.append(unpack(blob))
                state.drop("waiting", start)
        return pa.concat_tables([self._no_records, *(table.select(self._no_records.column_names) for table in due)])
