"""Windows over a changelog: the rows of other windows come, are taken back, and come again.

The rows of a window are kept, and the aggregates of the groups that a step touches are computed from them anew, so any
aggregate is exact. Changes come in the merged order, those that one record made together: they are one cause, and make
one revision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.columns import MAX_TIME, cast_table, pack, rescale, to_micros, unpack, unscale
from windrow.engine.duckdb_sql import identifier
from windrow.engine.operators.base import OperatorOutput, OperatorStep
from windrow.engine.operators.window.assigner import in_windows
from windrow.engine.operators.window.operator import begun_windows, change_records, merge_summaries, reduce_summary
from windrow.engine.operators.window.panes import PLACE_TYPES, with_window_bounds
from windrow.engine.operators.window.sql import PaneLists
from windrow.engine.schema import (
    DIFF,
    END,
    LAST_PARTITION,
    OFFSET,
    PARTITION,
    PLACE,
    REVISION,
    TIME,
    WATERMARK,
    WINDOW,
    record_schema,
)
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState, state_of_tables
from windrow.engine.state.store import OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.engine.state.window_store import (
    WindowSummary,
    is_in_windows,
    load_panes,
    split_by_window,
    store_panes,
    windows_in,
)
from windrow.engine.windows import window_bounds
from windrow.expressions import WindowSpec, made_rows

_ROWS: Final = "rows"
_REVISIONS: Final = "revisions"
IS_STORED: Final = "__stored"
FIRES: Final = "__fires"
NEIGHBOURS: Final = f"""
    lag(__live, 1, false) OVER versions AS __was, lead(__live) OVER versions AS __next_live,
    {", ".join(f"lead({name}) OVER versions AS __next{name}" for name in PLACE)}
"""
"""The columns of a history that are of the versions before and after."""


@dataclass(frozen=True)
class _Windows:
    """The windows of a step: those that fire, those fired that it touches, those with something stored, and the last.

    Nothing can reach the `evicted` ones after it.
    """

    firing: frozenset[int]
    touched: frozenset[int]
    known: frozenset[int]
    evicted: frozenset[int]


class ChangelogWindowOperator:
    """The aggregate of each window and key of rows that change.

    On time for a window [a, b) are the rows as of the last watermark before b + `hold` (microseconds), by which changes
    can be behind and be on time. Changes after it revise the aggregate: it is updated, or deleted with the last row.
    Nothing is expired: no change comes after the lateness of what makes the changes.
    """

    state: Final[Mapping[str, StoreKind]] = {_ROWS: "windows", _REVISIONS: "windows"}

    def __init__(self, spec: WindowSpec, hold: int = 0, *, is_traced: bool = False) -> None:
        if not isinstance(spec.node.window, m.Tumbling | m.Sliced | m.Calendar):
            msg = f"a changelog has no {type(spec.node.window).__name__} windows"
            raise TypeError(msg)
        self._spec = spec
        self._window = spec.node.window
        self._hold = hold
        self._is_traced = is_traced
        self._duck = duckdb_sql.Connection(spec.key)
        self._schema = schema.changes(made_rows(spec))
        self._sql = ChangelogSql(spec, unscale(record_schema(spec).empty_table()))
        fields = unscale(record_schema(spec).empty_table()).append_column(DIFF, pa.array([], pa.int64()))
        self._no_rows = fields.append_column(WINDOW, pa.array([], pa.int64()))
        keys = [self._no_rows.schema.field(name) for name in spec.key]
        stored = pa.schema([*keys, pa.field(REVISION, pa.int32()), pa.field(WINDOW, pa.int64())])
        self._no_revisions = stored.empty_table()
        self._no_changes = pa.schema(
            [*self._schema, *(pa.field(name, type_) for name, type_ in PLACE_TYPES)]
        ).empty_table()

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group: fire, revise, drop."""
        summary = WindowSummary() if state.summary is None else WindowSummary.decode(state.summary)
        time = step.time
        rows = unscale(in_windows(self._window, step.records))
        is_late = to_micros(rows.column(WATERMARK)) >= to_micros(rows.column(END)) + self._hold
        touched = windows_in(rows)
        known, revisable = summary.open | summary.fired, len(summary.fired)
        # none that has begun is open but in the state of an earlier version, which knew less of ends
        summary.fired |= begun_windows(self._window, touched - summary.open, time.fired_until)
        summary.open |= touched - summary.fired
        firing = self._ended(summary.open, MAX_TIME if time.end else time.low - self._hold)
        summary.open -= firing
        summary.fired |= firing
        rows = rows.drop_columns(END)
        for start, part in split_by_window(rows.filter(pa.array(is_in_windows(_windows(rows), summary.open)))):
            there = state.get(_ROWS, start) if start in known else None
            made = part.drop_columns(WINDOW)
            state.set(_ROWS, start, pack(made if there is None else pa.concat_tables([unpack(there), made])))
        evicted = self._ended(summary.fired, time.low - self._spec.lateness)
        windows = _Windows(frozenset(firing), frozenset(touched & summary.fired), frozenset(known), frozenset(evicted))
        changes = self._changes(rows, windows, state)
        for start in sorted(evicted & known):
            state.drop(_ROWS, start)
            state.drop(_REVISIONS, start)
        fired = len(summary.fired) - revisable
        summary.fired -= evicted
        state.summary = summary.encode()
        return OperatorOutput(
            changes=changes.drop_columns(list(PLACE)),
            records=(change_records(changes),) if self._is_traced else (),
            late_records=int(np.count_nonzero(is_late)),
            open_windows=len(summary.open),
            fired_windows=fired,
            closed_windows=len(evicted),
        )

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate rows and revisions."""
        groups = RowsByKeyGroup(self._spec, self._duck, {_ROWS: self._no_rows.drop_columns(WINDOW).schema})
        for _, state in states:
            for address, blob in state.items():
                groups.add(address, unpack(blob))
        together = merge_summaries([WindowSummary.decode(fields) for fields, _ in states])
        made: list[StoredState] = []
        for tables in groups.tables():
            panes = {("panes", bucket) for _, bucket in tables}
            made.append((reduce_summary(together, panes).encode(), state_of_tables(tables)))
        return made

    def _changes(self, rows: pa.Table, windows: _Windows, state: OperatorState) -> pa.Table:
        """Fire windows and revise those that have fired; store their rows."""
        firing, known, evicted = windows.firing, windows.known, windows.evicted
        involved = firing | windows.touched
        if not involved:
            return self._no_changes
        stored = load_panes(state, _ROWS, involved & known, self._no_rows)
        new = rows.filter(pa.array(is_in_windows(_windows(rows), involved))).select(self._no_rows.column_names)
        fires = is_in_windows(_windows(stored), firing)
        # what came before a window fires is in its first pane if it is on time, and so is what comes in the same step
        ends = window_bounds(self._window, _windows(new)).ends + self._hold
        begins = is_in_windows(_windows(new), firing) & (to_micros(new.column(WATERMARK)) < ends)
        all_rows = pa.concat_tables(
            [
                marked(stored, is_stored=np.ones(stored.num_rows, dtype=np.bool_), fires=fires),
                marked(new, is_stored=begins, fires=is_in_windows(_windows(new), firing)),
            ]
        )
        versions = duckdb_sql.query(self._duck, self._sql.versions, rows=all_rows)
        live = duckdb_sql.query(self._duck, self._sql.live, rows=all_rows, versions=versions)
        panes = duckdb_sql.query(self._duck, self._sql.begin, records=live)
        revisions = load_panes(state, _REVISIONS, involved & known, self._no_revisions)
        history = duckdb_sql.query(self._duck, self._sql.history, versions=versions, panes=panes, revisions=revisions)
        made = duckdb_sql.query(self._duck, self._sql.changes, history=history)
        kept = duckdb_sql.query(self._duck, self._sql.kept, rows=all_rows).select(self._no_rows.column_names)
        stays = ~is_in_windows(_windows(kept), evicted)
        kept = cast_table(kept.filter(pa.array(stays)), self._no_rows.schema)
        store_panes(state, _ROWS, kept)
        for start in (involved & known) - windows_in(kept):
            state.drop(_ROWS, start)  # all of its rows have been taken back
        last = duckdb_sql.query(self._duck, self._sql.revisions, history=history, stored=revisions)
        stays = ~is_in_windows(_windows(last), evicted)
        last = cast_table(last.select(self._no_revisions.column_names), self._no_revisions.schema)
        store_panes(state, _REVISIONS, last.filter(pa.array(stays)))
        return self._finished(made)

    def _finished(self, made: pa.Table) -> pa.Table:
        """Return changes with results, ends and places."""
        changes = rescale(with_window_bounds(self._spec, made.drop_columns(list(PLACE))), self._schema)
        ends = to_micros(changes.column("window_end"))
        is_pane = np.equal(made.column(PARTITION).to_numpy(), LAST_PARTITION)
        for name, type_ in PLACE_TYPES:
            values = to_micros(made.column(name).cast(pa.int64()))
            if name == WATERMARK:
                values = np.where(is_pane, np.maximum(values, ends + self._hold - 1), values)
            changes = changes.append_column(name, pa.array(values).cast(type_))
        return changes

    def _ended(self, windows: Collection[int], time: int) -> set[int]:
        numbers = np.fromiter(windows, dtype=np.int64, count=len(windows))
        return set(numbers[window_bounds(self._window, numbers).ends <= time].tolist())


def _windows(table: pa.Table) -> np.ndarray:
    return to_micros(table.column(WINDOW))


def marked(rows: pa.Table, *, is_stored: np.ndarray, fires: np.ndarray) -> pa.Table:
    """Return rows of a changelog as the queries of `ChangelogSql` take them."""
    return rows.append_column(IS_STORED, pa.array(is_stored)).append_column(FIRES, pa.array(fires))


class ChangelogSql:
    """Queries over changes of rows: `rows` are those of the windows that a step concerns, the stored ones marked.

    A window and key has a version for each cause: version 0 are the rows that are stored, or on time where the window
    fires. `versions`: rows -> the versions, with the place of each cause. `live`: rows and versions -> the rows of each
    version. `begin`: these -> accumulators by version. `history`: these, with the versions before and after.
    `changes`: history -> changes, the end of a window yet to be put in. `kept`: rows -> the rows to be stored.
    `revisions`: history and what was stored -> the last revision of each window and key.
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
        # where equal rows were added more than once, and for aggregates that depend on order: the last time
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


def changes_query(spec: WindowSpec, lists: PaneLists) -> str:
    """Return the query of the changes that a history (see `ChangelogSql`) makes."""
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
