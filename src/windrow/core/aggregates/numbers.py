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
    return Fold(name, (_sum(column, of),), identifier(column))


def mean(name: str, column: str, of: Input) -> Fold:
    """Divide the sum by the count, with `MEAN_DIGITS` more digits than the number has."""
    begin = f"count({of.sql})" if of.nullable else "count(*)"
    parts = _sum(f"{column}_sum", of), _count(f"{column}_count", begin)
    dividend, divisor = (identifier(part.column) for part in parts)
    if of.nullable:
        divisor = f"nullif({divisor}, 0)"
    return Fold(name, parts, f"{dividend} / {divisor}" if of.is_double else _mean(dividend, divisor))


def _sum(column: str, of: Input) -> Accumulator:
    around = "{}" if of.is_double else f"CAST({{}} AS {_WHOLE})"
    return Accumulator(column, around.replace("{}", f"sum({of.sql})"), "sum", around)


def _count(column: str, begin: str) -> Accumulator:
    return Accumulator(column, begin, "sum", "CAST({} AS BIGINT)")


def _mean(dividend: str, divisor: str) -> str:
    """Round half away from zero."""
    whole, by = f"abs({dividend}::HUGEINT)", f"{divisor}::HUGEINT"
    tail = f"(({whole} % {by}) * {2 * 10**MEAN_DIGITS} + {by}) // (2 * {by})"
    return f"(sign({dividend}::HUGEINT) * (({whole} // {by}) * {10**MEAN_DIGITS} + {tail}))::{_WHOLE}"
