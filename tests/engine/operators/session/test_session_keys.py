from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.engine.operators.session.fragments import number_keys
from windrow.engine.operators.session.operator import SESSION_BUCKETS, session_buckets

ROWS = st.lists(st.tuples(st.sampled_from(["a", "ab", "", "b"]), st.integers(-1, 1), st.booleans()), max_size=20)


@given(rows=ROWS)
def test_keys_have_numbers_in_the_order_in_which_they_come(rows: Sequence[tuple[str, int, bool]]) -> None:
    columns = zip(("text", "number", "truth"), (pa.string(), pa.int64(), pa.bool_()), range(3), strict=True)
    table = pa.table({name: pa.array([row[place] for row in rows], type_) for name, type_, place in columns})
    for names in (["text"], ["number", "truth"], ["text", "number", "truth"]):
        keys = table.select(names)
        numbers, distinct = number_keys(keys)
        given_rows = [tuple(row.values()) for row in keys.to_pylist()]
        assert [tuple(row.values()) for row in distinct.to_pylist()] == list(dict.fromkeys(given_rows))
        assert distinct.take(pa.array(numbers)).to_pylist() == keys.to_pylist()


@pytest.mark.parametrize(
    ("value", "bucket"),
    [("user-7", 33), (-5, 51), (Decimal("12.50"), 49), (True, 51), (datetime(2026, 1, 1, 12, tzinfo=UTC), 49)],
)
def test_a_key_is_in_the_same_bucket_for_ever(value: Any, bucket: int) -> None:  # noqa: ANN401
    assert session_buckets(pa.table({"key": [value]})).tolist() == [bucket]


def test_buckets_are_about_even() -> None:
    buckets = session_buckets(pa.table({"key": [f"u{number:05}" for number in range(64_000)]})).tolist()
    sizes = [buckets.count(bucket) for bucket in range(SESSION_BUCKETS)]
    assert min(sizes) > 700
    assert max(sizes) < 1300
