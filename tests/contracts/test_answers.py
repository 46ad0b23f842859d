"""Every database gives back results as they were written, and two of them can be compared."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from tests.contracts.steps import DAY, RUN, change, step
from tests.contracts.stores import PostgresStore, SqliteStore, Store, TableStore, committed
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline

from windrow.connectors.database import Condition, Value, WindowRange
from windrow.connectors.diff import Compared, compare_answers
from windrow.connectors.open_sinks import open_database
from windrow.connectors.sink import Run
from windrow.engine.schema import MICROS
from windrow.errors import InputError
from windrow.model import (
    Aggregate,
    BooleanType,
    Count,
    DecimalType,
    Decode,
    Field,
    LongType,
    Max,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
)

USERS = ["", "B", "a", "z", "é", "ﬀ", "😀"]
"""As code points are ordered, which is not how a language orders them."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AGAIN = Run(RUN.pipeline, "run-2")


def wide(store: TableStore, **changed: Any) -> Pipeline:  # noqa: ANN401 - any part of a pipeline
    """A pipeline with a key and values of several types."""
    fields = (
        Field("user", StringType()),
        Field("flag", BooleanType()),
        Field("n", LongType()),
        Field("t", TimestampType("millis")),
        Field("amount", DecimalType(20, 4)),
    )
    aggregates = (Aggregate("total", Sum("amount")), Aggregate("last", Max("t")), Aggregate("events", Count()))
    return store.model(decode=Decode(fields), key=("user", "flag", "n"), aggregates=aggregates, **changed)


def rows(model: Pipeline) -> list[list[Any]]:
    """Rows in the order of their keys."""
    times = [DAY, DAY + timedelta(milliseconds=1), DAY + timedelta(microseconds=7)]
    numbers = [Decimal("0.1"), Decimal(-12), Decimal("99999999999.25"), Decimal(2**50)]
    return [
        change("insert", 5 * minute, user, flag, n, numbers[(place + n) % 4], times[place % 3], place)
        for minute in range(2)
        for place, user in enumerate(USERS)
        for flag in (False, True)
        for n in (-(2**62), 3)
    ] or [change("insert", 0, model)]


def test_rows_come_back_as_they_were_in_the_order_of_their_keys(store: TableStore) -> None:
    model = wide(store)
    given = rows(model)
    committed(store, model, step(model, given[::-1]))
    table = store.tables(model).result
    with open_database(model.sink).snapshot() as snapshot:
        assert snapshot.columns("spend") == list(table.columns)
        assert snapshot.columns("nothing") == []
        got = pa.concat_tables(snapshot.rows(table, table.key))
        some = pa.concat_tables(snapshot.rows(table, table.key, WindowRange(_micros(5), _micros(10)).conditions))
    expected = [tuple(row[3:]) for row in given]
    columns = [name for name in table.columns if name not in {"pane", "revision"}]
    assert list(zip(*(got.column(name).to_pylist() for name in columns), strict=True)) == expected
    assert got.column("last").type == MICROS
    assert some.num_rows == len(given) / 2
    assert set(some.column("window_start").to_pylist()) == {DAY + timedelta(minutes=5)}


@pytest.mark.parametrize("decimals", ["numeric", "text"])
def test_rows_are_chosen_by_each_value_of_each_column(store: TableStore, decimals: Literal["numeric", "text"]) -> None:
    if not isinstance(store, SqliteStore) and decimals == "text":
        pytest.skip("a setting of SQLite")
    sink = store.settings()
    model = wide(store, sink=replace(sink, decimals=decimals) if isinstance(sink, SqliteSink) else sink)
    given = rows(model)
    total, last, events = model.aggregates
    model = replace(model, aggregates=(total, replace(last, where="amount > 0"), events))
    given[1][-2:-1] = given[5][-2:-1] = [None]
    committed(store, model, step(model, given))
    table = store.tables(model).result
    columns = [name for name in table.columns if name not in {"pane", "revision"}]
    with open_database(model.sink).snapshot() as snapshot:

        def read(*where: Condition, order: str = "n", **options: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - options of it
            found = pa.concat_tables(snapshot.rows(table, (order, *table.key), where, **options))
            return list(zip(*(found.column(name).to_pylist() for name in columns), strict=True))

        every = read()
        assert len(every) == len(given)
        for place, name in enumerate(columns):
            distinct = {row[place] for row in every} - {None}
            for value in distinct:
                condition = Condition(name, "=", _stored(value))
                expected = [row for row in every if row[place] == value]
                assert read(condition) == expected
                assert snapshot.count(table, [condition]) == len(expected)
            down = [row[place] for row in read(order=name, descending=[name])]
            assert down == [*sorted((one for one in down if one is not None), reverse=True), *[None] * down.count(None)]
            up = [row[place] for row in read(order=name)]
            assert up == [*sorted(one for one in up if one is not None), *[None] * up.count(None)]
            assert [row[place] for row in read(order=name, limit=3)] == up[:3]
        both = Condition("user", "=", "a"), Condition("flag", "=", value=True)
        assert read(*both) == [row for row in every if row[2:4] == ("a", True)]
        nothing = [
            Condition("total", "=", Decimal("0.1000000000000000000000001")),
            Condition("user", "=", "' OR 1=1 --"),
        ]
        assert [snapshot.count(table, [one]) for one in nothing] == [0, 0]
        assert snapshot.count(table) == len(given)


def test_times_of_any_year_are_found_to_the_microsecond(store: TableStore) -> None:
    model = wide(store)
    years = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
    given = [change("insert", 0, *("a", True), n, Decimal(1), at, n) for n, at in enumerate(years)]
    committed(store, model, step(model, given))
    table = store.tables(model).result
    with open_database(model.sink).snapshot() as snapshot:
        for n, at in enumerate(years):
            found = pa.concat_tables(snapshot.rows(table, table.key, [Condition("last", "=", _stored(at))]))
            assert found.column("n").to_pylist() == [n]


def _stored(value: Any) -> Value:  # noqa: ANN401 - of any column
    """A value as a condition has it."""
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value


def _micros(minute: int) -> int:
    return (DAY + timedelta(minutes=minute)).timestamp().__int__() * 1_000_000


def shadow(model: Pipeline, store: TableStore) -> Pipeline:
    return replace(model, sink=store.settings("spend_shadow"))


def compared(here: Pipeline, there: Pipeline, **options: Any) -> Compared:  # noqa: ANN401 - options of it
    return compare_answers(
        sink_spec_of(here), sink_spec_of(there), options.pop("bounds", WindowRange()), limit=10, **options
    )


def test_differences_are_found_by_window_and_key(store: TableStore) -> None:
    model = store.model()
    other = shadow(model, store)
    plain = [change("insert", 5 * n, user, Decimal(n), 1) for n in range(3) for user in ("a", "B")]
    committed(store, model, step(model, plain))
    again = [change("insert", 0, "B", Decimal("0.01"), 1, pane="late", revision=1), *plain[2:], plain[0]]
    committed(store, other, step(other, again[:-2]), step(other, again[-1:]), run=AGAIN)
    found = compared(model, other)
    assert (found.found.only_here, found.found.only_there, found.found.different) == (1, 0, 1)
    assert [(one.kind, one.key["window_start"][11:], one.key["user"]) for one in found.found.first] == [
        ("differs", "00:00:00", "B"),
        ("here", "00:10:00", "B"),
    ]
    assert found.found.first[0].there == {"total": "0.01", "events": 1}
    assert (found.found.here.sums["total"], found.found.there.sums["total"]) == (Decimal(6), Decimal("4.01"))
    later = compared(model, other, bounds=WindowRange(after=_micros(5)))
    assert (later.found.only_here, later.found.different, later.found.here.rows) == (1, 0, 4)
    assert compared(model, other, bounds=WindowRange(after=_micros(5), before=_micros(10))).is_same


def test_values_that_are_not_of_their_columns_type_differ(store: TableStore) -> None:
    if not isinstance(store, Store):
        pytest.skip("a type that SQL changes")
    model = store.model()
    other = shadow(model, store)
    given = [change("insert", 0, user, Decimal(2), 2) for user in "AB"]
    committed(store, model, step(model, given))
    committed(store, other, step(other, given), run=AGAIN)
    if not isinstance(store, SqliteStore):
        # SQLite takes them as they are
        for column in ("events", "total"):
            store.query(f"ALTER TABLE spend ALTER COLUMN {column} TYPE double precision")
    assert compared(model, other).is_same
    store.query("UPDATE spend SET events = 1.5, total = 1e300 WHERE \"user\" = 'B'")
    [difference] = compared(model, other).found.first
    assert (difference.kind, difference.key["user"]) == ("differs", "B")
    assert difference.here is not None
    # PostgreSQL writes a decimal as text
    assert {name: value.strip("'") for name, value in difference.here.items()} == {"total": "1e+300", "events": "1.5"}
    assert difference.there == {"total": "2.00", "events": 2}


def test_decimal_keys_are_in_the_order_of_numbers(store: TableStore) -> None:
    model = store.model(key=("amount",))
    other = shadow(model, store)
    given = [change("insert", 0, Decimal(n), Decimal(n), 1) for n in (2, 10, 100)]
    committed(store, model, step(model, given))
    committed(store, other, step(other, given[1:]), run=AGAIN)
    found = compared(model, other).found
    assert (found.only_here, found.only_there, found.different) == (1, 0, 0)


def test_how_an_answer_came_about_counts_only_if_asked(store: TableStore) -> None:
    model = store.model()
    other = shadow(model, store)
    committed(store, model, step(model, [change("insert", 0, "a", Decimal(1), 1)]))
    committed(store, other, step(other, [change("insert", 0, "a", Decimal(1), 1, pane="late", revision=2)]), run=AGAIN)
    assert compared(model, other).is_same
    told = compared(model, other, panes=True)
    assert told.found.first[0].here == {"total": "1.00", "events": 1, "pane": "on_time", "revision": 0}
    assert told.found.different == 1


def test_other_columns_are_named_and_those_in_both_compared(store: TableStore) -> None:
    model = store.model()
    fewer = replace(shadow(model, store), aggregates=model.aggregates[1:])
    committed(store, model, step(model, [change("insert", 0, "a", Decimal(1), 1)]))
    committed(store, fewer, step(fewer, [change("insert", 0, "a", 1)]), run=AGAIN)
    for here in (model, fewer):
        found = compared(replace(here, sink=model.sink), replace(here, sink=fewer.sink))
        assert (found.only_here, found.only_there, found.columns) == (("total",), (), ("events",))
        assert found.found.is_same
        assert not found.is_same


def test_tables_that_are_not_there_or_have_another_key(store: Store) -> None:
    model = store.model()
    with pytest.raises(InputError, match=r"no database|no table 'spend'"):
        compared(model, shadow(model, store))
    committed(store, model, step(model))
    with pytest.raises(InputError, match=r"no table 'spend_shadow' in .*windrow replay"):
        compared(model, shadow(model, store))
    store.query("CREATE TABLE spend_shadow (window_start TEXT, window_end TEXT, x INTEGER)")
    with pytest.raises(InputError, match="'spend_shadow' has no column 'user', so its rows have a different key"):
        compared(model, shadow(model, store))


def test_a_file_and_a_server_are_compared_exactly(tmp_path: Path, database: str) -> None:
    file, server = SqliteStore(tmp_path), PostgresStore(database)
    sinks = (replace(file.settings(), decimals="text"), server.settings())
    models = [wide(file, sink=sink) for sink in sinks]
    for store, model in zip((file, server), models, strict=True):
        committed(store, model, step(model, rows(model)))
    assert compared(models[0], models[1], panes=True).is_same
    server.query("UPDATE spend SET total = total + 0.0001 WHERE \"user\" = '😀' AND n = 3 AND flag")
    found = compared(models[0], models[1])
    assert (found.found.different, found.found.only_here, found.found.only_there) == (2, 0, 0)
    assert found.found.there.sums["total"] - found.found.here.sums["total"] == Decimal("0.0002")  # type: ignore[operator]
