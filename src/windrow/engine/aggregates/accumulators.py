"""Accumulators: the state columns of an aggregate, with SQL that begins, merges and finishes them.

One algebra serves windows, slices, sessions, salted keys and state migration: `begin` makes an accumulator of records,
`merge` makes one of several, in any order and grouping, and `finish` makes the result. A decimal is its unscaled whole
number in all of them, which keeps every division exact; its scale returns when the result leaves (`rescale`).
"""

from __future__ import annotations

from dataclasses import dataclass

from windrow.engine.duckdb_sql import identifier


@dataclass(frozen=True)
class Accumulator:
    """One column of state: `begin` is the SQL over records, `merge` the function over accumulators.

    `around` is the SQL around a call of `merge`, which replaces the ``{}`` in it.
    """

    column: str
    begin: str
    merge: str
    around: str = "{}"

    def merged(self, over: str = "") -> str:
        """Return the SQL that merges the column, over a window of rows if one is named."""
        return self.around.replace("{}", f"{self.merge}({identifier(self.column)}){over}")


@dataclass(frozen=True)
class AggregateSql:
    """An aggregate: its accumulators, and the SQL that computes the result from them."""

    name: str
    accumulators: tuple[Accumulator, ...]
    finish: str


@dataclass(frozen=True)
class ArgumentSql:
    """The argument of an aggregate: a column as SQL, and its DuckDB type with decimals unscaled.

    `scale` is the number of digits that a decimal has behind the point, None for other types.
    """

    sql: str
    type: str
    scale: int | None
    nullable: bool

    @property
    def is_double(self) -> bool:
        """Whether it is a double, of which sums are inexact."""
        return self.type == "DOUBLE"

    @property
    def given(self) -> str:
        """The filter clause that skips records without a value."""
        return f" FILTER (WHERE {self.sql} IS NOT NULL)" if self.nullable else ""
