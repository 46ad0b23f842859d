"""Jobs that processes run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contracts.stores import PostgresStore, SqliteStore
from tests.faults.jobs import Job
from tests.hosts.spend import Files, Topic, spend

MakeJob = Callable[[str], tuple[Job, Files | Topic]]


@pytest.fixture
def make_job(request: pytest.FixtureRequest, tmp_path: Path) -> MakeJob:
    """Make a job with an empty log, held open at its end: from a log to SQLite, or from Kafka to PostgreSQL."""

    def make(kind: str) -> tuple[Job, Files | Topic]:
        if kind == "log to SQLite":
            log: Files | Topic = Files(tmp_path / "spend", 3)
            store: SqliteStore | PostgresStore = SqliteStore(tmp_path)
        else:
            log = Topic(request.getfixturevalue("kafka"), request.getfixturevalue("topic")(3))
            store = PostgresStore(request.getfixturevalue("database"))
        return Job(tmp_path, spend(log.source, store.settings()), store), log

    return make
