"""Every sink keeps its tables to one run."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.contracts.steps import DAY, RUN, change, step
from tests.contracts.stores import AnyStore, PostgresStore, Store, TableStore, brief, committed
from tests.graphs import graph_of

import windrow as wr
from windrow.connectors.open_sinks import open_database, open_sinks
from windrow.connectors.sink import Follows, Run
from windrow.connectors.tables import Table
from windrow.engine.changelog import empty_by_sink
from windrow.errors import SinkError
from windrow.model import Graph


@pytest.mark.parametrize("rows", [0, 1])
def test_another_run_is_refused_until_the_table_is_cleared(store: AnyStore, rows: int) -> None:
    model = store.model()
    committed(store, model, step(model, [change("insert", 0, "A", Decimal(1), 1)] * rows))
    other = Run(RUN.pipeline, "run-2")
    sink = store.sink(model)
    for refusing in (sink.preflight, sink.open):
        with pytest.raises(SinkError, match=r"another run .*--fresh.*--checkpoint.*another table"):
            refusing(other)
    sink.preflight(RUN)
    sink.clear()
    assert sink.open(other) is None
    sink.commit(0, step(model, [change("insert", 0, "B", Decimal(2), 2)]))
    sink.close()
    assert brief(store.result(model)) == [(0, "B", Decimal(2), 2, "on_time", 0)]
    assert store.epochs("run-1") == []
    assert store.epochs("run-2") == [0]


def test_a_preflight_changes_nothing(store: Store) -> None:
    model = store.model()
    sink = store.sink(model)
    sink.preflight(RUN)
    assert store.is_cleared(model)
    # who has them open still writes them
    assert sink.open(RUN) is None
    store.sink(model).preflight(RUN)
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    sink.close()


def test_a_run_that_wrote_nothing_makes_way(store: AnyStore) -> None:
    model = store.model()
    committed(store, model)
    committed(store, model, step(model), run=Run(RUN.pipeline, "run-2"))
    assert store.epochs("run-2") == [0]
    sink = store.sink(model)
    with pytest.raises(SinkError, match="another run"):
        sink.open(RUN)


def test_another_table_takes_another_run(store: AnyStore) -> None:
    model = store.model()
    committed(store, model, step(model))
    elsewhere = store.model(sink=store.settings("spend_too"))
    committed(store, elsewhere, step(elsewhere, [change("insert", 0, "A", Decimal(1), 1)]), run=Run("spend", "run-2"))
    assert len(store.result(elsewhere)) == 1
    store.sink(elsewhere).clear()
    assert store.epochs("run-1") == [0]
    assert store.epochs("run-2") == []


def test_the_same_run_may_not_change_its_table(store: Store) -> None:
    model = store.model()
    committed(store, model, step(model))
    with pytest.raises(SinkError, match=r"steps 0 to 0 to other tables.*'spend_too' would lack"):
        store.sink(store.model(sink=store.settings("spend_too"))).open(RUN)


def test_a_table_gets_the_rows_of_one_stream(store: AnyStore) -> None:
    model = store.model()
    sink = store.sink(model, streams=["high"])
    assert sink.open(RUN) is None
    sink.close()
    # nothing was written
    sink = store.sink(model, streams=["low"])
    assert sink.open(RUN) is None
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    sink.close()
    other = store.sink(model, streams=["high"])
    for refusing in (other.preflight, other.open):
        with pytest.raises(SinkError, match=r"has the rows of 'low', and those of 'high' would be mixed .* --fresh"):
            refusing(RUN)
        with pytest.raises(SinkError, match=r"has the rows of 'low', and those of 'high' would be mixed .* --fresh"):
            refusing(Run(RUN.pipeline, "run-2"), Follows(RUN, 0))
    assert sink.open(Run(RUN.pipeline, "run-2"), Follows(RUN, 0)) == 0
    sink.close()
    other.clear()
    assert other.open(Run(RUN.pipeline, "run-3")) is None
    other.close()


def test_a_run_does_not_return_to_a_table_that_it_left(store: Store) -> None:
    both = [store.model(sink=store.settings(table)) for table in ("spend", "spend_too")]
    steps = [step(model, [change("insert", 0, "A", Decimal(1), 1)]) for model in both]
    sink = store.sink(*both)
    assert sink.open(RUN) is None
    sink.commit(0, *steps)
    sink.close()
    alone = store.sink(both[0])
    assert alone.open(RUN) == 0
    alone.close()
    # nothing came between
    sink = store.sink(*both)
    assert sink.open(RUN) == 0
    sink.close()
    alone = store.sink(both[0])
    assert alone.open(RUN) == 0
    alone.commit(1, step(both[0]))
    alone.close()
    sink = store.sink(*both)
    for refusing in (sink.preflight, sink.open):
        with pytest.raises(SinkError, match=r"without table 'spend_too', which lacks steps 1 to 1: leave"):
            refusing(RUN)
    assert alone.open(RUN) == 1
    alone.close()


@pytest.mark.parametrize("is_old", [False, True])
def test_a_table_that_was_left_before_its_first_step_or_by_an_older_version(store: Store, is_old: bool) -> None:  # noqa: FBT001 - pytest's
    both = [store.model(sink=store.settings(table)) for table in ("spend", "spend_too")]
    sink = store.sink(*both)
    assert sink.open(RUN) is None
    if is_old:
        sink.commit(0, step(both[0]), step(both[1]))
    sink.close()
    if is_old:
        store.drop("windrow_origins")
    alone, first = store.sink(both[0]), int(is_old)
    assert alone.open(RUN) == (0 if is_old else None)
    alone.commit(first, step(both[0]))
    alone.close()
    with pytest.raises(SinkError, match=f"which lacks steps {first} to {first}"):
        store.sink(*both).open(RUN)


def test_what_an_older_version_wrote_is_taken_as_it_is(store: Store) -> None:
    model = store.model()
    committed(store, model, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    store.drop("windrow_origins")
    sink = store.sink(model, streams=["high"])
    assert sink.open(RUN) == 0
    sink.close()
    with pytest.raises(SinkError, match="has the rows of 'high'"):
        store.sink(model, streams=["low"]).open(RUN)


def test_another_pipeline_is_refused(store: AnyStore) -> None:
    committed(store, store.model(), step(store.model()))
    sink = store.sink(store.model(name="other"))
    with pytest.raises(SinkError, match=r"belongs to pipeline 'spend'.*another table"):
        sink.open(Run("other", "run-9"))
    with pytest.raises(SinkError, match=r"belongs to pipeline 'spend'.*another table"):
        sink.clear()
    assert store.epochs() == [0]


def test_rows_of_somebody_else_are_refused_and_not_dropped(store: Store) -> None:
    store.query("CREATE TABLE spend (x INTEGER)")
    store.query("INSERT INTO spend VALUES (1)")
    sink = store.sink(store.model())
    with pytest.raises(SinkError, match=r"'spend' holds rows that windrow did not write.*another table"):
        sink.open(RUN)
    with pytest.raises(SinkError, match="'spend' holds rows that windrow did not write"):
        sink.clear()
    assert store.query("SELECT x FROM spend") == [(1,)]


def test_clear_of_what_is_not_there_does_nothing(store: AnyStore) -> None:
    sink = store.sink(store.model())
    sink.clear()
    sink.clear()
    assert sink.open(RUN) is None
    sink.close()


def test_a_table_that_is_gone_is_noticed(store: TableStore) -> None:
    model = store.model()
    committed(store, model, step(model))
    store.drop("spend_late")
    with pytest.raises(SinkError, match=r"'spend_late' is gone.*steps 0 to 0"):
        store.sink(model).open(RUN)


def test_tables_that_were_all_dropped_make_way_for_a_new_run(store: AnyStore) -> None:
    model = store.model()
    committed(store, model, step(model))
    for table in store.tables(model).own:
        store.drop(table.name)
    committed(store, model, step(model), run=Run("spend", "run-2"))
    assert store.epochs("run-2") == [0]


def test_a_run_that_lost_its_table_meanwhile_stops(store: AnyStore) -> None:
    model = store.model()
    sink = store.sink(model)
    sink.open(RUN)
    store.give_away("run-2")
    with pytest.raises(SinkError, match="taken over"):
        sink.commit(0, step(model))
    sink.close()


def test_who_opened_the_tables_last_writes_them(store: AnyStore) -> None:
    model = store.model()
    given_up, next_one = store.sink(model), store.sink(model)
    given_up.open(RUN)
    given_up.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    store.unlock(given_up)
    assert next_one.open(RUN) == 0
    for epoch in (0, 1):
        with pytest.raises(SinkError, match="opened by another process of the same run"):
            given_up.commit(epoch, step(model, [change("insert", 1, "X", Decimal(1), 1)]))
    next_one.commit(1, step(model, [change("insert", 1, "B", Decimal(2), 1)]))
    next_one.close()
    with pytest.raises(SinkError, match="opened by another process of the same run"):
        given_up.open(RUN)
    given_up.close()
    assert [user for _, user, *_ in brief(store.result(model))] == ["A", "B"]
    # a process that is the only one opens them as often as it likes
    assert [next_one.open(RUN), next_one.open(RUN)] == [1, 1]
    next_one.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TABLE spend DROP COLUMN total", "'spend' has no column 'total'"),
        (
            "DROP TABLE spend_clocks; CREATE TABLE spend_clocks (epoch TEXT)",
            "'epoch' of table 'spend_clocks' is (?i:text|varchar)",
        ),
    ],
)
def test_tables_with_other_columns_are_refused(store: Store, statement: str, message: str) -> None:
    model = store.model()
    committed(store, model, step(model))
    for part in statement.split(";"):
        store.query(part)
    with pytest.raises(SinkError, match=f"{message}.*another table.*--fresh"):
        store.sink(model).open(RUN)


LATE = ["spend", 0, 1, DAY, DAY, DAY, 5, "expired", '{"user": "A"}']
DEAD = ["spend", 0, 2, None, "no number", b"x"]
CLOCK = ["spend", 0, 3, DAY, DAY, "lost"]


def test_a_column_that_a_user_adds_is_left_alone(store: TableStore) -> None:
    model = store.model()
    sink = store.sink(model)
    sink.open(RUN)
    sink.commit(0, step(model, [change("insert", 0, user, Decimal(1), 1) for user in "ABC"]))
    for table in store.tables(model).own:
        store.add_column(table.name, "note")
    noted = Table("spend", pa.schema([*store.tables(model).result.schema, pa.field("note", pa.string())]))
    store.note("of A", "A")
    store.note("of B", "B")
    changes = [
        change("update_before", 0, "A", Decimal(1), 1, pane="late"),
        change("update_after", 0, "A", Decimal(5), 2, pane="late", revision=1),
        change("delete", 0, "B", Decimal(1), 1, pane="late"),
        change("insert", 0, "D", Decimal(2), 1),
    ]
    sink.commit(1, step(model, changes, late=[LATE], dead=[DEAD], clocks=[CLOCK]))
    sink.close()
    again = step(model, [change("insert", 1, "A", Decimal(7), 1)], late=[LATE], dead=[DEAD], clocks=[CLOCK])
    committed(store, model, again)
    found = [(row["user"], row["total"], row["note"]) for row in store.read(noted, "window_start, 3")]
    assert found == [("A", 5, "of A"), ("C", 1, None), ("D", 2, None), ("A", 7, None)]
    assert [len(store.read(table)) for table in store.tables(model).own] == [4, 8, 2, 2, 2]


def test_a_column_that_needs_a_value_is_refused(database: str) -> None:
    store = PostgresStore(database)
    model = store.model()
    sink = store.sink(model)
    sink.open(RUN)
    changes = [
        change("update_before", 0, "A", Decimal(1), 1, pane="late"),
        change("update_after", 0, "A", Decimal(5), 2, pane="late", revision=1),
    ]
    store.query("ALTER TABLE spend ADD COLUMN filled integer NOT NULL DEFAULT 7, ADD CHECK (total < 100)")
    store.query("ALTER TABLE spend ADD COLUMN twice numeric GENERATED ALWAYS AS (total * 2) STORED")
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    sink.commit(1, step(model, changes))
    assert store.query("SELECT total, filled, twice FROM spend") == [(5, 7, 10)]
    store.query("ALTER TABLE spend ALTER filled DROP DEFAULT")
    rows = step(model, [change("insert", 1, "A", Decimal(1), 1)])
    refused = pytest.raises(SinkError, match=r"a column 'filled' .* is NOT NULL without a default.*DROP COLUMN")
    with refused:
        sink.commit(2, rows)
    sink.close()
    with refused:
        store.sink(model).open(RUN)
    assert store.read(store.tables(model).dead) == []
    store.query("ALTER TABLE spend ALTER filled DROP NOT NULL")
    committed(store, model, rows)
    assert store.query("SELECT total, filled FROM spend ORDER BY 1") == [(1, None), (5, 7)]


def test_a_table_with_another_key_is_refused(store: TableStore) -> None:
    committed(store, store.model(), step(store.model()))
    model = store.model(sink=store.settings(key=("user", "window_start")))
    with pytest.raises(SinkError, match=r"primary key of table 'spend' is .*, not user, window_start"):
        store.sink(model).open(RUN)


def test_an_empty_table_that_fits_is_taken(store: Store) -> None:
    model = store.model()
    committed(store, model)
    store.query("DELETE FROM windrow_tables")
    committed(store, model, step(model))
    assert store.epochs() == [0]


def test_tables_that_do_not_fit_are_named_without_opening_them(store: Store) -> None:
    model = store.model()
    committed(store, model, step(model))
    database = open_database(model.sink)
    assert database.mismatches(store.tables(model)) == []
    store.query("ALTER TABLE spend ADD COLUMN odd integer")
    assert database.mismatches(store.tables(model)) == []
    store.query("ALTER TABLE spend DROP COLUMN total")
    (found,) = database.mismatches(store.tables(model))
    assert "has no column 'total'" in found


@pytest.mark.parametrize("elsewhere", [False, True])
def test_tables_of_a_graph_do_not_change_places(elsewhere: bool, tmp_path: Path) -> None:  # noqa: FBT001 - pytest's
    records = wr.log("data/log").decode(user="string", at="timestamp", n="long").event_time("at", delay="1m")
    second = tmp_path / ("b.db" if elsewhere else "a.db")

    def graph(low: str, high: str) -> Graph:
        made = wr.graph("g")
        source = made.source("records", records)
        streams = {name: made.stream(name, source.where(sql)) for name, sql in (("low", "n < 5"), ("high", "n >= 5"))}
        made.sink("one", streams[low], wr.sqlite(str(tmp_path / "a.db"), table="one"))
        made.sink("two", streams[high], wr.sqlite(str(second), table="two"))
        return graph_of(made.build(), Graph)

    run = Run("g", "run-1")
    first = graph("low", "high")
    sinks = open_sinks(first)
    assert sinks.open(run) is None
    sinks.commit(0, empty_by_sink(first))
    sinks.close()
    with pytest.raises(SinkError, match="'one' has the rows of 'low', and those of 'high' would be mixed with them"):
        open_sinks(graph("high", "low")).open(run)
    assert open_sinks(graph("low", "high")).open(run) == 0
