"""Lists are JSON text in every sink, and with `lists: array` arrays of the elements' type in those that have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, get_args

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.contracts.steps import FIELDS, RUN, change, step
from tests.contracts.stores import AnyStore, DuckDBStore, PostgresStore, Row, Settings, Store, TableStore
from tests.examples import examples
from tests.graphs import as_graph
from tests.short_forms import Pipeline

import windrow as wr
from windrow.connectors.jsonl.connector import JsonlSink
from windrow.connectors.open_sinks import open_database
from windrow.errors import InputError, SinkError
from windrow.model import (
    Aggregate,
    BooleanType,
    CollectList,
    CollectSet,
    DecimalType,
    Decode,
    DoubleType,
    Field,
    ListForm,
    LongType,
    Max,
    SimpleType,
    SqliteSink,
    StringType,
    TimestampType,
)

LONG = 2**63
ELEMENTS: dict[str, tuple[SimpleType, st.SearchStrategy[Any]]] = {
    "texts": (StringType(), st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))),
    "flags": (BooleanType(), st.booleans()),
    "numbers": (LongType(), st.integers(-LONG, LONG - 1)),
    "prices": (DecimalType(38, 10), st.integers(1 - 10**38, 10**38 - 1).map(lambda n: Decimal(f"{n}E-10"))),
    "times": (
        TimestampType("micros"),
        st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis's way
    ),
    "shares": (DoubleType(), st.floats(allow_nan=False)),
}
EDGES: tuple[Sequence[Any], ...] = (
    ["", "NULL", "null", 'a,"b"{}\\c', "{}", "[]", "'", " x ", "漢\U0001f600\x01\x1f\x7f\n", None],
    [True, False, None],
    [LONG - 1, -LONG, 0, None],
    [Decimal("9999999999999999999999999999.9999999999"), Decimal("-0.0000000001"), Decimal(0).scaleb(-10), None],
    [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), None],
    [0.1, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), None],
)


def settings(store: AnyStore, lists: ListForm) -> Settings:
    """The sink with this form of lists, or the only one that it has."""
    sink = store.settings()
    return sink if isinstance(sink, SqliteSink | JsonlSink) else replace(sink, lists=lists)


def model_of(store: AnyStore, lists: ListForm = "array") -> Pipeline:
    fields = tuple(Field(f"one_of_{name}", type_, optional=True) for name, (type_, _) in ELEMENTS.items())
    return store.model(
        decode=Decode((*FIELDS, *fields)),
        aggregates=tuple(Aggregate(name, CollectList(f"one_of_{name}", 100)) for name in ELEMENTS),
        sink=settings(store, lists),
    )


def as_json(values: Sequence[Any] | None) -> str | None:
    """A list as `collect_list` returns it."""
    if values is None:
        return None
    plain = [
        f"{value:f}"
        if isinstance(value, Decimal)
        else f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        if isinstance(value, datetime)
        else value
        for value in values
    ]
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def stored(store: AnyStore, model: Pipeline) -> list[Row]:
    """The rows of the result table, as the store has them."""
    table = store.tables(model).result
    return store.read(replace(table, schema=table.stored), "window_start, 3")


def commit(store: AnyStore, model: Pipeline, *steps: Sequence[Sequence[Any]]) -> list[pa.Table]:
    """Commit steps from where the run stopped, and return the dead letters."""
    sink = store.sink(model)
    last = sink.open(RUN)
    refused: list[pa.Table] = []
    for epoch, changes in enumerate(steps, 0 if last is None else last + 1):
        refused += sink.commit(epoch, step(model, changes)) or []
    sink.close()
    return refused


def come_back(store: AnyStore, rows: Sequence[Sequence[Sequence[Any] | None]]) -> None:
    model = model_of(store)
    texts = [[f"u{number:04}", *map(as_json, row)] for number, row in enumerate(rows)]
    before = [change("insert", 0, user, *texts[0][1:]) for user, *_ in texts]
    after = [change("update_after", 0, *row, revision=1) for row in texts]
    gone = [change("delete", 0, *row, revision=1) for row in texts[::2]]
    sink = store.sink(model)
    sink.clear()
    sink.close()
    assert not [one for one in commit(store, model, before, after, gone) if one.num_rows]
    has_arrays = bool(store.tables(model).result.lists)
    found = [[row[name] for name in ELEMENTS] for row in stored(store, model)]
    assert {type(value) for row in found for value in row} <= {list if has_arrays else str, type(None)}
    assert [[as_json(value) if has_arrays else value for value in row] for row in found] == [
        list(map(as_json, row)) for row in rows[1::2]
    ]


def test_elements_come_back(store: AnyStore) -> None:
    come_back(store, [EDGES, EDGES, [[]] * 6, [[]] * 6, [None] * 6, [None] * 6, [[None]] * 6, [[None, None]] * 6])


lists = st.tuples(*(st.none() | st.lists(st.none() | element, max_size=5) for _, element in ELEMENTS.values()))


@examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(lists, min_size=1, max_size=12))
def test_any_elements_come_back(store: AnyStore, rows: list[tuple[list[Any] | None, ...]]) -> None:
    come_back(store, rows)


@pytest.mark.parametrize("form", get_args(ListForm))
def test_both_forms_are_read_as_the_same_text(store: TableStore, form: ListForm) -> None:
    row: list[list[Any]] = [
        ['a,"b"{}\\c', "NULL", "\u6f22\U0001f600\n", None],
        [True, False, None],
        [LONG - 1, -LONG, None],
        [Decimal("1.5000000000"), None],
        [datetime(2026, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 1, tzinfo=UTC), None],
        [0.1, -0.0, None],
    ]
    rows: tuple[Sequence[Any], ...] = (row, [[]] * 6, [None] * 6, [[None]] * 6)
    given = [[as_json(values) for values in each] for each in rows]
    model = model_of(store, form)
    commit(store, model, [change("insert", number, "A", *each) for number, each in enumerate(given)])
    result = store.tables(model).result
    with open_database(model.sink).snapshot() as snapshot:
        found = pa.concat_tables(snapshot.rows(result, ["window_start"])).select(list(ELEMENTS))
        assert snapshot.stored(result, []).schema == result.schema
    assert [list(each.values()) for each in found.to_pylist()] == given


@pytest.mark.parametrize("form", get_args(ListForm))
def test_times_that_python_lacks_are_read(store: TableStore, form: ListForm) -> None:
    years = ("-43", "0000", "0001", "9999", "12026", "200000")
    times = [f"{year}-03-15T01:02:03.000004Z" for year in years]
    model = model_of(store, form)
    text = json.dumps(times, separators=(",", ":"))
    row = change("insert", 0, "A", "[]", "[]", "[]", "[]", text, "[]")
    assert [one.column("reason").to_pylist() for one in commit(store, model, [row]) if one.num_rows] == []
    result = store.tables(model).result
    with open_database(model.sink).snapshot() as snapshot:
        (found,) = snapshot.rows(result, ["window_start"])
    assert found["times"].to_pylist() == [text]


def test_rows_are_not_selected_by_an_array(store: TableStore) -> None:
    model = model_of(store)
    commit(store, model, [change("insert", 0, "A", *["[]"] * 6)])
    pipeline = wr.Pipeline(as_graph(model))
    assert wr.read_table(pipeline, where={"user": "A"}).to_arrow()["prices"].to_pylist() == ["[]"]
    if not store.tables(model).result.lists:
        assert len(wr.read_table(pipeline, where={"texts": "[]"}, order="texts:desc")) == 1
        return
    for options in ({"where": {"texts": "[]"}}, {"order": "texts:desc"}):
        with pytest.raises(InputError, match="column 'texts' of table 'spend' has arrays"):
            wr.read_table(pipeline, **options)


def test_an_element_that_the_database_lacks_is_a_dead_letter(store: Store) -> None:
    model = model_of(store)
    texts = ["a", "b\x00c"]
    values = [as_json(texts), *map(as_json, EDGES[1:])]
    first = [change("insert", 0, user, as_json(["a"]), *values[1:]) for user in "AB"]
    again = [change("update_after", 0, "A", *values, revision=1)]
    after = [change("insert", 0, "C", as_json(["c"]), *values[1:])]
    refused = commit(store, model, first, [*again, *after])
    dead = store.read(store.tables(model).dead)
    rows = [(row["user"], row["texts"]) for row in stored(store, model)]
    if not isinstance(store, PostgresStore):
        held = as_json(texts) if not store.tables(model).result.lists else texts
        assert (dead, len(rows), rows[0][1]) == ([], 3, held)
        return
    assert rows == [("B", ["a"]), ("C", ["c"])]
    (letter,) = dead
    assert letter["reason"].startswith("refused: PostgreSQL: invalid byte sequence for encoding")
    assert letter["reason"].endswith("user=A")
    assert json.loads(json.loads(letter["raw"])["texts"]) == texts
    assert [one.num_rows for one in refused if one.num_rows] == [1]
    # the row that it would have replaced is taken back, with the list that it had
    changelog = store.tables(model).changes
    [gone] = [row for row in store.read(replace(changelog, schema=changelog.stored)) if row["op"] == "delete"]
    assert (gone["user"], gone["texts"], as_json(gone["times"])) == ("A", ["a"], as_json(EDGES[4]))


@pytest.mark.service
def test_a_character_that_the_encoding_lacks_is_a_dead_letter(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    store = PostgresStore(f"{database.rpartition('/')[0]}/latin")
    try:
        model = model_of(store)
        others = [as_json([])] * 5
        commit(
            store,
            model,
            [change("insert", 0, *one) for one in (("A", '["\u00e9"]', *others), ("B", '["\u6f22"]', *others))],
        )
        assert [(row["user"], row["texts"]) for row in stored(store, model)] == [("A", ["\u00e9"])]
        (letter,) = store.read(store.tables(model).dead)
        assert "has no equivalent in encoding" in letter["reason"]
    finally:
        with psycopg.connect(database, autocommit=True) as db:
            db.execute("DROP DATABASE latin WITH (FORCE)")


@pytest.mark.parametrize("before", get_args(ListForm))
def test_a_table_keeps_the_form_of_its_lists(store: AnyStore, before: ListForm) -> None:
    after: ListForm = "json" if before == "array" else "array"
    if settings(store, before) == settings(store, after):
        pytest.skip("it has one form")
    row = [change("insert", 0, "A", *map(as_json, EDGES))]
    commit(store, model_of(store, before), row)
    with pytest.raises(SinkError, match=f"set `lists: {before}`") as caught:
        commit(store, model_of(store, after), row)
    assert "texts" in str(caught.value) or "as arrays" in str(caught.value)
    commit(store, model_of(store, before), [change("insert", 1, "A", *map(as_json, EDGES))])
    assert len(stored(store, model_of(store, before))) == 2


TYPES: dict[type[Store], Callable[[str], str]] = {
    PostgresStore: lambda column: {"shares": "double precision[]", "prices": "numeric[]"}.get(column, "text[]"),
    DuckDBStore: lambda column: {"shares": "DOUBLE[]", "prices": "DECIMAL(38,10)[]"}.get(column, "VARCHAR[]"),
}


def test_an_array_that_a_user_made_is_written(store: Store) -> None:
    if type(store) not in TYPES:
        pytest.skip("it has no arrays")
    model = store.model(
        decode=Decode(
            (*FIELDS, Field("name", StringType()), Field("share", DoubleType()), Field("price", DecimalType(38, 10)))
        ),
        aggregates=(
            Aggregate("names", CollectSet("name", 9)),
            Aggregate("shares", CollectList("share", 9, "log")),
            Aggregate("prices", CollectSet("price", 9)),
        ),
        sink=settings(store, "array"),
    )
    for name in ("names", "shares", "prices"):
        commit_nothing(store, model)
        type_ = TYPES[type(store)](name)
        store.query(f"ALTER TABLE spend ALTER COLUMN {name} TYPE {type_}")
    rows = [change("insert", 0, "A", '["b"]', "[1.5]", '["0.1000000000"]')]
    commit(store, model, rows)
    assert [(row["names"], row["shares"], row["prices"]) for row in stored(store, model)] == [
        (["b"], [1.5], [Decimal("0.1000000000")])
    ]


def commit_nothing(store: Store, model: Pipeline) -> None:
    sink = store.sink(model)
    sink.open(RUN)
    sink.close()


def test_wider_elements_come_with_the_statement_that_alters_the_column(store: Store) -> None:
    def of(digits: int) -> Pipeline:
        return store.model(
            decode=Decode((*FIELDS, Field("price", DecimalType(digits, 2)))),
            aggregates=(Aggregate("prices", CollectList("price", 9)), Aggregate("most", Max("price"))),
            sink=settings(store, "array"),
        )

    if not store.tables(of(9)).result.lists:
        pytest.skip("it has no arrays")
    commit(store, of(9), [change("insert", 0, "A", '["1234567.89"]', Decimal("1234567.89"))])
    with pytest.raises(SinkError, match=r"is \w+\(9,2\)\[\], not \w+\(12,2\)\[\].*alter it") as caught:
        commit(store, of(12))
    for statement in str(caught.value).partition("--fresh (")[2].removesuffix(")").split("; "):
        store.query(statement)
    commit(store, of(12), [change("insert", 1, "A", '["1234567890.12",null]', Decimal(1))])
    expected = [[Decimal("1234567.89")], [Decimal("1234567890.12"), None]]
    assert [row["prices"] for row in stored(store, of(12))] == expected
