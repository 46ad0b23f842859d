"""From the event that closes a window to its rows in PostgreSQL, live: ``python bench/latency.py``.

So many events a second of 10,000 users go to a Kafka topic with 4 partitions (``bench/feed.py``), and ``windrow run``
takes them into PostgreSQL (``bench/live_run.py``, a process of its own). A window closes when the last partition's
watermark reaches its end: the clock starts when the record that does so is handed to the producer. It stops when
another connection, which asks every 5 ms for the newest window in the table, sees it. Windows are no multiple of a
second long, so that they close at any moment of a step. What closed in the first half minute after the first rows were
there is not counted: code is compiled, and the events that came meanwhile are worked off.

PostgreSQL and the broker are those of the tests: on this machine, PostgreSQL without fsync.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import psycopg
from bench.closings import closed, latencies, percentile
from bench.pipelines import from_kafka, into_postgres, main_job

from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres

PARTITIONS = 4
GOAL, GOAL_RATE = 1.5, 20_000
_POLL = 0.005
_START = 180.0
_LAST = 60.0
_PARTS = ("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "took", "commitOffsets")


@dataclass(frozen=True)
class Case:
    """Events a second, and with which settings windrow runs: options of `windrow run`, and key groups."""

    rate: int
    key_groups: int = 8
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called in the table."""
        words = [f"key_groups: {self.key_groups}"] if self.key_groups != Case(0).key_groups else []
        return ", ".join([*words, *([" ".join(self.options)] if self.options else [])]) or "defaults"


@dataclass(frozen=True)
class Seen:
    """Of one case: the seconds of each window from hand-over and from the broker's word, and the steps (`live_run`)."""

    case: Case
    handed: list[float]
    acked: list[float]
    steps: list[dict[str, Any]]
    sent: int


@contextmanager
def _process(file: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run another file of this folder, in the environment of this one; nothing is left of it."""
    command = [sys.executable, str(Path(__file__).with_name(file)), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _end(process: subprocess.Popen[str]) -> Any:  # noqa: ANN401 - plain JSON
    """Ask for the end by the end of stdin; return what was printed."""
    printed, _ = process.communicate(timeout=_LAST)
    if process.returncode:
        msg = f"{process.args!r} ended with {process.returncode}"
        raise RuntimeError(msg)
    return json.loads(printed.splitlines()[-1])


class Reader:
    """Looks for the newest window on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self.seen: list[tuple[float, int]] = []
        """When a newer window was there than before, and its start in milliseconds."""

    def watch(self, seconds: float, process: subprocess.Popen[str], until: float = inf) -> None:
        """Look for so long, or until a window that begins so late is there."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            began = time.monotonic()
            newest = self._newest()
            if newest > (self.seen[-1][1] if self.seen else -1):
                self.seen.append((time.monotonic(), newest))
            if newest >= until:
                return
            if process.poll() is not None:
                msg = f"the run ended by itself with {process.returncode}"
                raise RuntimeError(msg)
            time.sleep(max(0.0, began + _POLL - time.monotonic()))

    def _newest(self) -> int:
        try:
            row = self._connection.execute("SELECT max(window_start) FROM user_spend").fetchone()
        except psycopg.errors.UndefinedTable:
            return -1
        return -1 if row is None or row[0] is None else round(1000 * row[0].timestamp())


def text_of(case: Case, servers: str, topic: str, url: str, given: argparse.Namespace) -> str:
    """Return the pipeline of a case."""
    return main_job(
        from_kafka(servers, topic),
        into_postgres(url, "user_spend"),
        time=f"delay: {given.delay}ms, future: 1h",
        window=f"{{tumbling: {given.window}ms}}",
        emit="lateness: 1m",
        key_groups=case.key_groups,
    )


def measure(case: Case, kafka: Kafka, postgres: Postgres, number: int, given: argparse.Namespace) -> Seen:
    """Run one case."""
    topic, database = f"spend-{number}", f"latency_{number}"
    kafka.create_topic(topic, PARTITIONS)
    url = postgres.create_database(database)
    text = text_of(case, kafka.servers, topic, url, given)
    feeding = ["--servers", kafka.servers, "--topic", topic, "--rate", str(case.rate), "--users", str(given.users)]
    feeding += ["--partitions", str(PARTITIONS), "--size", str(given.window), "--delay", str(given.delay)]
    with tempfile.TemporaryDirectory(prefix="windrow-latency-") as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(text)
        with _process("live_run.py", str(file), *case.options) as run, _process("feed.py", *feeding) as feeder:
            reader = Reader(url)
            reader.watch(_START, run, until=0)
            reader.watch(given.warm, run)
            since = time.monotonic()
            reader.watch(given.seconds, run)
            fed = _end(feeder)
            handed, acked = ([_by_start(one) for one in fed[name]] for name in ("handed", "acked"))
            reader.watch(_LAST, run, until=max(closed(handed), default=0))
            steps = _end(run)
    postgres.drop_database(database)
    from_handed, from_acked = (list(latencies(closed(one), reader.seen, since).values()) for one in (handed, acked))
    return Seen(case, from_handed, from_acked, [step for step in steps if step["at"] >= since], fed["sent"])


def _by_start(moments: dict[str, float]) -> dict[int, float]:
    return {int(start): moment for start, moment in moments.items()}


def _line(seen: Seen) -> str:
    values = seen.handed
    shown = (percentile(values, 50), percentile(values, 90), percentile(values, 99), max(values, default=inf))
    took = [step["triggerExecution"] / 1000 for step in seen.steps] or [float("nan")]
    # the run that cannot keep up has windows that took for ever
    return (
        f"{seen.case.rate:8,}  {seen.case.name:34} {len(values):7}"
        + "".join(f"{one:7.2f}" for one in shown)
        + f"  {statistics.median(took):6.2f}{percentile(took, 99):7.2f}"
    )


def _steps(seen: Seen) -> str:
    """Say where the time of a step goes, in the median."""
    if not seen.steps:
        return "  too few steps"
    of = {name: statistics.median(step.get(name, 0.0) for step in seen.steps) for name in ("triggerExecution", *_PARTS)}
    said = ", ".join(f"{name} {of[name]:.0f}" for name in _PARTS)
    records = statistics.median(step["records"] for step in seen.steps)
    return f"  a step of {records:,.0f} events: {of['triggerExecution']:.0f} ms in the median: {said}"


def arguments() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, GOAL_RATE], help="events a second")
    parser.add_argument("--seconds", type=float, default=150, help="how long each case is measured")
    parser.add_argument("--warm", type=float, default=30, help="seconds that are not counted")
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--window", type=int, default=1070, help="milliseconds")
    parser.add_argument("--delay", type=int, default=1000, help="milliseconds")
    parser.add_argument("--every", nargs="+", default=["100ms"], help="besides the defaults")
    parser.add_argument("--key-groups", type=int, nargs="+", default=[os.cpu_count() or 2], help="the same")
    parser.add_argument("--out", help="a file that a line of JSON is added to for each case")
    return parser


def main() -> int:
    """Measure the cases, and print a line for each; return 1 if the best at the goal's rate misses the goal."""
    given = arguments().parse_args()
    settings: Sequence[tuple[int, tuple[str, ...]]] = [(Case(0).key_groups, ())]
    settings = [*settings, *((Case(0).key_groups, ("--every", every)) for every in given.every)]
    settings = [*settings, *((groups, ("--every", every)) for every in given.every for groups in given.key_groups)]
    numbers = count()
    missed = []
    with tempfile.TemporaryDirectory(prefix="windrow-kafka-") as folder:
        kafka, postgres = Kafka(Path(folder)), Postgres()
        try:
            kafka.start()
            postgres.start()
            print("events/s  settings                           windows    p50    p90    p99    max  step s:  p99")
            for rate in given.rates:
                for groups, options in settings:
                    seen = measure(Case(rate, groups, options), kafka, postgres, next(numbers), given)
                    print(f"{_line(seen)}\n{_steps(seen)}", flush=True)
                    if given.out:
                        with Path(given.out).open("a") as file:
                            file.write(json.dumps(asdict(seen)) + "\n")
                    if rate == GOAL_RATE:
                        missed.append(percentile(seen.handed, 99) >= GOAL)
        finally:
            kafka.stop()
            postgres.remove()
    if missed:
        print(f"p99 below {GOAL} s at {GOAL_RATE:,} events/s: {'missed' if all(missed) else 'met'}")
    return 1 if missed and all(missed) else 0


if __name__ == "__main__":
    sys.exit(main())
