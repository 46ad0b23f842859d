"""The SQL of sessions: accumulators by atom, written once for a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from windrow.core.aggregates import folds
from windrow.core.duck import identifier
from windrow.model import Pipeline

ATOM: Final = "__atom"
"""The column that says which atom a record or an accumulator belongs to."""


@dataclass(frozen=True)
class SessionStatements:
    """Queries over records and atoms (accumulators); both have `ATOM`.

    `begin`: records -> atoms. `add`: records and atoms -> atoms, one of a number. `regroup`: atoms and `groups`
    (__group, atom) -> atoms by group. `replay`: atoms and `added` (__history, __place, atom) -> accumulators of each
    history at each of its places. `changes`: `rows` (what a change says of itself, key, accumulators, __first and
    __rank) -> changes, by __first and key, then __rank.
    """

    begin: str
    add: str
    regroup: str
    replay: str
    changes: str


def session_statements(pipeline: Pipeline) -> SessionStatements:
    """Write the queries of a pipeline."""
    fold = folds(pipeline)
    accumulators = [accumulator for one in fold for accumulator in one.accumulators]
    names = [identifier(accumulator.column) for accumulator in accumulators]
    columns = ", ".join(names)
    begin = ", ".join(f"{one.begin} AS {name}" for one, name in zip(accumulators, names, strict=True))
    merged = ", ".join(f"{one.merged()} AS {name}" for one, name in zip(accumulators, names, strict=True))
    running = ", ".join(
        f"{one.merged(' OVER history')} AS {name}" for one, name in zip(accumulators, names, strict=True)
    )
    values = ", ".join(f"{one.finish} AS {identifier(one.name)}" for one in fold)
    keys = ", ".join(identifier(name) for name in pipeline.key)
    begun = f"SELECT {ATOM}, {begin} FROM records GROUP BY {ATOM}"
    return SessionStatements(
        begin=begun,
        add=f"SELECT {ATOM}, {merged} FROM ({begun} UNION ALL SELECT {ATOM}, {columns} FROM atoms) GROUP BY {ATOM}",
        regroup=f"SELECT __group AS {ATOM}, {merged} FROM groups JOIN atoms USING ({ATOM}) GROUP BY __group",
        replay=f"""
            SELECT __history, __place, {running} FROM (
                SELECT __history, __place, {merged} FROM added JOIN atoms USING ({ATOM}) GROUP BY __history, __place
            ) WINDOW history AS (PARTITION BY __history ORDER BY __place ROWS UNBOUNDED PRECEDING)
        """,
        changes=f"""
            SELECT op, pane, revision, window_start, window_end, {keys}, {values}
            FROM rows ORDER BY __first, {keys}, __rank
        """,
    )
