"""Aggregate functions: the arguments of `aggregate`."""

from __future__ import annotations

from windrow.api.aggregate_text import Measure
from windrow.model import (
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    BoolOr,
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
    Min,
    Quantile,
    Stddev,
    Sum,
    TopK,
    Variance,
)


def count(*, where: str | None = None) -> Measure:
    """Count the records."""
    return Measure(Count(), where)


def sum_(of: str, *, where: str | None = None) -> Measure:
    """Sum a number; exact but for doubles."""
    return Measure(Sum(of), where)


def min_(of: str, *, where: str | None = None) -> Measure:
    """Take the least value."""
    return Measure(Min(of), where)


def max_(of: str, *, where: str | None = None) -> Measure:
    """Take the greatest value."""
    return Measure(Max(of), where)


def avg(of: str, *, where: str | None = None) -> Measure:
    """Take the mean of a number, to six more digits than its field has."""
    return Measure(Avg(of), where)


def count_distinct(of: str, *, where: str | None = None) -> Measure:
    """Count the different values, exactly: the state holds each of them."""
    return Measure(CountDistinct(of), where)


def approx_count_distinct(of: str, *, where: str | None = None) -> Measure:
    """Count the different values, exactly up to about a thousand, and to some per cent above."""
    return Measure(ApproxCountDistinct(of), where)


def quantile(of: str, at: float, *, where: str | None = None) -> Measure:
    """Take the least value that the fraction `at` of the values does not exceed: the state holds all values."""
    return Measure(Quantile(of, at), where)


def approx_quantile(of: str, at: float, *, where: str | None = None) -> Measure:
    """Take a quantile to within one per cent of its value."""
    return Measure(ApproxQuantile(of, at), where)


def top_k(of: str, k: int, *, where: str | None = None) -> Measure:
    """Take the `k` most frequent values with their counts, as JSON."""
    return Measure(TopK(of, k), where)


def first(of: str, *, where: str | None = None) -> Measure:
    """Take the value of the record with the least event time."""
    return Measure(First(of), where)


def last(of: str, *, where: str | None = None) -> Measure:
    """Take the value of the record with the greatest event time."""
    return Measure(Last(of), where)


def first_in_log(of: str, *, where: str | None = None) -> Measure:
    """Take the value of the record with the least partition and offset."""
    return Measure(First(of, "log"), where)


def last_in_log(of: str, *, where: str | None = None) -> Measure:
    """Take the value of the record with the greatest partition and offset."""
    return Measure(Last(of, "log"), where)


def collect_list(of: str, most: int, *, where: str | None = None) -> Measure:
    """Take the first `most` values in order of event time, as a JSON array."""
    return Measure(CollectList(of, most), where)


def collect_set(of: str, most: int, *, where: str | None = None) -> Measure:
    """Take the least `most` of the different values in their own order, as a JSON array."""
    return Measure(CollectSet(of, most), where)


def variance(of: str, *, where: str | None = None) -> Measure:
    """Take the sample variance of a number."""
    return Measure(Variance(of), where)


def stddev(of: str, *, where: str | None = None) -> Measure:
    """Take the sample standard deviation of a number."""
    return Measure(Stddev(of), where)


def bool_and(of: str, *, where: str | None = None) -> Measure:
    """Say whether a condition is true of all records."""
    return Measure(BoolAnd(of), where)


def bool_or(of: str, *, where: str | None = None) -> Measure:
    """Say whether a condition is true of one record."""
    return Measure(BoolOr(of), where)


def formula(sql: str) -> Measure:
    """Compute an SQL expression over the other results, by their names: ``total / events``; none of them a formula."""
    return Measure(Formula(sql))


def custom(aggregate: CustomAggregate, *of: str, where: str | None = None) -> Measure:
    """Compute an aggregate of one's own, in Python, over the fields or expressions `of`."""
    return Measure(Custom(aggregate, of), where)
