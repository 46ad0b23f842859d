"""The values of a step of sessions: accumulators brought together as the step says, and the changes made of them."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from windrow.core import duck, schema
from windrow.core.aggregates import Results
from windrow.core.operators.session_atoms import FIRED, Atoms
from windrow.core.operators.session_moment import Numbers
from windrow.core.operators.session_statements import ATOM, session_statements
from windrow.core.operators.session_step import Worked
from windrow.model import Pipeline


@dataclass(frozen=True)
class Totals:
    """Accumulators by number, with it in `ATOM`; `order` sorts them by it."""

    table: pa.Table
    numbers: Numbers
    order: Numbers

    @staticmethod
    def of(table: pa.Table) -> Totals:
        """Order a table by its numbers."""
        numbers = table.column(ATOM).to_numpy()
        order = np.argsort(numbers)
        return Totals(table, numbers[order], order)

    def take(self, numbers: Numbers) -> pa.Table:
        """Return the accumulators of some numbers, in their order."""
        return self.table.drop_columns(ATOM).take(pa.array(self.order[np.searchsorted(self.numbers, numbers)]))


class SessionValues:
    """Runs the queries of a pipeline's sessions; `no_records` has the columns of records."""

    def __init__(self, pipeline: Pipeline, connection: duckdb.DuckDBPyConnection, no_records: pa.Table) -> None:
        self._duck = connection
        self._sql = session_statements(pipeline)
        self._retracts = pipeline.emit.mode == "retract"
        self._changes = schema.changes(pipeline)
        self._results = Results(pipeline)
        none = duck.query(connection, self._sql.begin, records=no_records.append_column(ATOM, pa.array([], pa.int64())))
        self._names = none.column_names
        self.none = none.drop_columns(ATOM)

    def totals(self, worked: Worked, records: pa.Table, stored: pa.Table) -> Totals:
        """Bring together what records and stored atoms add up to at each place."""
        moved = np.flatnonzero(worked.stored >= 0)
        places = worked.stored[moved]
        before = stored.take(pa.array(moved)).append_column(ATOM, pa.array(places)).select(self._names)
        if records.num_rows == 0 and len(np.unique(places)) == len(places):
            return Totals.of(before)
        records = records.append_column(ATOM, pa.array(worked.place))
        if len(moved):
            return Totals.of(duck.query(self._duck, self._sql.add, records=records, atoms=before))
        return Totals.of(duck.query(self._duck, self._sql.begin, records=records))

    def made(self, worked: Worked, totals: Totals) -> tuple[Atoms, pa.Table]:
        """Return the atoms that a step leaves, and their accumulators."""
        fast = np.flatnonzero(worked.kept)
        made, values = worked.made[fast], totals.take(worked.made_of[fast])
        slow = worked.slow
        if not slow.made:
            return made, values
        lengths = [len(members) for members in slow.made_of]
        members = np.array([number for one in slow.made_of for number in one], dtype=np.int64)
        numbers = np.arange(len(lengths))
        groups = pa.table({"__group": np.repeat(numbers, lengths), ATOM: members + worked.slow_from})
        regrouped = Totals.of(duck.query(self._duck, self._sql.regroup, groups=groups, atoms=totals.table))
        return (
            np.concatenate([made, np.array(slow.made, dtype=made.dtype)]),
            pa.concat_tables([values, regrouped.take(numbers)]),
        )

    def changes(self, worked: Worked, totals: Totals, keys: pa.Table) -> pa.Table:
        """Return the changes: by start and key, but those of sessions that touch in the order in which they happen."""
        fast, slow = self._fast_rows(worked, totals), self._slow_rows(worked, totals)
        rows = pa.concat_tables([part for part in (fast, slow) if part is not None])
        if rows.num_rows == 0:
            return self._changes.empty_table()
        numbers = rows.column("__key")
        for name in keys.column_names:
            rows = rows.append_column(name, keys.column(name).take(numbers))
        return self._results.of(duck.query(self._duck, self._sql.changes, rows=rows))

    def _fast_rows(self, worked: Worked, totals: Totals) -> pa.Table:
        """Return what the fast path writes: each a row that nothing was in the place of."""
        made = worked.made[worked.written]
        count = len(made)
        panes = pa.array(["early", "on_time"]).take(pa.array((made["seen"] == FIRED).astype(np.int64)))
        return _beside(
            {
                "op": pa.array(["insert"]).take(pa.array(np.zeros(count, dtype=np.int64))),
                "pane": panes,
                "revision": np.zeros(count, dtype=np.int64),
                "window_start": np.ascontiguousarray(made["start"]),
                "window_end": np.ascontiguousarray(made["end"]),
                "__key": np.ascontiguousarray(made["key"]),
                "__first": np.ascontiguousarray(made["first"]),
                "__rank": np.zeros(count, dtype=np.int64),
            },
            totals.take(worked.made_of[worked.written]),
        )

    def _slow_rows(self, worked: Worked, totals: Totals) -> pa.Table | None:
        """Return what the slow path writes, with values as they were at its place of its history."""
        slow = worked.slow
        if not slow.changes:
            return None
        added = np.array(slow.histories.added, dtype=np.int64)
        stride = int(added[:, 1].max()) + 1
        columns = {"__history": added[:, 0], "__place": added[:, 1], ATOM: added[:, 2] + worked.slow_from}
        replayed = duck.query(self._duck, self._sql.replay, added=pa.table(columns), atoms=totals.table)
        numbers = replayed.column("__history").to_numpy() * stride + replayed.column("__place").to_numpy()
        values = Totals.of(replayed.drop_columns(["__history", "__place"]).append_column(ATOM, pa.array(numbers)))
        told = [
            (key, first, rank, change)
            for rank, (key, first, change) in enumerate(slow.changes)
            if self._retracts or change.op != "update_before"
        ]
        keys, firsts, ranks, changes = zip(*told, strict=True)
        return _beside(
            {
                "op": [change.op for change in changes],
                "pane": [change.pane for change in changes],
                "revision": np.array([change.revision for change in changes], dtype=np.int64),
                "window_start": np.array([change.start for change in changes], dtype=np.int64),
                "window_end": np.array([change.end for change in changes], dtype=np.int64),
                "__key": np.array(keys, dtype=np.int64),
                "__first": np.array(firsts, dtype=np.int64),
                "__rank": np.array(ranks, dtype=np.int64),
            },
            values.take(np.array([change.history * stride + change.place for change in changes], dtype=np.int64)),
        )


def _beside(columns: dict[str, object], table: pa.Table) -> pa.Table:
    """Put columns before those of a table."""
    return pa.table({**columns, **dict(zip(table.column_names, table.columns, strict=True))})
