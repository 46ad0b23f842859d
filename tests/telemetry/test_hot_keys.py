"""Hot keys: what is estimated is near what is counted, and does not depend on how records are cut much."""

from __future__ import annotations

import json
from collections import Counter
from functools import reduce
from operator import add

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.telemetry.hot_keys import KEPT, LEAST, SAMPLE, HotKeys


def table(keys: list[str | None]) -> pa.Table:
    return pa.table({"user": pa.array(keys, pa.string()), "amount": list(range(len(keys)))})


@given(st.lists(st.sampled_from([None, "a", "b", "c, d"]), min_size=LEAST, max_size=SAMPLE))
def test_few_records_are_counted_exactly(keys: list[str | None]) -> None:
    found = HotKeys.of(table(keys), ["user"])
    assert found.records == len(keys)
    assert found.counts == {("null" if key is None else key): n for key, n in Counter(keys).items()}
    assert list(found.counts.values()) == sorted(found.counts.values(), reverse=True)
    assert HotKeys(**json.loads(json.dumps({"records": found.records, "counts": found.counts}))) == found


@given(st.integers(SAMPLE + 1, 20_000), st.integers(2, 9))
def test_a_key_with_a_large_share_is_found(rows: int, each: int) -> None:
    # every few records one of the same key, and a stride that may go along with it
    keys: list[str | None] = [
        "hot" if number % each == number // each % each else str(number) for number in range(rows)
    ]
    found = HotKeys.of(table(keys), ["user"])
    assert len(found.counts) <= KEPT
    assert next(iter(found.counts)) == "hot"
    assert abs(found.shares["hot"] - keys.count("hot") / rows) < 0.15


def test_steps_and_key_groups_add_up() -> None:
    parts = [HotKeys(100, {"hot": 50, f"{number}a": 3, f"{number}b": 2}) for number in range(50)]
    found = reduce(add, parts)
    assert (found.records, found.counts["hot"], len(found.counts)) == (5_000, 2_500, KEPT)
    assert HotKeys() + found == found + HotKeys() == found


def test_a_key_group_with_few_records_counts_among_all() -> None:
    groups = [table(["hot"] * 50), *(table([f"u{number}"] * (LEAST - 1)) for number in range(7))]
    found = reduce(add, (HotKeys.of(group, ["user"]) for group in groups))
    assert found.shares == {"hot": 50 / (50 + 7 * (LEAST - 1))}


def test_nothing_is_said_of_few_records_or_without_a_key() -> None:
    assert HotKeys.of(table(["a"] * (LEAST - 1)), ["user"]) == HotKeys(LEAST - 1)
    assert HotKeys.of(table(["a"] * LEAST), []) == HotKeys()
    assert HotKeys.of(table(["a"] * LEAST), ["user", "amount"]).counts.keys() >= {"a, 0"}


@pytest.mark.parametrize(
    ("counts", "hot"),
    [
        ({str(number): 125 for number in range(8)}, []),
        ({"a": 600, "b": 400}, []),
        ({"a": 700, "b": 300}, ["a"]),
        ({"a": 300, "b": 300, **{str(number): 5 for number in range(18)}}, ["a", "b"]),
        ({str(number): 12 for number in range(KEPT)}, []),
        ({"a": 1_000}, ["a"]),
        ({"a": 400}, ["a"]),
        ({}, []),
    ],
)
def test_a_key_is_hot_by_its_share_against_the_others(counts: dict[str, int], hot: list[str]) -> None:
    assert list(HotKeys(1_000, counts).hot) == hot
