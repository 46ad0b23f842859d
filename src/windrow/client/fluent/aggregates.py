"""Aggregate functions: the arguments of `aggregate`."""

from __future__ import annotations

from windrow import model as m
from windrow.authoring.aggregate_text import Measure
from windrow.client.arguments import checked


@checked
def count(*, where: str | None = None) -> Measure:
    """Number of records."""
    return Measure(m.Count(), where)


@checked
def sum(of: str, *, where: str | None = None) -> Measure:  # noqa: A001 the field's name, read as wr.sum
    """Sum of a field; exact, except for doubles."""
    return Measure(m.Sum(of), where)


@checked
def min(of: str, *, where: str | None = None) -> Measure:  # noqa: A001 the field's name, read as wr.min
    """Smallest value."""
    return Measure(m.Min(of), where)


@checked
def max(of: str, *, where: str | None = None) -> Measure:  # noqa: A001 the field's name, read as wr.max
    """Largest value."""
    return Measure(m.Max(of), where)


@checked
def avg(of: str, *, where: str | None = None) -> Measure:
    """Mean of a field, with six more decimal digits than the field."""
    return Measure(m.Avg(of), where)


@checked
def count_distinct(of: str, *, where: str | None = None) -> Measure:
    """Exact number of distinct values. The state holds each value."""
    return Measure(m.CountDistinct(of), where)


@checked
def approx_count_distinct(of: str, *, where: str | None = None) -> Measure:
    """Number of distinct values, exact up to about a thousand, and within a few per cent above."""
    return Measure(m.ApproxCountDistinct(of), where)


@checked
def quantile(of: str, at: float, *, where: str | None = None) -> Measure:
    """Exact quantile: the smallest value that the fraction `at` of the values does not exceed.

    The state holds all values.
    """
    return Measure(m.Quantile(of, at), where)


@checked
def approx_quantile(of: str, at: float, *, where: str | None = None) -> Measure:
    """Approximate quantile, within one per cent of its value."""
    return Measure(m.ApproxQuantile(of, at), where)


@checked
def top_k(of: str, k: int, *, where: str | None = None) -> Measure:
    """The `k` most frequent values with their counts, as JSON."""
    return Measure(m.TopK(of, k), where)


@checked
def first(of: str, *, where: str | None = None) -> Measure:
    """Value of the record with the earliest event time."""
    return Measure(m.First(of), where)


@checked
def last(of: str, *, where: str | None = None) -> Measure:
    """Value of the record with the latest event time."""
    return Measure(m.Last(of), where)


@checked
def first_in_log(of: str, *, where: str | None = None) -> Measure:
    """Value of the record with the lowest partition and offset."""
    return Measure(m.First(of, "log"), where)


@checked
def last_in_log(of: str, *, where: str | None = None) -> Measure:
    """Value of the record with the highest partition and offset."""
    return Measure(m.Last(of, "log"), where)


@checked
def max_by(of: str, measure: str, *, where: str | None = None) -> Measure:
    """Value of the record with the largest `measure`; in a tie, of the record with the earliest event time."""
    return Measure(m.MaxBy(of, measure), where)


@checked
def min_by(of: str, measure: str, *, where: str | None = None) -> Measure:
    """Value of the record with the smallest `measure`; in a tie, as for `max_by`."""
    return Measure(m.MinBy(of, measure), where)


@checked
def top_k_by(of: str, measure: str, k: int, *, where: str | None = None) -> Measure:
    """Values of the `k` records with the largest `measure`, with the measures, as JSON.

    Records with equal measures are ordered by event time.
    """
    return Measure(m.TopKBy(of, measure, k), where)


@checked
def bottom_k_by(of: str, measure: str, k: int, *, where: str | None = None) -> Measure:
    """Values of the `k` records with the smallest `measure`; otherwise as `top_k_by`."""
    return Measure(m.BottomKBy(of, measure, k), where)


@checked
def collect_list(of: str, most: int, *, where: str | None = None) -> Measure:
    """The first `most` values in order of event time, as a JSON array."""
    return Measure(m.CollectList(of, most), where)


@checked
def collect_list_in_log(of: str, most: int, *, where: str | None = None) -> Measure:
    """The `most` values with the lowest partition and offset, in that order, as a JSON array."""
    return Measure(m.CollectList(of, most, "log"), where)


@checked
def collect_set(of: str, most: int, *, where: str | None = None) -> Measure:
    """The smallest `most` distinct values in ascending order, as a JSON array."""
    return Measure(m.CollectSet(of, most), where)


@checked
def variance(of: str, *, where: str | None = None) -> Measure:
    """Sample variance of a field."""
    return Measure(m.Variance(of), where)


@checked
def stddev(of: str, *, where: str | None = None) -> Measure:
    """Sample standard deviation of a field."""
    return Measure(m.Stddev(of), where)


@checked
def bool_and(of: str, *, where: str | None = None) -> Measure:
    """Whether a condition is true for all records."""
    return Measure(m.BoolAnd(of), where)


@checked
def bool_or(of: str, *, where: str | None = None) -> Measure:
    """Whether a condition is true for at least one record."""
    return Measure(m.BoolOr(of), where)


@checked
def formula(sql: str) -> Measure:
    """SQL expression over other results, such as ``total / events``, but not over formulas."""
    return Measure(m.Formula(sql))


@checked
def custom(aggregate: m.CustomAggregate, *of: str, where: str | None = None) -> Measure:
    """User-defined aggregate in Python, over the fields or expressions in `of`."""
    return Measure(m.Custom(aggregate, of), where)
