"""What `aggregate` takes."""

from __future__ import annotations

from windrow.model import Avg, Count, Max, Min, Sum


def count() -> Count:
    """Count the records."""
    return Count()


def sum_(field: str) -> Sum:
    """Sum a number; exact but for doubles."""
    return Sum(field)


def min_(field: str) -> Min:
    """Take the least value of a number."""
    return Min(field)


def max_(field: str) -> Max:
    """Take the greatest value of a number."""
    return Max(field)


def avg(field: str) -> Avg:
    """Take the mean of a number, to six more digits than its field has."""
    return Avg(field)
