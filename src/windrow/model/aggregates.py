"""Aggregate functions over the records of a window, and formulas over their results.

An argument `of` is a field's name, or an SQL expression over the fields of a record. Records for which it is null are
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from windrow.model.types import DataType

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Count:
    """How many records."""


@dataclass(frozen=True)
class Sum:
    """The sum of a number; exact but for doubles."""

    of: str


@dataclass(frozen=True)
class Min:
    """The least value."""

    of: str


@dataclass(frozen=True)
class Max:
    """The greatest value."""

    of: str


@dataclass(frozen=True)
class Avg:
    """The mean: exact to six more digits than its field has, rounded half away from zero; a double for doubles."""

    of: str


@dataclass(frozen=True)
class CountDistinct:
    """How many different values; exact, so a window's state holds each of them."""

    of: str


@dataclass(frozen=True)
class ApproxCountDistinct:
    """About how many different values, in a state of bounded size."""

    of: str


@dataclass(frozen=True)
class Quantile:
    """The value that the fraction `at` of a number's values do not exceed, exact; a window's state holds them all."""

    of: str
    at: float


@dataclass(frozen=True)
class ApproxQuantile:
    """A quantile to within one per cent of its value, in a state of bounded size."""

    of: str
    at: float


@dataclass(frozen=True)
class TopK:
    """The `k` most frequent values with how often each came, as JSON; equal counts in the order of the values."""

    of: str
    k: int


@dataclass(frozen=True)
class First:
    """The value of the first record, by event time (equal times: by partition and offset), or by partition, offset."""

    of: str
    by: Literal["time", "log"] = "time"


@dataclass(frozen=True)
class Last:
    """The value of the last record, by event time (equal times: by partition and offset), or by partition, offset."""

    of: str
    by: Literal["time", "log"] = "time"


@dataclass(frozen=True)
class CollectList:
    """The values in order of event time, the first `most` of them, as a JSON array."""

    of: str
    most: int


@dataclass(frozen=True)
class CollectSet:
    """The different values in their own order, the least `most` of them, as a JSON array."""

    of: str
    most: int


@dataclass(frozen=True)
class Variance:
    """The sample variance, a double; null for fewer than two values."""

    of: str


@dataclass(frozen=True)
class Stddev:
    """The sample standard deviation, a double; null for fewer than two values."""

    of: str


@dataclass(frozen=True)
class BoolAnd:
    """Whether all are true."""

    of: str


@dataclass(frozen=True)
class BoolOr:
    """Whether one is true."""

    of: str


class CustomAggregate(Protocol):
    """An aggregate of one's own. States merge in any order and grouping, or results depend on batch cuts.

    A state is any plain value (numbers, texts, lists, dicts) that JSON holds.
    """

    @property
    def returns(self) -> DataType:
        """The type of the result."""
        ...

    def zero(self) -> Any:  # noqa: ANN401 - the user's own
        """Return the state of no records."""
        ...

    def step(self, state: Any, columns: Mapping[str, pa.Array]) -> Any:  # noqa: ANN401
        """Return the state with some more records in it, given as columns, in no promised order."""
        ...

    def merge(self, one: Any, other: Any) -> Any:  # noqa: ANN401
        """Return the state of the records of both."""
        ...

    def finish(self, state: Any) -> Any:  # noqa: ANN401
        """Return the result."""
        ...


@dataclass(frozen=True)
class Custom:
    """An aggregate in Python, over some arguments; only the fluent form has it."""

    aggregate: CustomAggregate
    of: tuple[str, ...]


@dataclass(frozen=True)
class Formula:
    """An SQL expression over the other results by their names, such as ``total / events``."""

    sql: str


Function = (
    Count
    | Sum
    | Min
    | Max
    | Avg
    | CountDistinct
    | ApproxCountDistinct
    | Quantile
    | ApproxQuantile
    | TopK
    | First
    | Last
    | CollectList
    | CollectSet
    | Variance
    | Stddev
    | BoolAnd
    | BoolOr
    | Custom
    | Formula
)


@dataclass(frozen=True)
class Aggregate:
    """A result column; with `where`, an SQL condition over a record's fields, of those records alone."""

    name: str
    function: Function
    where: str | None = None
