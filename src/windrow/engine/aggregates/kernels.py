"""Aggregate kernels: functions over Arrow columns that compute what SQL cannot.

DuckDB calls a kernel with many rows at once. Each kernel is registered with the process's DuckDB when it is first used,
under a name that contains its argument types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.func import FunctionNullHandling, PythonUDFType

from windrow.engine.columns import whole
from windrow.engine.duckdb_sql import QUERIES

Longs = npt.NDArray[np.int64]

HALF = 10**14
"""The power of ten at which `variance` splits a number of up to 28 digits into two halves."""
BITS = 6
"""Number of mantissa bits that a bucket keeps. All values of a bucket are within 0.8 % of its middle."""
_SHIFT = 52 - BITS


def register(name: str, function: Callable[..., pa.Array], given: list[str], gives: str) -> str:
    """Register a function over columns, which also receives nulls, and return its name."""
    QUERIES.set_up(
        lambda opened: opened.create_function(
            name,
            function,
            [duckdb.sqltype(type_) for type_ in given],
            duckdb.sqltype(gives),
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
    )
    return name


@lru_cache(maxsize=64)
def count(type_: str) -> str:
    """Return the name of the function that turns a list of values into its sorted distinct values with their counts."""
    return register(_name("count", type_), _count, [f"{type_}[]"], _counts_type(type_))


@lru_cache(maxsize=64)
def add(type_: str) -> str:
    """Return the name of the function that merges results of `count`, adding up the counts of equal values."""
    return register(_name("add", type_), _add, [f"{_counts_type(type_)}[]"], _counts_type(type_))


@lru_cache(maxsize=64)
def rank(type_: str, at: Fraction) -> str:
    """Return the name of the function that finds the quantile `at` in a result of `count`.

    The quantile is the smallest value such that at least the fraction `at` of all values are not greater than it.
    """

    def function(counted: pa.Array) -> pa.Array:
        return _rank(counted, at)

    return register(_name("rank", f"{type_} {at}"), function, [_counts_type(type_)], type_)


@lru_cache(maxsize=1)
def bucket() -> str:
    """Return the name of the function that maps doubles to bucket numbers, which sort like the doubles."""
    return register("__bucket", _bucket, ["DOUBLE"], "BIGINT")


@lru_cache(maxsize=1)
def middle() -> str:
    """Return the name of the function that maps bucket numbers to the middle of each bucket."""
    return register("__middle", _middle, ["BIGINT"], "DOUBLE")


@lru_cache(maxsize=64)
def variance(scale: int) -> str:
    """Return the name of the function that computes the variance from the count and sums of unscaled numbers.

    The sums are those of `catalogue.variance`. The result is rounded once.
    """

    def function(number: pa.Array, total: pa.Array, high: pa.Array, mixed: pa.Array, low: pa.Array) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in (number, total, high, mixed, low)), strict=True)
        return pa.array([_variance(scale, *row) for row in rows], pa.float64())

    return register(f"__variance_{scale}", function, ["BIGINT", *["DECIMAL(38,0)"] * 4], "DOUBLE")


def _name(what: str, type_: str) -> str:
    return f"__{what}_{re.sub(r'[^A-Za-z0-9]', '_', type_)}"


def _counts_type(type_: str) -> str:
    return f"STRUCT(v {type_}, n BIGINT)[]"


def _count(values: pa.Array) -> pa.Array:
    lists = whole(values)
    flat = lists.flatten()
    return _sum_counts(lists, _rows(lists), flat, pa.array(np.ones(len(flat), dtype=np.int64)))


def _add(counted: pa.Array) -> pa.Array:
    outer = whole(counted)
    inner = outer.flatten()
    entries = inner.flatten()
    rows = _rows(outer)[_rows(inner)]
    return _sum_counts(outer, rows, entries.field("v"), entries.field("n"))


def _sum_counts(lists: pa.Array, rows: Longs, values: pa.Array, counts: pa.Array) -> pa.Array:
    """Add up the counts of equal values in each list."""
    table = pa.table({"row": rows, "v": values, "n": counts})
    added = table.group_by(["row", "v"], use_threads=False).aggregate([("n", "sum")])
    added = added.sort_by([("row", "ascending"), ("v", "ascending")]).combine_chunks()
    ends = np.searchsorted(added.column("row").to_numpy(), np.arange(len(lists) + 1))
    entries = pa.StructArray.from_arrays(
        [whole(added.column("v")), whole(added.column("n_sum")).cast(pa.int64())], names=["v", "n"]
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), entries)


def _rank(counted: pa.Array, at: Fraction) -> pa.Array:
    lists = whole(counted)
    entries = lists.flatten()
    ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy())
    starts = np.concatenate([[0], ends[:-1]])
    reached = np.concatenate([[0], np.cumsum(entries.field("n").to_numpy())])
    numbers = reached[ends] - reached[starts]
    # exact, as Python integers
    wanted = [max(1, -(-number * at.numerator // at.denominator)) for number in numbers.tolist()]
    places = np.searchsorted(reached, reached[starts] + np.array(wanted, dtype=np.int64)) - 1
    return entries.field("v").take(pa.array(places, mask=numbers == 0))


def _bucket(doubles: pa.Array) -> pa.Array:
    array = whole(doubles)
    bits = array.fill_null(0.0).to_numpy().view(np.int64)
    size = (bits & np.int64(2**63 - 1)) >> _SHIFT
    return pa.array(np.where(bits < 0, -size, size), mask=~_valid(array))


def _middle(buckets: pa.Array) -> pa.Array:
    array = whole(buckets)
    numbers = array.fill_null(0).to_numpy()
    middles = (np.abs(numbers) << _SHIFT | 1 << (_SHIFT - 1)).view(np.float64) * np.sign(numbers)
    return pa.array(middles, mask=~_valid(array))


def _variance(scale: int, number: int, *sums: int | None) -> float | None:
    if number < 2:  # noqa: PLR2004 - a single value has no variance
        return None
    total, high, mixed, low = (int(part or 0) for part in sums)
    squares = high * HALF**2 + 2 * mixed * HALF + low
    variance_ = (number * squares - total**2) / (number * (number - 1) * 10 ** (2 * scale))
    return float(variance_)


def _rows(lists: pa.Array) -> Longs:
    """Return, for each flattened value, the index of its list."""
    return np.repeat(np.arange(len(lists)), lists.value_lengths().fill_null(0).to_numpy())


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return valid
