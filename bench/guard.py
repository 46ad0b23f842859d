"""A guard against a loss of speed: windrow beside plain PySpark: ``python bench/guard.py``, or with names of guards.

Each of `GUARDS` measures windrow and something beside it, in turn and on the same machine; what counts is the ratio,
the best of the rounds. Ratios are of CPU time where they can be: other work on the machine changes that little, and
the clock much. A ratio is held to the one in ``bench/results/guard.json`` (written with ``--record``), and only one far
below that is a failure; the long tests do so too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.discard import DiscardSink
from bench.peers.job import DONE, READY
from bench.peers.measure import ROOT
from bench.peers.watch import watch
from bench.pipelines import from_log, into_sqlite, main_job
from bench.replay import processors
from bench.startup import SPARK
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench import latency
from windrow.authoring.pipeline_file import parse_pipeline
from windrow.runtime.run import RunSettings
from windrow.runtime.spark.session import spark_session
from windrow.runtime.stream.run import StreamRun
from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres
from windrow.tools.generate import LogSpec, write_log

RECORD = Path(__file__).parent / "results" / "guard.json"
LEAST = 0.5
"""A ratio below so much of the recorded one is a failure."""
_EVENTS, _WARM = 300_000, 20_000
_STEP, _STEPS = 300, 20
_HOURS = 240
_LIMIT = 180.0
_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
_RUN = 'from windrow.cli import main\nmain(["run", "pipeline.yaml", "--until-end", "--fresh"], standalone_mode=False)'


@dataclass(frozen=True)
class Ratio:
    """Seconds of windrow and of what is beside it; when they were measured, on how many cores."""

    windrow: float
    beside: float
    date: str
    cores: int

    @staticmethod
    def now(windrow: float, beside: float) -> Ratio:
        """Return what has just been measured."""
        return Ratio(windrow, beside, datetime.now(UTC).strftime("%Y-%m-%d"), os.cpu_count() or 1)

    @property
    def times(self) -> float:
        """How many times windrow's seconds the other ones are."""
        return self.beside / self.windrow

    def is_well(self, recorded: Ratio) -> bool:
        """Whether it is not far below the recorded one."""
        return self.times >= LEAST * recorded.times


class Place:
    """A folder, and a warm session of windrow's for those that measure within one."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder, self.spark = folder, spark
        self._runs, self._is_warm = 0, False

    def fresh(self) -> Path:
        """Return a new folder."""
        self._runs += 1
        made = self.folder / f"run-{self._runs}"
        made.mkdir(parents=True)
        return made

    def pair(self, events: int, step: int | None = None) -> Ratio:
        """Run the main job over a log on both engines, in micro-batches of so many records; return the CPU times.

        The first call warms the session up.
        """
        if not self._is_warm:
            self._is_warm = True
            self.pair(_WARM)
        # no malformed records: plain PySpark's query would stop at the first time that is out of range
        spec = LogSpec(events=events, duration=_HOURS * 3_600_000_000, malformed_share=0)
        folder = self.fresh()
        write_log(spec, folder / "log")
        return Ratio.now(_cpu(lambda: _windrow(folder, step)), _cpu(lambda: _pyspark(self.spark, folder, events, step)))


def _cpu(run: Callable[[], None]) -> float:
    used = processors()
    run()
    return processors() - used


def _windrow(folder: Path, step: int | None) -> None:
    pipeline = parse_pipeline(main_job(from_log(folder / "log"), time="delay: 10m"))
    settings = RunSettings(folder / "windrow", until_end=True, max_records=step)
    StreamRun(pipeline, DiscardSink(), settings).run(lambda _: None)


def _pyspark(spark: SparkSession, folder: Path, events: int, step: int | None) -> None:
    """Run the job as one writes it without windrow; the step after the last fires what the watermark has passed.

    Its state is in RocksDB, and its sink Spark's no-op one.
    """
    source = spark.readStream.schema("user_id string, event_time long, amount decimal(12,2)")
    log = folder / "log"
    if step is not None:
        log = _split(log, folder / "files", events // step)
        source = source.option("maxFilesPerTrigger", 1)
    windows = (
        source.json(str(log))
        .withColumn("event_time", f.timestamp_millis("event_time"))
        .withWatermark("event_time", "10 minutes")
        .groupBy(f.window("event_time", "5 minutes"), "user_id")
        .agg(f.sum("amount").alias("total"), f.count(f.lit(1)).alias("events"))
    )
    usual = spark.conf.get(_NO_DATA) or "true"
    # a step that only moves the watermark would be a second one for the same records
    spark.conf.set(_NO_DATA, "true" if step is None else "false")
    try:
        query = (
            windows.writeStream.format("noop")
            .outputMode("append")
            .option("checkpointLocation", str(folder / "pyspark"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    finally:
        spark.conf.set(_NO_DATA, usual)


def _split(log: Path, into: Path, parts: int) -> Path:
    """Write the records of a log, in turn by partition, into so many files, which Spark reads one a micro-batch."""
    into.mkdir()
    partitions = [part.read_text(encoding="utf-8").splitlines(keepends=True) for part in sorted(log.glob("*.jsonl"))]
    for number in range(parts):
        lines = [
            line
            for part in partitions
            for line in part[len(part) * number // parts : len(part) * (number + 1) // parts]
        ]
        (into / f"{number:05}.jsonl").write_text("".join(lines), encoding="utf-8")
    return into


def _start(place: Place) -> Ratio:
    """Run a small log with ``windrow run``, and PySpark's session and first row, each in a process of its own."""
    folder = place.fresh()
    write_log(LogSpec(events=1_000, users=100), folder / "log")
    text = main_job(from_log("log"), into_sqlite("spend.db", "user_spend_5m"), emit="lateness: 1h")
    (folder / "pipeline.yaml").write_text(text, encoding="utf-8")

    def cpu(code: str) -> float:
        told = f'print("{READY}", flush=True)\n{code}\nprint("{DONE}", flush=True)'
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        return watch([sys.executable, "-c", told], environment, folder / "log.txt", _LIMIT).cpu

    return Ratio.now(cpu(_RUN), cpu(SPARK))


def _window(place: Place) -> Ratio:
    """Run live from Kafka into PostgreSQL; return the medians of a window's latency and of a step, by the clock."""
    given = latency.arguments().parse_args(["--seconds", "40", "--warm", "15"])
    kafka, postgres = Kafka(place.fresh()), Postgres()
    try:
        kafka.start()
        postgres.start()
        seen = latency.measure(latency.Case(_STEP), kafka, postgres, 0, given)
    finally:
        kafka.stop()
        postgres.remove()
    # a busy machine slows the steps of the same run as much as what waits for them
    step = statistics.median(one["triggerExecution"] for one in seen.steps) / 1000
    return Ratio.now(statistics.median(seen.handed), step)


@dataclass(frozen=True)
class Guard:
    """A measure: what windrow's seconds are, what those beside it are, and how a pair of them is measured."""

    title: str
    beside: str
    measure: Callable[[Place], Ratio]

    def best(self, place: Place, rounds: int = 1) -> Ratio:
        """Measure some rounds; return the best of them."""
        return max((self.measure(place) for _ in range(rounds)), key=lambda one: one.times)

    def told(self, found: Ratio, recorded: Ratio) -> str:
        """Say what was measured, and what was recorded."""
        return (
            f"{self.beside} is {found.times:.2f} times {self.title} ({found.beside:.2f} and {found.windrow:.2f} s); "
            f"{recorded.times:.2f} times on {recorded.date}"
        )


GUARDS = {
    "main-job": Guard(
        f"windrow's CPU time of the main job over {_EVENTS:,} events",
        "PySpark's CPU time",
        lambda place: place.pair(_EVENTS),
    ),
    "step": Guard(
        f"windrow's CPU time of {_STEPS} steps of {_STEP} events",
        "PySpark's CPU time",
        lambda place: place.pair(_STEP * _STEPS, _STEP),
    ),
    "start": Guard(
        "the CPU time of windrow run over 1,000 events", "the CPU time of PySpark's session and first row", _start
    ),
    "window": Guard("the time from a window's end to its row", "the time of a live step", _window),
}


def save(found: dict[str, Ratio], file: Path = RECORD) -> None:
    """Record ratios by their guards' names, beside those of other guards in the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    all_of_them = (load(file) if file.exists() else {}) | found
    written = {name: asdict(one) for name, one in all_of_them.items()}
    file.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


def load(file: Path = RECORD) -> dict[str, Ratio]:
    """Read what was recorded last."""
    return {name: Ratio(**one) for name, one in json.loads(file.read_text(encoding="utf-8")).items()}


def main() -> int:
    """Measure, print the ratios, and return 1 if one is far below the recorded one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # without names argparse looks for an empty list among the choices
    parser.add_argument("names", nargs="*", choices=[*GUARDS, []], metavar="GUARD", help=f"of: {', '.join(GUARDS)}")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="hold later ones to this")
    given = parser.parse_args()
    code = 0
    with tempfile.TemporaryDirectory(prefix="windrow-guard-") as name:
        folder = Path(name)
        spark = spark_session(log=folder / "spark.log")
        place = Place(folder, spark)
        for guard in given.names or GUARDS:
            found = GUARDS[guard].best(place, given.rounds)
            if given.record:
                save({guard: found})
            recorded = load()[guard]
            print(f"{guard}: {GUARDS[guard].told(found, recorded)}", flush=True)
            if not found.is_well(recorded):
                print(f"{guard}: far slower than it was", flush=True)
                code = 1
        spark.stop()
    return code


if __name__ == "__main__":
    sys.exit(main())
