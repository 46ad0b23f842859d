"""Every type comes back from every sink as it was given."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.contracts.steps import DAY, RUN, change, step
from tests.contracts.stores import AnyStore, TableStore
from tests.examples import examples
from tests.short_forms import Pipeline

from windrow.connectors import tables
from windrow.connectors.tables import net_changes
from windrow.engine.changelog import StepOutput
from windrow.model import (
    Aggregate,
    BooleanType,
    Count,
    DecimalType,
    Decode,
    DoubleType,
    Field,
    LongType,
    Max,
    Min,
    StringType,
    TimestampType,
)

FIELDS = (
    Field("text", StringType()),
    Field("flag", BooleanType()),
    Field("number", LongType()),
    Field("price", DecimalType(15, 4)),
    Field("at", TimestampType("micros")),
    Field("share", DoubleType()),
    Field("wide", DecimalType(38, 10)),
)
KEY = ("text", "flag", "number", "price", "at")
LONG = 2**63


def model_of(store: AnyStore) -> Pipeline:
    return store.model(
        decode=Decode(FIELDS),
        key=KEY,
        aggregates=(
            Aggregate("events", Count()),
            Aggregate("least", Min("share")),
            Aggregate("most", Max("price")),
            Aggregate("widest", Max("wide")),
        ),
    )


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale))


rows = st.tuples(
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    st.booleans(),
    st.integers(-LONG, LONG - 1),
    decimals(15, 4),
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis's way
    st.integers(-LONG, LONG - 1),
    st.floats(allow_nan=False),
    decimals(15, 4),
    decimals(15, 10),
)


@examples(10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_rows=st.lists(rows, unique_by=lambda row: row[:5], max_size=40))
def test_values_come_back(store: AnyStore, given_rows: list[tuple[Any, ...]]) -> None:
    model = model_of(store)
    sink = store.sink(model)
    sink.clear()
    sink.open(RUN)
    sink.commit(0, step(model, [change("insert", 0, *row) for row in given_rows]))
    gone = given_rows[::2]
    sink.commit(1, step(model, [change("delete", 0, *row) for row in gone]))
    sink.close()
    names = [*KEY, "events", "least", "most", "widest"]
    changelog = [tuple(row[name] for name in names) for row in store.changes(model)]
    assert changelog == [*given_rows, *gone]
    left = {tuple(row[name] for name in names) for row in store.result(model)}
    assert left == set(given_rows[1::2])


@pytest.mark.parametrize(
    "value",
    [
        "1234567890123456789012345678.0123456789",
        "-99999999999999999999999999.9999999999",
        "0.0000000001",
        "9223372036854775807",
        "-9223372036854775808",
        "100000000000000000000000000",
        "0.1",
        "-0.3",
        "1234567890123.45",
    ],
)
def test_wide_decimals_are_exact_or_dead_letters_with_the_way_out(store: AnyStore, value: str) -> None:
    exact = Decimal(value)
    model = model_of(store)
    row = ["a", True, 1, Decimal(1), DAY, 1, 1.5, Decimal(1), exact]
    sink = store.sink(model)
    sink.open(RUN)
    sink.commit(0, step(model, [change("insert", 0, *row)]))
    sink.close()
    reasons = [dead["reason"] for dead in store.read(store.tables(model).dead)]
    assert len(reasons) == (not store.holds(exact))
    assert all(reason.startswith(f"out of range: widest: {exact:f}: ") for reason in reasons)
    assert all("`decimals: text`" in reason for reason in reasons)
    assert [row["widest"] for row in store.result(model)] == ([exact] if store.holds(exact) else [])


def test_times_of_all_lengths(store: AnyStore) -> None:
    model = model_of(store)
    times = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2026, 2, 28, 1, 2, 3, tzinfo=UTC),
        datetime(2026, 2, 28, 1, 2, 3, 400_000, tzinfo=UTC),
        datetime(2026, 2, 28, 1, 2, 3, 400_001, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ]
    sink = store.sink(model)
    sink.open(RUN)
    rows = [["a", True, 1, Decimal(1), time, 1, math.inf, Decimal(1), Decimal(1)] for time in times]
    sink.commit(0, step(model, [change("insert", 0, *row) for row in rows]))
    sink.close()
    result = store.tables(model).result
    assert [row["at"] for row in store.read(result, '"at"')] == times


NULLABLE = ("text", "flag", "number", "price", "at", "share")


def model_with_nulls(store: AnyStore) -> Pipeline:
    """Results of each type, which are null in a window in which no record has the flag."""
    conditional = [Aggregate(f"last_{name}", Max(name), where="flag") for name in NULLABLE]
    return store.model(decode=Decode(FIELDS), key=("text",), aggregates=(Aggregate("events", Count()), *conditional))


def test_only_what_can_be_null_may_be_null(store: AnyStore) -> None:
    model = model_with_nulls(store)
    columns = store.tables(model).result.schema
    assert [field.name for field in columns if field.nullable] == [f"last_{name}" for name in NULLABLE]


nulls = st.tuples(
    st.none() | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    st.none() | st.booleans(),
    st.none() | st.integers(-LONG, LONG - 1),
    st.none() | decimals(15, 4),
    st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis's way
    st.none() | st.floats(allow_nan=False),
)


@examples(10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_rows=st.lists(nulls, min_size=1, max_size=12))
def test_nulls_come_back_as_nulls_and_empty_texts_as_texts(store: AnyStore, given_rows: list[tuple[Any, ...]]) -> None:
    model = model_with_nulls(store)
    sink = store.sink(model)
    sink.clear()
    sink.open(RUN)
    rows = [(f"key {number}", number, *row) for number, row in enumerate(given_rows)]
    sink.commit(0, step(model, [change("insert", 0, *row) for row in rows]))
    empty = (None,) * len(NULLABLE)
    sink.commit(1, step(model, [change("update_after", 0, *row[:2], *empty, revision=1) for row in rows[::2]]))
    sink.close()
    names = ["text", "events", *(f"last_{name}" for name in NULLABLE)]
    changelog = [tuple(row[name] for name in names) for row in store.changes(model)]
    assert changelog == [*rows, *((*row[:2], *empty) for row in rows[::2])]
    left = {tuple(row[name] for name in names) for row in store.result(model)}
    assert left == {*rows[1::2], *((*row[:2], *empty) for row in rows[::2])}


ops = st.sampled_from(["insert", "update_before", "update_after", "delete"])


@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.lists(st.tuples(ops, st.integers(0, 2), st.sampled_from("AB"), st.integers(0, 99)))),
    changelog=st.booleans(),
    piece=st.sampled_from([1, 1 << 20]),
)
def test_any_changelog_folds_to_the_same_table(
    store: TableStore,
    steps: list[list[tuple[str, int, str, int]]],
    changelog: bool,  # noqa: FBT001 - a case
    piece: int,
) -> None:
    with mock.patch.object(tables, "_PIECE", piece):
        _fold(store, steps, changelog=changelog)


def _fold(store: TableStore, steps: list[list[tuple[str, int, str, int]]], *, changelog: bool) -> None:
    model = store.model(sink=replace(store.settings(), changelog=changelog))
    sink = store.sink(model)
    sink.clear()
    sink.open(RUN)
    expected: dict[tuple[int, str], int] = {}
    outputs = []
    for epoch, changes in enumerate(steps):
        decided: dict[tuple[int, str], tuple[str, int]] = {}
        decided.update({(window, user): (op, value) for op, window, user, value in changes if op != "update_before"})
        for key, (op, value) in decided.items():
            if op == "delete":
                expected.pop(key, None)
            else:
                expected[key] = value
        rows = [change(op, 5 * window, user, Decimal(value), value) for op, window, user, value in changes]
        outputs.append(step(model, rows))
        sink.commit(epoch, outputs[-1])
    sink.close()
    result = store.result(model)
    assert {
        ((row["window_start"] - DAY) // timedelta(minutes=5), row["user"]): row["events"] for row in result
    } == expected
    whole = net_changes(StepOutput.concat([step(model), *outputs]).changes, store.tables(model).result.key)
    left = pa.concat_tables([whole.inserts, whole.updates])
    assert sorted(left["events"].to_pylist()) == sorted(expected.values())
