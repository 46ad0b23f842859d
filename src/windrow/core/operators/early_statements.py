"""The SQL of windows with early panes, written once for a pipeline.

What happens to a window and key in a step is a row of atoms in the order of effect: what its last pane emitted (place
-2), what was pending before the step (-1), its on-time records in chunks that early panes end (0, 1, ...), its late
records (`_LATE`). A pane is the running merge of the atoms up to the one that it follows; in mode discard, of those
since the last pane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from windrow.core.aggregates import folds
from windrow.core.duck import identifier
from windrow.core.operators.triggers import Plain
from windrow.core.records import OFFSET, PARTITION, REVISION, TIME, WINDOW
from windrow.model import Global, Pipeline

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
class EarlyStatements:
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


def early_statements(pipeline: Pipeline, trigger: Plain | None) -> EarlyStatements:
    """Write the queries of a pipeline; `trigger` is None if Python follows it."""
    fold = folds(pipeline)
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
    return EarlyStatements(
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
            WITH {_placed(by, trigger)}, atoms AS (
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
                {_due(by, trigger)}
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


def _placed(by: str, trigger: Plain | None) -> str:
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


def _due(by: str, trigger: Plain | None) -> str:
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
