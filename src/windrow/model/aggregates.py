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
    """The number of records."""


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
    """The number of distinct values; exact, so a window's state holds each of them."""

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
class MaxBy:
    """The value of the record with the greatest `measure`; of equal ones, that of the first record by event time."""

    of: str
    measure: str


@dataclass(frozen=True)
class MinBy:
    """The value of the record with the least `measure`; of equal ones, that of the first record by event time."""

    of: str
    measure: str


@dataclass(frozen=True)
class TopKBy:
    """The values of the `k` records with the greatest `measure`, each with it, as JSON; equal ones by event time."""

    of: str
    measure: str
    k: int


@dataclass(frozen=True)
class BottomKBy:
    """The values of the `k` records with the least `measure`, each with it, as JSON; equal ones by event time."""

    of: str
    measure: str
    k: int


@dataclass(frozen=True)
class CollectList:
    """The values by event time (equal times: by partition and offset), or by partition, offset, the first `most`."""

    of: str
    most: int
    by: Literal["time", "log"] = "time"


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


UnaryFunction = (
    Sum
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
    | MaxBy
    | MinBy
    | TopKBy
    | BottomKBy
    | CollectList
    | CollectSet
    | Variance
    | Stddev
    | BoolAnd
    | BoolOr
)
"""Functions of an argument `of`."""

Function = Count | UnaryFunction | Custom | Formula


@dataclass(frozen=True)
class FunctionSpec:
    """An entry of the catalogue: the function's name, its arguments, and the type of its result.

    - `accepts`: values of any type, numbers, numbers that are summed (decimals of limited width), or booleans.
    - `result`: a count (a long, never null), a value of the argument's type, an exact sum or mean, a double, JSON
      text, or a boolean.
    - `extra`: what the call takes after the argument, in order: a fraction from 0 to 1, a measure, which is another
      argument, or a limit (a positive whole number).
    - `by_log`: the call means the order by partition and offset, not by event time.
    """

    kind: type[Count | UnaryFunction]
    accepts: Literal["any", "number", "summable", "boolean"]
    result: Literal["count", "argument", "sum", "mean", "double", "text", "boolean"]
    extra: tuple[Literal["fraction", "limit", "measure"], ...] = ()
    by_log: bool = False


AGGREGATE_FUNCTIONS: Mapping[str, FunctionSpec] = {
    "count": FunctionSpec(Count, "any", "count"),
    "sum": FunctionSpec(Sum, "summable", "sum"),
    "min": FunctionSpec(Min, "any", "argument"),
    "max": FunctionSpec(Max, "any", "argument"),
    "avg": FunctionSpec(Avg, "summable", "mean"),
    "count_distinct": FunctionSpec(CountDistinct, "any", "count"),
    "approx_count_distinct": FunctionSpec(ApproxCountDistinct, "any", "count"),
    "first": FunctionSpec(First, "any", "argument"),
    "last": FunctionSpec(Last, "any", "argument"),
    "first_in_log": FunctionSpec(First, "any", "argument", by_log=True),
    "last_in_log": FunctionSpec(Last, "any", "argument", by_log=True),
    "max_by": FunctionSpec(MaxBy, "any", "argument", extra=("measure",)),
    "min_by": FunctionSpec(MinBy, "any", "argument", extra=("measure",)),
    "variance": FunctionSpec(Variance, "summable", "double"),
    "stddev": FunctionSpec(Stddev, "summable", "double"),
    "bool_and": FunctionSpec(BoolAnd, "boolean", "boolean"),
    "bool_or": FunctionSpec(BoolOr, "boolean", "boolean"),
    "quantile": FunctionSpec(Quantile, "number", "argument", extra=("fraction",)),
    "approx_quantile": FunctionSpec(ApproxQuantile, "number", "double", extra=("fraction",)),
    "top_k": FunctionSpec(TopK, "any", "text", extra=("limit",)),
    "top_k_by": FunctionSpec(TopKBy, "any", "text", extra=("measure", "limit")),
    "bottom_k_by": FunctionSpec(BottomKBy, "any", "text", extra=("measure", "limit")),
    "collect_list": FunctionSpec(CollectList, "any", "text", extra=("limit",)),
    "collect_list_in_log": FunctionSpec(CollectList, "any", "text", extra=("limit",), by_log=True),
    "collect_set": FunctionSpec(CollectSet, "any", "text", extra=("limit",)),
}
"""The catalogue of aggregate functions by the name of their call; what is called otherwise is a formula."""


def function_name(function: Count | UnaryFunction) -> str:
    """Return the name by which an aggregate function is called."""
    by_log = isinstance(function, First | Last | CollectList) and function.by == "log"
    return next(
        name for name, spec in AGGREGATE_FUNCTIONS.items() if spec.kind is type(function) and spec.by_log == by_log
    )


def function_spec(function: Count | UnaryFunction) -> FunctionSpec:
    """Return the catalogue's entry of an aggregate function."""
    return AGGREGATE_FUNCTIONS[function_name(function)]


@dataclass(frozen=True)
class Aggregate:
    """A result column; with `where`, an SQL condition over a record's fields, of those records alone."""

    name: str
    function: Function
    where: str | None = None
