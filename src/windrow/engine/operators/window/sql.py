"""SQL of the window operator, written once for a pipeline.

`WindowSql` is for panes that only the watermark fires, `EarlyPaneSql` for windows with early panes. Each common table
expression is written by the function of its name. Columns that the queries add to window, key and accumulators:

| column | in | meaning |
| --- | --- | --- |
| `__rank` | `revise`, changes | order within a window and key: the stored pane first, then its revisions |
| `__base` | `revise` | the row is the stored pane, not a revision of it |
| `__last` | `revise` | the row is the newest, which is stored |
| `__place` | `events` | order of effect, see below |
| `__early` | `events` | an early pane follows the row |
| `__on_time` | `events` | the on-time pane follows the row |
| `__touched` | `touched` | the step can change the window and key |
| `__newest` | `located` | the row is the last one that is not late |
| `__firing` | `located` | the window fires in this step |
| `__pending_since` | `located` | processing time of the first record that no pane has shown |
| `__last_revision` | `located` | revision of the pane emitted last, null if there is none |
| `__early_panes` | `located` | number of early panes before this step |
| `__panes_here` | `fired` | number of panes that follow the row (the stored pane counts as one) |
| `__panes_before`, `__panes_all` | `events` | number of panes before the row, and of the window and key |
| `__total` | `events` | number of records up to the row |
| `__index` | `panes` | number of the pane among those of the window and key |
| `__next` | `ordered` | name of the pane that replaces this one, null if none does |
| `__group` | `late` | number of the revision that late records make together, where they are counted |
| `__emitted` | `settle` | the row is in a pane that was emitted, not pending |
| `__next_...` | `revise` | the place of the revision that replaces the row, where revisions are traced |

Places are -2 for what the last pane emitted, -1 for what was pending before the step, 0, 1, ... for on-time records in
chunks that end with an early pane, and `_LATE` for late records. With early panes by event time, what is pending has a
place for each pane that it waits for. A pane is the running merge of the rows up to its
place; in mode discard, of the rows since the pane before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, assert_never

import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql
from windrow.engine.aggregates.accumulators import Accumulator, AggregateSql
from windrow.engine.aggregates.catalogue import compile_aggregates
from windrow.engine.columns import MAX_TIME
from windrow.engine.duckdb_sql import identifier
from windrow.engine.operators.window.triggers import SqlTrigger
from windrow.engine.schema import OFFSET, PARTITION, PLACE, REVISION, TIME, WATERMARK, WINDOW
from windrow.engine.windows import GLOBAL_START
from windrow.expressions import WindowSpec

COUNT: Final = "__count"
SINCE: Final = "__since"
PANES: Final = "__panes"
MEMORY: Final = "__memory"
CHUNK: Final = "__chunk"
EARLY: Final = "__early"
ROW: Final = "__row"
NTH: Final = "__nth"
WAITING: Final = "__waiting"
GROUP: Final = "__group"
TOUCHED: Final = "__touched"
_LATE: Final = 1 << 62
"""The place of late records, behind all others."""


class PaneLists:
    """The select lists that the queries of a pipeline share; `aggregates` default to those of the pipeline."""

    def __init__(
        self, spec: WindowSpec, aggregates: Sequence[AggregateSql] | None = None, *, is_traced: bool = False
    ) -> None:
        folds = compile_aggregates(spec) if aggregates is None else aggregates
        accumulators = [accumulator for fold in folds for accumulator in fold.accumulators]

        def each(sql: Callable[[Accumulator], str]) -> str:
            return ", ".join(f"{sql(accumulator)} AS {identifier(accumulator.column)}" for accumulator in accumulators)

        keys = [identifier(name) for name in spec.key]
        self.by = ", ".join([WINDOW, *keys])
        self.columns = ", ".join(identifier(accumulator.column) for accumulator in accumulators)
        self.begin = each(lambda accumulator: accumulator.begin)
        self.merged = each(lambda accumulator: accumulator.merge_sql())
        self.running = each(lambda accumulator: accumulator.merge_sql(" OVER history"))
        self.values = ", ".join(f"{fold.finish} AS {identifier(fold.name)}" for fold in folds)
        # the operator knows where windows start and end, and replaces both
        self.change = ", ".join([f"{WINDOW} AS window_start", f"{WINDOW} AS window_end", *keys, self.values])
        self.place = ", ".join(PLACE if is_traced else PLACE[1:])
        match spec.node.emit.late:
            case "each":
                self.late_place, self.late_by = self.place, f"{self.by}, {self.place}"
            case "batch":
                self.late_place, self.late_by = f"0 AS {PARTITION}, 0 AS {OFFSET}", self.by
            case m.Records():
                self.late_place, self.late_by = f"{GROUP} AS {PARTITION}, 0 AS {OFFSET}", f"{self.by}, {GROUP}"
            case _:
                assert_never(spec.node.emit.late)
        # before all other places, also those in a partition without a watermark
        first = {WATERMARK: f"{-MAX_TIME} - 1", PARTITION: -1, OFFSET: -1}
        self.first_place = ", ".join(f"{first[name]} AS {name}" for name in (PLACE if is_traced else PLACE[1:]))
        self.change_order = f"ORDER BY {', '.join(['window_start', *keys])}"


class WindowSql:
    """Queries over tables of records (window and fields) and of panes (window, key, accumulators, revision).

    The cost of a small step is that of planning its queries, so there are few of them.

    `begin`: records -> panes. `add`: records and panes -> panes, one a window and key. `merge`: panes -> panes, one a
    window and key. `revise`: base (panes) and late (records) -> history: every base row that is revised and every
    revision of it, as panes with `__rank` (the base, where there is one, before its revisions), `__base` and `__last`.
    `settle`: base and history -> panes as they are after the revisions. `fired`: panes -> on-time changes. `revised`:
    history -> late changes. In changes, which are by window and key, both bounds of a window are its number, yet to
    be replaced. With `is_traced` late records revise in the merged order, and a change has the place of the record that
    made it (`PLACE`) as its last columns.
    """

    def __init__(self, spec: WindowSpec, *, is_traced: bool = False) -> None:
        lists = PaneLists(spec, is_traced=is_traced)
        by = lists.by
        stored = f"SELECT {by}, {lists.columns}, {REVISION}"
        self.begin = f"SELECT {by}, {lists.begin}, 0::INTEGER AS {REVISION} FROM records GROUP BY {by}"
        self.add = f"""
            SELECT {by}, {lists.merged}, max({REVISION}) AS {REVISION}
            FROM ({self.begin} UNION ALL {stored} FROM panes) GROUP BY {by}
        """
        self.merge = f"SELECT {by}, {lists.merged}, max({REVISION}) AS {REVISION} FROM panes GROUP BY {by}"
        self.revise = _revise_query(spec, lists, is_traced=is_traced)
        self.settle = f"""
            {stored} FROM base ANTI JOIN history USING ({by})
            UNION ALL
            {stored} FROM history WHERE __last
        """
        self.fired = f"""
            SELECT 'insert' AS op, 'on_time' AS pane, {REVISION} AS revision, {lists.change}
            FROM panes {lists.change_order}
        """
        self.revised = _revised_query(spec, lists, is_traced=is_traced)

    def add_records(
        self, connection: duckdb_sql.Connection, records: pa.Table, parts: pa.Table, stored: pa.Table
    ) -> pa.Table:
        """Return the stored panes, one a window and key, with records and parts of panes merged into them."""
        panes = pa.concat_tables([stored, parts]) if parts.num_rows else stored
        if records.num_rows and panes.num_rows:
            return duckdb_sql.query(connection, self.add, records=records, panes=panes)
        if records.num_rows:
            return duckdb_sql.query(connection, self.begin, records=records)
        return duckdb_sql.query(connection, self.merge, panes=panes) if parts.num_rows else stored


window_sql = WindowSql


def _revise_query(spec: WindowSpec, lists: PaneLists, *, is_traced: bool) -> str:
    """Return the query of stored panes and their revisions by late records, by running merges."""
    by = lists.by
    match spec.node.emit.mode:
        case "retract" | "accumulate":
            history = by
        case "discard":  # a revision holds its own records only
            history = f"{by}, {lists.place}"
        case _:
            assert_never(spec.node.emit.mode)
    trace = ""
    if is_traced:
        trace = "".join(f", {name}, lead({name}) OVER places AS __next{name}" for name in PLACE)
    return f"""
        WITH {_begun_cte(lists)}, {_steps_cte(lists)}
        SELECT {by}, {lists.running},
            (coalesce(first_value({REVISION}) OVER places, 0) + row_number() OVER places - 1)::INTEGER
                AS {REVISION},
            row_number() OVER places AS __rank,
            {REVISION} IS NOT NULL AS __base,
            lead(true, 1, false) OVER places = false AS __last{trace}
        FROM steps
        WINDOW places AS (PARTITION BY {by} ORDER BY {lists.place}),
            history AS (PARTITION BY {history} ORDER BY {lists.place} ROWS UNBOUNDED PRECEDING)
    """


def _begun_cte(lists: PaneLists) -> str:
    """`begun`: late records as accumulators, a row for each revision."""
    return f"begun AS (SELECT {lists.by}, {lists.late_place}, {lists.begin} FROM late GROUP BY {lists.late_by})"


def _steps_cte(lists: PaneLists) -> str:
    """`steps`: the stored panes that are revised, before their revisions."""
    return f"""steps AS (
        SELECT {lists.by}, {lists.first_place}, {lists.columns}, {REVISION}
        FROM base SEMI JOIN begun USING ({lists.by})
        UNION ALL
        SELECT {lists.by}, {lists.place}, {lists.columns}, NULL AS {REVISION} FROM begun
    )"""


def _revised_query(spec: WindowSpec, lists: PaneLists, *, is_traced: bool) -> str:
    """Return the query of the late changes: each revision, and in mode retract the row that it replaces."""
    op = (
        "'insert'" if spec.node.emit.mode == "discard" else "CASE WHEN __rank = 1 THEN 'insert' ELSE 'update_after' END"
    )
    own = "".join(f", {name}" for name in PLACE) if is_traced else ""
    following = "".join(f", __next{name} AS {name}" for name in PLACE) if is_traced else ""
    retracted = f"""
        UNION ALL
        SELECT 'update_before' AS op, 'late' AS pane, {REVISION} AS revision, {lists.change}{following},
            2 * __rank + 1 AS __rank
        FROM history WHERE NOT __last
    """
    return f"""
        SELECT * EXCLUDE (__rank) FROM (
            SELECT {op} AS op, 'late' AS pane, {REVISION} AS revision, {lists.change}{own}, 2 * __rank AS __rank
            FROM history WHERE NOT __base
            {retracted if spec.node.emit.mode == "retract" else ""}
        ) {lists.change_order}, __rank
    """


_EVENT_ORDER = f"__place, {PARTITION}, {OFFSET}"

_Evaluated = SqlTrigger | m.EveryEventTime | None
"""A trigger that SQL evaluates, or None."""


class EarlyPaneSql:
    """Queries over tables of records, panes, `firing` (windows) and `clock` (one row: now, latest and reached).

    Panes are stored as up to two rows a window and key: the last pane emitted (with REVISION), and pending records
    (REVISION is null). COUNT is the number of records that the first holds in all, and that are pending. SINCE is the
    processing time at which the first pending record came, PANES the number of early panes so far, MEMORY the state of
    the trigger. With early panes by event time, SINCE is the watermark at which a pane shows a record, there is a
    pending row for each, and records have SINCE, too.

    Records have ROW, their number in the order of the log, where panes depend on that.

    `empty`: no records -> no panes. `touched`: records, panes, late, firing and clock -> the panes with `__touched`,
    true where the step can change the window and key. Only those are input of the other queries. `observed`: records
    and panes -> the input of a trigger in Python, in order. `events`: records, panes, late, firing and clock -> the
    events of a window and key in the step, in the order of effect (if the trigger is evaluated in Python, records have
    CHUNK and EARLY, and there is a table memory). `changes`: events -> changes, where both bounds of a window are its
    number. `settle`: events and clock -> panes.

    `trigger` is None if it is evaluated in Python. If it `has_periods` of processing time, any pending pane may be due.
    """

    def __init__(self, spec: WindowSpec, trigger: _Evaluated, *, has_periods: bool) -> None:
        lists = PaneLists(spec)
        self.empty = f"SELECT {lists.by}, {lists.begin}, {_PENDING} FROM records GROUP BY {lists.by}"
        self.touched = _touched_query(lists.by, trigger, has_periods=has_periods)
        self.observed = _observed_query(lists.by)
        self.events = _events_query(spec, lists, trigger)
        self.changes = _changes_query(spec, lists)
        self.settle = _settle_query(spec, lists, trigger)


_PENDING = f"""NULL::INTEGER AS {REVISION}, count(*) AS {COUNT}, NULL::BIGINT AS {SINCE}, NULL::INTEGER AS {PANES},
    NULL::VARCHAR AS {MEMORY}"""
"""The columns of a pane that is not emitted yet, over its records."""


def _touched_query(by: str, trigger: _Evaluated, *, has_periods: bool) -> str:
    """Return the query that marks the panes that the step can change."""
    is_due = f"{WINDOW} IN (SELECT {WINDOW} FROM firing)"
    if isinstance(trigger, m.EveryEventTime):
        is_due += f" OR {SINCE} <= (SELECT reached FROM clock)"
    elif has_periods:
        is_due += f" OR {REVISION} IS NULL"
    return f"""
        SELECT panes.*, coalesce({TOUCHED}, false) AS {TOUCHED} FROM panes LEFT JOIN (
            SELECT {by}, true AS {TOUCHED} FROM (
                SELECT {by} FROM records UNION ALL SELECT {by} FROM late UNION ALL SELECT {by} FROM panes WHERE {is_due}
            ) GROUP BY {by}
        ) USING ({by})
    """


def _observed_query(by: str) -> str:
    """Return the query of the input of a trigger in Python: on-time records, with the counts of their window before."""
    return f"""
        WITH held AS (
            SELECT {by}, sum({COUNT}) AS {COUNT}, max({COUNT}) FILTER ({REVISION} IS NULL) AS __waiting,
                max({PANES}) AS {PANES}, max({SINCE}) AS {SINCE}, max({MEMORY}) AS {MEMORY}
            FROM panes GROUP BY {by}
        ), numbered AS (
            SELECT {by}, {ROW}, {TIME},
                row_number() OVER (PARTITION BY {by} ORDER BY {ROW}) AS {NTH}
            FROM records
        )
        SELECT {by}, {ROW}, {TIME}, {NTH}, coalesce({COUNT}, 0)::BIGINT AS {COUNT},
            coalesce(__waiting, 0) AS {WAITING}, coalesce({PANES}, 0) AS {PANES}, {SINCE}, {MEMORY}
        FROM held FULL JOIN numbered USING ({by}) ORDER BY {by}, {NTH}
    """


def _events_query(spec: WindowSpec, lists: PaneLists, trigger: _Evaluated) -> str:
    """Return the query of the events of a window and key in a step, with the number of panes that follow each."""
    by = lists.by
    return f"""
        WITH {_events_ctes(lists, trigger)}, {_located_cte(by)}, {_due_cte(by, trigger)},
            {_fired_cte(spec)}
        SELECT * REPLACE (__early_panes + sum({EARLY}::INTEGER) OVER (PARTITION BY {by}) AS {PANES}),
            sum(__panes_here) OVER places - __panes_here AS __panes_before,
            sum(__panes_here) OVER (PARTITION BY {by}) AS __panes_all,
            sum({COUNT}) OVER places AS __total
        FROM fired
        WINDOW places AS (PARTITION BY {by} ORDER BY {_EVENT_ORDER} ROWS UNBOUNDED PRECEDING)
    """


def _placed_cte(by: str, trigger: SqlTrigger | None) -> str:
    """`placed`: on-time records in chunks, each ended by an early pane if the trigger counts records."""
    if trigger is None:
        return "placed AS (SELECT * FROM records)"
    if trigger.records is None:
        return f"placed AS (SELECT *, 0 AS {CHUNK}, false AS {EARLY} FROM records)"
    left = f"greatest({trigger.times} - coalesce({PANES}, 0), 0)" if trigger.times is not None else str(_LATE - 1)
    return f"""
        waiting AS (
            SELECT {by}, max({COUNT}) FILTER ({REVISION} IS NULL) AS {WAITING}, max({PANES}) AS {PANES}
            FROM panes GROUP BY {by}
        ), numbered AS (
            SELECT records.*, {left} AS __left, coalesce({WAITING}, 0)
                + row_number() OVER (PARTITION BY {by} ORDER BY {ROW}) AS {NTH}
            FROM records LEFT JOIN waiting USING ({by})
        ), placed AS (
            SELECT *, least(({NTH} - 1) // {trigger.records}, __left) AS {CHUNK},
                {NTH} % {trigger.records} = 0 AND {NTH} // {trigger.records} <= __left AS {EARLY}
            FROM numbered
        )
    """


def _events_ctes(lists: PaneLists, trigger: _Evaluated) -> str:
    """`events`: stored panes, chunks of on-time records and late records, with their places."""
    by, begin = lists.by, lists.begin
    if isinstance(trigger, m.EveryEventTime):
        return _timed_events_ctes(lists)
    return f"""{_placed_cte(by, trigger)}, events AS (
        SELECT {by}, CASE WHEN {REVISION} IS NULL THEN -1 ELSE -2 END AS __place, -1 AS {PARTITION},
            -1 AS {OFFSET}, {lists.columns}, {REVISION}, {COUNT}, {SINCE}, {PANES}, {MEMORY}, false AS {EARLY}
        FROM panes
        UNION ALL BY NAME
        SELECT {by}, {CHUNK} AS __place, -1 AS {PARTITION}, -1 AS {OFFSET}, {begin}, {_PENDING},
            bool_or({EARLY}) AS {EARLY}
        FROM placed GROUP BY {by}, {CHUNK}
        UNION ALL BY NAME
        SELECT {by}, {_LATE} AS __place, {lists.late_place}, {begin}, {_PENDING}, false AS {EARLY}
        FROM late GROUP BY {lists.late_by}
    )"""


def _timed_events_ctes(lists: PaneLists) -> str:
    """`events` where early panes are by event time: all records that wait for a pane are one row."""
    by, begin = lists.by, lists.begin
    return f"""waiting AS (
        SELECT {by}, {begin}, count(*) AS {COUNT}, {SINCE} FROM records GROUP BY {by}, {SINCE}
        UNION ALL BY NAME
        SELECT {by}, {lists.columns}, {COUNT}, {SINCE} FROM panes WHERE {REVISION} IS NULL
    ), events AS (
        SELECT {by}, -2 AS __place, -1 AS {PARTITION}, -1 AS {OFFSET}, {lists.columns}, {REVISION}, {COUNT}, {SINCE},
            {PANES}, {MEMORY}, false AS {EARLY}
        FROM panes WHERE {REVISION} IS NOT NULL
        UNION ALL BY NAME
        SELECT {by}, {SINCE} - {GLOBAL_START} AS __place, -1 AS {PARTITION}, -1 AS {OFFSET}, {lists.merged},
            NULL::INTEGER AS {REVISION}, sum({COUNT})::BIGINT AS {COUNT}, {SINCE}, NULL::INTEGER AS {PANES},
            NULL::VARCHAR AS {MEMORY}, {SINCE} <= (SELECT reached FROM clock) AS {EARLY}
        FROM waiting GROUP BY {by}, {SINCE}
        UNION ALL BY NAME
        SELECT {by}, {_LATE} AS __place, {lists.late_place}, {begin}, {_PENDING}, false AS {EARLY}
        FROM late GROUP BY {lists.late_by}
    )"""


def _located_cte(by: str) -> str:
    """`located`: events with the state of their window and key before the step."""
    return f"""located AS (
        SELECT *, {WINDOW} IN (SELECT {WINDOW} FROM firing) AS __firing,
            __place < {_LATE} AND lead(__place, 1, {_LATE}) OVER places = {_LATE} AS __newest,
            coalesce(CASE __place WHEN -1 THEN {SINCE} WHEN 0 THEN lag({SINCE}) OVER places END,
                (SELECT latest FROM clock)) AS __pending_since,
            first_value({REVISION}) OVER places AS __last_revision,
            coalesce(first_value({PANES}) OVER places, 0) AS __early_panes
        FROM events WINDOW places AS (PARTITION BY {by} ORDER BY {_EVENT_ORDER})
    )"""


def _due_cte(by: str, trigger: _Evaluated) -> str:
    """`due`: located events with the early panes that processing time, or a trigger in Python, adds."""
    if trigger is None:
        return f"""due AS (
            SELECT located.* REPLACE (
                coalesce(memory.{MEMORY}, located.{MEMORY}) AS {MEMORY},
                {EARLY} OR (__newest AND NOT __firing AND coalesce(__due, false)) AS {EARLY})
            FROM located LEFT JOIN memory USING ({by})
        )"""
    if isinstance(trigger, m.EveryEventTime) or trigger.micros is None:
        return "due AS (SELECT * FROM located)"
    again = "" if trigger.times is None else f"AND __early_panes + greatest(__place, 0) < {trigger.times}"
    return f"""due AS (
        SELECT * REPLACE ({EARLY} OR coalesce(__newest AND NOT __firing AND __place > -2
            AND (SELECT now FROM clock) - __pending_since >= {trigger.micros} {again}, false) AS {EARLY})
        FROM located
    )"""


def _fired_cte(spec: WindowSpec) -> str:
    """`fired`: due events with the number of panes that follow each, the on-time pane among them."""
    # if a pane holds only new records, there is no on-time pane for records that an early pane has shown
    is_new_only = spec.node.emit.mode == "discard" or isinstance(spec.node.window, m.Global)
    has_news = f"__place > -2 AND NOT {EARLY}" if is_new_only else "true"
    return f"""fired AS (
        SELECT *, __newest AND __firing AND {has_news} AS __on_time,
            (__place = -2)::INTEGER + {EARLY}::INTEGER + __on_time::INTEGER + (__place = {_LATE})::INTEGER
                AS __panes_here
        FROM due
    )"""


def _changes_query(spec: WindowSpec, lists: PaneLists) -> str:
    """Return the query of the changes: each pane, and in mode retract the row that it replaces."""
    by, mode = lists.by, spec.node.emit.mode
    op = "'insert'" if mode == "discard" else "if(__index = 0, 'insert', 'update_after')"
    retracted = f"""
        UNION ALL
        SELECT 'update_before' AS op, __next AS pane, coalesce(__last_revision, 0) + __index AS revision,
            {lists.change}, 2 * __index + 1 AS __rank
        FROM ordered WHERE __next IS NOT NULL
    """
    return f"""
        WITH {_history_cte(spec, lists)}, {_panes_cte()}, ordered AS (
            SELECT *, lead(pane) OVER (PARTITION BY {by} ORDER BY __index) AS __next FROM panes
        )
        SELECT * EXCLUDE (__rank) FROM (
            SELECT {op} AS op, pane, coalesce(__last_revision, 0) + __index AS revision, {lists.change},
                2 * __index AS __rank
            FROM ordered WHERE pane IS NOT NULL
            {retracted if mode == "retract" else ""}
        ) {lists.change_order}, __rank
    """


def _history_cte(spec: WindowSpec, lists: PaneLists) -> str:
    """`history`: the running merge up to each event, where any pane is emitted."""
    since_pane = ", __panes_before" if spec.node.emit.mode == "discard" else ""
    return f"""history AS (
        SELECT {lists.by}, {lists.running}, __place, {EARLY}, __on_time, __panes_before, __last_revision
        FROM events WHERE __panes_all > (__last_revision IS NOT NULL)::INTEGER
        WINDOW history AS (PARTITION BY {lists.by}{since_pane} ORDER BY {_EVENT_ORDER} ROWS UNBOUNDED PRECEDING)
    )"""


def _panes_cte() -> str:
    """`panes`: the stored pane (`pane` is null) and the panes of this step."""
    return f"""panes AS (
        SELECT *, NULL AS pane, __panes_before AS __index FROM history WHERE __place = -2
        UNION ALL
        SELECT *, 'early' AS pane, __panes_before AS __index FROM history WHERE {EARLY}
        UNION ALL
        SELECT *, 'on_time' AS pane, __panes_before + (__place = -2)::INTEGER + {EARLY}::INTEGER AS __index
        FROM history WHERE __on_time
        UNION ALL
        SELECT *, 'late' AS pane, __panes_before AS __index FROM history WHERE __place = {_LATE}
    )"""


def _settle_query(spec: WindowSpec, lists: PaneLists, trigger: _Evaluated) -> str:
    """Return the query of the panes to be stored after the step: the last one emitted, and pending records."""
    apart = f", CASE WHEN NOT __emitted THEN {SINCE} END" if isinstance(trigger, m.EveryEventTime) else ""
    return f"""
        SELECT {lists.by}, {lists.merged},
            CASE WHEN __emitted THEN max(coalesce(__last_revision, 0) + __panes_all - 1) END::INTEGER AS {REVISION},
            CASE WHEN __emitted THEN max(__total) ELSE sum({COUNT}) END::BIGINT AS {COUNT},
            CASE WHEN NOT __emitted THEN coalesce(min({SINCE}), (SELECT latest FROM clock)) END AS {SINCE},
            max({PANES})::INTEGER AS {PANES}, max({MEMORY}) AS {MEMORY}
        FROM (
            SELECT *, __panes_before < __panes_all AS __emitted FROM events
            {"WHERE __panes_before >= __panes_all - 1" if spec.node.emit.mode == "discard" else ""}
        ) GROUP BY {lists.by}, __emitted{apart}
    """
