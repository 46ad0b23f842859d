"""The window operator: assigns records to windows, fires panes, revises them, and drops expired windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.changelog import late_output
from windrow.engine.columns import MAX_TIME, MIN_TIME, pack, to_micros, unpack, unscale
from windrow.engine.merged_order import numbered_in_merged_order
from windrow.engine.operators.base import Judged, OperatorOutput, OperatorStep
from windrow.engine.operators.window.assigner import assign
from windrow.engine.operators.window.early import EarlyPanes
from windrow.engine.operators.window.late import WAITING_KIND, LateGroups
from windrow.engine.operators.window.panes import PaneStep, WatermarkPanes
from windrow.engine.operators.window.slices import SLICE_KIND, is_slice_node, windows_of_slices
from windrow.engine.operators.window.sql import WindowSql
from windrow.engine.schema import DIFF, END, ID, OFFSET, PARTITION, PLACE, REVISION, TIME, WATERMARK, WINDOW
from windrow.engine.state import window_store
from windrow.engine.state.migrate import BlobAddress, RowsByKeyGroup, StoredColumns, StoredState, state_of_tables
from windrow.engine.state.store import OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.engine.state.window_store import WindowSummary, windows_in
from windrow.engine.windows import window_bounds
from windrow.expressions import WindowSpec


class WindowOperator:
    """Computes the aggregate of each window and key from on-time and late records, for all windows except sessions.

    With `is_traced`, records come in the merged order, and the rows are also emitted as a changelog. With `has_id`,
    records have an `ID`. With `is_settled`, records come in the merged order even if they are not traced, and revise in
    that order. Partition and offset alone do not order records at the same log position, such as rows emitted by
    timers.
    """

    state: Final[Mapping[str, StoreKind]] = {"panes": "windows", SLICE_KIND: "windows", WAITING_KIND: "windows"}

    def __init__(
        self, spec: WindowSpec, *, is_traced: bool = False, has_id: bool = False, is_settled: bool = False
    ) -> None:
        if isinstance(spec.node.window, m.Session):
            msg = "sessions have an operator of their own"
            raise TypeError(msg)
        self._spec = spec
        self._window = spec.node.window
        self._is_traced = is_traced
        self._is_numbered = is_settled and not is_traced
        self._duck = duckdb_sql.Connection(spec.key)
        empty = unscale(schema.record_schema(spec).empty_table())
        for name in (WINDOW, END):
            empty = empty.append_column(name, pa.array([], pa.int64()))
        self._no_parts = duckdb_sql.query(self._duck, WindowSql(spec).begin, records=empty)
        late = spec.node.emit.late
        self._groups = LateGroups(spec, late.number, self._duck) if isinstance(late, m.Records) else None
        # the ID orders records at the same position, which matters when records are counted
        ids = [ID] if has_id and self._groups is not None else []
        self._due_columns = [*empty.column_names, *ids]
        self._panes = (
            WatermarkPanes(spec, self._duck, empty, is_traced=is_traced)
            if spec.node.emit.early is None
            else EarlyPanes(spec, spec.node.emit.early, self._duck, empty)
        )

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group: assign windows and verdicts, then fire, revise and drop windows."""
        summary = WindowSummary() if state.summary is None else WindowSummary.decode(state.summary)
        time = step.time
        judged = assign(self._spec, step.records, time.fired_until, summary.forgotten_until)

        expired = judged.rows.filter(pa.array(judged.expired))
        # late output names windows by their start, not by their number
        starts = window_bounds(self._window, to_micros(expired.column(WINDOW))).starts
        expired = expired.set_column(expired.column_names.index(WINDOW), WINDOW, pa.array(starts))
        rows, whole = unscale(judged.rows), unscale(judged.whole)
        parts = pa.concat_tables([self._no_parts, *step.parts])
        touched = set(np.unique(to_micros(rows.column(WINDOW))[~judged.expired]).tolist())
        slices = windows_in(whole)
        if isinstance(self._window, m.Sliced):
            slices |= windows_in(parts)
        else:
            touched |= windows_in(parts)
        known, revisable = frozenset(summary.open | summary.fired), len(summary.fired)
        if not isinstance(self._window, m.Global):
            summary.fired |= begun_windows(self._window, touched, time.fired_until)
        on_time = judged.on_time & ~window_store.is_in_windows(rows, summary.fired)
        summary.open |= touched - summary.fired
        reached = MAX_TIME if time.end else time.low
        firing = ended_windows(self._window, summary.open | self._of_slices(slices, summary, time.before), reached)
        due = self._due(rows.filter(pa.array(~on_time & ~judged.expired)), firing, summary, state)
        if self._is_numbered and due.num_rows:
            due = numbered_in_merged_order(due)
        summary.waiting -= firing
        if not isinstance(self._window, m.Global):
            summary.open -= firing
            summary.fired |= firing
        fired = len(summary.fired) - revisable
        evicted = ended_windows(self._window, summary.fired, time.low - self._spec.lateness)
        if self._groups is not None:
            due = self._groups.take_revisions(due, summary.fired if time.end else evicted, summary, state)
        summary.fired -= evicted

        changes = self._panes.process(
            PaneStep(
                time=time,
                on_time=rows.filter(pa.array(on_time)),
                whole=whole,
                parts=parts,
                due=due,
                firing=frozenset(firing),
                known=known,
                evicted=frozenset(evicted),
                reached=reached,
            ),
            summary,
            state,
        )
        state.summary = summary.encode()
        changes, records = emit_changes(changes, is_traced=self._is_traced)
        return OperatorOutput(
            changes=changes,
            records=records,
            late=late_output(self._duck, self._spec, expired),
            late_records=int(np.count_nonzero(~judged.on_time & ~judged.expired)),
            open_windows=len(summary.open | self._of_slices(set(), summary, reached)),
            fired_windows=fired,
            closed_windows=len(evicted),
            judged=(
                Judged(judged.rows, judged.on_time, judged.expired),
                Judged.of_all(judged.whole.drop_columns([WINDOW, END]), expired=False),
            ),
            due=self._panes.due(summary) if isinstance(self._panes, EarlyPanes) else MAX_TIME,
        )

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:
        """Migrate panes, slices and waiting records."""
        columns, groups = StoredColumns(self._spec, change, self._duck), RowsByKeyGroup(self._spec, self._duck)
        for _, state in states:
            for (kind, bucket), blob in state.items():
                # inner nodes of slice trees are recomputed, as some key groups may not have had them
                if not is_slice_node(kind):
                    table = unpack(blob)
                    converted = columns.records(table) if kind == WAITING_KIND else columns.panes(table)
                    groups.add((kind, bucket), converted)
        together = merge_summaries([WindowSummary.decode(fields) for fields, _ in states])
        lateness = self._spec.lateness
        together.forgotten_until = change.forgotten_until(together.forgotten_until, low, lateness)
        return [(reduce_summary(together, set(tables)).encode(), state_of_tables(tables)) for tables in groups.tables()]

    def _of_slices(self, more: set[int], summary: WindowSummary, after: int) -> set[int]:
        """Return the windows that contain stored slices or the slices in `more`, and end after the given time."""
        if not isinstance(self._window, m.Sliced):
            return set()
        return windows_of_slices(self._window, summary.slices.get(0, set()) | more, after)

    def _due(self, late: pa.Table, firing: Collection[int], summary: WindowSummary, state: OperatorState) -> pa.Table:
        """Return the late records whose windows have fired by now; the other late records wait in the state."""
        waiting = summary.open - set(firing)
        for start, part in window_store.split_by_window(window_store.take_windows(late, waiting)):
            blob = state.get(WAITING_KIND, start) if start in summary.waiting else None
            state.set(WAITING_KIND, start, pack(part if blob is None else pa.concat_tables([unpack(blob), part])))
            summary.waiting.add(start)
        due = [window_store.drop_windows(late, waiting)]
        for start in sorted(summary.waiting & set(firing)):
            blob = state.get(WAITING_KIND, start)
            if blob is not None:
                due.append(unpack(blob))
                state.drop(WAITING_KIND, start)
        return pa.concat_tables([table.select(self._due_columns) for table in due])


def begun_windows(window: m.Tumbling | m.Sliced | m.Calendar, windows: Collection[int], time: int) -> set[int]:
    """Return the windows that start at or before the given time."""
    numbers = window_store.window_numbers(windows)
    return set(numbers[window_bounds(window, numbers).starts <= time].tolist())


def ended_windows(
    window: m.Tumbling | m.Sliced | m.Calendar | m.Global, windows: Collection[int], time: int
) -> set[int]:
    """Return the windows that end at or before the given time; the global window ends after all time."""
    if isinstance(window, m.Global):
        return set(windows if time == MAX_TIME else ())
    numbers = window_store.window_numbers(windows)
    return set(numbers[window_bounds(window, numbers).ends <= max(time, MIN_TIME)].tolist())


def emit_changes(changes: pa.Table, *, is_traced: bool) -> tuple[pa.Table, tuple[pa.Table, ...]]:
    """Return changes without their positions, and a stream's records if other nodes read the rows (`is_traced`)."""
    records = (_change_records(changes),) if is_traced else ()
    return changes.drop_columns(list(PLACE)) if WATERMARK in changes.column_names else changes, records


def _change_records(changes: pa.Table) -> pa.Table:
    """Return positioned changes as records, timed at the last microsecond of their window, with a `DIFF` of 1 or -1."""
    times = to_micros(changes.column("window_end")) - 1
    fields = [name for name in changes.column_names if name not in {"op", "pane", "revision", *PLACE}]
    own = {
        PARTITION: changes.column(PARTITION),
        OFFSET: changes.column(OFFSET),
        TIME: pa.array(times),
        WATERMARK: changes.column(WATERMARK),
        REVISION: changes.column("revision"),
    }
    values = {name: changes.column(name) for name in fields}
    return pa.table(own | values | {DIFF: change_diffs(changes)})


def change_diffs(changes: pa.Table) -> pa.ChunkedArray:
    """Return the `DIFF` of each change: 1 if it adds a row, -1 if it retracts a row."""
    is_added = pc.is_in(changes.column("op"), pa.array(["insert", "update_after"]))
    return pc.if_else(is_added, 1, -1).cast(pa.int64())


def merge_summaries(summaries: list[WindowSummary]) -> WindowSummary:
    """Merge the summaries of all key groups into one."""
    pending: dict[int, int] = {}
    for summary in summaries:
        for window, since in summary.pending.items():
            pending[window] = min(since, pending.get(window, since))
    return replace(
        summaries[0],
        open={window for summary in summaries for window in summary.open},
        fired={window for summary in summaries for window in summary.fired},
        pending=pending,
    )


def reduce_summary(together: WindowSummary, addresses: set[BlobAddress]) -> WindowSummary:
    """Return the part of a summary that concerns a key group, given the addresses of the group's blobs."""
    there: defaultdict[str, set[int]] = defaultdict(set)
    for kind, bucket in addresses:
        there[kind].add(bucket)
    own = there["panes"] | there[WAITING_KIND]
    return replace(
        together,
        open=together.open & own,
        waiting=there[WAITING_KIND],
        fired=together.fired & own,
        slices={0: there[SLICE_KIND]},
        pending={window: since for window, since in together.pending.items() if window in own},
    )
