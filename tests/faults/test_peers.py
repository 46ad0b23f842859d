"""Peers that only keep connections open: a run takes its steps, and ends when it is asked to."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import socket
import threading
from pathlib import Path
from typing import Any, NoReturn
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession
from tests.contracts.stores import SqliteStore
from tests.faults.conftest import MakeJob, Trial
from tests.graphs import as_graph
from tests.runtime.runs import Scene, read
from tests.runtime.spend import events, spend
from tests.servers.hostile import half_open
from tests.waiting import join, wait_until

from windrow.connectors.sqlite.tables import SqliteTables
from windrow.errors import EngineError
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.runtime.stream import run as stream_run
from windrow.terminal.listening import CONNECTIONS
from windrow.testing.servers.process import free_port

FEED = events(600)
FIRST, REST = FEED[:300], FEED[300:]


@pytest.mark.usefixtures("spark")
def test_half_open_connections_stop_no_step(make_job: MakeJob) -> None:
    job, log = make_job("log to SQLite")
    log.append(FIRST)
    port = free_port()
    with job.start("--listen", f":{port}", "--every", "100ms") as process:
        process.wait_until(lambda: job.committed() > 0)
        descriptors = Path(f"/proc/{process.pid}/fd")
        before = len(os.listdir(descriptors))  # noqa: PTH208 - quick
        limit = before + CONNECTIONS + 60
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        with half_open(port, limit + 100):
            done = job.committed()
            log.append(REST)
            process.wait_until(lambda: job.committed() > done)
            with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
                assert json.load(answer)["state"] == "running"
            assert len(os.listdir(descriptors)) <= limit - 20  # noqa: PTH208 - quick
            process.send(signal.SIGTERM)
            assert process.wait() == 0, f"{process.output}{process.errors}"


class NoDescriptors:
    """Stands in for a listening socket in a process that has no descriptors left: nothing can be accepted."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening

    def accept(self) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any of a socket
        return getattr(self._listening, name)


def test_a_lost_call_of_spark_is_a_fault(trial: Trial, spark: SparkSession) -> None:
    pipeline = spend(trial.files.source, SqliteStore(trial.folder).settings(), at_end="hold")
    trial.files.append(FIRST)
    trial.runner.bounded(pipeline)
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - no other way
    server = gateway._callback_server  # noqa: SLF001 - the same
    server.server_socket = NoDescriptors(server.server_socket)
    trial.files.append(REST)
    told: list[str] = []

    def scene() -> Scene:
        yield read(len(FEED))

    trial.runner.live(pipeline, scene(), on_trouble=told.append)
    (fault,) = told
    assert "Spark's call of this process for a step was lost" in fault
    assert trial.runner.reports


@pytest.mark.usefixtures("spark")
def test_a_step_that_never_ends_does_not_keep_a_run_that_is_asked_to_stop(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over = threading.Event(), threading.Event()

    def commit(*_: object) -> NoReturn:
        begun.set()
        over.wait()
        raise OSError

    monkeypatch.setattr(SqliteTables, "commit", commit)
    monkeypatch.setattr(stream_run, "_STEP", 0.2)
    monkeypatch.setattr(stream_run, "_LEAVE", 0.1)
    trial.files.append(FIRST)
    pipeline = as_graph(spend(trial.files.source, SqliteStore(trial.folder).settings()))
    stops: list[Any] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            launch(pipeline, RunSettings(trial.runner.checkpoint), lambda _: None, stops.append)
        except EngineError as exc:
            failures.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(begun.is_set, "a commit", seconds=300)
        stops[0]()
        join(thread)
    finally:
        over.set()
    assert "the step did not end within 0.2 s of the request to stop" in str(failures[0])
