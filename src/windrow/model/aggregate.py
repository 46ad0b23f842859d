"""What is computed of a window's records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Count:
    """How many records."""


@dataclass(frozen=True)
class Sum:
    """The sum of a number; exact but for doubles."""

    field: str


@dataclass(frozen=True)
class Min:
    """The least value."""

    field: str


@dataclass(frozen=True)
class Max:
    """The greatest value."""

    field: str


@dataclass(frozen=True)
class Avg:
    """The mean: exact to six more digits than its field has, rounded half away from zero; a double for doubles."""

    field: str


Function = Count | Sum | Min | Max | Avg


@dataclass(frozen=True)
class Aggregate:
    """A result column."""

    name: str
    function: Function
