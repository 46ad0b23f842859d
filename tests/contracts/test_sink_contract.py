"""What every sink promises, tried on every sink."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.contracts import child
from tests.contracts.steps import DAY, FIELDS, MINUTE, RUN, change, step
from tests.contracts.stores import Row, Store

from windrow.core.output import StepOutput
from windrow.errors import PipelineError, SinkError
from windrow.model import Aggregate, Count, Field, Pipeline, StringType, Sum
from windrow.model.decode import Decode
from windrow.sinks.base import Run
from windrow.sinks.layout import EPOCHS


def brief(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Minute of the window, user, total, events, pane, revision."""
    names = ("user", "total", "events", "pane", "revision")
    return [((row["window_start"] - DAY) // MINUTE, *(row[name] for name in names)) for row in rows]


def committed(store: Store, model: Pipeline, *steps: StepOutput, run: Run = RUN) -> None:
    sink = store.sink(model)
    begin = sink.open(run)
    for epoch, output in enumerate(steps, 0 if begin is None else begin + 1):
        sink.commit(epoch, output)
    sink.close()


def test_a_new_sink_has_no_epoch_and_empty_tables(store: Store) -> None:
    model = store.model()
    sink = store.sink(model)
    assert sink.open(RUN) is None
    sink.close()
    for table in store.tables(model).all:
        assert store.read(table) == ([] if table.name != "windrow_tables" else [_owner("spend")])


def test_inserts_updates_and_deletes_fold_into_the_table(store: Store) -> None:
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


def test_the_last_change_of_a_step_decides(store: Store) -> None:
    model = store.model()
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


def test_the_changelog_keeps_every_change_in_order(store: Store) -> None:
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


def test_late_dead_and_clock_rows(store: Store) -> None:
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


def test_nul_in_a_reason_is_spelled_out(store: Store) -> None:
    model = store.model()
    committed(store, model, step(model, dead=[["spend", 0, 7, None, "wrong type: a \x00 b", b"\x00"]]))
    (row,) = store.read(store.tables(model).dead)
    assert (row["reason"], row["raw"]) == ("wrong type: a \\u0000 b", b"\x00")


def test_an_empty_step_commits_its_epoch(store: Store) -> None:
    model = store.model()
    committed(store, model, step(model), step(model))
    assert store.epochs() == [0, 1]
    assert store.result(model) == []
    assert all(abs((row["committed_at"] - DAY).days) < 100_000 for row in store.read(EPOCHS))


def test_a_repeated_epoch_changes_nothing(store: Store) -> None:
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


def test_open_returns_where_the_run_stopped(store: Store) -> None:
    model = store.model()
    committed(store, model, step(model), step(model), step(model))
    sink = store.sink(model)
    assert sink.open(RUN) == 2
    assert sink.open(RUN) == 2
    sink.commit(3, step(model))
    sink.close()
    sink.close()
    assert store.epochs() == [0, 1, 2, 3]


@pytest.mark.parametrize(("done", "epoch"), [(0, 1), (0, 7), (2, 3), (0, -1)])
def test_a_gap_in_the_epochs_is_refused(store: Store, done: int, epoch: int) -> None:
    model = store.model()
    sink = store.sink(model)
    sink.open(RUN)
    for k in range(done):
        sink.commit(k, step(model))
    with pytest.raises(SinkError, match=f"step {epoch} came .* waits for step {done}.*--fresh"):
        sink.commit(epoch, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    sink.close()
    assert store.epochs() == list(range(done))
    assert store.result(model) == []


def test_commit_before_open_is_refused(store: Store) -> None:
    model = store.model()
    with pytest.raises(SinkError, match="not open"):
        store.sink(model).commit(0, step(model))


@pytest.mark.parametrize("rows", [0, 1])
def test_another_run_is_refused_until_the_table_is_cleared(store: Store, rows: int) -> None:
    model = store.model()
    committed(store, model, step(model, [change("insert", 0, "A", Decimal(1), 1)] * rows))
    other = Run(RUN.pipeline, "run-2")
    sink = store.sink(model)
    with pytest.raises(SinkError, match=r"another run .*--checkpoint.*another table.*--fresh"):
        sink.open(other)
    sink.clear()
    assert sink.open(other) is None
    sink.commit(0, step(model, [change("insert", 0, "B", Decimal(2), 2)]))
    sink.close()
    assert brief(store.result(model)) == [(0, "B", Decimal(2), 2, "on_time", 0)]
    assert store.epochs("run-1") == []
    assert store.epochs("run-2") == [0]


def test_a_run_that_wrote_nothing_makes_way(store: Store) -> None:
    model = store.model()
    committed(store, model)
    committed(store, model, step(model), run=Run(RUN.pipeline, "run-2"))
    assert store.epochs("run-2") == [0]
    sink = store.sink(model)
    with pytest.raises(SinkError, match="another run"):
        sink.open(RUN)


def test_another_table_takes_another_run(store: Store) -> None:
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
    with pytest.raises(SinkError, match=r"steps 0 to 0 to other tables.*'spend_too' would miss"):
        store.sink(store.model(sink=store.settings("spend_too"))).open(RUN)


def test_another_pipeline_is_refused(store: Store) -> None:
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


def test_clear_of_what_is_not_there_does_nothing(store: Store) -> None:
    sink = store.sink(store.model())
    sink.clear()
    sink.clear()
    assert sink.open(RUN) is None
    sink.close()


def test_a_table_that_is_gone_is_noticed(store: Store) -> None:
    model = store.model()
    committed(store, model, step(model))
    store.query("DROP TABLE spend_late")
    with pytest.raises(SinkError, match=r"'spend_late' is gone.*steps 0 to 0"):
        store.sink(model).open(RUN)


def test_tables_that_were_all_dropped_make_way_for_a_new_run(store: Store) -> None:
    model = store.model()
    committed(store, model, step(model))
    for table in store.tables(model).own:
        store.query(f"DROP TABLE {table.name}")
    committed(store, model, step(model), run=Run("spend", "run-2"))
    assert store.epochs("run-2") == [0]


def test_a_run_that_lost_its_table_meanwhile_stops(store: Store) -> None:
    model = store.model()
    sink = store.sink(model)
    sink.open(RUN)
    store.query("UPDATE windrow_tables SET run = 'run-2'")
    with pytest.raises(SinkError, match="taken over"):
        sink.commit(0, step(model))
    sink.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TABLE spend DROP COLUMN total", "'spend' has no column 'total'"),
        ("ALTER TABLE spend_late ADD COLUMN note TEXT", "'spend_late' has a column 'note'"),
        (
            "DROP TABLE spend_clocks; CREATE TABLE spend_clocks (epoch TEXT)",
            "'epoch' of table 'spend_clocks' is (?i:text)",
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


def test_a_table_with_another_key_is_refused(store: Store) -> None:
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


def test_the_key_of_the_sink_decides_which_rows_are_one(store: Store) -> None:
    model = store.model(sink=store.settings(key=("user",)))
    rows = [change("insert", 5 * k, user, Decimal(k), k) for k in range(3) for user in "AB"]
    committed(store, model, step(model, rows), step(model, [change("insert", 20, "A", Decimal(9), 9)]))
    assert brief(store.result(model)) == [(10, "B", 2, 2, "on_time", 0), (20, "A", 9, 9, "on_time", 0)]


def test_names_that_sql_would_trip_over(store: Store) -> None:
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
    with pytest.raises(Exception, match=r"no such table|does not exist"):
        store.result(model)


def test_names_that_no_table_can_have(store: Store) -> None:
    with pytest.raises(PipelineError, match=r"'windrow_epochs' is windrow's own"):
        store.sink(store.model(sink=store.settings("windrow_epochs")))
    with pytest.raises(PipelineError, match=r"U\+0000"):
        store.sink(store.model(aggregates=(Aggregate("a\x00", Count()),)))
    with pytest.raises(PipelineError, match="'total', which is not one of window_start, window_end, user"):
        store.sink(store.model(sink=store.settings(key=("total",))))


def test_a_step_that_the_database_refuses_leaves_nothing(store: Store) -> None:
    model = store.model()
    committed(store, model, step(model, [change("insert", 0, "A", Decimal(1), 1)]))
    store.query("CREATE UNIQUE INDEX one_a_user ON spend (pane)")
    sink = store.sink(model)
    sink.open(RUN)
    rows = [change("insert", 5, "B", Decimal(1), 1)]
    with pytest.raises(SinkError, match=r"refused a row.*what was committed before stays"):
        sink.commit(1, step(model, rows, dead=[["spend", 0, 1, None, "malformed", b"x"]]))
    assert store.epochs() == [0]
    assert len(store.changes(model)) == 1
    assert store.read(store.tables(model).dead) == []
    store.query("DROP INDEX one_a_user")
    sink.commit(1, step(model, rows))
    sink.close()
    assert len(store.result(model)) == 2


def test_a_reader_sees_all_of_a_step_or_nothing(store: Store) -> None:
    model = store.model()
    users = [f"user-{n}" for n in range(200)]
    sink = store.sink(model)
    sink.open(RUN)
    done = threading.Event()
    seen: list[tuple[Any, ...]] = []

    def watch() -> None:
        last = False
        while not last:
            last = done.is_set()
            seen.extend(
                store.query(
                    "SELECT (SELECT count(*) FROM spend), (SELECT count(DISTINCT revision) FROM spend), "
                    "(SELECT coalesce(max(revision), -1) FROM spend), (SELECT count(*) FROM spend_changes), "
                    "(SELECT count(*) FROM windrow_epochs)"
                )
            )

    reader = threading.Thread(target=watch)
    reader.start()
    try:
        for epoch in range(30):
            op = "insert" if epoch == 0 else "update_after"
            sink.commit(epoch, step(model, [change(op, 0, user, Decimal(1), 1, revision=epoch) for user in users]))
    finally:
        done.set()
        reader.join()
        sink.close()
    assert {(rows, kinds) for rows, kinds, *_ in seen} <= {(0, 0), (200, 1)}
    assert all(changes == 200 * epochs and revision == epochs - 1 for _, _, revision, changes, epochs in seen)
    assert seen[-1] == (200, 1, 29, 6000, 30)
    assert all(before[4] <= after[4] for before, after in pairwise(seen))


def start_child(folder: Path, store: Store, model: Pipeline, steps: list[StepOutput]) -> subprocess.Popen[str]:
    paths = []
    for name, thing in (("sink", store.sink(model)), ("run", RUN), ("steps", steps)):
        path = folder / f"{name}.pickle"
        path.write_bytes(pickle.dumps(thing))
        paths.append(str(path))
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.contracts.child", *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )


def test_a_process_killed_within_a_commit_leaves_the_step_before(store: Store, tmp_path: Path) -> None:
    model = store.model()
    first = step(model, [change("insert", 0, "A", Decimal(1), 1)])
    rows = [change("update_after", 0, "A", Decimal(2), 2, revision=1), change("insert", 0, "B", Decimal(2), 2)]
    second = step(
        model, rows, dead=[["spend", 0, 1, None, "malformed", b"x"]], clocks=[["spend", 0, 1, DAY, DAY, "end"]]
    )
    committed(store, model, first)
    halting = child.Halting(second.changes, second.late, second.dead, second.clocks)
    store.kill_within_commit(lambda: start_child(tmp_path, store, model, [first, halting]))
    sink = store.sink(model)
    assert sink.open(RUN) == 0
    assert brief(store.result(model)) == [(0, "A", 1, 1, "on_time", 0)]
    assert len(store.changes(model)) == 1
    assert store.read(store.tables(model).dead) == []
    sink.commit(1, second)
    sink.close()
    assert brief(store.result(model)) == [(0, "A", 2, 2, "on_time", 1), (0, "B", 2, 2, "on_time", 0)]


def test_a_process_killed_at_any_time_leaves_whole_steps(store: Store, tmp_path: Path) -> None:
    model = store.model()
    users = [f"user-{n}" for n in range(500)]
    steps = [step(model, [change("insert", 5 * k, user, Decimal(k), k) for user in users]) for k in range(60)]
    for kill_after in (3, 7, 5):
        with start_child(tmp_path, store, model, steps) as process:
            assert process.stdout is not None
            for _ in range(kill_after):
                assert process.stdout.readline()
            process.kill()
    sink = store.sink(model)
    last = sink.open(RUN)
    sink.close()
    assert last is not None
    assert last >= 14
    assert store.epochs() == list(range(last + 1))
    assert [(row["epoch"], row["seq"]) for row in store.changes(model)] == [
        (epoch, seq) for epoch in range(last + 1) for seq in range(500)
    ]
    assert len(store.result(model)) == 500 * (last + 1)


def _owner(table: str) -> Row:
    return {"table_name": table, "pipeline": RUN.pipeline, "run": RUN.id}
