"""Running aggregates without windows: one result for each key over all rows so far, revised by each change of the rows.

Each key has an accumulator. A step merges its rows into the accumulator, one cause after the other, and the
intermediate states are the results. A step writes little more than its own keys, but as soon as it has a row, it
searches all keys of its key group for them. So its cost grows with its rows and, less steeply, with the number of keys.
A key without rows has no result; if all of its rows have been retracted, only its revision number is kept.

A retracted row is subtracted, which works for counts and exact sums. If an aggregate does not allow this, or depends on
the merged values (`needs_rows`), all rows are kept, and the results of the keys that a step touches are recomputed from
their rows, as in windows over a changelog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from windrow.engine import duckdb_sql, schema
from windrow.engine.aggregates.catalogue import compile_running
from windrow.engine.columns import MAX_TIME, cast_table, rescale, unscale
from windrow.engine.duckdb_sql import identifier
from windrow.engine.operators.base import OperatorOutput, OperatorStep
from windrow.engine.operators.window.changelog import FIRES, NEIGHBOURS, ChangelogSql, changes_query, mark_rows
from windrow.engine.operators.window.late import LateChunks
from windrow.engine.operators.window.operator import emit_changes
from windrow.engine.operators.window.panes import PLACES, append_places, with_window_bounds
from windrow.engine.operators.window.sql import COUNT, PaneLists
from windrow.engine.schema import DIFF, LAST_PARTITION, OFFSET, PARTITION, PLACE, REVISION, TIME, WATERMARK, WINDOW
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState
from windrow.engine.state.runs import Runs, migrate_runs
from windrow.engine.state.store import OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.engine.windows import GLOBAL_START
from windrow.expressions import WindowSpec, emitted_rows, needs_rows

_PANES: Final = "panes"
_ROWS: Final = "rows"
_REVISIONS: Final = "revisions"


def open_running(
    spec: WindowSpec, *, is_changelog: bool, is_traced: bool = False
) -> RunningAggregateOperator | RunningRowsOperator:
    """Return the operator for running aggregates over the rows of a changelog, or over records."""
    if needs_rows(spec, is_changelog=is_changelog):
        return RunningRowsOperator(spec, is_traced=is_traced)
    return RunningAggregateOperator(spec, is_changelog=is_changelog, is_traced=is_traced)


class _Changes:
    """Output shared by both operators: the changes of a step, and a stream's records if other nodes read the rows."""

    def __init__(self, spec: WindowSpec, *, is_traced: bool) -> None:
        self._spec = spec
        self._is_traced = is_traced
        self._schema = schema.changes(emitted_rows(spec))
        self.none = pa.schema([*self._schema, *PLACES]).empty_table()

    def output(self, changes: pa.Table) -> OperatorOutput:
        """Return the output of a step, given its finished changes."""
        changes, records = emit_changes(changes, is_traced=self._is_traced)
        return OperatorOutput(changes=changes, records=records)

    def finish(self, made: pa.Table) -> pa.Table:
        """Convert the result of a query to positioned changes. No row is late, because the global window has no end."""
        changes = rescale(with_window_bounds(self._spec, made.drop_columns(list(PLACE))), self._schema)
        pane = changes.column_names.index("pane")
        on_time = pa.repeat(pa.scalar("on_time"), changes.num_rows)
        changes = changes.set_column(pane, changes.schema.field(pane), on_time)
        return append_places(changes, made.select(list(PLACE)).columns)


def _in_global_window(records: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return records in the global window, with decimals unscaled, in the schema `columns`."""
    rows = unscale(records).append_column(WINDOW, pa.repeat(pa.scalar(GLOBAL_START), records.num_rows))
    return cast_table(rows.select(columns.names), columns)


class RunningAggregateOperator:
    """Computes the aggregates of each key over all rows with one accumulator per key.

    A step stores what it adds to an accumulator as a separate row, which is merged with the others when runs are
    merged.
    """

    state: Final[Mapping[str, StoreKind]] = {_PANES: "runs"}

    def __init__(self, spec: WindowSpec, *, is_changelog: bool, is_traced: bool = False) -> None:
        self._spec = spec
        self._duck = duckdb_sql.Connection(spec.key)
        self._changes = _Changes(spec, is_traced=is_traced)
        self._chunks = LateChunks(spec, self._duck, PLACE)
        self._sql = RunningSql(spec, is_changelog=is_changelog)
        records = unscale(schema.record_schema(spec).empty_table()).schema
        more = [(DIFF, pa.int64())] if is_changelog else []
        self._records = pa.schema([*records, (WINDOW, pa.int64()), *more])
        begun = duckdb_sql.query(self._duck, self._sql.begin, records=self._records.empty_table())
        accumulators = begun.drop_columns(list(PLACE)).schema
        self._stored = pa.schema([*accumulators, (REVISION, pa.int32()), (TIME, pa.int64())])

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        runs = Runs.decode(_PANES, (state.summary or {}).get(_PANES))
        output = self._changes.output(self._changes.none)
        if step.records.num_rows:
            records = _in_global_window(step.records, self._records)
            panes = runs.table(self._stored, state)
            panes = self._cast(duckdb_sql.query(self._duck, self._sql.near, panes=panes, records=records))
            changes, added = [], []
            for chunk in self._chunks.of(records):
                begun = duckdb_sql.query(self._duck, self._sql.begin, records=chunk)
                history = duckdb_sql.query(self._duck, self._sql.history, begun=begun, stored=panes)
                made = duckdb_sql.query(self._duck, self._sql.changes, history=history)
                changes.append(self._changes.finish(made))
                added.append(self._cast(duckdb_sql.query(self._duck, self._sql.add, begun=begun, history=history)))
                panes = self._merge(pa.concat_tables([panes, added[-1]]))
            runs.add(self._merge(pa.concat_tables(added)), -MAX_TIME, state, lambda rows, _: self._merge(rows))
            output = self._changes.output(self._chunks.join(changes))
        state.summary = {_PANES: runs.encode()}
        return output

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate the accumulators."""
        return migrate_runs(RowsByKeyGroup(self._spec, self._duck), states)

    def _merge(self, panes: pa.Table) -> pa.Table:
        return self._cast(duckdb_sql.query(self._duck, self._sql.merge, panes=panes))

    def _cast(self, panes: pa.Table) -> pa.Table:
        return cast_table(panes.select(self._stored.names), self._stored)


class RunningSql:
    """Queries over records and accumulators; the column `COUNT` of an accumulator is the number of rows in it.

    - `begin`: create an accumulator for each cause from records.
    - `near`: select the stored accumulators that have the key of a record.
    - `history`: combine the two to the accumulators after each cause, as in `ChangelogSql`; version 0 is the stored
      one.
    - `changes`: turn `history` into changes.
    - `add`: create the accumulators to be merged into the stored ones, given the results of `begin` and `history`.
    - `merge`: merge panes into one for each key.
    """

    def __init__(self, spec: WindowSpec, *, is_changelog: bool) -> None:
        lists = PaneLists(spec, compile_running(spec, is_changelog=is_changelog))
        by, place = lists.by, ", ".join(PLACE)
        comma = ", " if lists.columns else ""
        own = f"{lists.columns}{comma}{COUNT}"
        merged = f"{lists.merged}{comma}sum({COUNT})::BIGINT AS {COUNT}"
        rows = f"sum({DIFF})::BIGINT" if is_changelog else "count(*)"
        self.begin = f"""
            SELECT {by}, {", ".join(f"max({name}) AS {name}" for name in PLACE)}, {lists.begin}{comma}{rows} AS {COUNT}
            FROM records GROUP BY {by}{f", {place}" if spec.node.emit.late == "each" else ""}
        """
        self.merge = f"SELECT {by}, {merged}, max({REVISION}) AS {REVISION}, 0 AS {TIME} FROM panes GROUP BY {by}"
        self.near = self.merge.replace("FROM panes", f"FROM panes SEMI JOIN records USING ({by})")
        first = f"{-MAX_TIME} AS {WATERMARK}, {LAST_PARTITION} AS {PARTITION}, {MAX_TIME} AS {OFFSET}"
        self.history = f"""
            SELECT *, false AS {FIRES}, {NEIGHBOURS},
                (__stored_revision + sum((__live AND __version > 0)::INTEGER)
                    OVER (versions ROWS UNBOUNDED PRECEDING))::INTEGER AS {REVISION}
            FROM (
                SELECT {by}, {place}, __version, {lists.running}{comma}sum({COUNT}) OVER history > 0 AS __live,
                    max(__stored_revision) OVER history AS __stored_revision
                FROM (
                    SELECT {by}, {first}, {own}, 0 AS __version, {REVISION} AS __stored_revision FROM stored
                    UNION ALL
                    SELECT {by}, {place}, {own}, row_number() OVER (PARTITION BY {by} ORDER BY {place}) AS __version,
                        -1 AS __stored_revision
                    FROM begun
                ) WINDOW history AS (PARTITION BY {by} ORDER BY __version ROWS UNBOUNDED PRECEDING)
            ) WINDOW versions AS (PARTITION BY {by} ORDER BY __version)
        """
        self.changes = changes_query(spec, lists)
        self.add = f"""
            SELECT {by}, {merged}, max({REVISION}) AS {REVISION}, 0 AS {TIME}
            FROM begun JOIN (SELECT {by}, max({REVISION}) AS {REVISION} FROM history GROUP BY {by}) USING ({by})
            GROUP BY {by}
        """


class RunningRowsOperator:
    """Computes the aggregates of each key over all rows of a changelog or all records, and stores these."""

    state: Final[Mapping[str, StoreKind]] = {_ROWS: "runs", _REVISIONS: "runs"}

    def __init__(self, spec: WindowSpec, *, is_traced: bool = False) -> None:
        self._spec = spec
        self._duck = duckdb_sql.Connection(spec.key)
        self._changes = _Changes(spec, is_traced=is_traced)
        records = unscale(schema.record_schema(spec).empty_table())
        self._sql = ChangelogSql(spec, records)
        self._rows = pa.schema([*records.schema, (DIFF, pa.int64()), (WINDOW, pa.int64())])
        keys = [self._rows.field(name) for name in spec.key]
        self._revisions = pa.schema([*keys, (REVISION, pa.int32()), (WINDOW, pa.int64()), (TIME, pa.int64())])
        by = ", ".join([WINDOW, *map(identifier, spec.key)])
        self._near = f"SELECT * FROM stored SEMI JOIN records USING ({by})"
        names = ", ".join([*map(identifier, spec.key), f"max({REVISION}) AS {REVISION}", WINDOW, f"0 AS {TIME}"])
        self._last = f"SELECT {names} FROM revisions GROUP BY {by}"

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        summary = state.summary or {}
        rows, revisions = (Runs.decode(kind, summary.get(kind)) for kind in (_ROWS, _REVISIONS))
        changes, records = self._changes.none, step.records
        if records.num_rows:
            if DIFF not in records.column_names:
                records = records.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), records.num_rows))
            records = _in_global_window(records, self._rows)
            stored = self._near_rows(rows, self._rows, records, state)
            all_rows = [
                mark_rows(table, np.full(table.num_rows, is_stored), np.zeros(table.num_rows, dtype=np.bool_))
                for table, is_stored in ((stored, True), (records, False))
            ]
            before = self._near_rows(revisions, self._revisions, records, state)
            last = duckdb_sql.query(self._duck, self._last, revisions=before).drop_columns(TIME)
            made, after = self._sql.revise(self._duck, pa.concat_tables(all_rows), last)
            changes = self._changes.finish(made)
            after = after.append_column(TIME, pa.repeat(pa.scalar(0, pa.int64()), after.num_rows))
            after = cast_table(after.select(self._revisions.names), self._revisions)
            rows.add(records, -MAX_TIME, state, self._net)
            revisions.add(after, -MAX_TIME, state, self._greatest)
        state.summary = {_ROWS: rows.encode(), _REVISIONS: revisions.encode()}
        return self._changes.output(changes)

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate rows and revision numbers."""
        return migrate_runs(RowsByKeyGroup(self._spec, self._duck, {_ROWS: self._rows}), states)

    def _near_rows(self, runs: Runs, rows: pa.Schema, records: pa.Table, state: OperatorState) -> pa.Table:
        """Return the stored rows that have the key of a record."""
        stored = runs.table(rows, state)
        return cast_table(duckdb_sql.query(self._duck, self._near, stored=stored, records=records), rows)

    def _net(self, rows: pa.Table, is_all: bool) -> pa.Table:  # noqa: FBT001, ARG002 - as `Compaction` has it
        """Reduce the changes of equal rows to their net effect."""
        kept = duckdb_sql.query(self._duck, self._sql.kept, rows=rows)
        return cast_table(kept.select(rows.column_names), rows.schema)

    def _greatest(self, revisions: pa.Table, is_all: bool) -> pa.Table:  # noqa: FBT001, ARG002 - as above
        """Return the last revision of each key."""
        return cast_table(duckdb_sql.query(self._duck, self._last, revisions=revisions), revisions.schema)
