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
    """A function of the argument `of`."""

    of: str


@dataclass(frozen=True)
class Sum(_OfArgument):
    """The sum of a number; exact but for doubles."""


@dataclass(frozen=True)
class Min(_OfArgument):
    """The least value."""


@dataclass(frozen=True)
class Max(_OfArgument):
    """The greatest value."""


@dataclass(frozen=True)
class Avg(_OfArgument):
    """The mean: exact to six more digits than its field has, rounded half away from zero; a double for doubles."""


@dataclass(frozen=True)
class CountDistinct(_OfArgument):
    """The number of distinct values; exact, so a window's state holds each of them."""


@dataclass(frozen=True)
class ApproxCountDistinct(_OfArgument):
    """The approximate number of distinct values, in a state of bounded size."""


@dataclass(frozen=True)
class Quantile(_OfArgument):
    """The value that the fraction `at` of a number's values do not exceed, exact; a window's state holds them all."""

    at: float


@dataclass(frozen=True)
class ApproxQuantile(_OfArgument):
    """A quantile to within one per cent of its value, in a state of bounded size."""

    at: float


@dataclass(frozen=True)
class TopK(_OfArgument):
    """The `k` most frequent values with their counts, as JSON; equal counts in the order of the values."""

    k: int


@dataclass(frozen=True)
class First(_OfArgument):
    """The value of the first record, by event time (equal times: by partition and offset), or by partition, offset."""

    by: Literal["time", "log"] = "time"


@dataclass(frozen=True)
class Last(_OfArgument):
    """The value of the last record, by event time (equal times: by partition and offset), or by partition, offset."""

    by: Literal["time", "log"] = "time"


@dataclass(frozen=True)
class MaxBy(_OfArgument):
    """The value of the record with the greatest `measure`; of several, the first by event time."""

    measure: str


@dataclass(frozen=True)
class MinBy(_OfArgument):
    """The value of the record with the least `measure`; of several, the first by event time."""

    measure: str


@dataclass(frozen=True)
class TopKBy(_OfArgument):
    """The values and measures of the `k` records with the greatest `measure`, as JSON; ties by event time."""

    measure: str
    k: int


@dataclass(frozen=True)
class BottomKBy(_OfArgument):
    """The values and measures of the `k` records with the least `measure`, as JSON; ties by event time."""

    measure: str
    k: int


@dataclass(frozen=True)
class CollectList(_OfArgument):
    """The values by event time (equal times: by partition and offset), or by partition, offset, the first `most`."""

    most: int
    by: Literal["time", "log"] = "time"


@dataclass(frozen=True)
class CollectSet(_OfArgument):
    """The least `most` of the distinct values, in order, as a JSON array."""

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
    """Whether any value is true."""


class CustomAggregate(Protocol):
    """A user-defined aggregate. States must merge in any order and grouping, or results depend on batch cuts.

    A state is any plain value (numbers, texts, lists, dicts) that JSON can represent.
    """

    @property
    def returns(self) -> DataType:
        """The type of the result."""
        ...

    def zero(self) -> Any:  # noqa: ANN401 - the user's own
        """Return the state of no records."""
        ...

    def step(self, state: Any, columns: Mapping[str, pa.Array]) -> Any:  # noqa: ANN401
        """Return the state with the records of `columns` added, which come in no particular order."""
        ...

    def merge(self, one: Any, other: Any) -> Any:  # noqa: ANN401
        """Return the state of the records of both states."""
        ...

    def finish(self, state: Any) -> Any:  # noqa: ANN401
        """Return the result."""
        ...


@dataclass(frozen=True)
class Custom:
    """An aggregate in Python over one or more arguments; only the fluent form has it."""

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
    - `extra`: further arguments of the call, in order: a fraction from 0 to 1, a measure (a second argument over
      fields), or a limit (a positive whole number).
    - `by_log`: the order is by partition and offset, not by event time.
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
"""The catalogue of aggregate functions by the name in a call; a call of any other name is a formula."""


def function_name(function: Count | UnaryFunction) -> str:
    """Return the name of an aggregate function in a call."""
    by_log = isinstance(function, First | Last | CollectList) and function.by == "log"
    return next(
        name for name, spec in AGGREGATE_FUNCTIONS.items() if spec.kind is type(function) and spec.by_log == by_log
    )


def function_spec(function: Count | UnaryFunction) -> FunctionSpec:
    """Return the catalogue's entry of an aggregate function."""
    return AGGREGATE_FUNCTIONS[function_name(function)]


@dataclass(frozen=True)
class Aggregate:
    """A result column; with `where`, an SQL condition over a record's fields, computed from the records it selects."""

    name: str
    function: Function
    where: str | None = None
