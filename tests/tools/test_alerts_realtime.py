"""The alerts of a realtime run, each provoked against a real broker, and resolved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from tests.runtime.realtime_jobs import purchases
from tests.runtime.receivers import appending, lines
from tests.runtime.test_realtime import PIPELINE, windrow, workers
from tests.waiting import wait_until

from windrow.errors import InputError
from windrow.telemetry.history import history_of, read_alerts, read_history
from windrow.telemetry.reports import Alert
from windrow.testing.servers.kafka import Kafka

ALERTS = """\
alerts:
  lag: {{records: 100, for: 2s}}
  no-step: 2s
  sink-errors: 2s
  partition-idle: 2s
  command: {command}
"""
NAMES = ["lag", "no-step", "partition-idle", "sink-errors"]


@dataclass
class Feed:
    """Produces purchases to a topic, a record at a time, and looks at what a run has written meanwhile."""

    kafka: Kafka
    topic: str
    checkpoint: Path
    sent: Path
    fed: int = 0

    def produce(self, *partitions: int, count: int = 1) -> None:
        for partition in partitions:
            self.kafka.produce(self.topic, partition, purchases(self.fed, count, partition))
        self.fed += count

    def go_on(self, until: Callable[[], bool], *partitions: int) -> None:
        """Produce to these partitions until a condition holds."""

        def look() -> bool:
            self.produce(*partitions)
            return until()

        wait_until(look, "the alerts to change", 120, 0.1)

    def alerts(self) -> dict[str, Alert]:
        """Return how each alert that was sent stood last."""
        return {one.name: one for one in map(Alert.of_plain, lines(self.sent))}

    def raised(self, *names: str) -> Callable[[], bool]:
        return lambda: all(name in self.alerts() for name in names)

    def all_resolved(self) -> bool:
        return not any(one.is_active for one in self.alerts().values())

    def all_read(self) -> bool:
        """Return whether one of the last reports counts records of both partitions."""
        try:
            steps = read_history(history_of(self.checkpoint), last=5)
        except InputError:
            return False
        return any(one.read.get(0) and one.read.get(1) for one in steps)


@pytest.mark.long
@pytest.mark.service
def test_each_alert_of_a_realtime_run(kafka: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    feed = Feed(kafka, topic(2), tmp_path / "checkpoint", tmp_path / "alerts.jsonl")
    file = tmp_path / "pipeline.yaml"
    text = PIPELINE.format(name=f"p-{uuid4().hex[:8]}", servers=kafka.servers, topic=feed.topic)
    file.write_text(text + ALERTS.format(command=appending(feed.sent)))
    command = [sys.executable, "-m", "windrow", "run", str(file), "--checkpoint", str(feed.checkpoint)]
    with (
        (tmp_path / "stderr").open("w") as errors,
        subprocess.Popen([*command, "--master", "local[2]"], stderr=errors) as run,
        ExitStack() as stack,
    ):
        stack.callback(run.kill)
        feed.go_on(feed.all_read, 0, 1)
        feed.go_on(feed.raised("partition-idle"), 0)
        stalled = workers(run.pid)
        for worker in stalled:
            os.kill(worker, signal.SIGSTOP)
        feed.produce(0, 1, count=300)
        wait_until(feed.raised("lag", "no-step"), "alerts of a stopped worker", 120, 0.1)
        for worker in stalled:
            os.kill(worker, signal.SIGCONT)
        kafka.stop()
        try:
            wait_until(feed.raised("sink-errors"), "the alert of a stopped broker", 120, 0.1)
        finally:
            kafka.start()
        feed.go_on(feed.all_resolved, 0, 1)
        windrow("stop", str(file))
        assert run.wait(60) == 0
    # the first of each: after the restart a partition can be idle once more
    said = {one.name: one for one in reversed(read_alerts(history_of(feed.checkpoint)))}
    assert sorted(said) == sorted(feed.alerts()) == NAMES
    assert "no records have arrived from partition 1 for " in said["partition-idle"].message
    assert "; the limit is 100 records, exceeded since " in said["lag"].message
    assert f"whether one partition is behind, or all of them (`windrow status {file}`)" in said["lag"].message
    assert " wait, and no step was committed for " in said["no-step"].message
    assert f"whether the brokers and Spark answer (`windrow status {file}`, and" in said["no-step"].message
    # a broker that is about to be there answers, but knows no leaders yet
    unreachable = ("no Kafka broker can be reached at ", "cannot be read now: ")
    assert any(one in said["sink-errors"].message for one in unreachable)
    assert "First check whether the brokers answer" in said["sink-errors"].message
