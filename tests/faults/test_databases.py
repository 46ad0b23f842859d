"""A database that goes away for a while, or that somebody holds, ends no run; what it wrote is right."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest
from psycopg import conninfo
from tests.contracts.stores import PostgresStore, SqliteStore, Store
from tests.faults.conftest import Trial
from tests.faults.proxy import Proxy
from tests.faults.truth import assert_reports_true
from tests.runtime.answers import assert_epochs, assert_same
from tests.runtime.runs import Scene, read
from tests.runtime.spend import events, spend
from tests.short_forms import Pipeline
from tests.waiting import SECONDS, join

from windrow.errors import SinkUnavailableError
from windrow.runtime.stream import run as stream_run
from windrow.testing.servers.postgres import Postgres

pytestmark = pytest.mark.usefixtures("spark")

FEED = events(900)
FIRST, REST = FEED[:500], FEED[500:]


def play(trial: Trial, pipeline: Pipeline, break_it: Callable[[], object], mend_it: Callable[[], object]) -> list[str]:
    """Break something in a live run that has read a part, and mend it when the run says so; return what it said."""
    told: list[str] = []

    def on_trouble(message: str) -> None:
        told.append(message)
        if len(told) == 1:
            mend_it()

    def scene() -> Scene:
        yield read(len(FIRST))
        break_it()
        trial.files.append(REST)
        yield read(len(FEED))

    trial.files.append(FIRST)
    trial.runner.live(pipeline, scene(), on_trouble=on_trouble)
    return told


def assert_right(store: Store, pipeline: Pipeline, trial: Trial) -> None:
    assert_reports_true(store, trial.runner.reports)
    assert sum(report.events for report in trial.runner.reports) == len(FEED)  # each step was told once
    trial.runner.bounded(pipeline)
    assert_same(store, pipeline)
    assert_epochs(store)


def nothing() -> None:
    pass


def test_postgresql_that_is_started_again(trial: Trial, postgres: Postgres, database: str) -> None:
    store = PostgresStore(database)
    pipeline = spend(trial.files.source, store.settings(), at_end="hold")
    told = play(trial, pipeline, postgres.kill, postgres.start)
    trial.injected("PostgreSQL killed and started")
    assert "PostgreSQL at 127.0.0.1:" in told[0]
    assert told[0].endswith("; trying again in 0.5 s")
    assert_right(store, pipeline, trial)


@pytest.mark.long
def test_postgresql_that_stays_away(
    trial: Trial, postgres: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_run, "LIMIT", 1.0)
    store = PostgresStore(database)
    pipeline = spend(trial.files.source, store.settings(), at_end="hold")
    try:
        with pytest.raises(SinkUnavailableError, match=r"cannot connect to PostgreSQL at .*check that it runs"):
            play(trial, pipeline, postgres.kill, nothing)
    finally:
        postgres.start()
    trial.injected("PostgreSQL away for good")
    trial.runner.bounded(pipeline)
    assert_same(store, pipeline)
    assert_epochs(store)


@pytest.mark.long
def test_connections_that_are_ended(trial: Trial, database: str) -> None:
    store = PostgresStore(database)
    pipeline = spend(trial.files.source, store.settings(), at_end="hold")
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
    told = play(trial, pipeline, lambda: store.query(f"{others} pg_backend_pid()"), nothing)
    trial.injected("PostgreSQL's connections ended")
    assert "terminating connection due to administrator command" in told[0]
    assert_right(store, pipeline, trial)


@pytest.mark.long
@pytest.mark.parametrize("number", range(8))
def test_connections_that_are_cut_anywhere(number: int, trial: Trial, database: str) -> None:
    """In a COPY, between statements, within COMMIT: then nobody knows whether it was done until the fence is asked."""
    del number  # it is in the seed
    address = conninfo.conninfo_to_dict(database)
    store = PostgresStore(database)
    with Proxy(int(str(address["port"]))) as proxy:
        through = PostgresStore(f"postgresql://{address['user']}@127.0.0.1:{proxy.port}/{address['dbname']}")
        pipeline = spend(trial.files.source, through.settings(), at_end="hold")
        wanted = 6

        def cut_again(_: object) -> bool:
            if proxy.cuts < wanted and not proxy.is_armed:
                proxy.cut_after(trial.chance.randrange(20_000))
            return False

        def scene() -> Scene:
            yield lambda report: cut_again(report) or sum(report.offsets.values()) >= len(FEED)

        trial.files.append(FEED)
        told: list[str] = []
        trial.runner.live(pipeline, scene(), 50, on_trouble=told.append)
        for _ in range(proxy.cuts):
            trial.injected("PostgreSQL's connections cut by the byte")
        assert proxy.cuts > 0
        assert told
        assert_right(store, pipeline, trial)


@pytest.mark.long
@pytest.mark.parametrize(("code", "said"), [("40001", "could not serialize"), ("40P01", "deadlock")])
def test_a_transaction_that_the_database_gives_up(code: str, said: str, trial: Trial, database: str) -> None:
    store = PostgresStore(database)
    pipeline = spend(trial.files.source, store.settings(), at_end="hold")

    def refuse_twice() -> None:
        store.query(
            "CREATE SEQUENCE refused; "  # what a sequence gives is not taken back
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF nextval('refused') <= 2 THEN RAISE EXCEPTION '{said}' USING ERRCODE = '{code}'; END IF; "
            "RETURN NEW; END $$; "
            "CREATE TRIGGER refuse BEFORE INSERT ON windrow_epochs FOR EACH ROW EXECUTE FUNCTION refuse()"
        )

    told = play(trial, pipeline, refuse_twice, nothing)
    trial.injected(f"PostgreSQL's error {code}")
    trial.injected(f"PostgreSQL's error {code}")
    assert len(told) == 2
    assert said in told[0]
    assert_right(store, pipeline, trial)


@pytest.mark.long
def test_a_lock_that_is_held_too_long(trial: Trial, database: str) -> None:
    store = PostgresStore(database)
    pipeline = spend(trial.files.source, store.settings(), at_end="hold")
    with psycopg.connect(database) as other:
        lock = "LOCK TABLE spend_changes IN ACCESS EXCLUSIVE MODE"
        told = play(trial, pipeline, lambda: other.execute(lock), other.rollback)
    trial.injected("PostgreSQL's table locked")
    assert "canceling statement due to lock timeout: another session holds a lock" in told[0]
    assert_right(store, pipeline, trial)


@pytest.mark.long
def test_another_writer_of_sqlite(trial: Trial) -> None:
    store = SqliteStore(trial.folder)
    pipeline = spend(trial.files.source, store.settings(), at_end="hold")
    ready, let_go = threading.Event(), threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(store.path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            ready.set()
            let_go.wait(SECONDS)
            db.execute("ROLLBACK")

    writer = threading.Thread(target=write)

    def begin() -> None:
        writer.start()
        assert ready.wait(SECONDS), "waited for the lock"

    told = play(trial, pipeline, begin, let_go.set)
    join(writer)
    trial.injected("SQLite busy")
    assert "is locked by another writer" in told[0]
    assert_right(store, pipeline, trial)
