"""How long a live step takes: ``python bench/live.py``.

Some hundred events a second go to a Kafka topic while the main job runs live into SQLite, a step a second; the figure
is Spark's own, from the trigger to the commit of the step.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

from bench.pipelines import from_kafka, main_job
from tests.servers.kafka import Kafka

from windrow.api.pipeline_file import parse_pipeline
from windrow.hosts.reports import StepReport
from windrow.hosts.spark import spark_session
from windrow.hosts.stream.run import StreamRun, StreamSettings
from windrow.model import SqliteSink
from windrow.sinks.sqlite import SqliteTables
from windrow.testing.generator import LivePace, LogSpec, write_kafka

WARM = 10
"""Steps that are not counted: until code is compiled and workers are there."""


def _text(servers: str) -> str:
    time, window, emit = "delay: 10s, future: 1h", "{tumbling: 10s}", "lateness: 1m"
    return main_job(from_kafka(servers, "spend"), time=time, window=window, emit=emit)


def measure(folder: Path, rate: int, steps: int) -> list[float]:
    """Return the milliseconds of each counted step."""
    broker = Kafka(folder / "kafka")
    broker.start()
    try:
        broker.create_topic("spend", 4)
        sink = SqliteSink(str(folder / "spend.db"), "user_spend")
        pipeline = replace(parse_pipeline(_text(broker.servers)), sink=sink)
        spark = spark_session(log=folder / "spark.log")
        run = StreamRun(pipeline, SqliteTables(pipeline), StreamSettings(folder / "checkpoint"))
        millis: list[float] = []

        def on_step(report: StepReport) -> None:
            # the step that is told of here is not in Spark's progress yet; those before it are
            progress = spark.streams.active[0].recentProgress
            millis[:] = [float(one.durationMs["triggerExecution"]) for one in progress if one.numInputRows]
            if report.epoch >= WARM + steps:
                run.stop()

        spec = LogSpec(events=rate * (WARM + steps) * 5, users=10_000)
        feeder = threading.Thread(
            target=write_kafka, args=(spec, broker.servers, "spend"), kwargs={"pace": LivePace(rate)}, daemon=True
        )
        feeder.start()
        run.run(on_step)
        spark.stop()
        return millis[WARM:]
    finally:
        broker.stop()


def main() -> None:
    """Print the median and the worst."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=300, help="events a second")
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-live-") as folder:
        millis = measure(Path(folder), arguments.rate, arguments.steps)
    ordered = sorted(millis)
    print(
        f"live steps of some {arguments.rate} events: median {statistics.median(ordered):.0f} ms, "
        f"90 % within {ordered[int(len(ordered) * 0.9)]:.0f} ms, worst {ordered[-1]:.0f} ms ({len(ordered)} steps)"
    )


if __name__ == "__main__":
    main()
