"""What every sink promises, tried on every sink."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from tests.contracts.conftest import KINDS, OUTBOX
from tests.contracts.steps import DAY, FIELDS, MINUTE, RUN, change, step
from tests.contracts.stores import AnyStore, Store, TableStore, brief, committed

from windrow.connectors import ownership, tables
from windrow.connectors.registry import SINKS
from windrow.connectors.tables import EPOCHS, OPENERS, ORIGINS, OWNERS
from windrow.engine import schema
from windrow.errors import PipelineError, SinkError
from windrow.expressions import Rows, SinkSpec
from windrow.model import Aggregate, Count, Emit, Field, StringType, Sum
from windrow.model.types import Decode

ALL_WITH_PLACE = pa.schema([one.with_nullable(one.name in {"log_time", "raw"}) for one in schema.DEAD])
"""The schema of dead letters before rows could be some."""


def test_a_new_sink_has_no_epoch_and_empty_tables(store: AnyStore) -> None:
    model = store.model()
    sink = store.sink(model)
    assert sink.open(RUN) is None
    sink.close()
    assert [store.read(table) for table in store.tables(model).own] == [[]] * 5
    assert store.epochs() == []
    assert store.owners() == {"spend": RUN.id}


def test_a_table_of_dead_letters_that_all_had_a_place_gets_some_without(store: AnyStore) -> None:
    model = store.model()
    with mock.patch.object(schema, "DEAD", ALL_WITH_PLACE):
        committed(store, model, step(model, dead=[("log", 3, 7, DAY, "malformed", b"x")]))
    sink = store.sink(model)
    sink.preflight(RUN)
    assert sink.open(RUN) == 0
    sink.commit(1, step(model, dead=[("spend", None, None, None, "out of range", b"{}")]))
    sink.close()
    dead = store.read(store.tables(model).dead, '"source"')
    assert [(row["source"], row["partition"], row["offset"]) for row in dead] == [("log", 3, 7), ("spend", None, None)]
    # and is opened as ever
    sink = store.sink(model)
    assert sink.open(RUN) == 1
    sink.close()


def test_of_a_dead_letter_that_is_too_large_the_beginning_is_kept(store: AnyStore) -> None:
    model = store.model()
    rows = [["log", 0, offset, None, "malformed: \0", bytes(size)] for offset, size in enumerate([5, 70_001, 70_000])]
    with mock.patch.object(tables, "MOST_BYTES", 70_000):
        committed(store, model, step(model, dead=[*rows, ["log", 1, 0, None, "malformed: no value", None]]))
    found = {(row["partition"], row["offset"]): row for row in store.read(store.tables(model).dead)}
    assert [found[0, offset]["raw"] for offset in range(3)] == [bytes(size) for size in (5, 65_536, 70_000)]
    assert found[1, 0]["raw"] is None
    of_all = sha256(bytes(70_001)).hexdigest()
    assert [found[0, offset]["reason"] for offset in range(3)] == [
        "malformed: \\u0000",
        f"malformed: \\u0000: raw has the first 65,536 of 70,001 bytes, SHA-256 {of_all}",
        "malformed: \\u0000",
    ]


def test_the_shared_tables_say_whose_the_table_is(store: Store) -> None:
    committed(store, store.model(), step(store.model()))
    assert store.read(OWNERS) == [{"table_name": "spend", "pipeline": RUN.pipeline, "run": RUN.id}]
    assert [(row["pipeline"], row["run"]) for row in store.read(OPENERS)] == [(RUN.pipeline, RUN.id)]
    origin = {"stream": RUN.pipeline, "changelog": True, "left_after": None}
    assert store.read(ORIGINS) == [{"table_name": "spend", "pipeline": RUN.pipeline, "run": RUN.id} | origin]
    assert all(abs((row["committed_at"] - DAY).days) < 100_000 for row in store.read(EPOCHS))


def test_inserts_updates_and_deletes_fold_into_the_table(store: AnyStore) -> None:
    model = store.model()
    first = [
        change("insert", 0, "A", Decimal("7.00"), 2),
        change("insert", 0, "B", Decimal("3.00"), 1),
        change("insert", 5, "B", Decimal("1.00"), 1),
    ]
    second = [
        change("update_before", 0, "A", Decimal("7.00"), 2),
        change("update_after", 0, "A", Decimal("8.00"), 3, pane="late", revision=1),
        change("delete", 0, "B", Decimal("3.00"), 1, pane="late", revision=1),
    ]
    committed(store, model, step(model, first), step(model, second))
    assert brief(store.result(model)) == [
        (0, "A", Decimal("8.00"), 3, "late", 1),
        (5, "B", Decimal("1.00"), 1, "on_time", 0),
    ]


@pytest.mark.parametrize("changelog", [True, False])
def test_a_table_of_a_graph_has_its_rows_by_their_key(store: TableStore, changelog: bool) -> None:  # noqa: FBT001 - pytest's
    plain = store.model(sink=replace(store.settings(), changelog=changelog))
    user, *values = plain.decode.fields
    model = SinkSpec(plain.name, plain.sink, plain.name, Rows("table", (user,), tuple(values), has_id=True))

    def row(op: str, user: str, minute: int, amount: int) -> list[Any]:
        return [op, "on_time", 0, user, DAY + minute * MINUTE, Decimal(amount)]

    assert store.tables(model).result.key == ("user",)
    first = [
        row("insert", "A", 0, 1),
        row("update_before", "A", 0, 1),
        row("update_after", "A", 1, 2),
        row("insert", "B", 0, 3),
        row("insert", "C", 0, 4),
        row("delete", "C", 0, 4),
    ]
    second = [
        row("delete", "A", 1, 2),
        row("insert", "A", 3, 5),
        row("delete", "B", 0, 3),
        row("insert", "C", 2, 6),
        row("update_before", "C", 2, 6),
        row("update_after", "C", 4, 7),
    ]
    third = [row("insert", "B", 5, 8), row("delete", "C", 4, 7)]
    committed(store, model, step(model, first), step(model, second), step(model, third))
    tables = store.tables(model)
    assert [tuple(one.values()) for one in store.read(tables.result, "1")] == [
        ("A", DAY + 3 * MINUTE, Decimal(5)),
        ("B", DAY + 5 * MINUTE, Decimal(8)),
    ]
    rows = [list(one.values())[2:] for one in store.changes(model)]
    assert rows == (first + second + third if changelog else [])


def test_in_mode_discard_each_pane_is_a_row(store: AnyStore) -> None:
    model = store.model(emit=Emit(mode="discard"))
    assert store.tables(model).result.key == ("window_start", "window_end", "user", "revision")
    first = [
        change("insert", 0, "A", Decimal(7), 2, pane="early"),
        change("insert", 0, "A", Decimal(1), 1, revision=1),
        change("insert", 0, "B", Decimal(3), 1),
    ]
    late = [change("insert", 0, "A", Decimal(5), 1, pane="late", revision=2)]
    committed(store, model, step(model, first), step(model, late))
    assert sorted(brief(store.result(model))) == [
        (0, "A", Decimal(1), 1, "on_time", 1),
        (0, "A", Decimal(5), 1, "late", 2),
        (0, "A", Decimal(7), 2, "early", 0),
        (0, "B", Decimal(3), 1, "on_time", 0),
    ]


def test_a_step_that_is_written_again_in_mode_discard_changes_nothing(store: AnyStore) -> None:
    model = store.model(emit=Emit(mode="discard"))
    output = step(model, [change("insert", 0, "A", Decimal(7), 2), change("insert", 0, "A", Decimal(1), 1, revision=1)])
    sink = store.sink(model)
    sink.open(RUN)
    sink.commit(0, output)
    sink.commit(0, output)
    sink.close()
    assert [row["revision"] for row in store.changes(model)] == [0, 1]
    assert sorted(row["revision"] for row in store.result(model)) == [0, 1]


@pytest.mark.parametrize("changelog", [True, False])
def test_the_last_change_of_a_step_decides(store: TableStore, changelog: bool) -> None:  # noqa: FBT001 - a case
    model = store.model(sink=replace(store.settings(), changelog=changelog))
    rows = [
        change("insert", 0, "A", Decimal(1), 1),
        change("insert", 0, "B", Decimal(1), 1),
        change("insert", 0, "C", Decimal(1), 1),
        *(change("update_after", 0, "A", Decimal(n), n, pane="late", revision=n - 1) for n in range(2, 6)),
        change("delete", 0, "B", Decimal(1), 1, revision=1),
        change("delete", 0, "C", Decimal(1), 1, revision=1),
        change("insert", 0, "C", Decimal(9), 9, revision=2),
    ]
    committed(store, model, step(model, rows))
    assert brief(store.result(model)) == [(0, "A", Decimal(5), 5, "late", 4), (0, "C", Decimal(9), 9, "on_time", 2)]
    assert len(store.changes(model)) == len(rows) * changelog


def test_a_run_can_end_its_changelog_and_not_begin_it(store: TableStore) -> None:
    model = store.model()
    plain = replace(model, sink=replace(store.settings(), changelog=False))
    committed(store, model, step(model, [change("insert", 0, "A", Decimal(0), 0)]))
    sink = store.sink(plain)
    assert sink.open(RUN) == 0
    sink.commit(1, step(model, [change("update_after", 0, "A", Decimal(1), 1, revision=1)]))
    sink.close()
    assert brief(store.result(model)) == [(0, "A", Decimal(1), 1, "on_time", 1)]
    assert [row["epoch"] for row in store.changes(model)] == [0]
    sink = store.sink(model)
    for refusing in (sink.preflight, sink.open):
        with pytest.raises(SinkError, match=r"'spend' was written without its changelog, .* the steps up to 1: keep"):
            refusing(RUN)
    sink.clear()
    assert sink.open(RUN) is None
    sink.close()


def test_the_changelog_keeps_every_change_in_order(store: AnyStore) -> None:
    model = store.model()
    steps = [
        [change("insert", 5 * k, user, Decimal(k), k) for k in range(9, 0, -1) for user in "BA"],
        [
            change("update_before", 5, "A", Decimal(1), 1),
            change("update_after", 5, "A", Decimal(2), 2, pane="late", revision=1),
        ],
    ]
    committed(store, model, *(step(model, rows) for rows in steps))
    names = [name for name in store.tables(model).changes.columns if name not in {"epoch", "seq"}]
    expected = [
        {"epoch": epoch, "seq": seq, **dict(zip(names, row, strict=True))}
        for epoch, rows in enumerate(steps)
        for seq, row in enumerate(rows)
    ]
    assert store.changes(model) == expected


def test_late_dead_and_clock_rows(store: AnyStore) -> None:
    model = store.model()
    micros = timedelta(microseconds=123_456)
    late = [["spend", 3, 2**40, DAY + micros, DAY, DAY + 5 * MINUTE, 90_000, "expired", '{"user":"\\u0000"}']]
    dead = [
        ["spend", 0, 7, DAY, "malformed: not UTF-8", bytes(range(256)) * 1000],
        ["spend", 1, 8, None, "malformed: no value", None],
        ["spend", 1, 9, DAY + timedelta(milliseconds=5), "malformed: not JSON", b""],
    ]
    clocks = [["spend", 2, 5, DAY + MINUTE, None, "joined"], ["spend", 0, 6, None, DAY, "end"]]
    committed(store, model, step(model), step(model, late=late, dead=dead, clocks=clocks))
    tables = store.tables(model)
    assert [list(row.values()) for row in store.read(tables.late)] == late
    assert [list(row.values()) for row in store.read(tables.dead, "3")] == dead
    assert [list(row.values()) for row in store.read(tables.clocks, "4")] == [[1, *row] for row in clocks]


def test_nul_in_a_reason_is_spelled_out(store: AnyStore) -> None:
    model = store.model()
    committed(store, model, step(model, dead=[["spend", 0, 7, None, "wrong type: a \x00 b", b"\x00"]]))
    (row,) = store.read(store.tables(model).dead)
    assert (row["reason"], row["raw"]) == ("wrong type: a \\u0000 b", b"\x00")


def test_an_empty_step_commits_its_epoch(store: AnyStore) -> None:
    model = store.model()
    committed(store, model, step(model), step(model))
    assert store.epochs() == [0, 1]
    assert store.result(model) == []


def test_a_repeated_epoch_changes_nothing(store: AnyStore) -> None:
    model = store.model()
    sink = store.sink(model)
    sink.open(RUN)
    sink.commit(0, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    sink.commit(1, step(model, [change("insert", 5, "A", Decimal(1), 1)]))
    for epoch in (0, 1):
        again = [change("insert", 0, "X", Decimal(2), 2), change("delete", 0, "A", Decimal(1), 1)]
        sink.commit(epoch, step(model, again, dead=[["spend", 0, 1, None, "malformed", b"x"]]))
    sink.close()
    assert brief(store.result(model)) == [(0, "A", 1, 1, "on_time", 0), (5, "A", 1, 1, "on_time", 0)]
    assert len(store.changes(model)) == 2
    assert store.read(store.tables(model).dead) == []
    assert store.epochs() == [0, 1]


def test_open_returns_where_the_run_stopped(store: AnyStore) -> None:
    model = store.model()
    committed(store, model, step(model), step(model), step(model))
    sink = store.sink(model)
    assert sink.open(RUN) == 2
    assert sink.open(RUN) == 2
    sink.commit(3, step(model))
    sink.close()
    sink.close()
    assert store.epochs() == [0, 1, 2, 3]


def test_the_fence_keeps_the_last_epochs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "EPOCHS_KEPT", 3)
    model = store.model()
    sink = store.sink(model)
    sink.open(RUN)
    kept = []
    for epoch in range(8):
        sink.commit(epoch, step(model, [change("insert", epoch, "A", Decimal(1), 1)]))
        kept.append(store.epochs())
    assert kept[2:] == [[0, 1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [4, 5, 6], [4, 5, 6, 7]]
    for again in (0, 7):
        sink.commit(again, step(model, [change("insert", 9, "X", Decimal(1), 1)]))
    assert sink.open(RUN) == 7
    sink.close()
    assert len(store.result(model)) == 8


@pytest.mark.parametrize(("done", "epoch"), [(0, 1), (0, 7), (2, 3), (0, -1)])
def test_a_gap_in_the_epochs_is_refused(store: AnyStore, done: int, epoch: int) -> None:
    model = store.model()
    sink = store.sink(model)
    sink.open(RUN)
    for k in range(done):
        sink.commit(k, step(model))
    with pytest.raises(SinkError, match=f"received step {epoch} but expects step {done}.*--fresh"):
        sink.commit(epoch, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    sink.close()
    assert store.epochs() == list(range(done))
    assert store.result(model) == []


def test_commit_before_open_is_refused(store: AnyStore) -> None:
    model = store.model()
    with pytest.raises(SinkError, match="not open"):
        store.sink(model).commit(0, step(model))


def test_the_key_of_the_sink_decides_which_rows_are_one(store: TableStore) -> None:
    model = store.model(sink=store.settings(key=("user",)))
    rows = [change("insert", 5 * k, user, Decimal(k), k) for k in range(3) for user in "AB"]
    committed(store, model, step(model, rows), step(model, [change("insert", 20, "A", Decimal(9), 9)]))
    assert brief(store.result(model)) == [(10, "B", 2, 2, "on_time", 0), (20, "A", 9, 9, "on_time", 0)]


def test_without_a_key_a_window_has_one_row(store: AnyStore) -> None:
    model = store.model(key=())
    assert store.tables(model).result.key == ("window_start", "window_end")
    first = [change("insert", 0, Decimal("7.00"), 2), change("insert", 5, Decimal("1.00"), 1)]
    second = [
        change("update_before", 0, Decimal("7.00"), 2),
        change("update_after", 0, Decimal("8.00"), 3, pane="late", revision=1),
        change("delete", 5, Decimal("1.00"), 1, pane="late", revision=1),
    ]
    committed(store, model, step(model, first), step(model, second))
    (row,) = store.result(model)
    assert (row["total"], row["events"], row["revision"]) == (Decimal("8.00"), 3, 1)


def test_names_that_sql_would_trip_over(store: AnyStore) -> None:
    field = 'Robert\'); DROP TABLE "students";--'
    model = store.model(
        sink=store.settings('select "from" 100% %s $1 ?'),
        decode=Decode((*FIELDS, Field(field, StringType()), Field("order", StringType()))),
        key=(field, "order"),
        aggregates=(Aggregate("group", Sum("amount")), Aggregate("100%s ✓", Count()), Aggregate("table", Count())),
    )
    keys = [("x'); DROP TABLE spend;--", "a"), ('"', "'"), ("", " "), ("\\N", "NULL"), ("\\.", "a,b\r\nc\r")]
    rows = [change("insert", 0, *key, Decimal("1.10"), n, -n) for n, key in enumerate(keys)]
    gone = [change("delete", 0, *key, Decimal("1.10"), n, -n) for n, key in enumerate(keys) if n % 2]
    committed(store, model, step(model, rows), step(model, gone))
    left = {(row[field], row["order"], row["table"]) for row in store.result(model)}
    assert left == {(*key, -n) for n, key in enumerate(keys) if n % 2 == 0}
    store.sink(model).clear()
    assert store.is_cleared(model)


def test_names_that_no_table_can_have(store: Store) -> None:
    with pytest.raises(PipelineError, match=r"'windrow_epochs' is windrow's own"):
        store.sink(store.model(sink=store.settings("windrow_epochs")))
    with pytest.raises(PipelineError, match=r"U\+0000"):
        store.sink(store.model(aggregates=(Aggregate("a\x00", Count()),)))
    with pytest.raises(PipelineError, match="'total', which is not one of window_start, window_end, user"):
        store.sink(store.model(sink=store.settings(key=("total",))))


def test_each_kind_of_sink_is_tried() -> None:
    # topics have no tables: tests/connectors/kafka tries them
    assert {*SINKS} - {"kafka"} == {*KINDS["AnyStore"]} - {OUTBOX}


def test_a_key_can_have_the_name_of_a_column_of_an_outbox(store: TableStore) -> None:
    fields = (Field("id", StringType()), *FIELDS[1:])
    model = store.model(decode=Decode(fields), key=("id",), sink=store.settings(key=("id",)))
    committed(store, model, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    assert [row["id"] for row in store.result(model)] == ["A"]
