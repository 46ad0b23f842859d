"""The stream host gives the oracle's answer, from every source to every sink."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.contracts.stores import SqliteStore, Store
from tests.runtime.answers import assert_epochs, assert_same, assert_same_values, expected_of, micros
from tests.runtime.conftest import MakeLog, MakeStore
from tests.runtime.runs import Runner, Scene, read
from tests.runtime.spend import HOUR, MINUTE, Files, event, events, spend

from windrow.runtime.spark.transport import is_one_process
from windrow.runtime.stream import query as query_module
from windrow.runtime.stream import run as stream_run
from windrow.runtime.stream.control import REST
from windrow.tools.generate.spec import START

pytestmark = pytest.mark.usefixtures("spark")


def test_a_query_interprets_its_expressions_and_the_session_goes_on_compiling(
    files: Files, store: Store, runner: Runner, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    found: list[list[str | None]] = []

    class Watched(query_module.SinkWriter):
        def __call__(self, frame: DataFrame, batch: int) -> None:
            found.append([frame.sparkSession.conf.get(name) for name in names])
            super().__call__(frame, batch)

    monkeypatch.setattr(stream_run, "SinkWriter", Watched)
    spark.conf.set(names[1], "FALLBACK")
    files.append(events(30))
    try:
        runner.bounded(spend(files.source, store.settings()))
        assert [spark.conf.get(name, None) for name in names] == [None, "FALLBACK"]
    finally:
        spark.conf.unset(names[1])
    assert set(map(tuple, found)) == {("false", "NO_CODEGEN")}


@pytest.mark.parametrize(
    ("kind", "into"),
    [
        ("log", "sqlite"),
        ("kafka", "postgres"),
        pytest.param("log", "postgres", marks=pytest.mark.long),
        pytest.param("kafka", "sqlite", marks=pytest.mark.long),
    ],
)
def test_a_bounded_run_gives_the_oracles_answer(
    kind: str, into: str, make_log: MakeLog, make_store: MakeStore, runner: Runner
) -> None:
    log, store = make_log(kind, 3), make_store(into)
    log.append(events(3000))
    pipeline = spend(log.source, store.settings())
    assert runner.bounded(pipeline, max_records=1000) == "end"
    found = assert_same(store, pipeline)
    # all that can become of a record is in it
    assert found.on_time
    assert found.late
    assert {"malformed", "not an object", "missing", "null", "wrong type", "out of range"} <= set(found.dead.values())
    assert max(int(str(row[-1])) for row in found.table.values()) > 0
    # three or four steps of records, and the end
    read_in_all = sum(report.events for report in runner.reports)
    assert read_in_all == sum(runner.reports[-1].offsets.values()) > 3000
    assert max(report.events for report in runner.reports) <= REST * 1000
    assert_epochs(store, len(runner.reports))
    assert [report.epoch for report in runner.reports] == list(range(len(runner.reports)))
    clocks = store.read(store.tables(pipeline).clocks)
    assert [(row["partition"], row["reason"]) for row in clocks] == [(0, "end"), (1, "end"), (2, "end")]
    assert [row["offset"] for row in clocks] == list(runner.reports[-1].offsets.values())


def test_a_run_leaves_no_state_store_open(
    files: Files, store: Store, runner: Runner, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would write on from them."""
    loaded: list[list[bool]] = []

    def watched(spark: SparkSession, query: StreamingQuery, checkpoint: Path) -> None:
        is_loaded = query_module.state_package(spark).StateStore.isLoaded
        loaded.append([is_loaded(one) for one in query_module.stores_of(spark, query, checkpoint)])
        query_module.close_stores(spark, query, checkpoint)
        loaded.append([is_loaded(one) for one in query_module.stores_of(spark, query, checkpoint)])

    monkeypatch.setattr(stream_run, "close_stores", watched)
    files.append(events(300))
    runner.bounded(spend(files.source, store.settings()))
    assert is_one_process(spark)
    assert loaded[0]
    assert loaded == [[True] * len(loaded[0]), [False] * len(loaded[0])]


@pytest.mark.parametrize(
    ("kind", "into"), [pytest.param("log", "sqlite", marks=pytest.mark.long), ("kafka", "postgres")]
)
def test_a_live_run_goes_on_until_it_is_asked_to_stop_and_then_from_there(
    kind: str, into: str, make_log: MakeLog, make_store: MakeStore, runner: Runner
) -> None:
    log, store = make_log(kind, 3), make_store(into)
    feed = events(3000)
    log.append(feed[:1000])
    pipeline = spend(log.source, store.settings(), at_end="hold")

    def scene() -> Scene:
        first = yield read(1000)
        log.append(feed[1000:1500])
        second = yield read(1500)
        assert None is not first.low_watermark < (second.low_watermark or 0)  # type: ignore[operator]
        log.append(feed[1500:2000])
        yield read(2000)

    assert runner.live(pipeline, scene(), max_records=700) == "asked"
    steps = len(runner.reports)
    assert_same(store, pipeline)
    assert_epochs(store, steps)

    log.append(feed[2000:])  # while nobody reads

    def rest() -> Scene:
        yield read(len(feed))

    assert runner.live(pipeline, rest()) == "asked"
    # Spark may not have noted the last step when it was stopped: that is taken again, and counted once
    assert next(report for report in runner.reports if report.records).epoch == steps
    found = assert_same(store, pipeline)
    assert found.late
    assert_epochs(store, steps + len(runner.reports))
    assert store.read(store.tables(pipeline).clocks) == []


def test_a_bounded_run_that_is_run_again_revises_what_its_end_has_fired(
    files: Files, store: Store, runner: Runner
) -> None:
    feed = events(1000, users=3, duration=2 * HOUR)
    files.append(feed[:500])
    pipeline = spend(files.source, store.settings())
    runner.bounded(pipeline)
    first = assert_same(store, pipeline)
    open_then = {key for key in first.table if int(str(key[1])) > max(r.low_watermark or 0 for r in runner.reports)}
    files.append(feed[500:])
    runner.bounded(pipeline)
    second = assert_same_values(store, pipeline)
    revised = {key for key, changes in second.changelog.items() if key in open_then and len(changes) > 1}
    assert revised
    assert {change.pane for key in revised for change in second.changelog[key][1:]} == {"late"}
    # a third run has nothing to read, and changes nothing
    runner.bounded(pipeline)
    assert assert_same_values(store, pipeline) == second
    assert_epochs(store)


def test_windows_that_are_held_at_the_end_fire_when_the_log_goes_on(files: Files, store: Store, runner: Runner) -> None:
    feed = events(1000)
    files.append(feed[:500])
    pipeline = spend(files.source, store.settings(), at_end="hold")
    runner.bounded(pipeline, max_records=300)
    first = assert_same(store, pipeline)
    files.append(feed[500:])
    runner.bounded(pipeline)
    assert len(assert_same(store, pipeline).on_time) > len(first.on_time) > 0
    # how a bounded run ends may change: now the rest fires
    fire = spend(files.source, store.settings())
    runner.bounded(fire)
    assert_same(store, fire)
    assert_epochs(store)


@pytest.mark.parametrize(
    ("kind", "into"), [pytest.param("log", "sqlite", marks=pytest.mark.long), ("kafka", "postgres")]
)
def test_a_partition_that_is_added_while_it_runs_joins_at_the_low_watermark(
    kind: str, into: str, make_log: MakeLog, make_store: MakeStore, runner: Runner
) -> None:
    log, store = make_log(kind, 2), make_store(into)
    log.append([(0, event(0)), (1, event(1, "u2")), (0, event(60)), (1, event(50, "u2"))])
    pipeline = spend(log.source, store.settings(), lateness=10 * HOUR)

    epochs: list[int] = []  # a step may come while records are being appended

    def scene() -> Scene:
        before = yield read(4)
        assert before.low_watermark == START + 40 * MINUTE
        epochs.append(before.epoch)
        log.grow(3)
        # on time by its own partition, late by the low watermark at which that joined, and the window has fired
        log.append([(2, event(3)), (2, event(44, "u3")), (2, event(100))])
        after = yield read(7)
        assert after.low_watermark == START + 40 * MINUTE
        epochs.append(after.epoch)
        log.append([(0, event(120)), (1, event(110, "u2"))])
        last = yield read(9)
        assert last.low_watermark == START + 90 * MINUTE

    assert runner.live(pipeline, scene()) == "asked"
    [joined] = store.read(store.tables(pipeline).clocks)
    assert epochs[0] < joined["epoch"] <= epochs[1]
    assert (joined["partition"], joined["offset"], joined["reason"]) == (2, 0, "joined")
    assert micros(joined["low_watermark"]) == START + 40 * MINUTE
    assert micros(joined["clock"]) == START + 50 * MINUTE
    # one more, while nobody reads
    log.grow(4)
    log.append([(3, event(61)), (3, event(62, "u3"))])
    runner.bounded(pipeline)
    assert_same_values(store, pipeline)
    rows = store.read(store.tables(pipeline).clocks)
    assert [(row["partition"], row["reason"]) for row in rows] == [
        (2, "joined"),
        (3, "joined"),
        *((partition, "end") for partition in range(4)),
    ]
    [change] = [row for row in store.changes(pipeline) if row["op"] == "update_after" and row["pane"] == "late"][:1]
    assert (change["user_id"], change["events"], change["revision"]) == ("u00001", 2, 1)


def test_a_partition_without_a_record_holds_the_windows_open(files: Files, store: Store, runner: Runner) -> None:
    files.append([(partition, value) for partition, value in events(600) if partition != 1])
    pipeline = spend(files.source, store.settings(), at_end="hold")
    runner.bounded(pipeline)
    assert runner.reports[-1].low_watermark is None
    assert assert_same(store, pipeline).table == {}
    fire = spend(files.source, store.settings())
    runner.bounded(fire)
    assert_same(store, fire)


@pytest.mark.parametrize("late", ["each", pytest.param("batch", marks=pytest.mark.long)])
def test_steps_of_any_size_give_the_same(late: str, files: Files, tmp_path: Path) -> None:
    files.append(events(600, users=10))
    answers = []
    for size in (1000, 130):
        folder = tmp_path / str(size)
        folder.mkdir()
        store = SqliteStore(folder)
        pipeline = spend(files.source, store.settings(), late=late)
        Runner(folder / "checkpoint").bounded(pipeline, max_records=size)
        answers.append(assert_same(store, pipeline))
    assert answers[0].on_time == answers[1].on_time == expected_of(pipeline).on_time
