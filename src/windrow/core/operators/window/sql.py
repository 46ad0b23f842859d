"""SQL of the window operator, written once for a pipeline.

`WindowSql` is for panes that only the watermark fires, `EarlyPaneSql` for windows with early panes.

Early panes: all that happens to a window and key in a step is one row of the table `atoms`, in the order of effect
(`__place`): what its last pane emitted (-2), what was pending before the step (-1), its on-time records in chunks that
end with an early pane (0, 1, ...), its late records (`_LATE`). A pane is the running merge of the rows up to its
place; in mode discard, of the rows since the pane before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

import duckdb
import pyarrow as pa

from windrow.core import duckdb_sql
from windrow.core.aggregates.accumulators import Accumulator
from windrow.core.aggregates.catalogue import compile_aggregates
from windrow.core.duckdb_sql import identifier
from windrow.core.operators.window.triggers import SqlTrigger
from windrow.core.schema import OFFSET, PARTITION, REVISION, TIME, WINDOW
from windrow.model import Global, Pipeline


@dataclass(frozen=True)
class WindowSql:
    """Queries over tables of records (window and fields) and of panes (window, key, accumulators, revision).

    A small step costs what its queries cost to plan, so there are few of them.

    `begin`: records -> panes. `add`: records and panes -> panes, one a window and key. `merge`: panes -> panes, one a
    window and key. `revise`: base (panes) and late (records) -> history: every base row that is revised and every
    revision of it, as panes with `__rank` (the base, where there is one, before its revisions), `__base` and `__last`.
    `settle`: base and history -> panes as they are after the revisions. `fired`: panes -> on-time changes. `revised`:
    history -> late changes. In changes, which are by window and key, the end of a window is yet to be put in the place
    of its start.
    """

    begin: str
    add: str
    merge: str
    revise: str
    settle: str
    fired: str
    revised: str

    def added(
        self, connection: duckdb.DuckDBPyConnection, records: pa.Table, parts: pa.Table, stored: pa.Table
    ) -> pa.Table:
        """Return the stored panes, one a window and key, with records and parts of panes in them."""
        held = pa.concat_tables([stored, parts]) if parts.num_rows else stored
        if records.num_rows and held.num_rows:
            return duckdb_sql.query(connection, self.add, records=records, panes=held)
        if records.num_rows:
            return duckdb_sql.query(connection, self.begin, records=records)
        return duckdb_sql.query(connection, self.merge, panes=held) if parts.num_rows else stored


def window_sql(pipeline: Pipeline) -> WindowSql:
    """Write the queries of a pipeline."""
    fold = compile_aggregates(pipeline)
    accumulators = [accumulator for one in fold for accumulator in one.accumulators]
    by = ", ".join([WINDOW, *(identifier(name) for name in pipeline.key)])
    columns = ", ".join(identifier(accumulator.column) for accumulator in accumulators)
    begin = _select_list(accumulators, lambda accumulator: accumulator.begin)
    merged = _select_list(accumulators, lambda accumulator: accumulator.merged())
    running = _select_list(accumulators, lambda accumulator: accumulator.merged(" OVER history"))
    values = ", ".join(f"{one.finish} AS {identifier(one.name)}" for one in fold)
    # one revision for each late record, or one for all of them
    each = pipeline.emit.late == "each"
    place = f"{PARTITION}, {OFFSET}" if each else f"0 AS {PARTITION}, 0 AS {OFFSET}"
    place_by = f", {PARTITION}, {OFFSET}" if each else ""
    # the operator knows where windows end
    change = f"{WINDOW} AS window_start, {WINDOW} AS window_end, {_key_list(pipeline)}, {values}"
    match pipeline.emit.mode:
        case "retract" | "accumulate":
            history, op = by, "CASE WHEN __rank = 1 THEN 'insert' ELSE 'update_after' END"
        case "discard":
            # a revision holds its own records alone
            history, op = f"{by}, {PARTITION}, {OFFSET}", "'insert'"
        case _:
            assert_never(pipeline.emit.mode)
    taken_back = f"""
        UNION ALL
        SELECT 'update_before' AS op, 'late' AS pane, {REVISION} AS revision, {change}, 2 * __rank + 1 AS __rank
        FROM history WHERE NOT __last
    """
    begun = f"SELECT {by}, {begin}, 0::INTEGER AS {REVISION} FROM records GROUP BY {by}"
    order = f"ORDER BY window_start, {_key_list(pipeline)}"
    return WindowSql(
        begin=begun,
        add=f"""
            SELECT {by}, {merged}, max({REVISION}) AS {REVISION}
            FROM ({begun} UNION ALL SELECT {by}, {columns}, {REVISION} FROM panes) GROUP BY {by}
        """,
        merge=f"SELECT {by}, {merged}, max({REVISION}) AS {REVISION} FROM panes GROUP BY {by}",
        revise=f"""
            WITH begun AS (
                SELECT {by}, {place}, {begin} FROM late GROUP BY {by}{place_by}
            ), steps AS (
                SELECT {by}, -1 AS {PARTITION}, -1 AS {OFFSET}, {columns}, {REVISION}
                FROM base SEMI JOIN begun USING ({by})
                UNION ALL
                SELECT {by}, {PARTITION}, {OFFSET}, {columns}, NULL AS {REVISION} FROM begun
            )
            SELECT {by}, {running},
                (coalesce(first_value({REVISION}) OVER places, 0) + row_number() OVER places - 1)::INTEGER
                    AS {REVISION},
                row_number() OVER places AS __rank,
                {REVISION} IS NOT NULL AS __base,
                lead(true, 1, false) OVER places = false AS __last
            FROM steps
            WINDOW places AS (PARTITION BY {by} ORDER BY {PARTITION}, {OFFSET}),
                history AS (PARTITION BY {history} ORDER BY {PARTITION}, {OFFSET} ROWS UNBOUNDED PRECEDING)
        """,
        settle=f"""
            SELECT {by}, {columns}, {REVISION} FROM base ANTI JOIN history USING ({by})
            UNION ALL
            SELECT {by}, {columns}, {REVISION} FROM history WHERE __last
        """,
        fired=f"SELECT 'insert' AS op, 'on_time' AS pane, {REVISION} AS revision, {change} FROM panes {order}",
        revised=f"""
            SELECT * EXCLUDE (__rank) FROM (
                SELECT {op} AS op, 'late' AS pane, {REVISION} AS revision, {change}, 2 * __rank AS __rank
                FROM history WHERE NOT __base
                {taken_back if pipeline.emit.mode == "retract" else ""}
            ) {order}, __rank
        """,
    )


def _select_list(accumulators: list[Accumulator], sql: Callable[[Accumulator], str]) -> str:
    return ", ".join(f"{sql(accumulator)} AS {identifier(accumulator.column)}" for accumulator in accumulators)


def _key_list(pipeline: Pipeline) -> str:
    return ", ".join(identifier(name) for name in pipeline.key)


COUNT: Final = "__count"
SINCE: Final = "__since"
PANES: Final = "__panes"
MEMORY: Final = "__memory"
CHUNK: Final = "__chunk"
EARLY: Final = "__early"
ROW: Final = "__row"
NTH: Final = "__nth"
WAITING: Final = "__waiting"
_LATE: Final = 1 << 62


@dataclass(frozen=True)
class EarlyPaneSql:
    """Queries over tables of records, panes, `firing` (windows) and `clock` (one row: now and latest, may be null).

    Panes are stored as up to two rows a window and key: what the last pane emitted (with REVISION), and what is
    pending (REVISION is null). COUNT is how many records the first holds in all, and how many are pending. SINCE is the
    processing time at which the first pending record came, PANES how many early panes there were, MEMORY what the
    trigger remembers.

    `empty`: no records -> no panes. `told`: records (with ROW) and panes -> what a trigger in Python looks at, in
    order. `atoms`: records (if Python follows the trigger, with CHUNK and EARLY, and memory), panes, late, firing and
    clock -> atoms. `changes`: atoms -> changes; the end of a window is yet to be put in the place of its start.
    `settle`: atoms and clock -> panes.
    """

    empty: str
    told: str
    atoms: str
    changes: str
    settle: str


def early_pane_sql(pipeline: Pipeline, trigger: SqlTrigger | None) -> EarlyPaneSql:
    """Write the queries of a pipeline; `trigger` is None if Python follows it."""
    fold = compile_aggregates(pipeline)
    accumulators = [accumulator for one in fold for accumulator in one.accumulators]
    names = [identifier(accumulator.column) for accumulator in accumulators]
    keys = ", ".join(identifier(name) for name in pipeline.key)
    by, columns = f"{WINDOW}, {keys}", ", ".join(names)
    begin = ", ".join(f"{a.begin} AS {name}" for a, name in zip(accumulators, names, strict=True))
    merged = ", ".join(f"{a.merged()} AS {name}" for a, name in zip(accumulators, names, strict=True))
    running = ", ".join(f"{a.merged(' OVER history')} AS {name}" for a, name in zip(accumulators, names, strict=True))
    values = ", ".join(f"{one.finish} AS {identifier(one.name)}" for one in fold)
    more = f"""NULL::INTEGER AS {REVISION}, count(*) AS {COUNT}, NULL::BIGINT AS {SINCE}, NULL::INTEGER AS {PANES},
        NULL::VARCHAR AS {MEMORY}"""
    each = pipeline.emit.late == "each"
    place = f"{PARTITION}, {OFFSET}" if each else f"0 AS {PARTITION}, 0 AS {OFFSET}"
    change = f"{WINDOW} AS window_start, {WINDOW} AS window_end, {keys}, {values}"
    mode = pipeline.emit.mode
    # where a pane says only what is new, an on-time pane is not written for what an early one has said
    news = f"__place > -2 AND NOT {EARLY}" if mode == "discard" or isinstance(pipeline.window, Global) else "true"
    before = f"""
        UNION ALL
        SELECT 'update_before' AS op, __next AS pane, coalesce(__first, 0) + __index AS revision, {change},
            2 * __index + 1 AS __rank
        FROM told WHERE __next IS NOT NULL
    """
    return EarlyPaneSql(
        empty=f"SELECT {by}, {begin}, {more} FROM records GROUP BY {by}",
        told=f"""
            WITH told AS (
                SELECT {by}, sum({COUNT}) AS {COUNT}, max({COUNT}) FILTER ({REVISION} IS NULL) AS __waiting,
                    max({PANES}) AS {PANES}, max({SINCE}) AS {SINCE}, max({MEMORY}) AS {MEMORY}
                FROM panes GROUP BY {by}
            ), numbered AS (
                SELECT {by}, {ROW}, {TIME},
                    row_number() OVER (PARTITION BY {by} ORDER BY {PARTITION}, {OFFSET}) AS {NTH}
                FROM records
            )
            SELECT {by}, {ROW}, {TIME}, {NTH}, coalesce({COUNT}, 0)::BIGINT AS {COUNT},
                coalesce(__waiting, 0) AS {WAITING}, coalesce({PANES}, 0) AS {PANES}, {SINCE}, {MEMORY}
            FROM told FULL JOIN numbered USING ({by}) ORDER BY {by}, {NTH}
        """,
        atoms=f"""
            WITH {_chunks_cte(by, trigger)}, atoms AS (
                SELECT {by}, CASE WHEN {REVISION} IS NULL THEN -1 ELSE -2 END AS __place, -1 AS {PARTITION},
                    -1 AS {OFFSET}, {columns}, {REVISION}, {COUNT}, {SINCE}, {PANES}, {MEMORY}, false AS {EARLY}
                FROM panes
                UNION ALL BY NAME
                SELECT {by}, {CHUNK} AS __place, -1 AS {PARTITION}, -1 AS {OFFSET}, {begin}, {more},
                    bool_or({EARLY}) AS {EARLY}
                FROM placed GROUP BY {by}, {CHUNK}
                UNION ALL BY NAME
                SELECT {by}, {_LATE} AS __place, {place}, {begin}, {more}, false AS {EARLY}
                FROM late GROUP BY {by}{f", {PARTITION}, {OFFSET}" if each else ""}
            ), looked AS (
                SELECT *, {WINDOW} IN (SELECT {WINDOW} FROM firing) AS __firing,
                    __place < {_LATE} AND lead(__place, 1, {_LATE}) OVER places = {_LATE} AS __newest,
                    coalesce(CASE __place WHEN -1 THEN {SINCE} WHEN 0 THEN lag({SINCE}) OVER places END,
                        (SELECT latest FROM clock)) AS __began,
                    first_value({REVISION}) OVER places AS __first,
                    coalesce(first_value({PANES}) OVER places, 0) AS __earlier
                FROM atoms WINDOW places AS (PARTITION BY {by} ORDER BY __place, {PARTITION}, {OFFSET})
            ), due AS (
                {_due_query(by, trigger)}
            ), fired AS (
                SELECT *, __newest AND __firing AND {news} AS __on_time,
                    (__place = -2)::INTEGER + {EARLY}::INTEGER + __on_time::INTEGER + (__place = {_LATE})::INTEGER
                        AS __here
                FROM due
            )
            SELECT * REPLACE (__earlier + sum({EARLY}::INTEGER) OVER (PARTITION BY {by}) AS {PANES}),
                sum(__here) OVER places - __here AS __before,
                sum(__here) OVER (PARTITION BY {by}) AS __all,
                sum({COUNT}) OVER places AS __total
            FROM fired
            WINDOW places AS (PARTITION BY {by} ORDER BY __place, {PARTITION}, {OFFSET} ROWS UNBOUNDED PRECEDING)
        """,
        changes=f"""
            WITH history AS (
                SELECT {by}, {running}, __place, {EARLY}, __on_time, __before, __first
                FROM atoms WHERE __all > (__first IS NOT NULL)::INTEGER
                WINDOW history AS (PARTITION BY {by}{", __before" if mode == "discard" else ""}
                    ORDER BY __place, {PARTITION}, {OFFSET} ROWS UNBOUNDED PRECEDING)
            ), panes AS (
                SELECT *, NULL AS pane, __before AS __index FROM history WHERE __place = -2
                UNION ALL
                SELECT *, 'early' AS pane, __before AS __index FROM history WHERE {EARLY}
                UNION ALL
                SELECT *, 'on_time' AS pane, __before + (__place = -2)::INTEGER + {EARLY}::INTEGER AS __index
                FROM history WHERE __on_time
                UNION ALL
                SELECT *, 'late' AS pane, __before AS __index FROM history WHERE __place = {_LATE}
            ), told AS (
                SELECT *, lead(pane) OVER (PARTITION BY {by} ORDER BY __index) AS __next FROM panes
            )
            SELECT * EXCLUDE (__rank) FROM (
                SELECT {"'insert'" if mode == "discard" else "if(__index = 0, 'insert', 'update_after')"} AS op, pane,
                    coalesce(__first, 0) + __index AS revision, {change}, 2 * __index AS __rank
                FROM told WHERE pane IS NOT NULL
                {before if mode == "retract" else ""}
            ) ORDER BY window_start, {keys}, __rank
        """,
        settle=f"""
            SELECT {by}, {merged},
                CASE WHEN __covered THEN max(coalesce(__first, 0) + __all - 1) END::INTEGER AS {REVISION},
                CASE WHEN __covered THEN max(__total) ELSE sum({COUNT}) END::BIGINT AS {COUNT},
                CASE WHEN NOT __covered THEN coalesce(min({SINCE}), (SELECT latest FROM clock)) END AS {SINCE},
                max({PANES})::INTEGER AS {PANES}, max({MEMORY}) AS {MEMORY}
            FROM (
                SELECT *, __before < __all AS __covered FROM atoms
                {"WHERE __before >= __all - 1" if mode == "discard" else ""}
            ) GROUP BY {by}, __covered
        """,
    )


def _chunks_cte(by: str, trigger: SqlTrigger | None) -> str:
    """Return the SQL of the records in chunks that are ended by early panes after so many records."""
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
                + row_number() OVER (PARTITION BY {by} ORDER BY {PARTITION}, {OFFSET}) AS {NTH}
            FROM records LEFT JOIN waiting USING ({by})
        ), placed AS (
            SELECT *, least(({NTH} - 1) // {trigger.records}, __left) AS {CHUNK},
                {NTH} % {trigger.records} = 0 AND {NTH} // {trigger.records} <= __left AS {EARLY}
            FROM numbered
        )
    """


def _due_query(by: str, trigger: SqlTrigger | None) -> str:
    """Return the SQL of what is looked at, with the early panes that processing time makes."""
    if trigger is None:
        return f"""
            SELECT looked.* REPLACE (
                coalesce(memory.{MEMORY}, looked.{MEMORY}) AS {MEMORY},
                {EARLY} OR (__newest AND NOT __firing AND coalesce(__due, false)) AS {EARLY})
            FROM looked LEFT JOIN memory USING ({by})
        """
    if trigger.micros is None:
        return "SELECT * FROM looked"
    again = "" if trigger.times is None else f"AND __earlier + greatest(__place, 0) < {trigger.times}"
    return f"""
        SELECT * REPLACE ({EARLY} OR coalesce(__newest AND NOT __firing AND __place > -2
            AND (SELECT now FROM clock) - __began >= {trigger.micros} {again}, false) AS {EARLY})
        FROM looked
    """
