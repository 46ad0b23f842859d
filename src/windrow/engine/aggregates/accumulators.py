"""Accumulators: the state columns of an aggregate, with SQL that begins, merges and finishes them.

Windows, slices, sessions, salted keys and state migration share the algebra: `begin` makes an accumulator of records,
`merge` makes an accumulator of several, in any order and grouping, and `finish` makes the result. A decimal is its
unscaled whole number in all of them, which keeps every division exact; results get its scale back (`rescale`).
"""

from __future__ import annotations

from dataclasses import dataclass

from windrow import model as m
from windrow.engine.duckdb_sql import identifier
from windrow.expressions import Argument
from windrow.expressions.engine import sql_type


@dataclass(frozen=True)
class Accumulator:
    """A column of state: `begin` is the SQL over records, `merge` the function over accumulators.

    `around` is the SQL around a call of `merge`, which replaces the ``{}`` in it.
    """

    column: str
    begin: str
    merge: str
    around: str = "{}"

    def merge_sql(self, over: str = "") -> str:
        """Return the SQL that merges the column, over a window of rows if `over` names it."""
        return self.around.replace("{}", f"{self.merge}({identifier(self.column)}){over}")


AggregateParts = tuple[tuple[Accumulator, ...], str]
"""The accumulators of an aggregate, and the SQL that computes the result from them."""


@dataclass(frozen=True)
class AggregateSql:
    """An aggregate: its accumulators, and the SQL that computes the result from them."""

    name: str
    accumulators: tuple[Accumulator, ...]
    finish: str


@dataclass(frozen=True)
class ArgumentSql:
    """The argument of an aggregate: a column as SQL, and its DuckDB type with decimals unscaled.

    `scale` is the number of digits of a decimal after the point, None for other types.
    """

    sql: str
    type: str
    scale: int | None
    nullable: bool

    @staticmethod
    def of(argument: Argument) -> ArgumentSql:
        """Return the SQL of an argument."""
        scale = argument.type.scale if isinstance(argument.type, m.DecimalType) else None
        return ArgumentSql(identifier(argument.column), unscaled_sql_type(argument.type), scale, argument.nullable)

    @property
    def is_double(self) -> bool:
        """Whether it is a double, so that sums are inexact."""
        return self.type == "DOUBLE"


def not_null(*arguments: ArgumentSql) -> str:
    """Return the filter clause that skips records without a value for an argument."""
    conditions = [f"{argument.sql} IS NOT NULL" for argument in arguments if argument.nullable]
    return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""


def unscaled_sql_type(type_: m.DataType) -> str:
    """Return DuckDB's name of a type, with decimals unscaled."""
    return sql_type(m.DecimalType(type_.precision, 0) if isinstance(type_, m.DecimalType) else type_)
