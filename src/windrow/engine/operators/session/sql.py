"""SQL of sessions, and the values of a step: accumulators merged as the step's plan says, and changes made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from windrow.engine import duckdb_sql, schema
from windrow.engine.aggregates.catalogue import compile_aggregates
from windrow.engine.columns import MAX_TIME, rescale
from windrow.engine.duckdb_sql import identifier
from windrow.engine.operators.session.fragments import FIRED, Fragments, Numbers
from windrow.engine.operators.session.merge import SessionPlan
from windrow.engine.operators.window.panes import PLACE_TYPES
from windrow.engine.schema import LAST_PARTITION, OFFSET, PARTITION, PLACE, WATERMARK
from windrow.expressions import WindowSpec, made_rows

FRAGMENT: Final = "__atom"
"""The column that says which fragment a record or an accumulator belongs to."""


@dataclass(frozen=True)
class SessionSql:
    """Queries over `records` and `atoms` (accumulators of fragments); both have the column FRAGMENT.

    `begin`: records -> atoms. `add`: records and atoms -> atoms, one of a number. `regroup`: atoms and `groups`
    (__group, FRAGMENT) -> atoms by group. `replay`: atoms and `added` (__history, __place, FRAGMENT) -> accumulators of
    each history at each of its places. `changes`: `rows` (what a change says of itself, key, accumulators, __first and
    __rank) -> changes, by __first and key, then __rank.
    """

    begin: str
    add: str
    regroup: str
    replay: str
    changes: str


def session_sql(spec: WindowSpec, *, is_traced: bool = False) -> SessionSql:
    """Write the queries of a pipeline; with `is_traced` changes have a PLACE, too."""
    fold = compile_aggregates(spec)
    accumulators = [accumulator for one in fold for accumulator in one.accumulators]
    names = [identifier(accumulator.column) for accumulator in accumulators]
    columns = ", ".join(names)
    begin = ", ".join(f"{one.begin} AS {name}" for one, name in zip(accumulators, names, strict=True))
    merged = ", ".join(f"{one.merged()} AS {name}" for one, name in zip(accumulators, names, strict=True))
    running = ", ".join(
        f"{one.merged(' OVER history')} AS {name}" for one, name in zip(accumulators, names, strict=True)
    )
    values = ", ".join(f"{one.finish} AS {identifier(one.name)}" for one in fold)
    keys = [identifier(name) for name in spec.key]
    place = list(PLACE) if is_traced else []
    begun = f"SELECT {FRAGMENT}, {begin} FROM records GROUP BY {FRAGMENT}"
    return SessionSql(
        begin=begun,
        add=f"""
            SELECT {FRAGMENT}, {merged} FROM ({begun} UNION ALL SELECT {FRAGMENT}, {columns} FROM atoms)
            GROUP BY {FRAGMENT}
        """,
        regroup=f"SELECT __group AS {FRAGMENT}, {merged} FROM groups JOIN atoms USING ({FRAGMENT}) GROUP BY __group",
        replay=f"""
            SELECT __history, __place, {running} FROM (
                SELECT __history, __place, {merged} FROM added JOIN atoms USING ({FRAGMENT}) GROUP BY __history, __place
            ) WINDOW history AS (PARTITION BY __history ORDER BY __place ROWS UNBOUNDED PRECEDING)
        """,
        changes=f"""
            SELECT {", ".join(["op", "pane", "revision", "window_start", "window_end", *keys, values, *place])}
            FROM rows ORDER BY {", ".join(["__first", *keys, "__rank"])}
        """,
    )


@dataclass(frozen=True)
class AccumulatorTable:
    """Accumulators by number (the column FRAGMENT); `order` sorts the rows by it."""

    table: pa.Table
    numbers: Numbers
    order: Numbers

    @staticmethod
    def of(table: pa.Table) -> AccumulatorTable:
        """Order a table by its numbers."""
        numbers = table.column(FRAGMENT).to_numpy()
        order = np.argsort(numbers)
        return AccumulatorTable(table, numbers[order], order)

    def take(self, numbers: Numbers) -> pa.Table:
        """Return the accumulators of some numbers, in their order."""
        return self.table.drop_columns(FRAGMENT).take(pa.array(self.order[np.searchsorted(self.numbers, numbers)]))


class SessionValues:
    """Runs the queries of a pipeline's sessions; `no_records` has the columns of records."""

    def __init__(
        self,
        spec: WindowSpec,
        connection: duckdb_sql.Connection,
        no_records: pa.Table,
        *,
        is_traced: bool = False,
    ) -> None:
        self._duck = connection
        self._is_traced = is_traced
        self._sql = session_sql(spec, is_traced=is_traced)
        self._retracts = spec.node.emit.mode == "retract"
        self._schema = schema.changes(made_rows(spec))
        self.no_changes = self._schema.empty_table()
        if is_traced:
            self.no_changes = with_places(self.no_changes, self.no_changes)
        none = duckdb_sql.query(
            connection, self._sql.begin, records=no_records.append_column(FRAGMENT, pa.array([], pa.int64()))
        )
        self._names = none.column_names
        self.none = none.drop_columns(FRAGMENT)

    def totals(self, worked: SessionPlan, records: pa.Table, stored: pa.Table) -> AccumulatorTable:
        """Return the accumulators of each place: records and stored fragments merged."""
        moved = np.flatnonzero(worked.stored >= 0)
        places = worked.stored[moved]
        before = stored.take(pa.array(moved)).append_column(FRAGMENT, pa.array(places)).select(self._names)
        if records.num_rows == 0 and len(np.unique(places)) == len(places):
            return AccumulatorTable.of(before)
        records = records.append_column(FRAGMENT, pa.array(worked.place))
        if len(moved):
            return AccumulatorTable.of(duckdb_sql.query(self._duck, self._sql.add, records=records, atoms=before))
        return AccumulatorTable.of(duckdb_sql.query(self._duck, self._sql.begin, records=records))

    def made(self, worked: SessionPlan, totals: AccumulatorTable) -> tuple[Fragments, pa.Table]:
        """Return the fragments that a step leaves, and their accumulators."""
        fast = np.flatnonzero(worked.kept)
        made, values = worked.made[fast], totals.take(worked.made_of[fast])
        slow = worked.slow
        if not slow.made:
            return made, values
        lengths = [len(members) for members in slow.made_of]
        members = np.array([number for one in slow.made_of for number in one], dtype=np.int64)
        numbers = np.arange(len(lengths))
        groups = pa.table({"__group": np.repeat(numbers, lengths), FRAGMENT: members + worked.slow_from})
        regrouped = AccumulatorTable.of(
            duckdb_sql.query(self._duck, self._sql.regroup, groups=groups, atoms=totals.table)
        )
        return (
            np.concatenate([made, np.array(slow.made, dtype=made.dtype)]),
            pa.concat_tables([values, regrouped.take(numbers)]),
        )

    def changes(self, worked: SessionPlan, totals: AccumulatorTable, keys: pa.Table) -> pa.Table:
        """Return the changes: by start and key, but those of sessions that touch in the order in which they happen.

        Those of traced sessions have a PLACE.
        """
        fast, slow = self._fast_rows(worked, totals), self._slow_rows(worked, totals)
        rows = pa.concat_tables([part for part in (fast, slow) if part is not None])
        if rows.num_rows == 0:
            return self.no_changes
        numbers = rows.column("__key")
        for name in keys.column_names:
            rows = rows.append_column(name, keys.column(name).take(numbers))
        made = duckdb_sql.query(self._duck, self._sql.changes, rows=rows)
        if not self._is_traced:
            return rescale(made, self._schema)
        return with_places(rescale(made.drop_columns(list(PLACE)), self._schema), made)

    def _fast_rows(self, worked: SessionPlan, totals: AccumulatorTable) -> pa.Table:
        """Return the rows that the fast path inserts."""
        made = worked.made[worked.written]
        count = len(made)
        panes = pa.array(["early", "on_time"]).take(pa.array((made["seen"] == FIRED).astype(np.int64)))
        return _with_columns_before(
            {
                "op": pa.array(["insert"]).take(pa.array(np.zeros(count, dtype=np.int64))),
                "pane": panes,
                "revision": np.zeros(count, dtype=np.int64),
                "window_start": np.ascontiguousarray(made["start"]),
                "window_end": np.ascontiguousarray(made["end"]),
                "__key": np.ascontiguousarray(made["key"]),
                "__first": np.ascontiguousarray(made["first"]),
                "__rank": np.zeros(count, dtype=np.int64),
                WATERMARK: np.ascontiguousarray(made["end"]) - 1,
                PARTITION: np.full(count, LAST_PARTITION, dtype=np.int64),
                OFFSET: np.full(count, MAX_TIME, dtype=np.int64),
            },
            totals.take(worked.made_of[worked.written]),
        )

    def _slow_rows(self, worked: SessionPlan, totals: AccumulatorTable) -> pa.Table | None:
        """Return the changes of the slow path, each with the values of its history at its place, or None."""
        slow = worked.slow
        if not slow.changes:
            return None
        added = np.array(slow.histories.added, dtype=np.int64)
        stride = int(added[:, 1].max()) + 1
        columns = {"__history": added[:, 0], "__place": added[:, 1], FRAGMENT: added[:, 2] + worked.slow_from}
        replayed = duckdb_sql.query(self._duck, self._sql.replay, added=pa.table(columns), atoms=totals.table)
        numbers = replayed.column("__history").to_numpy() * stride + replayed.column("__place").to_numpy()
        values = AccumulatorTable.of(
            replayed.drop_columns(["__history", "__place"]).append_column(FRAGMENT, pa.array(numbers))
        )
        rows = [
            (key, first, rank, change)
            for rank, (key, first, change) in enumerate(slow.changes)
            if self._retracts or change.op != "update_before"
        ]
        keys, firsts, ranks, changes = zip(*rows, strict=True)
        return _with_columns_before(
            {
                "op": [change.op for change in changes],
                "pane": [change.pane for change in changes],
                "revision": np.array([change.revision for change in changes], dtype=np.int64),
                "window_start": np.array([change.start for change in changes], dtype=np.int64),
                "window_end": np.array([change.end for change in changes], dtype=np.int64),
                "__key": np.array(keys, dtype=np.int64),
                "__first": np.array(firsts, dtype=np.int64),
                "__rank": np.array(ranks, dtype=np.int64),
                **{
                    name: np.array([change.cause[number] for change in changes], dtype=np.int64)
                    for number, name in enumerate(PLACE)
                },
            },
            values.take(np.array([change.history * stride + change.place for change in changes], dtype=np.int64)),
        )


def with_places(changes: pa.Table, rows: pa.Table) -> pa.Table:
    """Return changes with the places of rows; those of an empty table have none."""
    for name, type_ in PLACE_TYPES:
        places = pa.array([], type_) if not rows.num_rows else rows.column(name).cast(type_)
        changes = changes.append_column(name, places)
    return changes


def _with_columns_before(columns: dict[str, object], table: pa.Table) -> pa.Table:
    """Put columns before those of a table."""
    return pa.table({**columns, **dict(zip(table.column_names, table.columns, strict=True))})
