"""Accumulators: the state columns of an aggregate, with the SQL that creates, merges and finishes them.

Windows, slices, sessions, salted keys and state migration use the same three operations: `begin` turns records into an
accumulator, `merge` combines accumulators in any order and grouping, and `finish` computes the result. Throughout, a
decimal is represented by its unscaled integer, which keeps every division exact; `rescale` restores the scale of
results.
"""

from __future__ import annotations

from dataclasses import dataclass

from windrow import model as m
from windrow.engine.duckdb_sql import identifier
from windrow.expressions import Argument
from windrow.expressions.engine import sql_type


@dataclass(frozen=True)
class Accumulator:
    """A state column: `begin` is SQL over records, `merge` the name of a function over accumulators.

    `around` is a template for the SQL around a call of `merge`: the call replaces its ``{}``.
    """

    column: str
    begin: str
    merge: str
    around: str = "{}"

    def merge_sql(self, over: str = "") -> str:
        """Return the SQL that merges the column; `over` is an optional OVER clause that makes it a window function."""
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
    """The argument of an aggregate: the SQL of a column, and its DuckDB type with decimals unscaled.

    `scale` is the number of decimal places of a decimal, or None for other types.
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
        """Whether the argument is a double, which makes its sums inexact."""
        return self.type == "DOUBLE"


def not_null(*arguments: ArgumentSql) -> str:
    """Return the FILTER clause that skips records in which an argument is null."""
    conditions = [f"{argument.sql} IS NOT NULL" for argument in arguments if argument.nullable]
    return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""


def unscaled_sql_type(type_: m.DataType) -> str:
    """Return the DuckDB name of a type, with decimals unscaled."""
    return sql_type(m.DecimalType(type_.precision, 0) if isinstance(type_, m.DecimalType) else type_)
