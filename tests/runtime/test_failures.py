"""What fails while it runs ends in one error that says what to do; what was committed stays, and it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from tests.contracts.stores import PostgresStore, SqliteStore, Store
from tests.graphs import as_graph
from tests.runtime.answers import assert_epochs, assert_same
from tests.runtime.runs import Runner, Scene, read
from tests.runtime.spend import Files, Topic, event, events, spend
from tests.short_forms import Pipeline
from tests.waiting import join, wait_until

from windrow.connectors.postgres.sink import PostgresTables
from windrow.connectors.sqlite.tables import SqliteTables
from windrow.engine.changelog import StepOutput
from windrow.errors import SetupError, SinkError, SinkUnavailableError, SourceError
from windrow.runtime.launch import launch
from windrow.runtime.run import Ended, RunSettings
from windrow.runtime.stream import run as stream_run
from windrow.runtime.stream.control import REST
from windrow.telemetry.reports import StepReport
from windrow.testing.servers.kafka import Kafka

pytestmark = pytest.mark.usefixtures("spark")

FIRST = [(partition, event(minute, f"u{partition}")) for minute in range(40) for partition in range(3)]
MORE = [(partition, event(minute, f"u{partition}")) for minute in range(40, 50) for partition in range(3)]


def until_it_fails(act: Callable[[], object], more: Callable[[], object]) -> Scene:
    """When the first records were read, break something, and have more to read."""
    yield read(len(FIRST))
    act()
    more()
    yield lambda _: False


def assert_goes_on(runner: Runner, store: Store, pipeline: Pipeline) -> None:
    runner.bounded(pipeline)
    assert_same(store, pipeline)
    assert_epochs(store)


def assert_one_message(exc: BaseException) -> None:
    """Nothing of Java's or Python's stacks is in it."""
    for noise in ("Traceback", "\tat ", "  File ", "org.apache", "Py4J", "SQLSTATE", "JVM"):
        assert noise not in str(exc)


def test_a_log_that_loses_records(files: Files, store: Store, runner: Runner, tmp_path: Path) -> None:
    files.append(FIRST)
    pipeline = spend(files.source, store.settings(), at_end="hold")
    part = tmp_path / "spend" / "partition-1.jsonl"
    whole = part.read_bytes()
    scene = until_it_fails(lambda: part.write_bytes(whole[:100]), lambda: files.append([MORE[0]]))
    with pytest.raises(
        SourceError,
        match=r"the log .* lost records: partition 1: .* was cut off, read up .*bring the file back",
    ) as caught:
        runner.live(pipeline, scene)
    assert_one_message(caught.value)
    part.write_bytes(whole)
    assert_goes_on(runner, store, pipeline)


def test_a_topic_that_is_deleted(
    kafka: Kafka, topic: Callable[..., str], store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_run, "LIMIT", 1.0)
    told: list[str] = []
    log = Topic(kafka, topic(3))
    log.append(FIRST)
    pipeline = spend(log.source, store.settings())

    def delete() -> None:
        admin = AdminClient({"bootstrap.servers": kafka.servers})
        admin.delete_topics([log.name])[log.name].result(30)

    with pytest.raises(SourceError, match=f"there is no topic {log.name} at") as caught:
        runner.live(pipeline, until_it_fails(delete, lambda: None), on_trouble=told.append)
    assert_one_message(caught.value)
    assert ["trying again" in line for line in told] == [True] * 3


def test_a_topic_that_lost_records_before_they_were_read(
    kafka: Kafka, topic: Callable[..., str], store: Store, runner: Runner
) -> None:
    log = Topic(kafka, topic(3))
    log.append(FIRST)
    pipeline = spend(log.source, store.settings(), at_end="hold")
    runner.bounded(pipeline)
    log.append(MORE)
    kafka.delete_before(log.name, 1, 45)
    message = (
        rf"the log {log.name} lost records: partition 1: offsets 40 to 44 are gone; the next record is at "
        r"offset 45\. What was committed stays.*--on-data-loss continue.*--fresh"
    )
    with pytest.raises(SourceError, match=message) as caught:
        runner.bounded(pipeline)
    assert_one_message(caught.value)
    assert len(store.changes(pipeline)) > 0


@pytest.mark.long
def test_a_broker_that_stays_away(
    kafka: Kafka, topic: Callable[..., str], store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_run, "LIMIT", 1.0)
    log = Topic(kafka, topic(3))
    log.append(FIRST)
    pipeline = spend(log.source, store.settings(), at_end="hold")
    try:
        with pytest.raises(SourceError, match=f"no Kafka broker can be reached at {kafka.servers}: ") as caught:
            runner.live(pipeline, until_it_fails(kafka.kill, lambda: None))
    finally:
        kafka.start()
    assert_one_message(caught.value)
    log.append(MORE)
    assert_goes_on(runner, store, pipeline)


def test_a_table_that_is_dropped(files: Files, store: SqliteStore, runner: Runner) -> None:
    files.append(FIRST)
    pipeline = spend(files.source, store.settings())
    scene = until_it_fails(lambda: store.query("DROP TABLE spend"), lambda: files.append(MORE))
    with pytest.raises(SinkError, match=r"no such table: .*spend.*what was committed before stays") as caught:
        runner.live(pipeline, scene)
    assert_one_message(caught.value)


def test_a_table_that_somebody_locks(files: Files, database: str, runner: Runner) -> None:
    """A statement that the database cancels is no stack trace, and costs nothing."""
    store = PostgresStore(database)
    files.append(FIRST)
    pipeline = spend(files.source, store.settings(), at_end="hold")
    with psycopg.connect(database) as other:

        def lock() -> None:
            other.execute("LOCK TABLE spend_changes IN ACCESS EXCLUSIVE MODE")
            cancel = "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE NOT granted AND relation = $1::regclass"
            threading.Thread(target=cancel_when_it_waits, args=(store, cancel), daemon=True).start()

        def cancel_when_it_waits(store: PostgresStore, cancel: str) -> None:
            while not store.query(cancel.replace("$1", "'spend_changes'")):
                pass

        with pytest.raises(SinkError, match=r"cancel.*what was committed before stays") as caught:
            runner.live(pipeline, until_it_fails(lock, lambda: files.append(MORE)))
    assert_one_message(caught.value)
    assert_goes_on(runner, store, pipeline)


@pytest.mark.parametrize("fault", [pytest.param(SinkError, marks=pytest.mark.long), SinkUnavailableError])
def test_a_step_that_spark_has_noted_and_the_tables_do_not_have(
    fault: type[SinkError], files: Files, store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken again, by this run if the fault may pass, and by the next one."""
    files.append(events(600))
    pipeline = spend(files.source, store.settings())
    table: Any = PostgresTables if isinstance(store, PostgresStore) else SqliteTables
    write, noted = table.commit, runner.checkpoint / "spark" / "commits" / "2"
    failures = [fault("the test's own")]

    def written(sink: object, epoch: int, rows: object) -> None:
        if epoch == 2 and failures:
            wait_until(noted.exists, "Spark's note of the step")
            raise failures.pop()
        write(sink, epoch, rows)

    monkeypatch.setattr(table, "commit", written)
    if fault.passes:
        runner.bounded(pipeline, max_records=100)
    else:
        with pytest.raises(SinkError, match="the test's own"):
            runner.bounded(pipeline, max_records=100)
        assert [report.epoch for report in runner.reports] == [0, 1]
        runner.bounded(pipeline, max_records=150)
        assert runner.reports[0].epoch == 2
    assert not failures
    assert_same(store, pipeline)
    assert_epochs(store)


def test_a_step_whose_commit_is_not_acknowledged_is_told(
    files: Files, store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has noted it and the tables have it, so it is not taken again."""
    feed = events(600)
    files.append(feed)
    pipeline = spend(files.source, store.settings())
    table: Any = PostgresTables if isinstance(store, PostgresStore) else SqliteTables
    write, commits = table.commit, runner.checkpoint / "spark" / "commits"
    lost = [2, 5]

    def written(sink: object, epoch: int, rows: object) -> None:
        write(sink, epoch, rows)
        if epoch in lost:
            lost.remove(epoch)
            wait_until((commits / str(epoch)).exists, "Spark's note of the step")
            msg = "the test's own"
            raise SinkUnavailableError(msg)

    monkeypatch.setattr(table, "commit", written)
    runner.bounded(pipeline, max_records=100)
    assert not lost
    assert [report.epoch for report in runner.reports] == list(range(len(runner.reports)))
    assert sum(report.events for report in runner.reports) == len(feed)
    assert sum(report.inserts for report in runner.reports) == sum(
        row["op"] == "insert" for row in store.changes(pipeline)
    )
    assert_same(store, pipeline)
    assert_epochs(store)


def test_python_that_is_not_there(
    files: Files, store: Store, runner: Runner, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.append(FIRST)
    pipeline = spend(files.source, store.settings())
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
        with pytest.raises(SetupError, match=r"^the driver has no Python /nowhere/python; choose one") as caught:
            runner.bounded(pipeline)
    assert_one_message(caught.value)
    assert_goes_on(runner, store, pipeline)


def test_a_run_in_a_thread_of_its_own(files: Files, store: Store, tmp_path: Path) -> None:
    feed = events(600)
    files.append(feed[:400])
    pipeline = spend(files.source, store.settings(), at_end="hold")
    reports: Queue[StepReport] = Queue()
    stops: Queue[Callable[[], None]] = Queue()
    ended: Queue[Ended] = Queue()
    options = RunSettings(tmp_path / "checkpoint", every=50_000)
    thread = threading.Thread(target=lambda: ended.put(launch(as_graph(pipeline), options, reports.put, stops.put)))
    thread.start()
    stop = stops.get(timeout=60)
    first = reports.get(timeout=240)
    assert first.events == 400
    files.append(feed[400:])
    while sum(reports.get(timeout=240).offsets.values()) < len(feed):
        pass
    stop()
    assert ended.get(timeout=240) == "asked"
    join(thread)
    assert_same(store, pipeline)
    assert_epochs(store)


def test_a_step_that_failed_for_its_size_is_taken_again_smaller(
    files: Files, store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.append(events(600))
    pipeline = spend(files.source, store.settings())
    commit = SqliteTables.commit

    def failing(sink: SqliteTables, epoch: int, output: StepOutput) -> None:
        if epoch == 1:
            msg = "too much"
            raise SinkError(msg)
        commit(sink, epoch, output)

    with monkeypatch.context() as broken:
        broken.setattr(SqliteTables, "commit", failing)
        with pytest.raises(SinkError, match="too much"):
            runner.bounded(pipeline, max_records=300)
    runner.bounded(pipeline, max_records=60)
    assert runner.reports[0].epoch == 1
    assert max(report.events for report in runner.reports) <= REST * 60
    assert_same(store, pipeline)
    assert_epochs(store)
