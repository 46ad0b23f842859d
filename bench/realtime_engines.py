"""The engines of ``bench/realtime.py``: how each is started, and how its alerts are seen.

All run the rules of ``examples/fraud`` on the same topic: windrow's realtime host and Spark's real-time mode into
another topic, and windrow's stream host into SQLite.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.processes import members
from confluent_kafka import Consumer, TopicPartition
from tests.faults.windrow_process import WindrowProcess

from windrow.tools.generate.fraud import BLOCKED_LIST

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "fraud" / "pipeline.yaml"
_SQLITE_EVERY = 0.005


class Alert(NamedTuple):
    """When an alert was seen, in nanoseconds, its partition if that is known, and the id of its purchase."""

    seen: int
    partition: int
    purchase: str


@dataclass(frozen=True)
class Place:
    """What an engine reads, and a folder for what it writes; `batch` is how long a batch of Spark's takes."""

    servers: str
    topic: str
    partitions: int
    folder: Path
    batch: str

    @property
    def blocked(self) -> Path:
        """The list of blocked merchants."""
        return self.folder / "blocked.csv"

    @property
    def pipeline(self) -> Path:
        """The pipeline, of windrow's engines."""
        return self.folder / "pipeline.yaml"

    @property
    def database(self) -> Path:
        """The table of alerts, of the stream host."""
        return self.folder / "alerts.db"

    @property
    def alerts(self) -> str:
        """The topic of alerts, of the others."""
        return f"{self.topic}.alerts"

    def prepare(self) -> None:
        """Write the list."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.blocked.write_bytes(BLOCKED_LIST)

    def write_pipeline(self, **changes: str) -> None:
        """Write the pipeline of the example for this place, with other lines in place of those that begin so."""
        changes = {
            "name:": f"name: {self.topic}",
            "source:": f'source: {{kafka: {{servers: "{self.servers}", topic: {self.topic}}}}}',
            "lists:": f"lists: {{blocked: {{file: {self.blocked}, key: value}}}}",
            **{f"{key}:": line for key, line in changes.items()},
        }
        lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
        written = [next((new for key, new in changes.items() if line.startswith(key)), line) for line in lines]
        self.pipeline.write_text("\n".join(written) + "\n", encoding="utf-8")


class Alerts(Protocol):
    """Sees alerts as they come."""

    def poll(self, seconds: float) -> list[Alert]:
        """Return those that come next, after so many seconds at the latest."""

    def close(self) -> None:
        """End."""


class KafkaAlerts:
    """Reads the committed records of a topic."""

    def __init__(self, place: Place) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": place.servers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(place.alerts, number, 0) for number in range(place.partitions)])

    def poll(self, seconds: float) -> list[Alert]:
        """Return the next one."""
        message = self._consumer.poll(seconds)
        seen = time.time_ns()
        value = None if message is None or message.error() else message.value()
        if message is None or value is None:
            return []
        alert = json.loads(value)
        return [] if alert.get("op") == "delete" else [Alert(seen, message.partition() or 0, alert["subject"])]

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


class SqliteAlerts:
    """Looks for the changes of steps that were not there before."""

    def __init__(self, place: Place) -> None:
        self._file = place.database
        self._connection: sqlite3.Connection | None = None
        self._epoch = -1

    def poll(self, seconds: float) -> list[Alert]:
        """Return those of the next steps."""
        deadline = time.monotonic() + seconds
        while not (rows := self._rows()) and time.monotonic() < deadline:
            time.sleep(_SQLITE_EVERY)
        seen = time.time_ns()
        self._epoch = max((epoch for epoch, _ in rows), default=self._epoch)
        return [Alert(seen, 0, subject) for _, subject in rows]

    def _rows(self) -> list[tuple[int, str]]:
        if self._connection is None:
            if not self._file.exists():
                return []
            self._connection = sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, isolation_level=None)
        asked = "SELECT epoch, subject FROM alerts_changes WHERE epoch > ? AND op IN ('insert', 'update_after')"
        with suppress(sqlite3.OperationalError):  # it is not there yet
            return self._connection.execute(asked, (self._epoch,)).fetchall()
        return []

    def close(self) -> None:
        """Leave the database."""
        if self._connection is not None:
            self._connection.close()


@dataclass(frozen=True)
class Engine:
    """An engine: how to prepare a place for it and with which arguments of Python it runs there, and its alerts."""

    title: str
    command: Callable[[Place], list[str]]
    alerts: Callable[[Place], Alerts]


def _realtime(place: Place) -> list[str]:
    sink = f'sink: {{kafka: {{servers: "{place.servers}", topic: {place.alerts}, commit: 10ms}}}}'
    place.write_pipeline(sink=sink)
    return _windrow(place)


def _micro_batch(place: Place) -> list[str]:
    place.write_pipeline(sink=f"sink: {{sqlite: {{path: {place.database}, table: alerts}}}}", mode="mode: micro-batch")
    return _windrow(place)


def _windrow(place: Place) -> list[str]:
    return ["-m", "windrow", "run", str(place.pipeline), "--checkpoint", str(place.folder / "checkpoint"), "--json"]


def _spark(place: Place) -> list[str]:
    script = str(ROOT / "bench" / "peers" / "pyspark" / "realtime.py")
    return [script, place.servers, place.topic, str(place.partitions), place.batch, str(place.folder)]


ENGINES = {
    "realtime": Engine("windrow, realtime host", _realtime, KafkaAlerts),
    "spark": Engine("Spark, real-time mode", _spark, KafkaAlerts),
    "micro-batch": Engine("windrow, stream host into SQLite", _micro_batch, SqliteAlerts),
}


class Started(WindrowProcess):
    """An engine that runs, by the arguments of Python."""

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        super().__init__(words, folder, (sys.executable,))

    def require_alive(self) -> None:
        """Raise RuntimeError with its last words if it has ended."""
        if self.ended:
            message = f"the engine ended: {(self.output + self.errors)[-3000:]}"
            raise RuntimeError(message)

    def workers(self) -> list[int]:
        """Return its Python workers, the busiest first."""
        found = {}
        for pid in members(self.pid):
            with suppress(OSError):  # it ended meanwhile
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                if b"fork_server" in words:
                    found[pid] = (int(fields[1]), int(fields[11]) + int(fields[12]))
        # a worker is a fork of the daemon, which is one of the server; all have the same command
        forks = [pid for pid, (parent, _) in found.items() if parent in found and found[parent][0] in found]
        return sorted(forks, key=lambda pid: -found[pid][1])


@contextmanager
def running(engine: Engine, place: Place) -> Iterator[tuple[Started, Alerts]]:
    """Run an engine, for as long as it lasts."""
    words = engine.command(place)
    with Started(words, place.folder) as started, closing(engine.alerts(place)) as alerts:
        yield started, alerts
