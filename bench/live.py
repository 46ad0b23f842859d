"""How long a live step takes: ``python bench/live.py``.

Some hundred events a second go to a Kafka topic while the main job runs live into SQLite, a step a second; the figure
is Spark's own, from the trigger to the commit of the step.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from bench.pipelines import from_kafka, into_sqlite, main_job

from windrow.authoring.checks import require_valid
from windrow.authoring.pipeline_file import read_document
from windrow.connectors.open_sinks import open_sinks
from windrow.errors import SourceError
from windrow.runtime.run import RunSettings
from windrow.runtime.settings import AS_GIVEN, SparkOptions
from windrow.runtime.spark.session import spark_session
from windrow.runtime.stream.run import StreamRun
from windrow.telemetry.reports import StepReport
from windrow.testing.servers.kafka import Kafka
from windrow.tools.generate import LivePace, LogSpec, write_kafka

WARM = 10
"""Steps that are not counted: until code is compiled and workers are there."""


def _text(servers: str, path: Path) -> str:
    time, window, emit = "delay: 10s, future: 1h", "{tumbling: 10s}", "lateness: 1m"
    sink = into_sqlite(path, "user_spend")
    return main_job(from_kafka(servers, "spend"), sink, time=time, window=window, emit=emit)


def measure(
    folder: Path,
    rate: int,
    steps: int,
    text: Callable[[str, Path], str] = _text,
    options: SparkOptions = AS_GIVEN,
) -> list[float]:
    """Return the milliseconds of each counted step of the pipeline in a text, given the broker and the sink's file."""
    broker = Kafka(folder / "kafka")
    broker.start()
    try:
        broker.create_topic("spend", 4)
        pipeline = require_valid(read_document(text(broker.servers, folder / "spend.db"), "live.yaml").pipeline)
        spark = spark_session(options, log=folder / "spark.log")
        run = StreamRun(pipeline, open_sinks(pipeline), RunSettings(folder / "checkpoint", spark=options))
        millis: list[float] = []

        def on_step(report: StepReport) -> None:
            # the step that is told of here is not in Spark's progress yet; those before it are
            progress = spark.streams.active[0].recentProgress
            millis[:] = [float(one.durationMs["triggerExecution"]) for one in progress if one.numInputRows]
            if report.epoch >= WARM + steps:
                run.stop()

        spec = LogSpec(events=rate * (WARM + steps) * 5, users=10_000)
        over = threading.Event()

        def feed() -> None:
            try:
                write_kafka(spec, broker.servers, "spend", pace=LivePace(rate))
            except SourceError:
                if not over.is_set():  # the broker goes before all is sent
                    raise

        threading.Thread(target=feed, daemon=True).start()
        run.run(on_step)
        over.set()
        spark.stop()
        return millis[WARM:]
    finally:
        broker.stop()


def main() -> None:
    """Print the median and the worst."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=300, help="events a second")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--master", help="where Spark runs")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    parser.add_argument("--folder", help="where the checkpoint is: on a cluster a folder that all share")
    arguments = parser.parse_args()
    options = SparkOptions(arguments.master, dict(one.split("=", 1) for one in arguments.conf))
    with tempfile.TemporaryDirectory(prefix="windrow-live-", dir=arguments.folder) as folder:
        millis = measure(Path(folder), arguments.rate, arguments.steps, options=options)
    ordered = sorted(millis)
    print(
        f"live steps of some {arguments.rate} events: median {statistics.median(ordered):.0f} ms, "
        f"90 % within {ordered[int(len(ordered) * 0.9)]:.0f} ms, worst {ordered[-1]:.0f} ms ({len(ordered)} steps)"
    )


if __name__ == "__main__":
    main()
