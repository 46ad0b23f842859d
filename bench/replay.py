"""A replay by the batch host beside the stream host, over the same log: ``python bench/replay.py``.

Fills a log (10,000 users, 4 partitions, keyed by user) and, with ``--sources kafka``, a topic; runs both hosts in turn,
each in a process of its own, to each sink. Spark is started before the clock, and the run's first step warms it up
within it. The machine may be shared: what counts is the ratio within a round, and the processors' time (of Python and
Java together) more than that of the clock.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.pipelines import from_kafka, from_log, into_postgres, into_sqlite, main_job

from windrow.authoring.pipeline_file import parse_pipeline
from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres
from windrow.tools.generate import LogSpec, write_kafka, write_log

HOUR = 3_600_000_000
TOPIC = "spend"
HOSTS = ("stream", "batch")


Seconds = tuple[float, float]
"""By the clock, and of processors' time."""


def one(host: str, source: str, sink: str, window: str, step: int) -> Seconds:
    """Run one host in this process; return its seconds."""
    from bench.discard import DiscardSink  # noqa: PLC0415

    from windrow.connectors.open_sinks import open_sinks  # noqa: PLC0415
    from windrow.runtime.batch.plan import BatchSettings  # noqa: PLC0415
    from windrow.runtime.batch.run import BatchRun  # noqa: PLC0415 - only the process that measures loads Spark
    from windrow.runtime.run import RunSettings  # noqa: PLC0415
    from windrow.runtime.spark.session import spark_session  # noqa: PLC0415
    from windrow.runtime.stream.run import StreamRun  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
        place = Path(folder)
        spark_session(log=place / "spark.log")
        text = into_sqlite(place / "spend.db", "spend") if sink in {"none", "sqlite"} else sink
        pipeline = parse_pipeline(main_job(source, text, window=window), "bench/replay.py")
        into = DiscardSink() if sink == "none" else open_sinks(pipeline)
        began, used = time.monotonic(), processors()
        try:
            if host == "batch":
                BatchRun(pipeline, into, BatchSettings(max_records=step)).run(lambda _: None)
            else:
                settings = RunSettings(place / "checkpoint", until_end=True, max_records=step)
                StreamRun(pipeline, into, settings).run(lambda _: None)
        finally:
            into.close()
        return time.monotonic() - began, processors() - used


def processors() -> float:
    """Return the processors' time of this process and all below it, also of those that have ended."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    family, found = {os.getpid()}, {os.getpid()}
    while found:
        found = {process for process, parent in parents.items() if parent in family} - family
        family |= found
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _sources(names: list[str], spec: LogSpec) -> Iterator[dict[str, str]]:
    """Fill the sources, and name them as a pipeline does."""
    with tempfile.TemporaryDirectory(prefix="windrow-replay-") as folder:
        found = {}
        if "log" in names:
            write_log(spec, Path(folder) / "log")
            found["log"] = from_log(Path(folder) / "log")
        if "kafka" not in names:
            yield found
            return
        broker = Kafka(Path(folder))
        broker.start()
        try:
            # event times are in the past: the topic must not let them go
            broker.create_topic(TOPIC, 4, {"retention.ms": "-1"})
            write_kafka(spec, broker.servers, TOPIC)
            yield found | {"kafka": from_kafka(broker.servers, TOPIC)}
        finally:
            broker.stop()


@contextmanager
def _postgres(names: list[str]) -> Iterator[Postgres | None]:
    if "postgres" not in names:
        yield None
        return
    server = Postgres()
    server.start()
    try:
        yield server
    finally:
        server.remove()


def _run(host: str, source: str, sink: str, postgres: Postgres | None, options: list[str]) -> Seconds:
    """Run one host in a process of its own, into an empty database."""
    into = sink
    if sink == "postgres" and postgres is not None:
        into = into_postgres(postgres.create_database("replay"), "spend")
    command = [sys.executable, __file__, "--one", host, source, into, *options]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    if sink == "postgres" and postgres is not None:
        postgres.drop_database("replay")
    seconds, used = json.loads(result.stdout.splitlines()[-1])
    return float(seconds), float(used)


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=3, metavar=("HOST", "SOURCE", "SINK"), help=argparse.SUPPRESS)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--hours", type=float, default=48, help="how much event time the events span")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--step", type=int, default=500_000, help="records a step, at the most, on both hosts")
    parser.add_argument("--window", default="{tumbling: 5m}")
    parser.add_argument("--sources", nargs="+", choices=["log", "kafka"], default=["log", "kafka"])
    parser.add_argument("--sinks", nargs="+", choices=["none", "sqlite", "postgres"], default=["none", "sqlite"])
    arguments = parser.parse_args()
    if arguments.one:
        host, source, sink = arguments.one
        print(json.dumps(one(host, source, sink, arguments.window, arguments.step)))
        return
    options = ["--window", arguments.window, "--step", str(arguments.step)]
    spec = LogSpec(events=arguments.events, duration=round(arguments.hours * HOUR))
    with _sources(arguments.sources, spec) as sources, _postgres(arguments.sinks) as postgres:
        for name, source in sources.items():
            for sink in arguments.sinks:
                pairs = []
                for _ in range(arguments.rounds):
                    pairs.append([_run(host, source, sink, postgres, options) for host in HOSTS])
                    told = (
                        f"{host} {seconds:.1f} s ({arguments.events / seconds:,.0f}/s; {used:.1f} s of processors)"
                        for host, (seconds, used) in zip(HOSTS, pairs[-1], strict=True)
                    )
                    print(f"{name} -> {sink}: {', '.join(told)}", flush=True)
                times, used = (statistics.median(a[n] / b[n] for a, b in pairs) for n in (0, 1))
                print(f"{name} -> {sink}: batch is {times:.2f} times as fast (processors: {used:.2f})", flush=True)


if __name__ == "__main__":
    main()
