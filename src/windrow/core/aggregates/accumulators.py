"""Accumulators: the state columns of an aggregate, with SQL that begins, merges and finishes them, and its results.

One algebra serves windows, slices, sessions, salted keys and state migration: `begin` makes an accumulator of records,
`merge` makes one of several, in any order and grouping, and `finish` makes the result. A decimal is its unscaled whole
number in all of them, which keeps every division exact; its scale returns when the result leaves (`Results`).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from windrow.core import schema
from windrow.core.columns import cast_table, rescale
from windrow.core.decode.evaluation import Evaluator
from windrow.core.duckdb_sql import identifier
from windrow.expressions import Computed, formulas, results
from windrow.model import Pipeline


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


class Results:
    """Results of aggregates: finished values get their scales, and formulas over them are computed."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._schema = schema.changes(pipeline)
        made = formulas(pipeline, results(pipeline))
        self._formulas = [Computed(name, name, formula) for name, formula in made.items()]
        self._evaluator = Evaluator(tuple(self._formulas)) if made else None

    def of(self, rows: pa.Table) -> pa.Table:
        """Return rows in `schema.changes`, given the same columns in the same order with decimals unscaled.

        A formula is null where it fails, or gives what no field can have, such as infinity.
        """
        scaled = rescale(rows, self._schema)
        if self._evaluator is None:
            return scaled
        for one, values in zip(self._formulas, self._evaluator.values(scaled), strict=True):
            scaled = scaled.set_column(scaled.schema.get_field_index(one.name), one.name, values)
        return cast_table(scaled, self._schema)
