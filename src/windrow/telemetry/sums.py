"""Sums of facts by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import add
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def sum_by_name(several: Iterable[Mapping[K, V]], plus: Callable[[V, V], V] = add) -> dict[K, V]:
    """Add up values by name, in the order in which the names come."""
    found: dict[K, V] = {}
    for values in several:
        for name, value in values.items():
            found[name] = plus(found[name], value) if name in found else value
    return found


def add_counts(counts: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    """Add up two counts by name."""
    return sum_by_name((counts, others))
