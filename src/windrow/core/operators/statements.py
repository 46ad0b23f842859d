"""The SQL of the window aggregate, written once for a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import duckdb
import pyarrow as pa

from windrow.core import duck
from windrow.core.aggregates import Accumulator, folds
from windrow.core.duck import identifier
from windrow.core.records import OFFSET, PARTITION, REVISION, WINDOW
from windrow.model import Pipeline


@dataclass(frozen=True)
class Statements:
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
            return duck.query(connection, self.add, records=records, panes=held)
        if records.num_rows:
            return duck.query(connection, self.begin, records=records)
        return duck.query(connection, self.merge, panes=held) if parts.num_rows else stored


def statements(pipeline: Pipeline) -> Statements:
    """Write the queries of a pipeline."""
    fold = folds(pipeline)
    accumulators = [accumulator for one in fold for accumulator in one.accumulators]
    by = ", ".join([WINDOW, *(identifier(name) for name in pipeline.key)])
    columns = ", ".join(identifier(accumulator.column) for accumulator in accumulators)
    begin = _select(accumulators, lambda accumulator: accumulator.begin)
    merged = _select(accumulators, lambda accumulator: accumulator.merged())
    running = _select(accumulators, lambda accumulator: accumulator.merged(" OVER history"))
    values = ", ".join(f"{one.finish} AS {identifier(one.name)}" for one in fold)
    # one revision for each late record, or one for all of them
    each = pipeline.emit.late == "each"
    place = f"{PARTITION}, {OFFSET}" if each else f"0 AS {PARTITION}, 0 AS {OFFSET}"
    place_by = f", {PARTITION}, {OFFSET}" if each else ""
    # the operator knows where windows end
    change = f"{WINDOW} AS window_start, {WINDOW} AS window_end, {_keys(pipeline)}, {values}"
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
    order = f"ORDER BY window_start, {_keys(pipeline)}"
    return Statements(
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


def _select(accumulators: list[Accumulator], sql: Callable[[Accumulator], str]) -> str:
    return ", ".join(f"{sql(accumulator)} AS {identifier(accumulator.column)}" for accumulator in accumulators)


def _keys(pipeline: Pipeline) -> str:
    return ", ".join(identifier(name) for name in pipeline.key)
