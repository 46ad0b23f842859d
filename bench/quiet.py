"""What a live pipeline takes while little comes: ``python bench/quiet.py``, with a rate of each run.

A deduplicate and a window, from four partitions of Kafka to PostgreSQL, a step a second, in one ``windrow run``; with
``--pipelines 20`` so many of them, each with its own topic and tables. After the warm-up it prints the CPU seconds a
minute and the memory of the driver, Spark's JVM and the Python workers, and how many steps were taken.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from bench.pipelines import from_kafka, into_postgres
from bench.processes import CpuMeter, shares_by_kind
from tests.faults.windrow_process import WindrowProcess

from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres

PARTITIONS = 4
_EVENTS = 200
"""Events before the measure, so that each partition has a watermark."""


def pipeline(name: str, servers: str, url: str, idle: str, key_groups: int) -> str:
    """Return the text of a pipeline, whose topic and table have its name."""
    return f"""\
name: {name}
key_groups: {key_groups}
sources:
  purchases:
    source: {from_kafka(servers, name)}
    decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
    time: {{field: event_time, delay: 10s, future: 1h, idle: {idle}}}
    lateness: 1m
streams:
  unique: {{from: purchases, deduplicate: {{by: [user_id, event_time, amount], within: 1m}}}}
  spend:
    from: unique
    key: user_id
    window: {{tumbling: 1m}}
    aggregate: {{total: sum(amount), events: count()}}
    emit: {{lateness: 1m}}
sinks:
  out: {{from: spend, sink: {into_postgres(url, name)}}}
"""


@dataclass(frozen=True)
class Taken:
    """What the driver, the JVM and the workers took: CPU seconds a minute, and MiB at the end; and steps a minute."""

    cpu: Sequence[float]
    memory: Sequence[float]
    steps: float

    def __str__(self) -> str:
        kinds = ("driver", "jvm", "workers")
        spent, held = (
            ", ".join(f"{kind} {value:,.{digits}f}" for kind, value in zip(kinds, values, strict=True))
            for values, digits in ((self.cpu, 1), (self.memory, 0))
        )
        return (
            f"{sum(self.cpu):.1f} CPU s a minute ({spent}), {sum(self.memory):,.0f} MiB ({held}), "
            f"{self.steps:.0f} steps a minute"
        )


@contextmanager
def events(servers: str, topic: str, rate: int, folder: Path) -> Iterator[None]:
    """Give a topic so many events a second meanwhile, after those that set the watermarks."""
    target = f"kafka://{servers}/{topic}"
    with WindrowProcess(("generate", target, "--events", f"{_EVENTS}", "--rate", f"{_EVENTS}"), folder) as first:
        first.wait()
    if not rate:
        yield
        return
    with WindrowProcess(("generate", target, "--rate", f"{rate}"), folder):
        yield


def measure(
    folder: Path, rate: int, pipelines: int, *, warm: float, seconds: float, idle: str, key_groups: int
) -> Taken:
    """Run pipelines for some seconds after the warm-up; return what that took."""
    kafka, postgres = Kafka(folder / "kafka"), Postgres()
    kafka.start()
    postgres.start()
    try:
        url = postgres.create_database("spend")
        names = [f"spend{number}" for number in range(pipelines)]
        with ExitStack() as stack:
            for name in names:
                kafka.create_topic(name, PARTITIONS)
                feeder = folder / name
                feeder.mkdir()
                stack.enter_context(events(kafka.servers, name, rate, feeder))
            file = folder / "pipelines.yaml"
            file.write_text("---\n".join(pipeline(name, kafka.servers, url, idle, key_groups) for name in names))
            run = stack.enter_context(WindrowProcess(("run", file), folder))
            run.wait_until(lambda: all(_epochs(url, name) >= 0 for name in names))
            run.linger(warm)
            began, meter, epochs = time.monotonic(), CpuMeter(run.pid), sum(_epochs(url, name) for name in names)
            while time.monotonic() < began + seconds:
                run.linger(1)
                meter.look()
            minutes = (time.monotonic() - began) / 60
            spent = [used / minutes for used in meter.seconds]
            steps = (sum(_epochs(url, name) for name in names) - epochs) / minutes
            if run.ended:
                raise RuntimeError(run.errors)
            return Taken(spent, shares_by_kind(run.pid), steps)
    finally:
        kafka.stop()
        postgres.remove()


def _epochs(url: str, pipeline: str) -> int:
    """Return the last epoch in the tables of a pipeline, or -1."""
    with psycopg.connect(url) as connection:
        try:
            query = "SELECT max(epoch) FROM windrow_epochs WHERE pipeline = %s"
            [found] = connection.execute(query, [pipeline])
        except psycopg.errors.UndefinedTable:  # before the first step
            return -1
    return -1 if found[0] is None else int(found[0])


def main() -> None:
    """Print a line for each rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[0, 1500], help="events a second and pipeline")
    parser.add_argument("--pipelines", type=int, default=1)
    parser.add_argument("--warm", type=float, default=40.0, help="seconds before the measure")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the measure")
    parser.add_argument("--idle", default="30s", help="the time after which a partition is idle")
    parser.add_argument("--key-groups", type=int, default=8)
    given = parser.parse_args()
    for rate in given.rates:
        with tempfile.TemporaryDirectory(prefix="windrow-quiet-") as folder:
            times = {"warm": given.warm, "seconds": given.seconds}
            groups = given.key_groups
            taken = measure(Path(folder), rate, given.pipelines, **times, idle=given.idle, key_groups=groups)
        print(f"{given.pipelines} x {rate:,} events a second: {taken}", flush=True)


if __name__ == "__main__":
    main()
