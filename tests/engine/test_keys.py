from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from windrow.engine.duckdb_sql import Connection
from windrow.engine.keys import key_groups, place_groups
from windrow.engine.schema import ID, LAST_PARTITION, OFFSET, PARTITION

DUCK = Connection()


def test_groups_stay_what_they_are() -> None:
    # state is found by its group: a change here loses the state of every pipeline
    keys = pa.table({"user": ["u00001", "u00002", "", "ü", "Robert'); DROP TABLE users;--"]})
    assert key_groups(DUCK, keys, 128).tolist() == [111, 26, 105, 2, 6]


def test_groups_of_several_columns_stay_what_they_are() -> None:
    keys = pa.table({"shop": pa.array([1, 2, 1]), "user": ["a", "a", "b"]})
    assert key_groups(DUCK, keys, 128).tolist() == [79, 20, 23]


def test_groups_of_other_types_stay_what_they_are() -> None:
    times = pa.array([0, 10**15 + 1], pa.timestamp("us", tz="UTC"))
    keys = pa.table({"t": times, "d": [Decimal("1.50"), Decimal("-2.00")], "b": [True, False]})
    assert key_groups(DUCK, keys, 128).tolist() == [95, 24]


def test_groups_of_ids_stay_what_they_are() -> None:
    times = pa.array([0, 10**15 + 1, 0], pa.timestamp("us", tz="UTC"))
    ids = pa.table(
        {"id": ["a", "b", "a"], "t": times, "n": [1, 2, 1], "d": [Decimal("1.50"), Decimal("-2.00"), Decimal("1.50")]}
    )
    assert key_groups(DUCK, ids, 128, are_ids=True).tolist() == [37, 71, 37]
    assert key_groups(DUCK, ids.select(["id"]), 128, are_ids=True).tolist() == [97, 49, 97]


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 3))
def test_places_are_spread_evenly_whatever_the_gaps_between_offsets(groups: int, gap: int, partitions: int) -> None:
    count = 6000
    rows = np.arange(count)
    places = pa.table({PARTITION: pa.array(rows % partitions, pa.int32()), OFFSET: rows // partitions * gap})
    found = np.bincount(place_groups(DUCK, places, groups), minlength=groups)
    assert found.sum() == count
    assert found.min() > count / groups * 0.75


def test_places_stay_what_they_are() -> None:
    # as state is found by them
    columns = {PARTITION: pa.array([0, 0, LAST_PARTITION], pa.int32()), OFFSET: [0, 1, 2**63 - 1], ID: [None, "a", "b"]}
    assert place_groups(DUCK, pa.table(columns), 128).tolist() == [19, 14, 49]


def test_all_rows_without_a_key_are_in_the_first_group() -> None:
    rows = pa.table({"user": ["a", "b"]}).select([])
    assert key_groups(DUCK, rows, 128).tolist() == [0, 0]
    assert key_groups(DUCK, rows, 128, are_ids=True).tolist() == [0, 0]


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    keys = pa.table({"a": ["a", "ab"] * 20, "b": ["bc", "c"] * 20})
    assert len(set(key_groups(DUCK, keys, 1 << 15).tolist())) == 2


@examples(40)
@given(st.lists(st.text(max_size=8), min_size=1, max_size=50), st.integers(1, 300))
def test_a_key_has_one_group_whatever_stands_around_it(names: list[str], groups: int) -> None:
    together = key_groups(DUCK, pa.table({"k": pa.array(names, pa.string())}), groups).tolist()
    alone = [key_groups(DUCK, pa.table({"k": pa.array([name], pa.string())}), groups)[0] for name in names]
    assert together == alone
    assert all(0 <= group < groups for group in together)
