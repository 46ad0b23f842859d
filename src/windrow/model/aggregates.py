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
class _OfArgument:
    """A function of one argument, `of`."""

    of: str


@dataclass(frozen=True)
class Sum(_OfArgument):
    """The sum of a number; exact, except for doubles."""


@dataclass(frozen=True)
class Min(_OfArgument):
    """The smallest value."""


@dataclass(frozen=True)
class Max(_OfArgument):
    """The largest value."""


@dataclass(frozen=True)
class Avg(_OfArgument):
    """The mean, with six more decimal digits than its field, rounded half away from zero; for doubles a double."""


@dataclass(frozen=True)
class CountDistinct(_OfArgument):
    """The exact number of distinct values; the state of a window holds each of them."""


@dataclass(frozen=True)
class ApproxCountDistinct(_OfArgument):
    """The approximate number of distinct values, in a state of bounded size."""


@dataclass(frozen=True)
class Quantile(_OfArgument):
    """The exact quantile: the smallest value that the fraction `at` of the values does not exceed.

    The state of a window holds all values.
    """

    at: float


@dataclass(frozen=True)
class ApproxQuantile(_OfArgument):
    """A quantile that is accurate to one per cent of its value, in a state of bounded size."""

    at: float


@dataclass(frozen=True)
class TopK(_OfArgument):
    """The `k` most frequent values with their counts, as JSON; values with equal counts are in ascending order."""

    k: int


@dataclass(frozen=True)
class First(_OfArgument):
    """The value of the first record, by event time or by place in the log.

    Records with the same event time are ordered by partition and offset. If `by` is ``log``, all records are.
    """

    by: Literal["time", "log"] = "time"


@dataclass(frozen=True)
class Last(_OfArgument):
    """The value of the last record, by event time or by place in the log.

    Records with the same event time are ordered by partition and offset. If `by` is ``log``, all records are.
    """

    by: Literal["time", "log"] = "time"


@dataclass(frozen=True)
class MaxBy(_OfArgument):
    """The value of the record with the largest `measure`; in a tie, of the record with the earliest event time."""

    measure: str


@dataclass(frozen=True)
class MinBy(_OfArgument):
    """The value of the record with the smallest `measure`; in a tie, of the record with the earliest event time."""

    measure: str


@dataclass(frozen=True)
class TopKBy(_OfArgument):
    """The values and measures of the `k` records with the largest `measure`, as JSON.

    Records with equal measures are ordered by event time.
    """

    measure: str
    k: int


@dataclass(frozen=True)
class BottomKBy(_OfArgument):
    """The values and measures of the `k` records with the smallest `measure`, as JSON.

    Records with equal measures are ordered by event time.
    """

    measure: str
    k: int


@dataclass(frozen=True)
class CollectList(_OfArgument):
    """The first `most` values as a JSON array, by event time or by place in the log.

    Records with the same event time are ordered by partition and offset. If `by` is ``log``, all records are.
    """

    most: int
    by: Literal["time", "log"] = "time"


@dataclass(frozen=True)
class CollectSet(_OfArgument):
    """The smallest `most` distinct values in ascending order, as a JSON array."""

    most: int


@dataclass(frozen=True)
class Variance(_OfArgument):
    """The sample variance, a double; null for fewer than two values."""


@dataclass(frozen=True)
class Stddev(_OfArgument):
    """The sample standard deviation, a double; null for fewer than two values."""


@dataclass(frozen=True)
class BoolAnd(_OfArgument):
    """Whether all values are true."""


@dataclass(frozen=True)
class BoolOr(_OfArgument):
    """Whether at least one value is true."""


class CustomAggregate(Protocol):
    """A user-defined aggregate.

    The result of merging states must not depend on their order and grouping; otherwise results depend on how the log is
    divided into steps. A state is any value that JSON can represent.
    """

    @property
    def returns(self) -> DataType:
        """The type of the result."""
        ...

    def zero(self) -> Any:  # noqa: ANN401 - the user's own
        """Return the state of no records."""
        ...

    def step(self, state: Any, columns: Mapping[str, pa.Array]) -> Any:  # noqa: ANN401
        """Return a state with the records of `columns` added; their order is arbitrary."""
        ...

    def merge(self, one: Any, other: Any) -> Any:  # noqa: ANN401
        """Return the state of the records of both."""
        ...

    def finish(self, state: Any) -> Any:  # noqa: ANN401
        """Return the result for a state."""
        ...


@dataclass(frozen=True)
class Custom:
    """A user-defined aggregate over one or more arguments, which is available only in the Python API."""

    aggregate: CustomAggregate
    of: tuple[str, ...]


@dataclass(frozen=True)
class Formula:
    """An SQL expression over other results by name, such as ``total / events``."""

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
"""Functions of one argument, `of`."""

Function = Count | UnaryFunction | Custom | Formula


@dataclass(frozen=True)
class FunctionSpec:
    """An entry in the catalogue of aggregate functions: the function's class, its arguments, and its result.

    - `accepts`: values of any type, numbers, numbers that are summed (decimals of limited width), or booleans.
    - `result`: a count (a long, never null), a value of the argument's type, an exact sum or mean, a double, JSON
      text, a list of values of the argument's type as JSON text, or a boolean.
    - `extra`: further arguments of the call, in order: a fraction from 0 to 1, a measure (a second argument over
      fields), or a limit (a positive whole number).
    - `by_log`: whether records are ordered by partition and offset instead of event time.
    """

    kind: type[Count | UnaryFunction]
    accepts: Literal["any", "number", "summable", "boolean"]
    result: Literal["count", "argument", "sum", "mean", "double", "text", "list", "boolean"]
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
    "collect_list": FunctionSpec(CollectList, "any", "list", extra=("limit",)),
    "collect_list_in_log": FunctionSpec(CollectList, "any", "list", extra=("limit",), by_log=True),
    "collect_set": FunctionSpec(CollectSet, "any", "list", extra=("limit",)),
}
"""The catalogue of aggregate functions by name; a call of a function that is not in it is a formula."""


def function_name(function: Count | UnaryFunction) -> str:
    """Return the name of an aggregate function, as it is written in a call."""
    by_log = isinstance(function, First | Last | CollectList) and function.by == "log"
    return next(
        name for name, spec in AGGREGATE_FUNCTIONS.items() if spec.kind is type(function) and spec.by_log == by_log
    )


def function_spec(function: Count | UnaryFunction) -> FunctionSpec:
    """Return the entry of an aggregate function in the catalogue."""
    return AGGREGATE_FUNCTIONS[function_name(function)]


@dataclass(frozen=True)
class Aggregate:
    """A result column; `where` is an SQL condition over a record's fields that selects the records to aggregate."""

    name: str
    function: Function
    where: str | None = None
