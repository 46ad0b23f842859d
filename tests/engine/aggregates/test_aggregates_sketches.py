"""How near the approximate aggregates are."""

from __future__ import annotations

import math
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.aggregates.aggregated import PIPELINE
from tests.short_forms import operator_spec

from windrow.engine import duckdb_sql
from windrow.engine.aggregates import kernels
from windrow.engine.aggregates.catalogue import HASHES, compile_aggregates
from windrow.engine.duckdb_sql import identifier, query
from windrow.model import Aggregate, ApproxCountDistinct

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def bucketed(values: list[float]) -> tuple[list[int], list[float]]:
    """The buckets of doubles, and the buckets' middles."""
    sql = f"SELECT {kernels.bucket()}(x) AS bucket, {kernels.middle()}({kernels.bucket()}(x)) AS middle FROM doubles"
    found = query(duckdb_sql.Connection(), sql, doubles=pa.table({"x": pa.array(values, pa.float64())}))
    return found.column("bucket").to_pylist(), found.column("middle").to_pylist()


@given(st.lists(FINITE, min_size=1, max_size=20))
def test_the_middle_of_a_bucket_is_within_one_per_cent(values: list[float]) -> None:
    for value, middle in zip(values, bucketed(values)[1], strict=True):
        assert math.isfinite(middle)
        # below the normal numbers a double has fewer bits
        assert middle == pytest.approx(value, rel=0.0079, abs=2.0**-1022)


@given(st.lists(FINITE, min_size=1, max_size=20))
def test_buckets_are_in_the_order_of_their_values(values: list[float]) -> None:
    buckets, middles = bucketed(sorted(values))
    assert buckets == sorted(buckets)
    assert middles == sorted(middles)


def test_nothing_has_no_bucket() -> None:
    assert bucketed([0.0])[1] == [0.0]
    sql = f"SELECT {kernels.middle()}({kernels.bucket()}(NULL::DOUBLE)) AS middle"
    assert query(duckdb_sql.Connection(), sql).column("middle").to_pylist() == [None]


@pytest.mark.parametrize("different", [HASHES - 1, HASHES, 5_000, 200_000])
def test_many_values_are_counted_to_within_three_standard_errors(different: int) -> None:
    pipeline = replace(PIPELINE, aggregates=(Aggregate("users", ApproxCountDistinct("s")),))
    (fold,) = compile_aggregates(operator_spec(pipeline))
    (state,) = fold.accumulators
    records = pa.table({"s": [f"user {number}" for number in range(different)] * 2})
    sql = f"SELECT {fold.finish} AS users FROM (SELECT {state.begin} AS {identifier(state.column)} FROM records)"
    (users,) = query(duckdb_sql.Connection(), sql, records=records).column("users").to_pylist()
    exact = different < HASHES
    assert abs(users - different) <= (0 if exact else 3 * different / math.sqrt(HASHES - 2))
