"""Every sink writes all of a step or nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.contracts import child
from tests.contracts.steps import DAY, RUN, change, step
from tests.contracts.stores import AnyStore, Store, brief, committed
from tests.short_forms import Pipeline
from tests.waiting import join

from windrow.engine.changelog import StepOutput
from windrow.errors import SinkError


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
        join(reader)
        sink.close()
    assert {(rows, kinds) for rows, kinds, *_ in seen} <= {(0, 0), (200, 1)}
    assert all(changes == 200 * epochs and revision == epochs - 1 for _, _, revision, changes, epochs in seen)
    assert seen[-1] == (200, 1, 29, 6000, 30)
    assert all(before[4] <= after[4] for before, after in pairwise(seen))


def start_child(folder: Path, store: AnyStore, model: Pipeline, steps: list[StepOutput]) -> subprocess.Popen[str]:
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


def test_a_process_killed_within_a_commit_leaves_the_step_before(store: AnyStore, tmp_path: Path) -> None:
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


def test_a_process_killed_at_any_time_leaves_whole_steps(store: AnyStore, tmp_path: Path) -> None:
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
    assert last is not None
    # of a step that was cut short, a table may have its rows already, and then ignores them
    last += 1
    sink.commit(last, steps[last])
    sink.close()
    assert last >= 14
    assert store.epochs() == list(range(last + 1))
    assert [(row["epoch"], row["seq"]) for row in store.changes(model)] == [
        (epoch, seq) for epoch in range(last + 1) for seq in range(500)
    ]
    assert len(store.result(model)) == 500 * (last + 1)
