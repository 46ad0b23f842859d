"""Random aggregates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from hypothesis import strategies as st

from windrow.model import (
    Aggregate,
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    BoolOr,
    BottomKBy,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    DataType,
    DecimalType,
    DoubleType,
    First,
    Formula,
    Function,
    Last,
    LongType,
    Max,
    MaxBy,
    Min,
    MinBy,
    Quantile,
    Stddev,
    Sum,
    TopK,
    TopKBy,
    Variance,
)

NUMBERS: dict[str, tuple[DataType, st.SearchStrategy[Any]]] = {
    "n": (LongType(), st.integers(-5, 5) | st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)),
    "amount": (
        DecimalType(12, 2),
        st.decimals(allow_nan=False, places=2, min_value=-10, max_value=10)
        | st.decimals(allow_nan=False, places=2, min_value="-9999999999.99", max_value="9999999999.99"),
    ),
    # quarters of small numbers: their sums are exact in any order
    "weight": (DoubleType(), st.integers(-4000, 4000).map(lambda quarters: quarters / 4)),
}

EXPRESSIONS = [
    "n % 4",
    "nullif(n, 0)",
    "amount * 2",
    "n + 1",
    "length(amount::VARCHAR)",
    "CASE WHEN n > 0 THEN amount END",
]
CONDITIONS = ["n > 0", "amount < 5", "n = 1 OR weight > 0", "nullif(n, 2) > 0"]
FRACTIONS = st.sampled_from([0.0, 0.07, 0.25, 0.5, 0.9, 0.99, 1.0])


def _functions(values: Sequence[str]) -> st.SearchStrategy[Function]:
    """Draw an aggregate; `values` are fields of any type."""
    numbers = st.sampled_from([*NUMBERS, *NUMBERS, *EXPRESSIONS])
    anything = st.sampled_from([*values, *NUMBERS, *EXPRESSIONS])
    orders: tuple[Literal["time", "log"], ...] = ("time", "log")
    by = st.sampled_from(orders)
    small = st.integers(1, 3)
    of_numbers: list[Callable[[str], Function]] = [Sum, Min, Max, Avg, Variance, Stddev]
    of_anything: list[Callable[[str], Function]] = [CountDistinct, ApproxCountDistinct]
    at_fractions: list[Callable[[str, float], Function]] = [Quantile, ApproxQuantile]
    by_order: list[Callable[[str, Literal["time", "log"]], Function]] = [First, Last]
    bounded: list[Callable[[str, int], Function]] = [TopK, CollectSet]
    measured: list[Callable[[str, str], Function]] = [MaxBy, MinBy]
    ranked: list[Callable[[str, str, int], Function]] = [TopKBy, BottomKBy]
    of_conditions: list[Callable[[str], Function]] = [BoolAnd, BoolOr]
    kinds: list[st.SearchStrategy[Function]] = [
        st.just(Count()),
        *(st.builds(kind, numbers) for kind in of_numbers),
        *(st.builds(kind, anything) for kind in of_anything),
        *(st.builds(kind, numbers, FRACTIONS) for kind in at_fractions),
        *(st.builds(kind, anything, by) for kind in by_order),
        *(st.builds(kind, anything, small) for kind in bounded),
        st.builds(CollectList, anything, small, by),
        *(st.builds(kind, anything, anything) for kind in measured),
        *(st.builds(kind, anything, anything, small) for kind in ranked),
        *(st.builds(kind, st.sampled_from(CONDITIONS)) for kind in of_conditions),
    ]
    return st.one_of(kinds)


@st.composite
def aggregates(draw: st.DrawFn, derived: Sequence[str]) -> tuple[Aggregate, ...]:
    """Draw one to four aggregates, some of some records only, and perhaps a formula over the first that may fail."""
    functions = draw(st.lists(_functions(derived), min_size=1, max_size=4))
    wheres = st.none() | st.none() | st.sampled_from(CONDITIONS)
    found = [Aggregate(f"a{number}", function, draw(wheres)) for number, function in enumerate(functions)]
    if draw(st.integers(0, 4)) == 0:
        found.append(Aggregate("f", Formula(draw(st.sampled_from(_formulas(functions[0]))))))
    return tuple(found)


def _formulas(function: Function) -> list[str]:
    """Return formulas over `a0`: of counts they fail for some, of other aggregates for null."""
    if isinstance(function, Count):
        return ["a0 * 2 + 1", "10 / (a0 - 1)", FAILS_FOR_SOME, FAILS_FOR_SOME]
    return ["coalesce(a0 IS NULL, false)", "CAST(CASE WHEN a0 IS NULL THEN 'x' ELSE '1' END AS BIGINT)"]


FAILS_FOR_SOME = "CAST(CASE WHEN a0 % 3 = 1 THEN 'x' ELSE a0::VARCHAR END AS BIGINT)"
