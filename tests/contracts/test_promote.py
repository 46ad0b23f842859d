"""Every database puts a replay in the place of the live tables, in one transaction, and takes it back."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.contracts.steps import RUN, change, step
from tests.contracts.stores import Store, TableStore, brief, committed
from tests.short_forms import Pipeline
from tests.waiting import join, wait_until

from windrow.connectors.database import Database, Promoted, Replayed
from windrow.connectors.open_sinks import open_database
from windrow.connectors.sink import Follows, Run
from windrow.connectors.tables import REDRIVES
from windrow.errors import InputError, SinkError

AGAIN = Run(RUN.pipeline, "run-2")


def pair(store: Store) -> tuple[Pipeline, Pipeline]:
    """A live pipeline whose table says 1, and its shadow, whose table says 2."""
    live = store.model()
    shadow = store.model(sink=store.settings("spend_shadow"))
    committed(store, live, told(live, 1))
    committed(store, shadow, told(shadow, 2), run=AGAIN)
    return live, shadow


def told(model: Pipeline, number: int) -> Any:  # noqa: ANN401 - a step
    """A step with a row that says a number, and as many late ones."""
    late = [["spend", 0, n, _DAY, _DAY, _DAY, 1, "expired", "{}"] for n in range(number)]
    return step(model, [change("insert", 0, "A", Decimal(number), number)], late=late)


_DAY = change("insert", 0)[3]


def promote(live: Pipeline, shadow: Pipeline) -> Promoted:
    return open_database(live.sink).promote("spend", [(live.sink.table, shadow.sink.table)])[0]


def says(store: Store, model: Pipeline) -> tuple[int, int, int]:
    """What the result table, the changelog and the late output say."""
    tables = store.tables(model)
    [row], [one] = store.result(model), store.changes(model)
    return row["events"], one["events"], len(store.read(tables.late))


def test_the_shadow_takes_the_place_of_the_live_tables_and_goes_back(store: Store) -> None:
    live, shadow = pair(store)
    assert promote(live, shadow).former == "spend_shadow"
    assert (says(store, live), says(store, shadow)) == ((2, 2, 2), (1, 1, 1))
    assert sorted(store.query("SELECT table_name, run FROM windrow_tables")) == [
        ("spend", "run-2"),
        ("spend_shadow", "run-1"),
    ]
    with pytest.raises(SinkError, match=r"'spend_shadow'.*--from-savepoint.*to undo that"):
        store.sink(live).open(RUN)
    promote(live, shadow)
    assert (says(store, live), says(store, shadow)) == ((1, 1, 1), (2, 2, 2))
    committed(store, live, step(live, [change("insert", 5, "B", Decimal(1), 1)]))
    assert store.epochs() == [0, 1]


def test_who_follows_the_replay_goes_on_in_its_place(store: Store) -> None:
    live, shadow = pair(store)
    promote(live, shadow)
    sink = store.sink(live)
    assert sink.open(Run("spend", "run-3"), Follows(AGAIN, 0)) == 0
    sink.commit(1, step(live, [change("insert", 5, "B", Decimal(1), 1)]))
    sink.close()
    assert [user for _, user, *_ in brief(store.result(live))] == ["A", "B"]


def test_a_run_in_full_flight_stops_and_nothing_is_mixed(store: Store) -> None:
    live, shadow = pair(store)
    sink = store.sink(live)
    sink.open(RUN)
    store.unlock(sink)
    written = threading.Event()
    said: list[SinkError] = []

    def write() -> None:
        for number in range(1, 10_000):
            try:
                sink.commit(number, step(live, [change("insert", 5 * number, "live", Decimal(1), 1)]))
            except SinkError as exc:
                said.append(exc)
                break
            if number == 3:
                written.set()
        written.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert written.wait(60)
    promote(live, shadow)
    join(writer)
    sink.close()
    assert len(said) == 1
    assert "'spend' was taken over by another run" in str(said[0])
    assert "--from-savepoint" in str(said[0])
    assert [row["user"] for row in store.result(live)] == ["A"]
    assert [row["user"] for row in store.changes(live)] == ["A"]
    last = store.epochs()[-1]
    assert last >= 3
    assert [row["user"] for row in store.changes(shadow)] == ["A", *["live"] * last]


def test_readers_see_one_or_the_other_and_never_neither(store: Store) -> None:
    live, shadow = pair(store)
    done = threading.Event()
    seen: set[Any] = set()

    def watch() -> None:
        while not done.is_set():
            seen.update(store.query("SELECT events, (SELECT count(*) FROM spend_late) FROM spend"))

    def again() -> bool:
        with suppress(SinkError):  # the reader may be in the way, which is said
            promote(live, shadow)
        return len(seen) == 2

    reader = threading.Thread(target=watch)
    reader.start()
    try:
        for _ in range(10):
            again()
        wait_until(again, "both answers")
    finally:
        done.set()
        join(reader)
    assert seen <= {(1, 1), (2, 2)}
    assert len(seen) == 2


def test_what_users_made_on_the_table_shows_the_answer(store: Store) -> None:
    live, shadow = pair(store)
    store.query("CREATE VIEW big AS SELECT s.events, l.reason FROM spend s, spend_late l")
    store.query("CREATE VIEW bigger AS SELECT count(*) AS n FROM big")
    store.query('CREATE INDEX by_user ON spend ("user")')
    store.query("CREATE VIEW was AS SELECT events FROM spend_shadow")
    found = promote(live, shadow)
    assert "index by_user" in found.carried
    assert store.query("SELECT DISTINCT events FROM big") == [(2,)]
    assert store.query("SELECT n FROM bigger") == [(2,)]
    assert store.query("SELECT events FROM was") == [(1,)]
    assert store.index_tables("by_user") == ["spend"]
    promote(live, shadow)
    assert store.query("SELECT n FROM bigger") == [(1,)]
    assert store.query("SELECT events FROM was") == [(2,)]
    assert store.index_tables("by_user") == ["spend"]


def test_an_index_that_cannot_be_made_on_the_new_table_stops_it(store: Store) -> None:
    live = store.model()
    committed(store, live, told(live, 1))
    shadow = replace(live, sink=store.settings("spend_shadow"), aggregates=live.aggregates[1:])
    row = change("insert", 0, "A", 2)
    committed(store, shadow, step(shadow, [row]), run=AGAIN)
    store.query("CREATE INDEX by_total ON spend (total)")
    with pytest.raises(SinkError, match=r"by_total.*drop it first; nothing was changed"):
        promote(live, shadow)
    assert says(store, live) == (1, 1, 1)
    store.query("DROP INDEX by_total")
    promote(live, shadow)
    assert [row["events"] for row in store.result(replace(shadow, sink=live.sink))] == [2]


def test_the_first_answer_needs_no_live_table(store: Store) -> None:
    live, shadow = store.model(), store.model(sink=store.settings("spend_shadow"))
    with pytest.raises(InputError, match=r"no table 'spend_shadow' to promote|no database"):
        promote(live, shadow)
    committed(store, shadow, told(shadow, 2), run=AGAIN)
    assert promote(live, shadow).former is None
    assert says(store, live) == (2, 2, 2)
    committed(store, live, step(live), run=AGAIN)
    assert store.epochs("run-2") == [0, 1]


def test_tables_of_others_stay_where_they_are(store: Store) -> None:
    live = store.model()
    committed(store, live, told(live, 1))
    other = store.model(name="other", sink=store.settings("spend_shadow"))
    committed(store, other, told(other, 2), run=Run("other", "run-9"))
    with pytest.raises(SinkError, match="'spend_shadow' belongs to pipeline 'other'"):
        promote(live, other)
    store.query("CREATE TABLE mine (x INTEGER)")
    with pytest.raises(SinkError, match="'mine' is not windrow's"):
        open_database(live.sink).promote("spend", [("spend", "mine")])
    assert says(store, live) == (1, 1, 1)


def note(store: Store, **changed: Any) -> Database:  # noqa: ANN401 - any part of a note
    database = open_database(store.settings())
    plain = Replayed("spend_shadow", AGAIN, begin=None, end={0: 7, 1: 9}, since=None, finished=True)
    database.note(replace(plain, **changed))
    return database


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"finished": False}, "has not finished.*--fresh"),
        ({"finished": False, "at": {"topic": {"0": 7}}, "identity": "id"}, "has not finished"),
        ({"since": 1_767_225_600_500_000}, r"only windows that end after 2026-01-01 00:00:00.500"),
        ({"begin": {0: 3}}, "was replayed from given offsets"),
    ],
)
def test_a_replay_that_is_not_whole_is_refused(store: Store, changed: dict[str, Any], message: str) -> None:
    live, shadow = pair(store)
    database = note(store, **changed)
    kept = database.replayed("spend_shadow")
    assert kept == replace(Replayed("spend_shadow", AGAIN, None, {0: 7, 1: 9}, None, finished=True), **changed)
    with pytest.raises(SinkError, match=message):
        promote(live, shadow)
    assert says(store, live) == (1, 1, 1)
    assert note(store).replayed("spend") is None
    promote(live, shadow)
    # the note was of the other run
    assert database.replayed("spend_shadow") is None


def test_several_tables_are_promoted_together(store: Store) -> None:
    live, shadow = pair(store)
    names = [("spend", "spend_shadow"), ("other", "other_shadow")]
    other, other_shadow = (store.model(sink=store.settings(name)) for name in names[1])
    again = Run(RUN.pipeline, "run-4")
    committed(store, other, told(other, 1), run=Run(RUN.pipeline, "run-3"))
    committed(store, other_shadow, told(other_shadow, 2), run=again)
    database = note(store)
    database.note(
        Replayed("other_shadow", Run(RUN.pipeline, "run-4"), begin=None, end={0: 7}, since=None, finished=True)
    )
    database.promote("spend", names)
    assert [says(store, model) for model in (live, other)] == [(2, 2, 2)] * 2
    assert [says(store, model) for model in (shadow, other_shadow)] == [(1, 1, 1)] * 2


def test_a_run_that_is_seen_to_be_going_is_not_pushed_aside(store: Store) -> None:
    live, shadow = pair(store)
    sink = store.sink(live)
    sink.open(RUN)
    try:
        if store.sees_runs:
            with pytest.raises(SinkError, match=r"'spend' is still running: stop it"):
                promote(live, shadow)
            assert says(store, live) == (1, 1, 1)
        else:
            promote(live, shadow)
            with pytest.raises(SinkError, match="taken over"):
                sink.commit(1, told(live, 3))
    finally:
        sink.close()


def test_copies_of_dead_letters_are_noted_once(store: TableStore) -> None:
    database = open_database(store.settings())
    rows = [("spend", "log", 0, offset, 1, 1, 1, "missing: it's", "ana@host", 60_000_000) for offset in (6, 7)]
    table = pa.Table.from_pylist(
        [dict(zip(REDRIVES.columns, row, strict=True)) for row in rows], schema=REDRIVES.schema
    )
    for part in (table.slice(0, 1), table, table):
        database.note_redrives(part)
    with database.snapshot() as snapshot:
        assert pa.concat_tables(snapshot.rows(REDRIVES, ["offset"])).to_pylist() == table.to_pylist()
