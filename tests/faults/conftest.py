"""Jobs that processes run, seeds of what is random, and the count of the faults that were injected.

WINDROW_FAULT_SEED chooses other faults; a failure says which it was.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

import pytest
from tests.contracts.stores import PostgresStore, SqliteStore
from tests.faults.jobs import GraphJob, Job, PipelineJob, TwoLogs
from tests.runtime.runs import Runner
from tests.runtime.spend import Files, Topic, spend
from tests.runtime.two_logs import MIXED, open_logs

MakeJob = Callable[..., tuple[Job, Files | Topic | TwoLogs]]
"""Takes a kind, and what happens at the end of the input."""
Injected = Callable[[str], None]

_SEED = int(os.environ.get("WINDROW_FAULT_SEED", "20260101"))
_COUNTS = pytest.StashKey[Counter[str]]()


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> Random:
    """Return this test's own random numbers, the same in each run with one seed."""
    return Random(f"{_SEED} {request.node.name}")


@pytest.fixture
def injected(request: pytest.FixtureRequest) -> Injected:
    """Return what counts a fault that was injected, by its kind."""
    counts = request.config.stash.setdefault(_COUNTS, Counter())

    def count(kind: str) -> None:
        counts[kind] += 1

    return count


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Say with each failure how to have the same faults again."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined] # pluggy's, which is not typed here
    if report.failed and Path(__file__).parent in item.path.parents:
        report.sections.append(("the same faults again", f"WINDROW_FAULT_SEED={_SEED} pytest '{item.nodeid}'"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how many faults of each kind were injected."""
    counts = config.stash.get(_COUNTS, Counter())
    if counts:
        terminalreporter.section(f"{counts.total()} faults injected, seed {_SEED}")
        for kind, count in sorted(counts.items()):
            terminalreporter.write_line(f"{count:6} {kind}")


@pytest.fixture
def make_job(request: pytest.FixtureRequest, tmp_path: Path) -> MakeJob:
    """Make a job with an empty log: `log to SQLite`, `Kafka to PostgreSQL`, or `joins to SQLite` with two logs."""

    def make(kind: str, at_end: Literal["fire", "hold"] = "fire") -> tuple[Job, Files | Topic | TwoLogs]:
        if kind == "joins to SQLite":
            logs = open_logs(tmp_path)
            return GraphJob(tmp_path, MIXED, logs, at_end), TwoLogs(logs)
        if kind == "log to SQLite":
            log: Files | Topic = Files(tmp_path / "spend", 3)
            store: SqliteStore | PostgresStore = SqliteStore(tmp_path)
        else:
            log = Topic(request.getfixturevalue("kafka"), request.getfixturevalue("topic")(3))
            store = PostgresStore(request.getfixturevalue("database"))
        return PipelineJob(tmp_path, spend(log.source, store.settings(), at_end=at_end), store), log

    return make


@dataclass(frozen=True)
class Trial:
    """What a test in this process needs: a log of three partitions, and a run with one checkpoint."""

    folder: Path
    files: Files
    runner: Runner
    chance: Random
    injected: Injected


@pytest.fixture
def trial(tmp_path: Path, chance: Random, injected: Injected) -> Trial:
    """Return a new log and a run with a new checkpoint."""
    return Trial(tmp_path, Files(tmp_path / "spend", 3), Runner(tmp_path / "checkpoint"), chance, injected)
