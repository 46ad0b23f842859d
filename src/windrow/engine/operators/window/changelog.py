"""Windows over a changelog, whose rows are inserted, retracted and inserted again. They can be rows of other windows.

The rows of a window are kept, and the aggregates of the groups that a step touches are recomputed from these rows, so
every aggregate is exact. Changes come in the merged order. Changes caused by the same record come together and make one
revision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.columns import MAX_TIME, cast_table, pack, rescale, to_micros, unpack, unscale
from windrow.engine.duckdb_sql import identifier
from windrow.engine.operators.base import OperatorOutput, OperatorStep
from windrow.engine.operators.window import operator
from windrow.engine.operators.window.assigner import in_windows
from windrow.engine.operators.window.panes import PLACES, append_places, with_window_bounds
from windrow.engine.operators.window.sql import PaneLists
from windrow.engine.schema import DIFF, END, LAST_PARTITION, OFFSET, PARTITION, PLACE, REVISION, TIME, WATERMARK, WINDOW
from windrow.engine.state import window_store
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState, state_of_tables
from windrow.engine.state.store import OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.engine.state.window_store import WindowSummary, windows_in
from windrow.engine.windows import window_bounds
from windrow.expressions import WindowSpec, emitted_rows

_ROWS: Final = "rows"
_REVISIONS: Final = "revisions"
IS_STORED: Final = "__stored"
FIRES: Final = "__fires"
NEIGHBOURS: Final = f"""
    lag(__live, 1, false) OVER versions AS __was, lead(__live) OVER versions AS __next_live,
    {", ".join(f"lead({name}) OVER versions AS __next{name}" for name in PLACE)}
"""
"""Columns of a history that hold values of the previous and next version."""


class ChangelogWindowOperator:
    """Computes the aggregate of each window and key over rows that change.

    For a window [a, b), the on-time rows are those that exist at the last watermark before b + `hold` (microseconds),
    because on-time changes can be that far behind. Later changes revise the aggregate: it is updated, or deleted with
    its last row. A change never expires, because none arrives after the lateness of the node that makes the changes.
    """

    state: Final[Mapping[str, StoreKind]] = {_ROWS: "windows", _REVISIONS: "windows"}

    def __init__(self, spec: WindowSpec, hold: int = 0, *, is_traced: bool = False) -> None:
        if not isinstance(spec.node.window, m.Tumbling | m.Sliced | m.Calendar):
            msg = f"{type(spec.node.window).__name__} windows over a changelog are not supported"
            raise TypeError(msg)
        self._spec = spec
        self._window = spec.node.window
        self._hold = hold
        self._is_traced = is_traced
        self._duck = duckdb_sql.Connection(spec.key)
        self._schema = schema.changes(emitted_rows(spec))
        records = unscale(schema.record_schema(spec).empty_table())
        self._sql = ChangelogSql(spec, records)
        self._no_rows = pa.schema([*records.schema, (DIFF, pa.int64()), (WINDOW, pa.int64())]).empty_table()
        keys = [records.schema.field(name) for name in spec.key]
        self._no_revisions = pa.schema([*keys, (REVISION, pa.int32()), (WINDOW, pa.int64())]).empty_table()
        self._no_changes = pa.schema([*self._schema, *PLACES]).empty_table()

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group: fire, revise and drop windows."""
        summary = WindowSummary() if state.summary is None else WindowSummary.decode(state.summary)
        time = step.time
        rows = unscale(in_windows(self._window, step.records))
        is_late = to_micros(rows.column(WATERMARK)) >= to_micros(rows.column(END)) + self._hold
        touched = windows_in(rows)
        known, revisable = summary.open | summary.fired, len(summary.fired)
        # a window that has begun is open only in states of earlier versions, which recorded fewer ends of the input
        summary.fired |= operator.begun_windows(self._window, touched - summary.open, time.fired_until)
        summary.open |= touched - summary.fired
        firing = operator.ended_windows(self._window, summary.open, MAX_TIME if time.end else time.low - self._hold)
        summary.open -= firing
        summary.fired |= firing
        rows = rows.drop_columns(END)
        for start, part in window_store.split_by_window(window_store.take_windows(rows, summary.open)):
            blob = state.get(_ROWS, start) if start in known else None
            added = part.drop_columns(WINDOW)
            state.set(_ROWS, start, pack(added if blob is None else pa.concat_tables([unpack(blob), added])))
        evicted = operator.ended_windows(self._window, summary.fired, time.low - self._spec.lateness)
        changes = self._changes(
            rows, state, firing=firing, revised=touched & summary.fired, known=known, evicted=evicted
        )
        for start in sorted(evicted & known):
            state.drop(_ROWS, start)
            state.drop(_REVISIONS, start)
        fired = len(summary.fired) - revisable
        summary.fired -= evicted
        state.summary = summary.encode()
        changes, records = operator.emit_changes(changes, is_traced=self._is_traced)
        return OperatorOutput(
            changes=changes,
            records=records,
            late_records=int(np.count_nonzero(is_late)),
            open_windows=len(summary.open),
            fired_windows=fired,
            closed_windows=len(evicted),
        )

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate rows and revision numbers."""
        groups = RowsByKeyGroup(self._spec, self._duck, {_ROWS: self._no_rows.drop_columns(WINDOW).schema})
        for _, state in states:
            for address, blob in state.items():
                groups.add(address, unpack(blob))
        together = operator.merge_summaries([WindowSummary.decode(fields) for fields, _ in states])
        made: list[StoredState] = []
        for tables in groups.tables():
            panes = {("panes", bucket) for _, bucket in tables}
            made.append((operator.reduce_summary(together, panes).encode(), state_of_tables(tables)))
        return made

    def _changes(
        self,
        rows: pa.Table,
        state: OperatorState,
        *,
        firing: set[int],
        revised: set[int],
        known: set[int],
        evicted: set[int],
    ) -> pa.Table:
        """Return the changes of firing and revised windows, and store the rows of both, unless the windows are evicted.

        `known` are the windows that have state.
        """
        involved = firing | revised
        if not involved:
            return self._no_changes
        stored = window_store.load_panes(state, _ROWS, involved & known, self._no_rows)
        new = window_store.take_windows(rows, involved).select(self._no_rows.column_names)
        # on-time rows that came before a window fires, or in the same step, are in its first pane
        ends = window_bounds(self._window, to_micros(new.column(WINDOW))).ends + self._hold
        fires = window_store.is_in_windows(new, firing)
        begins = fires & (to_micros(new.column(WATERMARK)) < ends)
        are_stored = np.ones(stored.num_rows, dtype=np.bool_)
        marked = mark_rows(stored, are_stored, window_store.is_in_windows(stored, firing))
        all_rows = pa.concat_tables([marked, mark_rows(new, begins, fires)])
        revisions = window_store.load_panes(state, _REVISIONS, involved & known, self._no_revisions)
        made, last = self._sql.revise(self._duck, all_rows, revisions)
        kept = duckdb_sql.query(self._duck, self._sql.kept, rows=all_rows).select(self._no_rows.column_names)
        kept = cast_table(window_store.drop_windows(kept, evicted), self._no_rows.schema)
        window_store.store_panes(state, _ROWS, kept)
        for start in (involved & known) - windows_in(kept):
            state.drop(_ROWS, start)  # all of its rows have been retracted
        last = cast_table(last.select(self._no_revisions.column_names), self._no_revisions.schema)
        window_store.store_panes(state, _REVISIONS, window_store.drop_windows(last, evicted))

        changes = rescale(with_window_bounds(self._spec, made.drop_columns(list(PLACE))), self._schema)
        watermarks, ends = to_micros(made.column(WATERMARK)), to_micros(changes.column("window_end"))
        is_pane = np.equal(made.column(PARTITION).to_numpy(), LAST_PARTITION)
        watermarks = np.where(is_pane, np.maximum(watermarks, ends + self._hold - 1), watermarks)
        return append_places(changes, [pa.array(watermarks), made.column(PARTITION), made.column(OFFSET)])


def mark_rows(rows: pa.Table, is_stored: np.ndarray, fires: np.ndarray) -> pa.Table:
    """Add the columns that the queries of `ChangelogSql` need to rows of a changelog."""
    return rows.append_column(IS_STORED, pa.array(is_stored)).append_column(FIRES, pa.array(fires))


class ChangelogSql:
    """Queries over changes of rows; the table `rows` has the rows of the windows that a step touches.

    Stored rows are marked. Each window and key has a version for each cause of changes. Version 0 consists of the
    stored rows or, if the window fires, of the on-time rows. The queries are:

    - `versions`: derive the versions from `rows`, with the position of each cause.
    - `live`: return the rows of each version, given `rows` and `versions`.
    - `begin`: create the accumulators of each version from `live`.
    - `history`: combine each version with the versions before and after it.
    - `changes`: turn `history` into changes, which have the window's number instead of its bounds.
    - `kept`: select from `rows` the rows to be stored.
    - `revisions`: return the last revision of each window and key, given `history` and the stored revisions.
    """

    def __init__(self, spec: WindowSpec, records: pa.Table) -> None:
        lists = PaneLists(spec)
        by = lists.by
        # a key is a field, too
        fields = [identifier(name) for name in records.column_names[4:]]
        columns = list(dict.fromkeys([WINDOW, *map(identifier, spec.key), *fields, TIME]))
        group = ", ".join(columns)
        of_rows = ", ".join(f"n.{name}" for name in columns)
        place = ", ".join(PLACE)
        is_each = spec.node.emit.late == "each"
        number = f"dense_rank() OVER (PARTITION BY {by}, {IS_STORED} ORDER BY {place})" if is_each else "1"
        numbered = f"(SELECT *, CASE WHEN {IS_STORED} THEN 0 ELSE {number} END AS __version FROM rows)"
        # if equal rows were added more than once, the last time counts, for aggregates that depend on order
        last = f"max({{'w': {WATERMARK}, 'p': {PARTITION}, 'o': {OFFSET}}}) FILTER ({DIFF} > 0) AS __last"
        self.versions = f"""
            SELECT {by}, __version, bool_or({FIRES}) OVER (PARTITION BY {by}) AS {FIRES}, {place} FROM (
                SELECT {by}, __version, bool_or({FIRES}) AS {FIRES}, max({WATERMARK}) AS {WATERMARK},
                    max({PARTITION}) AS {PARTITION}, max({OFFSET}) AS {OFFSET}
                FROM {numbered} WHERE __version > 0 GROUP BY {by}, __version
                UNION ALL
                SELECT {by}, 0 AS __version, bool_or({FIRES}) AS {FIRES}, {-MAX_TIME} AS {WATERMARK},
                    {LAST_PARTITION} AS {PARTITION}, {MAX_TIME} AS {OFFSET}
                FROM rows GROUP BY {by} HAVING bool_or({FIRES} OR NOT {IS_STORED})
            )
        """
        both = " AND ".join(f"v.{name} = n.{name}" for name in (WINDOW, *map(identifier, spec.key)))
        self.live = f"""
            SELECT {group}, __version, __last.w AS {WATERMARK}, __last.p AS {PARTITION}, __last.o AS {OFFSET},
                unnest(range(__copies)) AS __copy
            FROM (
                SELECT {of_rows}, v.__version, sum(n.{DIFF})::BIGINT AS __copies,
                    max(n.__place) FILTER (n.{DIFF} > 0) AS __last
                FROM versions v JOIN (
                    SELECT *, {{'w': {WATERMARK}, 'p': {PARTITION}, 'o': {OFFSET}}} AS __place FROM {numbered}
                ) n ON {both} AND n.__version <= v.__version
                GROUP BY {of_rows}, v.__version HAVING sum(n.{DIFF}) > 0
            ) ORDER BY __version, {TIME}, __last, {group}
        """
        self.begin = f"SELECT {by}, __version, {lists.begin} FROM records GROUP BY {by}, __version"
        self.history = f"""
            SELECT *, {NEIGHBOURS},
                (coalesce(__stored_revision, -1) + sum((__live AND (__version > 0 OR {FIRES}))::INTEGER)
                    OVER (versions ROWS UNBOUNDED PRECEDING))::INTEGER AS {REVISION}
            FROM (
                SELECT * EXCLUDE ({REVISION}, __there), {REVISION} AS __stored_revision,
                    coalesce(__there, false) AS __live
                FROM versions LEFT JOIN (SELECT *, true AS __there FROM panes) USING ({by}, __version)
                    LEFT JOIN revisions USING ({by})
            ) WINDOW versions AS (PARTITION BY {by} ORDER BY __version)
        """
        self.changes = changes_query(spec, lists)
        self.kept = f"""
            SELECT {group}, __last.w AS {WATERMARK}, __last.p AS {PARTITION}, __last.o AS {OFFSET}, {DIFF}
            FROM (
                SELECT {group}, sum({DIFF})::BIGINT AS {DIFF}, {last} FROM rows
                GROUP BY {group} HAVING sum({DIFF}) <> 0
            )
        """
        self.revisions = f"""
            SELECT {by}, max({REVISION}) AS {REVISION} FROM (
                SELECT {by}, {REVISION} FROM history UNION ALL SELECT {by}, {REVISION} FROM stored
            ) GROUP BY {by} HAVING max({REVISION}) >= 0
        """

    def revise(
        self, connection: duckdb_sql.Connection, rows: pa.Table, revisions: pa.Table
    ) -> tuple[pa.Table, pa.Table]:
        """Return the changes that rows make, and the last revisions. `revisions` are the stored revisions."""
        versions = duckdb_sql.query(connection, self.versions, rows=rows)
        live = duckdb_sql.query(connection, self.live, rows=rows, versions=versions)
        panes = duckdb_sql.query(connection, self.begin, records=live)
        history = duckdb_sql.query(connection, self.history, versions=versions, panes=panes, revisions=revisions)
        changes = duckdb_sql.query(connection, self.changes, history=history)
        return changes, duckdb_sql.query(connection, self.revisions, history=history, stored=revisions)


def changes_query(spec: WindowSpec, lists: PaneLists) -> str:
    """Return the query that turns a history (see `ChangelogSql`) into changes."""
    place = ", ".join(PLACE)
    retracted = "" if spec.node.emit.mode == "retract" else "AND NOT __next_live"
    return f"""
        SELECT * EXCLUDE (__rank) FROM (
            SELECT CASE WHEN __version = 0 OR NOT __was THEN 'insert' ELSE 'update_after' END AS op,
                CASE WHEN __version = 0 THEN 'on_time' ELSE 'late' END AS pane, {REVISION} AS revision,
                {lists.change}, {place}, 2 * __version AS __rank
            FROM history WHERE __live AND (__version > 0 OR {FIRES})
            UNION ALL
            SELECT if(__next_live, 'update_before', 'delete') AS op, 'late' AS pane, {REVISION} AS revision,
                {lists.change}, {", ".join(f"__next{name} AS {name}" for name in PLACE)},
                2 * __version + 1 AS __rank
            FROM history WHERE __live AND __next_live IS NOT NULL {retracted}
        ) {lists.change_order}, __rank
    """
