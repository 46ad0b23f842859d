"""A broker that stops and starts while a run reads from it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue

import pytest
from tests.contracts.stores import SqliteStore
from tests.faults.conftest import Trial
from tests.faults.truth import assert_reports_true
from tests.graphs import as_graph
from tests.runtime.answers import assert_epochs, assert_same
from tests.runtime.spend import Topic, events, spend

from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.telemetry.reports import StepReport
from windrow.testing.servers.kafka import Kafka

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.long]

SECONDS = 400


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_broker_that_comes_back(how: str, number: int, trial: Trial, kafka: Kafka, topic: Callable[..., str]) -> None:
    """The run is in a thread: a server lives no longer than the thread that starts it."""
    del number  # it is in the seed
    log, store = Topic(kafka, topic(3)), SqliteStore(trial.folder)
    feed = events(1500)
    log.append(feed[:1000])
    pipeline = spend(log.source, store.settings(), at_end="hold")
    reports: Queue[StepReport] = Queue()
    stops: Queue[Callable[[], None]] = Queue()
    failures: Queue[BaseException | None] = Queue()
    options = RunSettings(trial.runner.checkpoint, every=50_000, max_records=100)

    def run() -> None:
        try:
            launch(as_graph(pipeline), options, reports.put, stops.put)
            failures.put(None)
        except BaseException as exc:  # noqa: BLE001 - the test raises it
            failures.put(exc)

    threading.Thread(target=run, daemon=True).start()
    stop = stops.get(timeout=SECONDS)
    told = [reports.get(timeout=SECONDS) for _ in range(trial.chance.randrange(1, 4))]  # in the midst of what is there
    if how == "stopped":
        kafka.stop()
    else:
        kafka.kill()
    kafka.start()
    trial.injected(f"Kafka {how} and started")
    log.append(feed[1000:])
    while sum(told[-1].offsets.values()) < len(feed):
        assert failures.empty(), failures.get()
        told.append(reports.get(timeout=SECONDS))
    stop()
    failure = failures.get(timeout=SECONDS)
    assert failure is None, failure
    assert_reports_true(store, told)
    trial.runner.bounded(pipeline)
    assert_same(store, pipeline)
    assert_epochs(store)
