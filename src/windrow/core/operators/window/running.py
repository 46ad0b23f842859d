"""Aggregates over rows that change, without windows: a result for each key, revised by each change of its rows.

All rows are kept, and the results of the keys that a step touches are computed from theirs anew, as windows over a
changelog do. A key without rows has no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from windrow.core import duckdb_sql, schema
from windrow.core.aggregates.accumulators import Results
from windrow.core.columns import MAX_TIME, cast_table, unscale
from windrow.core.duckdb_sql import identifier
from windrow.core.operators.base import OperatorOutput, OperatorStep
from windrow.core.operators.window.changelog import FIRES, IS_STORED, ChangelogSql
from windrow.core.operators.window.operator import change_records
from windrow.core.operators.window.panes import PLACE_TYPES, with_window_bounds
from windrow.core.schema import DIFF, PLACE, REVISION, TIME, WINDOW, record_schema
from windrow.core.state.migrate import RowsByKeyGroup, StoredState
from windrow.core.state.runs import Runs, migrate_runs
from windrow.core.state.store import OperatorState
from windrow.core.state.widening import StateChange
from windrow.core.windows import GLOBAL_START
from windrow.model import Pipeline

_ROWS: Final = "rows"
_REVISIONS: Final = "revisions"


class RunningAggregateOperator:
    """The aggregates of each key over all rows, those of a changelog or records, in one window for all time."""

    def __init__(self, pipeline: Pipeline, *, is_traced: bool = False) -> None:
        self._pipeline = pipeline
        self._is_traced = is_traced
        self._duck = duckdb_sql.connect()
        self._results = Results(pipeline)
        records = unscale(record_schema(pipeline).empty_table())
        self._sql = ChangelogSql(pipeline, records)
        self._rows = records.schema.append(pa.field(DIFF, pa.int64())).append(pa.field(WINDOW, pa.int64()))
        keys = [self._rows.field(name) for name in pipeline.key]
        self._revisions = pa.schema([*keys, (REVISION, pa.int32()), (WINDOW, pa.int64()), (TIME, pa.int64())])
        by = ", ".join([WINDOW, *map(identifier, pipeline.key)])
        self._near = f"SELECT * FROM stored SEMI JOIN records USING ({by})"
        names = ", ".join([*map(identifier, pipeline.key), f"max({REVISION}) AS {REVISION}", WINDOW, f"0 AS {TIME}"])
        self._no_changes = schema.changes(pipeline).empty_table()
        places = [pa.field(name, type_) for name, type_ in PLACE_TYPES]
        self._no_records = change_records(pa.schema([*schema.changes(pipeline), *places]).empty_table())
        self._last = f"SELECT {names} FROM revisions GROUP BY {by}"

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        summary = state.summary or {}
        rows, revisions = (Runs.decode(kind, summary.get(kind)) for kind in (_ROWS, _REVISIONS))
        given = step.records
        if not given.num_rows:
            state.summary = {_ROWS: rows.encode(), _REVISIONS: revisions.encode()}
            return OperatorOutput(self._no_changes, records=(self._no_records,) if self._is_traced else ())
        if DIFF not in given.column_names:
            given = given.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), given.num_rows))
        given = unscale(given).append_column(WINDOW, pa.repeat(pa.scalar(GLOBAL_START), given.num_rows))
        given = cast_table(given.select(self._rows.names), self._rows)
        stored = self._near_rows(rows, self._rows, given, state)
        all_rows = pa.concat_tables(
            [
                table.append_column(IS_STORED, pa.repeat(pa.scalar(is_stored), table.num_rows)).append_column(
                    FIRES, pa.repeat(pa.scalar(value=False), table.num_rows)
                )
                for table, is_stored in ((stored, True), (given, False))
            ]
        )
        before = self._near_rows(revisions, self._revisions, given, state)
        versions = duckdb_sql.query(self._duck, self._sql.versions, rows=all_rows)
        live = duckdb_sql.query(self._duck, self._sql.live, rows=all_rows, versions=versions)
        panes = duckdb_sql.query(self._duck, self._sql.begin, records=live)
        last = duckdb_sql.query(self._duck, self._last, revisions=before).drop_columns(TIME)
        history = duckdb_sql.query(self._duck, self._sql.history, versions=versions, panes=panes, revisions=last)
        changes = self._finished(duckdb_sql.query(self._duck, self._sql.changes, history=history))
        made = duckdb_sql.query(self._duck, self._sql.revisions, history=history, stored=last)
        made = made.append_column(TIME, pa.repeat(pa.scalar(0, pa.int64()), made.num_rows))
        rows.add(given, -MAX_TIME, state, self._net)
        revisions.add(cast_table(made.select(self._revisions.names), self._revisions), -MAX_TIME, state, self._greatest)
        state.summary = {_ROWS: rows.encode(), _REVISIONS: revisions.encode()}
        return OperatorOutput(
            changes=changes.drop_columns(list(PLACE)), records=(change_records(changes),) if self._is_traced else ()
        )

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate rows and revisions."""
        return migrate_runs(RowsByKeyGroup(self._pipeline, self._duck), states)

    def _near_rows(self, runs: Runs, rows: pa.Schema, given: pa.Table, state: OperatorState) -> pa.Table:
        """Return the stored rows that have the key of a record."""
        stored = runs.table(rows, state)
        return cast_table(duckdb_sql.query(self._duck, self._near, stored=stored, records=given), rows)

    def _net(self, rows: pa.Table, is_all: bool) -> pa.Table:  # noqa: FBT001, ARG002 - as `Compaction` has it
        """Return what changes of equal rows come to."""
        return cast_table(
            duckdb_sql.query(self._duck, self._sql.kept, rows=rows).select(rows.column_names), rows.schema
        )

    def _greatest(self, revisions: pa.Table, is_all: bool) -> pa.Table:  # noqa: FBT001, ARG002 - as above
        """Return the last revision of each key."""
        return cast_table(duckdb_sql.query(self._duck, self._last, revisions=revisions), revisions.schema)

    def _finished(self, made: pa.Table) -> pa.Table:
        """Return changes with results and places; nothing is late where there is no end."""
        changes = self._results.of(with_window_bounds(self._pipeline, made.drop_columns(list(PLACE))))
        pane = changes.column_names.index("pane")
        changes = changes.set_column(
            pane, changes.schema.field(pane), pa.repeat(pa.scalar("on_time"), changes.num_rows)
        )
        for name, type_ in PLACE_TYPES:
            changes = changes.append_column(name, made.column(name).cast(type_))
        return changes
