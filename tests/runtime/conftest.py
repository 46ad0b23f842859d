"""The logs and stores that the stream host is tried on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contracts.stores import PostgresStore, SqliteStore, Store
from tests.runtime.runs import Runner
from tests.runtime.spend import Files, Log, Topic

MakeLog = Callable[[str, int], Log]
MakeStore = Callable[[str], Store]


@pytest.fixture
def make_log(request: pytest.FixtureRequest, tmp_path: Path) -> MakeLog:
    """Make a new log, `log` or `kafka`, with that many partitions."""

    def make(kind: str, partitions: int) -> Log:
        if kind == "log":
            return Files(tmp_path / "spend", partitions)
        return Topic(request.getfixturevalue("kafka"), request.getfixturevalue("topic")(partitions))

    return make


@pytest.fixture
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Return an empty database, `sqlite` or `postgres`."""

    def make(kind: str) -> Store:
        return SqliteStore(tmp_path) if kind == "sqlite" else PostgresStore(request.getfixturevalue("database"))

    return make


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A new embedded log with three partitions."""
    return Files(tmp_path / "spend", 3)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A new SQLite file."""
    return SqliteStore(tmp_path)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Runs pipelines with one checkpoint."""
    return Runner(tmp_path / "checkpoint")
