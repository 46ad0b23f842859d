"""The window aggregate: verdicts, on-time panes, late panes, retention."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duck, schema
from windrow.core.aggregates import rescale, unscale
from windrow.core.clocks import Clocks
from windrow.core.late import late_rows
from windrow.core.micros import Micros, to_micros
from windrow.core.operators.base import GroupOutput, GroupStats, StepInput
from windrow.core.operators.clock_step import take_clock_step
from windrow.core.operators.statements import statements
from windrow.core.output import StepOutput
from windrow.core.packing import pack, unpack
from windrow.core.records import END, TIME, WATERMARK, WINDOW, record_schema
from windrow.core.state import State, Summary
from windrow.core.windows import window_ends, windows_of
from windrow.model import Pipeline

Mask = npt.NDArray[np.bool_]


class WindowAggregate:
    """The aggregate of each window and key, by the definition of on time, late and expired.

    It keeps nothing between steps: what is to be remembered is in the state that a step is given, so one object serves
    all key groups. `partitions` are those that the source had when the pipeline was first started.
    """

    def __init__(self, pipeline: Pipeline, partitions: Iterable[int]) -> None:
        self._pipeline = pipeline
        self._partitions = tuple(partitions)
        self._duck = duck.connect()
        self._sql = statements(pipeline)
        self._changes = schema.changes(pipeline)
        empty = unscale(record_schema(pipeline).empty_table())
        for name in (WINDOW, END):
            empty = empty.append_column(name, pa.array([], pa.int64()))
        self._no_records = empty
        self._no_panes = duck.query(self._duck, self._sql.begin, records=empty)
        self._no_history = duck.query(self._duck, self._sql.revise, base=self._no_panes, late=empty)

    def step(self, group: int, given: StepInput, state: State) -> GroupOutput:
        """Take one step of one key group: judge its records, fire what the clocks have passed, revise, forget."""
        blob = state.summary()
        summary = Summary(Clocks.start(self._partitions)) if blob is None else Summary.decode(blob)
        time = take_clock_step(self._pipeline, summary.clocks, given)
        records, on_time, expired = self._judge(given.records, time.watermarks)

        missed = late_rows(self._duck, self._pipeline, records.filter(pa.array(expired)))
        records = unscale(records)
        windows = to_micros(records.column(WINDOW))
        touched = set(np.unique(windows[~expired]).tolist())
        summary.fired |= {start for start in touched if start <= summary.ended}
        panes = on_time & ~_within(windows, summary.fired)
        panes_of = records.filter(pa.array(panes))
        revisions_of = records.filter(pa.array(~panes & ~expired))
        known = frozenset(summary.open | summary.fired)
        summary.open |= touched - summary.fired
        firing = {start for start in summary.open if given.end or self._end(start) <= time.low}
        if given.end:
            summary.ended = max(summary.ended, time.reached)

        fired = self._fill(panes_of, known, firing, state)
        due = self._due(revisions_of, firing, summary, state)
        base = pa.concat_tables([fired, self._load(_windows(due) - firing, state)])
        history = self._revise(base, due)
        summary.open -= firing
        summary.waiting -= firing
        summary.fired |= firing
        self._keep(self._settle(base, history), known, summary, state)
        state.set_summary(summary.encode())
        changes = self._change_rows(fired, history)
        updates = pc.sum(pc.equal(changes.column("op"), "update_after")).as_py() or 0
        return GroupOutput(
            StepOutput(
                changes=changes,
                late=missed,
                dead=given.dead,
                # every key group knows the clocks; one of them tells
                clocks=time.journal if group == 0 else schema.CLOCKS.empty_table(),
            ),
            GroupStats(
                records=records.num_rows,
                late=int(np.count_nonzero(~on_time & ~expired)),
                expired=missed.num_rows,
                dead=given.dead.num_rows,
                inserts=changes.num_rows - 2 * updates,
                revisions=updates,
                open_windows=len(summary.open),
                watermarks=dict(summary.clocks.watermarks),
                offsets=dict(summary.clocks.next),
                low=time.low,
                idle=sorted(summary.clocks.idle),
            ),
        )

    def _judge(self, records: pa.Table, watermarks: Micros) -> tuple[pa.Table, Mask, Mask]:
        """Return the records with their window and watermark, which of them are on time, and which have expired."""
        starts, ends = windows_of(self._pipeline.window, to_micros(records.column(TIME)))
        judged = records.drop_columns(WATERMARK).append_column(WATERMARK, pa.array(watermarks))
        return (
            judged.append_column(WINDOW, pa.array(starts)).append_column(END, pa.array(ends)),
            watermarks < ends,
            watermarks >= ends + self._pipeline.emit.lateness,
        )

    def _fill(self, records: pa.Table, known: Collection[int], firing: set[int], state: State) -> pa.Table:
        """Add on-time records to the panes of their windows; return the panes that fire and store the others."""
        stored = self._load((_windows(records) | firing) & set(known), state)
        if stored.num_rows:
            panes = duck.query(self._duck, self._sql.add, records=records, panes=stored)
        elif records.num_rows:
            panes = duck.query(self._duck, self._sql.begin, records=records)
        else:
            panes = self._no_panes
        fires = _within(to_micros(panes.column(WINDOW)), firing)
        self._store(panes.filter(pa.array(~fires)), state)
        return panes.filter(pa.array(fires))

    def _due(self, records: pa.Table, firing: set[int], summary: Summary, state: State) -> pa.Table:
        """Return the late records whose windows have fired by now; let the others wait."""
        waits = _within(to_micros(records.column(WINDOW)), summary.open - firing)
        for start, part in _by_window(records.filter(pa.array(waits))):
            blob = state.get("waiting", start) if start in summary.waiting else None
            state.set("waiting", start, pack(part if blob is None else pa.concat_tables([unpack(blob), part])))
            summary.waiting.add(start)
        due = [records.filter(pa.array(~waits))]
        for start in sorted(summary.waiting & firing):
            blob = state.get("waiting", start)
            if blob is not None:
                due.append(unpack(blob))
                state.drop("waiting", start)
        return pa.concat_tables([self._no_records, *(table.select(self._no_records.column_names) for table in due)])

    def _revise(self, base: pa.Table, late: pa.Table) -> pa.Table:
        """Return every revision that late records make of the base panes."""
        if late.num_rows == 0:
            return self._no_history
        return duck.query(self._duck, self._sql.revise, base=base, late=late)

    def _settle(self, base: pa.Table, history: pa.Table) -> pa.Table:
        """Return the base panes as the revisions leave them."""
        if history.num_rows == 0:
            return base
        return duck.query(self._duck, self._sql.settle, base=base, history=history)

    def _keep(self, panes: pa.Table, known: Collection[int], summary: Summary, state: State) -> None:
        """Store fired panes that can still be revised; forget windows that no record can reach any more."""
        low, lateness = summary.clocks.low, self._pipeline.emit.lateness
        gone = {start for start in summary.fired if self._end(start) + lateness <= low}
        stays = ~_within(to_micros(panes.column(WINDOW)), gone)
        self._store(panes.filter(pa.array(stays)), state)
        for start in sorted(gone & set(known)):
            state.drop("panes", start)
        summary.fired -= gone

    def _change_rows(self, fired: pa.Table, history: pa.Table) -> pa.Table:
        """Return the step's changes: by window and key, each on-time pane before its revisions."""
        if history.num_rows:
            rows = duck.query(self._duck, self._sql.changes, panes=fired, history=history)
        elif fired.num_rows:
            rows = duck.query(self._duck, self._sql.fired, panes=fired)
        else:
            return self._changes.empty_table()
        return rescale(rows, self._changes)

    def _load(self, windows: Collection[int], state: State) -> pa.Table:
        """Return the stored panes of some windows."""
        tables = [self._no_panes]
        for start in sorted(windows):
            blob = state.get("panes", start)
            if blob is not None:
                panes = unpack(blob)
                starts = pa.array(np.full(panes.num_rows, start, dtype=np.int64))
                tables.append(panes.append_column(WINDOW, starts).select(self._no_panes.column_names))
        return pa.concat_tables(tables)

    def _store(self, panes: pa.Table, state: State) -> None:
        """Store panes under their windows."""
        for start, part in _by_window(panes):
            state.set("panes", start, pack(part.drop_columns(WINDOW)))

    def _end(self, start: int) -> int:
        return int(window_ends(self._pipeline.window, np.array([start]))[0])


def _windows(table: pa.Table) -> set[int]:
    return set(np.unique(to_micros(table.column(WINDOW))).tolist())


def _within(windows: Micros, starts: Collection[int]) -> Mask:
    return np.isin(windows, np.fromiter(starts, dtype=np.int64, count=len(starts)))


def _by_window(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Split a table at its windows, in their order."""
    windows = to_micros(table.column(WINDOW))
    order = np.argsort(windows, kind="stable")
    table = table.take(pa.array(order))
    starts, firsts = np.unique(windows[order], return_index=True)
    lengths = np.diff(firsts, append=len(windows))
    for start, first, length in zip(starts.tolist(), firsts.tolist(), lengths.tolist(), strict=True):
        yield start, table.slice(first, length)
