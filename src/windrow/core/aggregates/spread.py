"""Variance and standard deviation of a sample.

Of exact numbers the sums of values and of squares are exact, so the result does not depend on any order: a square can
have 56 digits, so a value is cut into two halves and the squares' parts are summed. Of doubles the state is (count,
mean, squared distances from it), merged as in Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for
Computing Sample Variances, 1979.
"""

from __future__ import annotations

from windrow.core.aggregates import kernels
from windrow.core.aggregates.fold import Accumulator, Fold, Input
from windrow.core.duck import identifier


def variance(name: str, column: str, of: Input) -> Fold:
    """Square the distances from the mean."""
    if of.is_double:
        state = identifier(column)
        return Fold(name, (_of_doubles(column, of),), f"CASE WHEN {state}.n > 1 THEN {state}.d / ({state}.n - 1) END")
    parts = _exact(column, of)
    sums = ", ".join(identifier(part.column) for part in parts)
    return Fold(name, parts, f"{kernels.variance(of.scale or 0)}({sums})")


def stddev(name: str, column: str, of: Input) -> Fold:
    """Take the square root of the variance."""
    of_squares = variance(name, column, of)
    return Fold(name, of_squares.accumulators, f"sqrt({of_squares.finish})")


def _of_doubles(column: str, of: Input) -> Accumulator:
    begin = (
        f"CASE WHEN count({of.sql}) > 0 THEN {{n: count({of.sql})::DOUBLE, m: avg({of.sql}),"
        f" d: var_pop({of.sql}) * count({of.sql})}} END"
    )
    merged = (
        "lambda a, b: {n: a.n + b.n, m: a.m + (b.m - a.m) * b.n / (a.n + b.n),"
        " d: a.d + b.d + (b.m - a.m) * (b.m - a.m) * a.n * b.n / (a.n + b.n)}"
    )
    # the order in which they are merged is that of their values
    pieces = "list_sort(list_filter({}, lambda e: e IS NOT NULL))"
    return Accumulator(column, begin, "list", f"CASE WHEN len({pieces}) > 0 THEN list_reduce({pieces}, {merged}) END")


def _exact(column: str, of: Input) -> tuple[Accumulator, ...]:
    """Count, sum, and sum the squares of the high halves, the products of the halves, the squares of the low halves."""
    value, half = f"{of.sql}::HUGEINT", f"{kernels.HALF}::HUGEINT"
    high, low = f"({value} // {half})", f"({value} % {half})"
    sums = {"s": value, "hh": f"{high} * {high}", "hl": f"{high} * {low}", "ll": f"{low} * {low}"}
    whole = "CAST({} AS DECIMAL(38,0))"
    return (
        Accumulator(f"{column}_n", f"count({of.sql})", "sum", "CAST({} AS BIGINT)"),
        *(
            Accumulator(f"{column}_{part}", whole.replace("{}", f"sum({sql})"), "sum", whole)
            for part, sql in sums.items()
        ),
    )
