"""From a purchase to the alert about it, in real time: ``python bench/realtime.py``.

The rules of ``examples/fraud`` (travel, amount, burst, blocked merchant) on windrow's realtime host, beside Spark's
real-time mode with the same rules in SQL, and windrow's stream host. An engine begins with a history in the topic; when
it has gone through that, so many purchases a second come for a while, at each of the rates in turn. The latency is from
before a purchase is handed to the producer until its alert is there: at a consumer of committed records, or for the
stream host in its table, all by one clock. The first seconds at each rate are not counted. The last column says by how
much a sleep of 1 ms was late meanwhile: how busy the machine was.

Then the realtime host is killed at the last rate: one Python worker, and later everything, which is started again at
once. That is from the kill to the next alert of the partition that waits longest; at the end all alerts are compared
with those of the memory host over the same log.

The broker is that of the tests, on this machine. Writes what it found to ``bench/results``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from bench.closings import percentile
from bench.compare import machine, today, versions
from bench.peers import report
from bench.peers.results import AlertRun, Crashes, Results
from bench.realtime_engines import ENGINES, Alert, Alerts, Place, Started, running
from bench.realtime_feed import QUANTILES, READY
from tests.runtime.realtime_jobs import Written, expected, written

from windrow.authoring.load import open_pipeline
from windrow.testing.servers.kafka import Kafka

RESULTS = Path(__file__).parent / "results"
_START = 240.0
_QUIET, _DRAIN = 3.0, 60.0
"""An engine is through when nothing has come for so long; and after so long in any case."""
_CRASHES = (15.0, 35.0)
"""When the worker and when everything is killed, after the begin of the load, in seconds."""
_CRASH_SECONDS = 75.0
_IN_FLIGHT = 0.1
"""Seconds after a kill in which alerts arrive that were written before."""


class Feeder:
    """The process that produces purchases (``realtime_feed.py``)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._line("its history")

    def begin(self) -> None:
        """Begin the next phase."""
        if self._process.stdin is not None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def end(self) -> tuple[dict[str, int], dict[str, float]]:
        """Wait for the end of the phase; return when each purchase was handed over, and how late sleeps were."""
        told = json.loads(self._line("the end of a phase"))
        with np.load(told["file"]) as found:
            sent = dict(zip(found["id"].tolist(), found["sent"].tolist(), strict=True))
        return sent, {f"p{part}": late for part, late in zip(QUANTILES, told["late"], strict=True)}

    def _line(self, what: str) -> str:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            message = f"the feeder ended before {what}"
            raise RuntimeError(message)
        return line


@contextmanager
def feeder(place: Place, rates: Sequence[int], seconds: float, given: argparse.Namespace) -> Iterator[Feeder]:
    """Start a feeder, and wait until the history is there."""
    words = [str(Path(__file__).with_name("realtime_feed.py")), "--servers", place.servers, "--topic", place.topic]
    words += ["--partitions", str(place.partitions), "--history", str(given.history), "--cards", str(given.cards)]
    words += ["--fraud-share", str(given.fraud_share), "--rates", *map(str, rates), "--seconds", str(seconds)]
    words += ["--folder", str(place.folder)]
    with subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Feeder(process)
        finally:
            process.kill()


class Watch:
    """Gathers an engine's alerts."""

    def __init__(self, started: Started, alerts: Alerts) -> None:
        self.started = started
        self._alerts = alerts
        self.seen: list[Alert] = []

    def until_ready(self, partitions: int) -> None:
        """Wait for the last alerts of the history."""
        deadline, ready = time.monotonic() + _START, set[str]()
        while len(ready) < partitions:
            ready |= {one.purchase for one in self._alerts.poll(0.5) if one.purchase.startswith(READY)}
            self.started.require_alive()
            if time.monotonic() > deadline:
                message = f"the engine has not gone through its history in {_START:.0f} s"
                raise RuntimeError(message)
        self.seen.clear()

    def follow(self, seconds: float) -> None:
        """Gather what comes for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.seen += self._alerts.poll(0.05)

    def drain(self) -> None:
        """Gather until nothing comes any more."""
        deadline = time.monotonic() + _DRAIN
        last = time.monotonic()
        while time.monotonic() < min(last + _QUIET, deadline):
            more = self._alerts.poll(0.05)
            self.seen += more
            last = time.monotonic() if more else last


def measure(name: str, place: Place, given: argparse.Namespace) -> Iterator[AlertRun]:
    """Run an engine through all rates."""
    seconds = given.warm + given.seconds
    with feeder(place, given.rates, seconds, given) as feeding, running(ENGINES[name], place) as (started, alerts):
        watch = Watch(started, alerts)
        watch.until_ready(place.partitions)
        for rate in given.rates:
            watch.seen.clear()
            feeding.begin()
            watch.follow(seconds)
            watch.drain()
            sent, sleep = feeding.end()
            started.require_alive()
            found = latencies(watch.seen, sent, given.warm)
            quantiles = {f"p{part}": percentile(found, part) for part in QUANTILES}
            shown = {**quantiles, "max": max(found, default=math.nan)}
            yield AlertRun(name, place.partitions, rate, len(found), shown, sleep)


def latencies(alerts: Sequence[Alert], sent: dict[str, int], warm: float) -> list[float]:
    """Return the milliseconds of alerts about purchases that were handed over after the warm-up.

    An alert that is seen again does not count.
    """
    since = min(sent.values(), default=0) + round(warm * 1e9)
    first: dict[str, int] = {}
    for one in alerts:
        first.setdefault(one.purchase, one.seen)
    return [(seen - sent[name]) / 1e6 for name, seen in first.items() if name in sent and sent[name] >= since]


def crash(place: Place, given: argparse.Namespace) -> Crashes:
    """Kill a worker of the realtime host, and later everything; compare the alerts with those of the memory host."""
    engine, rate = ENGINES["realtime"], given.crash_rate
    killed: dict[str, int] = {}
    with feeder(place, [rate], _CRASH_SECONDS, given) as feeding, running(engine, place) as (started, alerts):
        watch = Watch(started, alerts)
        watch.until_ready(place.partitions)
        feeding.begin()
        watch.follow(_CRASHES[0])
        os.kill(started.workers()[0], signal.SIGKILL)
        killed["worker"] = time.time_ns()
        watch.follow(_CRASHES[1] - _CRASHES[0])
        killed["everything"] = time.time_ns()
        started.kill()
        with Started(engine.command(place), place.folder) as again:
            watch.follow(_CRASH_SECONDS - _CRASHES[1])
            watch.drain()
            again.require_alive()
        feeding.end()
    seconds = {name: silence(watch.seen, at, place.partitions) for name, at in killed.items()}
    wanted = expected(open_pipeline(str(place.pipeline)).runnable())[place.alerts]
    differences = Differences.of(written(place.servers, place.alerts), wanted)
    return Crashes(place.partitions, rate, seconds, sum(map(len, wanted.values())), **vars(differences))


def silence(alerts: Sequence[Alert], killed: int, partitions: int) -> float:
    """Return the seconds from a kill to the next alert, of the partition that waits longest; infinite without one."""
    since = killed + round(_IN_FLIGHT * 1e9)
    first: dict[int, int] = {}
    for one in alerts:
        if one.seen > since:
            first.setdefault(one.partition, one.seen)
    return max((first.get(number, math.inf) - killed) / 1e9 for number in range(partitions))


@dataclass(frozen=True)
class Differences:
    """How many changes of alerts are not there, are there more than once, and should not be there."""

    missing: int
    repeated: int
    others: int

    @staticmethod
    def of(found: Written, wanted: Written) -> Differences:
        """Compare what was written with what should have been."""
        there, right = (
            Counter((key, one) for key, values in some.items() for one in values) for some in (found, wanted)
        )
        more = there - right
        repeated = sum(times for change, times in more.items() if change in right)
        return Differences((right - there).total(), repeated, more.total() - repeated)


def _measure_all(kafka: Kafka, folder: Path, given: argparse.Namespace, results: Results) -> None:
    numbers = count()

    def place(partitions: int) -> Place:
        topic = f"purchases-{next(numbers)}"
        made = Place(kafka.servers, topic, partitions, folder / topic, given.batch)
        made.prepare()
        for topic in (made.topic, made.alerts):
            kafka.create_topic(topic, partitions, {"message.timestamp.type": "LogAppendTime"})
        return made

    for name in given.engines:
        # its latency is of another magnitude, which partitions hardly move
        some = given.partitions[-1:] if name == "micro-batch" else given.partitions
        for partitions in some:
            for case in measure(name, place(partitions), given):
                results.alerts.append(case)
                _save(results, given.out)
                print(report.alert_row(case), flush=True)
    if not given.no_crash:
        results.crashes.append(crash(place(given.partitions[-1]), given))
        _save(results, given.out)


def _save(results: Results, file: Path | None) -> None:
    if file is not None:
        results.save(file)


def _is_slow(crashes: Crashes) -> bool:
    return any(seconds > report.RECOVERY[name] for name, seconds in crashes.seconds.items())


def main() -> int:
    """Measure, print a table, and return 1 if windrow has lost or repeated an alert, or was too slow to come back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="*", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 1_000, 3_000], help="purchases a second")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=60, help="how long each rate is measured")
    parser.add_argument("--warm", type=float, default=15, help="seconds at each rate that are not counted")
    parser.add_argument("--history", type=int, default=300_000, help="purchases that are there before")
    parser.add_argument("--cards", type=int, default=100_000)
    parser.add_argument("--fraud-share", type=float, default=0.15, help="of the purchases that begin a case of fraud")
    parser.add_argument("--batch", default="2 minutes", help="how long a batch of Spark's real-time mode takes")
    parser.add_argument("--crash-rate", type=int, default=1_000, help="purchases a second while processes are killed")
    parser.add_argument("--no-crash", action="store_true", help="kill nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / f"realtime-{today()}.json", help="(default: %(default)s)")
    parser.add_argument("--no-out", dest="out", action="store_const", const=None, help="write no file")
    given = parser.parse_args()
    options = {name: str(value) for name, value in vars(given).items() if name != "out"}
    results = Results(today(), machine(), versions(), options)
    with tempfile.TemporaryDirectory(prefix="windrow-realtime-") as folder:
        kafka = Kafka(Path(folder) / "kafka")
        kafka.start()
        try:
            _measure_all(kafka, Path(folder), given, results)
        finally:
            kafka.stop()
    print("", *report.alerts(results), "", *report.crashes(results), sep="\n")
    return int(any(one.missing or one.repeated or one.others or _is_slow(one) for one in results.crashes))


if __name__ == "__main__":
    sys.exit(main())
