"""SQL of sessions, and the values of a step: accumulators merged according to the plan, and the resulting changes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.columns import MAX_TIME, rescale
from windrow.engine.duckdb_sql import identifier
from windrow.engine.operators.session.fragments import FIRED, Fragments, Numbers
from windrow.engine.operators.session.plan import SessionPlan
from windrow.engine.operators.window.panes import PLACES, append_places
from windrow.engine.operators.window.sql import PaneLists
from windrow.engine.schema import LAST_PARTITION, PLACE
from windrow.expressions import WindowSpec, emitted_rows

FRAGMENT: Final = "__fragment"
"""The column with the number of the fragment to which a record or an accumulator belongs."""


_NUMBERS = "revision", *m.WINDOW_BOUNDS, "__key", "__first", "__rank", *PLACE
_CHANGE: Final = pa.schema([("op", pa.string()), ("pane", pa.string()), *((name, pa.int64()) for name in _NUMBERS)])
"""The leading columns of a change, which precede its values."""


class SessionSql:
    """Queries over `records` and `parts` (accumulators of fragments), which both have the column FRAGMENT.

    - `begin`: create parts from records.
    - `add`: merge records and parts by fragment number.
    - `regroup`: merge parts by group, given `groups` (__group, FRAGMENT).
    - `replay`: compute the accumulators of each history at each of its places, given parts and `added` (__history,
      __place, FRAGMENT).
    - `changes`: turn `rows` (the columns of a change, key, accumulators, __first and __rank) into changes, sorted by
      __first, key and __rank. With `is_traced`, changes have the columns of `PLACE`.
    """

    def __init__(self, spec: WindowSpec, *, is_traced: bool) -> None:
        lists = PaneLists(spec)
        merged = lists.merged
        self.begin = f"SELECT {FRAGMENT}, {lists.begin} FROM records GROUP BY {FRAGMENT}"
        self.add = f"""
            SELECT {FRAGMENT}, {merged} FROM ({self.begin} UNION ALL SELECT {FRAGMENT}, {lists.columns} FROM parts)
            GROUP BY {FRAGMENT}
        """
        self.regroup = f"""
            SELECT __group AS {FRAGMENT}, {merged} FROM groups JOIN parts USING ({FRAGMENT}) GROUP BY __group
        """
        self.replay = f"""
            SELECT __history, __place, {lists.running} FROM (
                SELECT __history, __place, {merged} FROM added JOIN parts USING ({FRAGMENT}) GROUP BY __history, __place
            ) WINDOW history AS (PARTITION BY __history ORDER BY __place ROWS UNBOUNDED PRECEDING)
        """
        keys, place = [identifier(name) for name in spec.key], PLACE if is_traced else ()
        columns = ["op", "pane", "revision", *m.WINDOW_BOUNDS, *keys, lists.values, *place]
        self.changes = f"SELECT {', '.join(columns)} FROM rows ORDER BY {', '.join(['__first', *keys, '__rank'])}"


@dataclass(frozen=True)
class AccumulatorTable:
    """Accumulators by number (the column FRAGMENT); `order` is the permutation that sorts the rows by number."""

    table: pa.Table
    numbers: Numbers
    order: Numbers

    @staticmethod
    def of(table: pa.Table) -> AccumulatorTable:
        """Index a table by its FRAGMENT column."""
        numbers = table.column(FRAGMENT).to_numpy()
        order = np.argsort(numbers)
        return AccumulatorTable(table, numbers[order], order)

    def take(self, numbers: Numbers) -> pa.Table:
        """Return the accumulators with the given numbers, in the order of these numbers."""
        return self.table.drop_columns(FRAGMENT).take(pa.array(self.order[np.searchsorted(self.numbers, numbers)]))


class SessionValues:
    """Runs the queries of a pipeline's sessions; `no_records` has the columns of records."""

    def __init__(
        self, spec: WindowSpec, connection: duckdb_sql.Connection, no_records: pa.Table, *, is_traced: bool
    ) -> None:
        self._duck = connection
        self._is_traced = is_traced
        self._sql = SessionSql(spec, is_traced=is_traced)
        self._retracts = spec.node.emit.mode == "retract"
        self._schema = schema.changes(emitted_rows(spec))
        self.no_changes = self._schema.empty_table()
        if is_traced:
            self.no_changes = pa.schema([*self._schema, *PLACES]).empty_table()
        none = duckdb_sql.query(
            connection, self._sql.begin, records=no_records.append_column(FRAGMENT, pa.array([], pa.int64()))
        )
        self._names = none.column_names
        self.none = none.drop_columns(FRAGMENT)

    def totals(self, plan: SessionPlan, records: pa.Table, stored: pa.Table) -> AccumulatorTable:
        """Return the accumulators of each place, merged from records and stored fragments."""
        moved = np.flatnonzero(plan.stored >= 0)
        places = plan.stored[moved]
        before = stored.take(pa.array(moved)).append_column(FRAGMENT, pa.array(places)).select(self._names)
        if records.num_rows == 0 and len(np.unique(places)) == len(places):
            return AccumulatorTable.of(before)
        records = records.append_column(FRAGMENT, pa.array(plan.place))
        if len(moved):
            return AccumulatorTable.of(duckdb_sql.query(self._duck, self._sql.add, records=records, parts=before))
        return AccumulatorTable.of(duckdb_sql.query(self._duck, self._sql.begin, records=records))

    def remaining(self, plan: SessionPlan, totals: AccumulatorTable) -> tuple[Fragments, pa.Table]:
        """Return the fragments that remain after a step, and their accumulators."""
        fast = np.flatnonzero(plan.kept)
        fragments, values = plan.made[fast], totals.take(plan.made_of[fast])
        slow = plan.slow
        if not slow.made:
            return fragments, values
        lengths = [len(members) for members in slow.made_of]
        members = np.array([*chain.from_iterable(slow.made_of)], dtype=np.int64)
        numbers = np.arange(len(lengths))
        groups = pa.table({"__group": np.repeat(numbers, lengths), FRAGMENT: members + plan.slow_from})
        regrouped = duckdb_sql.query(self._duck, self._sql.regroup, groups=groups, parts=totals.table)
        return (
            np.concatenate([fragments, np.array(slow.made, dtype=fragments.dtype)]),
            pa.concat_tables([values, AccumulatorTable.of(regrouped).take(numbers)]),
        )

    def changes(self, plan: SessionPlan, totals: AccumulatorTable, keys: pa.Table) -> pa.Table:
        """Return the changes by start and key; changes of sessions that touch are in the order in which they happen.

        Changes of traced sessions have the columns of `PLACE`.
        """
        fast, slow = self._fast_rows(plan, totals), self._slow_rows(plan, totals)
        rows = pa.concat_tables([part for part in (fast, slow) if part is not None])
        if rows.num_rows == 0:
            return self.no_changes
        numbers = rows.column("__key")
        for name in keys.column_names:
            rows = rows.append_column(name, keys.column(name).take(numbers))
        made = duckdb_sql.query(self._duck, self._sql.changes, rows=rows)
        if not self._is_traced:
            return rescale(made, self._schema)
        return append_places(rescale(made.drop_columns(list(PLACE)), self._schema), made.select(list(PLACE)).columns)

    def _fast_rows(self, plan: SessionPlan, totals: AccumulatorTable) -> pa.Table:
        """Return the rows that the fast path inserts."""
        made = plan.made[plan.written]
        count = len(made)
        zeros = np.zeros(count, dtype=np.int64)
        columns = [
            pa.repeat(pa.scalar("insert"), count),
            pa.array(["early", "on_time"]).take(pa.array((made["seen"] == FIRED).astype(np.int64))),
            zeros,
            *(np.ascontiguousarray(made[name]) for name in ("start", "end", "key", "first")),
            zeros,
            made["end"] - 1,
            np.full(count, LAST_PARTITION, dtype=np.int64),
            np.full(count, MAX_TIME, dtype=np.int64),
        ]
        return _append_values(pa.table(columns, schema=_CHANGE), totals.take(plan.made_of[plan.written]))

    def _slow_rows(self, plan: SessionPlan, totals: AccumulatorTable) -> pa.Table | None:
        """Return the changes of the slow path with their values, or None if there are no changes.

        The values of a change are those of its history at its place.
        """
        slow = plan.slow
        if not slow.changes:
            return None
        added = np.array(slow.histories.added, dtype=np.int64)
        stride = int(added[:, 1].max()) + 1
        columns = {"__history": added[:, 0], "__place": added[:, 1], FRAGMENT: added[:, 2] + plan.slow_from}
        replayed = duckdb_sql.query(self._duck, self._sql.replay, added=pa.table(columns), parts=totals.table)
        numbers = replayed.column("__history").to_numpy() * stride + replayed.column("__place").to_numpy()
        values = AccumulatorTable.of(
            replayed.drop_columns(["__history", "__place"]).append_column(FRAGMENT, pa.array(numbers))
        )
        rows = [
            (key, first, rank, change)
            for rank, (key, first, change) in enumerate(slow.changes)
            if self._retracts or change.op != "update_before"
        ]
        changes = ((*change[:5], key, first, rank, *change.cause) for key, first, rank, change in rows)
        places = np.array([change.history * stride + change.place for *_, change in rows], dtype=np.int64)
        return _append_values(pa.table(list(zip(*changes, strict=True)), schema=_CHANGE), values.take(places))


def _append_values(changes: pa.Table, values: pa.Table) -> pa.Table:
    return pa.table([*changes.columns, *values.columns], names=[*changes.column_names, *values.column_names])
