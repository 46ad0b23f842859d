"""A guard against a loss of speed: windrow beside plain PySpark on a small log: ``python bench/guard.py``.

Both run the main job over the same files, windrow's stream host to a sink that drops all and PySpark's windowed
``groupBy`` on RocksDB to Spark's no-op sink, in one warm session, in turn. What counts is how many times windrow's
processors' time PySpark takes, the best of the rounds: other work on the machine changes that little, and the clock
much. It is held to the ratio that was recorded last (``bench/results/guard.json``, with ``--record``), and only one far
below that is a failure; the tests do so too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.pipelines import from_log, main_job
from bench.replay import Seconds, processors
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from windrow.api.pipeline_file import parse_pipeline
from windrow.hosts.spark import spark_session
from windrow.hosts.stream.run import StreamRun, StreamSettings
from windrow.sinks.memory import DiscardSink
from windrow.testing.generator import LogSpec, write_log

RECORD = Path(__file__).parent / "results" / "guard.json"
EVENTS, ROUNDS = 300_000, 1
_WARM = 20_000
_HOURS = 240
_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
LEAST = 0.5
"""A ratio below so much of the recorded one is a failure."""


@dataclass(frozen=True)
class Ratio:
    """Seconds of processors' time of a pair of runs over so many events, and by the clock; when, on how many cores."""

    windrow: float
    pyspark: float
    windrow_clock: float
    pyspark_clock: float
    events: int
    date: str
    cores: int

    @property
    def times(self) -> float:
        """How many times windrow's processors' time PySpark took."""
        return self.pyspark / self.windrow

    def beside(self, recorded: Ratio) -> str:
        """Say what it is, and what the recorded one was."""
        return (
            f"PySpark takes {self.times:.2f} times windrow's CPU time over {self.events:,} events "
            f"({self.pyspark:.1f} and {self.windrow:.1f} s; "
            f"{self.pyspark_clock:.1f} and {self.windrow_clock:.1f} s by the clock); "
            f"{recorded.times:.2f} times on {recorded.date}"
        )

    def is_well(self, recorded: Ratio) -> bool:
        """Whether it is not far below the recorded one."""
        return self.times >= LEAST * recorded.times

    def save(self, file: Path = RECORD) -> None:
        """Record it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(file: Path = RECORD) -> Ratio:
        """Read what was recorded last."""
        return Ratio(**json.loads(file.read_text(encoding="utf-8")))


def measure(spark: SparkSession, folder: Path, events: int = EVENTS, rounds: int = ROUNDS) -> Ratio:
    """Run pairs in a session of windrow's, after a warm-up; return the best of them."""
    logs = {count: folder / f"log-{count}" for count in {_WARM, events}}
    for count, log in logs.items():
        # no malformed records: plain PySpark's query would stop at the first time that is out of range
        write_log(LogSpec(events=count, duration=_HOURS * 3_600_000_000, malformed_share=0), log)
    found: list[Ratio] = []
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    for number, count in enumerate([_WARM, *[events] * rounds]):
        ours = _timed(_windrow, spark, logs[count], folder / f"windrow-{number}")
        theirs = _timed(_pyspark, spark, logs[count], folder / f"pyspark-{number}")
        found.append(Ratio(ours[0], theirs[0], ours[1], theirs[1], count, today, os.cpu_count() or 1))
    return max(found[1:], key=lambda one: one.times)


def _timed(run: Callable[[SparkSession, Path, Path], None], spark: SparkSession, log: Path, at: Path) -> Seconds:
    used, began = processors(), time.monotonic()
    run(spark, log, at)
    return processors() - used, time.monotonic() - began


def _windrow(spark: SparkSession, log: Path, checkpoint: Path) -> None:  # noqa: ARG001 - one signature
    pipeline = parse_pipeline(main_job(from_log(log), time="delay: 10m"))
    StreamRun(pipeline, DiscardSink(), StreamSettings(checkpoint, until_end=True)).run(lambda _: None)


def _pyspark(spark: SparkSession, log: Path, checkpoint: Path) -> None:
    """Run the job as one writes it without windrow; the step after the last fires what the watermark has passed."""
    records = spark.readStream.schema("user_id string, event_time long, amount decimal(12,2)").json(str(log))
    windows = (
        records.withColumn("event_time", f.timestamp_millis("event_time"))
        .withWatermark("event_time", "10 minutes")
        .groupBy(f.window("event_time", "5 minutes"), "user_id")
        .agg(f.sum("amount").alias("total"), f.count(f.lit(1)).alias("events"))
    )
    usual = spark.conf.get(_NO_DATA) or "true"
    spark.conf.set(_NO_DATA, "true")
    try:
        query = (
            windows.writeStream.format("noop")
            .outputMode("append")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    finally:
        spark.conf.set(_NO_DATA, usual)


def main() -> int:
    """Measure, print the ratio, and return 1 if it is far below the recorded one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--record", action="store_true", help="hold later ones to this")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-guard-") as name:
        folder = Path(name)
        spark = spark_session(log=folder / "spark.log")
        found = measure(spark, folder, given.events, given.rounds)
        spark.stop()
    if given.record:
        found.save()
    recorded = Ratio.load()
    print(found.beside(recorded))
    return 0 if found.is_well(recorded) else 1


if __name__ == "__main__":
    sys.exit(main())
