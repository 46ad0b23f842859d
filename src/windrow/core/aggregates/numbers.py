"""Counts, sums and means."""

from __future__ import annotations

from windrow.core.aggregates.fold import Accumulator, Fold, Input
from windrow.core.duck import identifier
from windrow.expressions.results import MEAN_DIGITS

_WHOLE = "DECIMAL(38,0)"


def count(name: str, column: str, condition: str | None) -> Fold:
    """Count all records, or those for which a condition is true."""
    begin = "count(*)" if condition is None else f"count(*) FILTER (WHERE {condition})"
    return Fold(name, (_count(column, begin),), identifier(column))


def total(name: str, column: str, of: Input) -> Fold:
    """Sum a number."""
    return Fold(name, (_sum(column, of),), _number(column, of))


def mean(name: str, column: str, of: Input) -> Fold:
    """Divide the sum by the count, with `MEAN_DIGITS` more digits than the number has."""
    begin = f"count({of.sql})" if of.nullable else "count(*)"
    parts = _sum(f"{column}_sum", of), _count(f"{column}_count", begin)
    dividend, divisor = _number(parts[0].column, of), identifier(parts[1].column)
    if of.nullable:
        divisor = f"nullif({divisor}, 0)"
    return Fold(name, parts, f"{dividend} / {divisor}" if of.is_double else _mean(dividend, divisor))


def _sum(column: str, of: Input) -> Accumulator:
    around = "{}" if of.is_double else f"CAST({{}} AS {_WHOLE})"
    return Accumulator(column, around.replace("{}", f"sum({of.sql})"), "sum", around)


def _number(column: str, of: Input) -> str:
    """Return the SQL of a sum: what comes of infinities of both signs is no number, and told as one of them.

    A sum of doubles that is too large is infinite, and whether one of both signs comes to it depends on the steps: it
    cannot be null, as SQLite has it for what is no number.
    """
    sum_ = identifier(column)
    return f"CASE WHEN isnan({sum_}) THEN CAST('inf' AS DOUBLE) ELSE {sum_} END" if of.is_double else sum_


def _count(column: str, begin: str) -> Accumulator:
    return Accumulator(column, begin, "sum", "CAST({} AS BIGINT)")


def _mean(dividend: str, divisor: str) -> str:
    """Round half away from zero."""
    whole, by = f"abs({dividend}::HUGEINT)", f"{divisor}::HUGEINT"
    tail = f"(({whole} % {by}) * {2 * 10**MEAN_DIGITS} + {by}) // (2 * {by})"
    return f"(sign({dividend}::HUGEINT) * (({whole} // {by}) * {10**MEAN_DIGITS} + {tail}))::{_WHOLE}"
