"""Faults of a realtime run under load: what is written in the end is what the memory host gives over the same log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest
from tests.faults.realtime_child import TAKEN_OVER
from tests.runtime.realtime_jobs import PIPELINES, Committed, ends_of, expected, feed, open_jobs, written
from tests.waiting import wait_until

from windrow.testing.servers.kafka import Kafka

ROOT = Path(__file__).parents[2]
_RECORDS = 150
_SECONDS = 180.0


class Children:
    """The processes that run a pipeline; the last one that was started has to go on."""

    def __init__(self, kafka: Kafka, topic: str, kind: str) -> None:
        self._kafka = kafka
        self._words = [kafka.servers, topic, f"p-{uuid4().hex[:8]}", kind]
        self.pipeline = PIPELINES[kind](*self._words[:3])
        self.committed = Committed(open_jobs(self.pipeline))
        self._children: list[subprocess.Popen[bytes]] = []
        self._fed = 0

    def start(self) -> None:
        """Start another process, which takes over."""
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        command = [sys.executable, "-m", "tests.faults.realtime_child", *self._words, f"run {len(self._children)}"]
        self._children.append(
            subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.DEVNULL)
        )

    def feed(self) -> None:
        """Append records to each partition."""
        feed(self._kafka, self._words[1], self._fed, _RECORDS, partitions=2)
        self._fed += _RECORDS

    def send(self, number: int) -> subprocess.Popen[bytes]:
        """Send a signal to the last process, and return it."""
        self._children[-1].send_signal(number)
        return self._children[-1]

    def wait_until_read(self) -> None:
        """Wait until the committed offsets are at the ends; fail if the last process has ended."""

        def is_read() -> bool:
            code = self._children[-1].poll()
            assert code is None, f"the run ended with exit code {code}"
            return self.committed.offsets() == ends_of(self.pipeline)

        wait_until(is_read, "the run", _SECONDS, 0.05)

    def kill_all(self) -> None:
        """End all processes."""
        for child in self._children:
            child.kill()
            child.wait(_SECONDS)


@contextmanager
def children(kafka: Kafka, topic: str, kind: str) -> Iterator[Children]:
    """Run a pipeline, and leave no process."""
    running = Children(kafka, topic, kind)
    try:
        running.start()
        yield running
    finally:
        running.kill_all()


def kill(running: Children, kafka: Kafka, chance: Random) -> None:
    """End the process at some moment; another one begins."""
    del kafka
    time.sleep(chance.random() / 5)
    running.send(signal.SIGKILL).wait(_SECONDS)
    running.feed()
    running.start()


def wake_a_zombie(running: Children, kafka: Kafka, chance: Random) -> None:
    """Stop the process in time, let another one take over, and wake it: it must end."""
    del kafka
    # one that has not begun would take over when it wakes
    running.wait_until_read()
    running.feed()
    time.sleep(chance.random() / 5)
    zombie = running.send(signal.SIGSTOP)
    running.start()
    running.feed()
    running.wait_until_read()
    running.feed()
    zombie.send_signal(signal.SIGCONT)
    assert zombie.wait(_SECONDS) == TAKEN_OVER


def restart_broker(running: Children, kafka: Kafka, chance: Random) -> None:
    """Kill the broker, with transactions open, and start it again."""
    time.sleep(chance.random() / 5)
    kafka.kill()
    kafka.start()
    running.feed()


FAULTS = (kill, kill, wake_a_zombie, restart_broker)


@pytest.mark.long
@pytest.mark.parametrize("number", range(13))
def test_faults_change_nothing(kafka: Kafka, topic: Callable[..., str], number: int) -> None:
    """Four faults a number: 52 in all."""
    chance = Random(number)
    kind = sorted(PIPELINES)[number % len(PIPELINES)]
    with children(kafka, topic(2), kind) as running:
        running.feed()
        for fault in chance.sample(FAULTS, k=len(FAULTS)):
            running.feed()
            if chance.random() < 0.5:
                running.wait_until_read()
                running.feed()
            fault(running, kafka, chance)
        running.wait_until_read()
    for name, values in expected(running.pipeline).items():
        assert written(kafka.servers, name) == values
