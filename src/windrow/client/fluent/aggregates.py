"""Aggregate functions: the arguments of `aggregate`."""

from __future__ import annotations

from windrow.authoring.aggregate_text import Measure
from windrow.client.arguments import checked
from windrow.model import (
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
    Custom,
    CustomAggregate,
    First,
    Formula,
    Last,
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


@checked
def count(*, where: str | None = None) -> Measure:
    """Number of records."""
    return Measure(Count(), where)


@checked
def sum(of: str, *, where: str | None = None) -> Measure:  # noqa: A001 the field's name, read as wr.sum
    """Sum of a number; exact, except for doubles."""
    return Measure(Sum(of), where)


@checked
def min(of: str, *, where: str | None = None) -> Measure:  # noqa: A001 the field's name, read as wr.min
    """Smallest value."""
    return Measure(Min(of), where)


@checked
def max(of: str, *, where: str | None = None) -> Measure:  # noqa: A001 the field's name, read as wr.max
    """Largest value."""
    return Measure(Max(of), where)


@checked
def avg(of: str, *, where: str | None = None) -> Measure:
    """Mean of a number, with six more decimal digits than its field."""
    return Measure(Avg(of), where)


@checked
def count_distinct(of: str, *, where: str | None = None) -> Measure:
    """Exact number of distinct values. The state holds each of them."""
    return Measure(CountDistinct(of), where)


@checked
def approx_count_distinct(of: str, *, where: str | None = None) -> Measure:
    """Number of distinct values, exact up to about a thousand, and within a few per cent above that."""
    return Measure(ApproxCountDistinct(of), where)


@checked
def quantile(of: str, at: float, *, where: str | None = None) -> Measure:
    """Exact quantile: the least value that the fraction `at` of the values does not exceed. The state holds all."""
    return Measure(Quantile(of, at), where)


@checked
def approx_quantile(of: str, at: float, *, where: str | None = None) -> Measure:
    """Approximate quantile, within one per cent of its value."""
    return Measure(ApproxQuantile(of, at), where)


@checked
def top_k(of: str, k: int, *, where: str | None = None) -> Measure:
    """The `k` most frequent values with their counts, as JSON."""
    return Measure(TopK(of, k), where)


@checked
def first(of: str, *, where: str | None = None) -> Measure:
    """Value of the record with the earliest event time."""
    return Measure(First(of), where)


@checked
def last(of: str, *, where: str | None = None) -> Measure:
    """Value of the record with the latest event time."""
    return Measure(Last(of), where)


@checked
def first_in_log(of: str, *, where: str | None = None) -> Measure:
    """Value of the record with the lowest partition and offset."""
    return Measure(First(of, "log"), where)


@checked
def last_in_log(of: str, *, where: str | None = None) -> Measure:
    """Value of the record with the highest partition and offset."""
    return Measure(Last(of, "log"), where)


@checked
def max_by(of: str, measure: str, *, where: str | None = None) -> Measure:
    """Value of the record with the largest `measure`; of equal ones, the first by event time."""
    return Measure(MaxBy(of, measure), where)


@checked
def min_by(of: str, measure: str, *, where: str | None = None) -> Measure:
    """Value of the record with the smallest `measure`; of equal ones, the first by event time."""
    return Measure(MinBy(of, measure), where)


@checked
def top_k_by(of: str, measure: str, k: int, *, where: str | None = None) -> Measure:
    """Values of the `k` records with the largest `measure`, with the measures, as JSON; equal ones by event time."""
    return Measure(TopKBy(of, measure, k), where)


@checked
def bottom_k_by(of: str, measure: str, k: int, *, where: str | None = None) -> Measure:
    """Values of the `k` records with the smallest `measure`, with the measures, as JSON; equal ones by event time."""
    return Measure(BottomKBy(of, measure, k), where)


@checked
def collect_list(of: str, most: int, *, where: str | None = None) -> Measure:
    """The first `most` values in order of event time, as a JSON array."""
    return Measure(CollectList(of, most), where)


@checked
def collect_list_in_log(of: str, most: int, *, where: str | None = None) -> Measure:
    """The `most` values with the lowest partition and offset, in that order, as a JSON array."""
    return Measure(CollectList(of, most, "log"), where)


@checked
def collect_set(of: str, most: int, *, where: str | None = None) -> Measure:
    """The smallest `most` distinct values in ascending order, as a JSON array."""
    return Measure(CollectSet(of, most), where)


@checked
def variance(of: str, *, where: str | None = None) -> Measure:
    """Sample variance of a number."""
    return Measure(Variance(of), where)


@checked
def stddev(of: str, *, where: str | None = None) -> Measure:
    """Sample standard deviation of a number."""
    return Measure(Stddev(of), where)


@checked
def bool_and(of: str, *, where: str | None = None) -> Measure:
    """Whether a condition is true for all records."""
    return Measure(BoolAnd(of), where)


@checked
def bool_or(of: str, *, where: str | None = None) -> Measure:
    """Whether a condition is true for at least one record."""
    return Measure(BoolOr(of), where)


@checked
def formula(sql: str) -> Measure:
    """SQL expression over other results that are not formulas themselves, by name: ``total / events``."""
    return Measure(Formula(sql))


@checked
def custom(aggregate: CustomAggregate, *of: str, where: str | None = None) -> Measure:
    """User-defined aggregate in Python, over the fields or expressions `of`."""
    return Measure(Custom(aggregate, of), where)
