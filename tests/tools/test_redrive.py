"""Dead letters on the stream host: a run that resumes with a mended pipeline counts their copies, each once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.graphs import as_graph
from tests.runtime.conftest import MakeLog, MakeStore
from tests.runtime.runs import Runner
from tests.runtime.spend import event, spend
from tests.short_forms import Pipeline

from windrow.connectors.open_sinks import open_sinks
from windrow.model import Decode, SqliteSink
from windrow.runtime.memory import MemoryRun
from windrow.runtime.settings import SparkOptions
from windrow.runtime.stream.take_savepoint import take_savepoint
from windrow.tools.redrive.copies import Choice, Letter, list_letters, redrive

pytestmark = pytest.mark.usefixtures("spark")


def renamed(minute: float, user: str) -> bytes:
    return event(minute, user).replace(b'"amount"', b'"sum"')


def mended(pipeline: Pipeline) -> Pipeline:
    *others, amount = pipeline.decode.fields
    return replace(pipeline, decode=Decode((*others, replace(amount, alias=("sum",)))))


def places(letters: list[Letter]) -> list[tuple[int, int, str]]:
    return [(one.partition, one.offset, one.outcome) for one in letters]


def test_the_dead_letter_of_a_row_is_not_listed(make_log: MakeLog, make_store: MakeStore) -> None:
    log, store = make_log("log", 1), make_store("sqlite")
    pipeline = spend(log.source, store.settings())
    log.append([(0, b"{")])
    sink = open_sinks(as_graph(pipeline))
    assert MemoryRun(as_graph(pipeline), sink, None).run(lambda _: None) == "end"
    sink.close()
    store.query(f"INSERT INTO spend_dead VALUES ('{pipeline.source.label}', NULL, NULL, NULL, 'out of range: x', '')")
    assert [(one.reason, one.letters) for one in list_letters(as_graph(pipeline))[0]] == [("malformed", 1)]


@pytest.mark.parametrize("kind", [("log", "sqlite"), pytest.param(("kafka", "postgres"), marks=pytest.mark.long)])
def test_a_mended_run_has_the_numbers_of_a_replay(
    kind: tuple[str, str], make_log: MakeLog, make_store: MakeStore, runner: Runner, tmp_path: Path
) -> None:
    log, store = make_log(kind[0], 2), make_store(kind[1])
    before = spend(log.source, store.settings(), at_end="hold")
    log.append([(0, event(1, "a")), (0, renamed(2, "a")), (1, renamed(1, "b")), (1, b"{"), (1, event(8, "c"))])
    runner.bounded(before)
    sink = open_sinks(as_graph(before))
    saved = take_savepoint(as_graph(before), sink, runner.checkpoint, None, SparkOptions("local[*]"))
    sink.close()
    after = mended(before)
    other = Runner(runner.checkpoint.with_name("other"))
    log.append([(0, renamed(9, "d"))])
    other.bounded(after, savepoint=saved)
    plain = [(0, 1, "redriven"), (1, 0, "redriven"), (1, 1, "dead")]
    assert places(redrive(as_graph(after), Choice(), other.checkpoint, attempts=3, dry_run=True)) == plain
    assert places(redrive(as_graph(after), Choice(), other.checkpoint, attempts=3)) == plain
    again = redrive(as_graph(after), Choice(), other.checkpoint, attempts=3)
    assert places(again) == [(0, 1, "already"), (1, 0, "already"), (1, 1, "dead")]
    assert [(one.reason, one.letters, one.redriven) for one in list_letters(as_graph(after))[0]] == [
        ("missing", 2, 2),
        ("malformed", 1, 0),
    ]
    fired = replace(after, emit=replace(after.emit, at_end="fire"))
    other.bounded(fired)
    columns = "SELECT user_id, total, events FROM {} ORDER BY window_start, user_id"
    live = [(user, float(total), count) for user, total, count in store.query(columns.format("spend"))]
    assert live == [("a", 2.0, 2), ("b", 1.0, 1), ("c", 1.0, 1), ("d", 1.0, 1)]
    sqlite = SqliteSink(str(tmp_path / "replayed.db"), "spend")
    replayed = replace(fired, sink=sqlite)
    sink = open_sinks(as_graph(replayed))
    assert MemoryRun(as_graph(replayed), sink, None).run(lambda _: None) == "end"
    sink.close()
    with closing(sqlite3.connect(sqlite.path)) as db:
        assert [(u, float(t), n) for u, t, n in db.execute(columns.format("spend"))] == live
        reasons = db.execute("SELECT reason FROM spend_dead WHERE reason LIKE 'redriven%' ORDER BY 1").fetchall()
    assert reasons == [("redriven: the record at offset 0 counts",), ("redriven: the record at offset 1 counts",)]
