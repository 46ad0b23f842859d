"""What is measured over a Kafka topic, each in a process of its own: ``python bench/engines.py ENGINE ...``.

``read`` is Spark's connector to a no-op sink, ``clock`` adds windrow's clock stage (decode, watermark, split by key
group), ``windrow`` is the whole pipeline to a sink that drops what it is given, and ``pyspark`` is what one writes
without windrow: ``groupBy(window, key)`` with a watermark, on RocksDB, to a no-op sink. ``windrow`` takes other windows
by ``--window``.

Spark is started before the clock; the first step's warm-up counts. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from windrow.api.yaml import parse_pipeline
from windrow.hosts.jars import kafka_jars
from windrow.hosts.stream.chatter import stderr_to
from windrow.hosts.stream.run import Settings, StreamRun
from windrow.hosts.stream.session import CONF, spark_session
from windrow.hosts.stream.stages import clock_stage
from windrow.hosts.stream.wire import PACKET_DDL
from windrow.model import Pipeline
from windrow.sinks.discard import DiscardSink
from windrow.sources import open_source

ROCKSDB = "spark.sql.streaming.stateStore.providerClass"
PIPELINE = """
name: user-spend
source: {{kafka: {{servers: "{servers}", topic: {topic}}}}}
decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
time: {{field: event_time, delay: 10m, future: 1h}}
key: [user_id]
window: {window}
aggregate: {{total: sum(amount), events: count()}}
emit: {{lateness: {lateness}, late: each, mode: retract}}
sink: {{sqlite: {{path: unused.db, table: user_spend_5m}}}}
"""


def read(spark: SparkSession, pipeline: Pipeline, step: int, folder: Path) -> None:
    """Read the topic and drop it."""
    _to_noop(open_source(pipeline.source).stream(spark, step), folder, "append")


def clock(spark: SparkSession, pipeline: Pipeline, step: int, folder: Path) -> None:
    """Read, decode, and split by key group."""
    raw = open_source(pipeline.source).stream(spark, step)
    _to_noop(raw.mapInArrow(clock_stage(pipeline), PACKET_DDL), folder, "append")


def windrow(spark: SparkSession, pipeline: Pipeline, step: int, folder: Path) -> None:  # noqa: ARG001 - one signature
    """Run the whole pipeline, to the end of the topic."""
    settings = Settings(folder / "checkpoint", until_end=True, max_records=step)
    StreamRun(pipeline, DiscardSink(), settings).run(lambda _: None)


def pyspark(spark: SparkSession, pipeline: Pipeline, step: int, folder: Path) -> None:
    """Run the same job as one writes it without windrow."""
    raw = open_source(pipeline.source).stream(spark, step)
    record = f.from_json(f.col("value").cast("string"), "user_id string, event_time long, amount decimal(12,2)")
    events = raw.select(record.alias("r")).select(
        "r.user_id", f.timestamp_millis("r.event_time").alias("event_time"), "r.amount"
    )
    windows = (
        events.withWatermark("event_time", "10 minutes")
        .groupBy(f.window("event_time", "5 minutes"), "user_id")
        .agg(f.sum("amount").alias("total"), f.count(f.lit(1)).alias("events"))
    )
    _to_noop(windows, folder, "append")


def plain_session(log: Path) -> SparkSession:
    """Start Spark as one does without windrow, with RocksDB and the two cores' worth of shuffle partitions."""
    with stderr_to(log):
        return (
            SparkSession.builder.master("local[*]")
            .config("spark.jars", ",".join(str(jar) for jar in kafka_jars()))
            .config("spark.driver.memory", CONF["spark.driver.memory"])
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", str(os.cpu_count()))
            .config(ROCKSDB, CONF[ROCKSDB])
            .getOrCreate()
        )


def _to_noop(frame: DataFrame, folder: Path, mode: str) -> None:
    query = (
        frame.writeStream.format("noop")
        .outputMode(mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


ENGINES: dict[str, Callable[[SparkSession, Pipeline, int, Path], None]] = {
    "read": read,
    "clock": clock,
    "windrow": windrow,
    "pyspark": pyspark,
}


def main() -> None:
    """Run one engine and print its seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--step", type=int, default=1_000_000)
    parser.add_argument("--lateness", default="1h")
    parser.add_argument("--window", default="{tumbling: 5m}", help="as a pipeline file writes it")
    arguments = parser.parse_args()
    text = PIPELINE.format(
        servers=arguments.servers, topic=arguments.topic, lateness=arguments.lateness, window=arguments.window
    )
    pipeline = parse_pipeline(text)
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
        log = Path(folder) / "spark.log"
        spark = plain_session(log) if arguments.engine == "pyspark" else spark_session(log=log)
        began = time.monotonic()
        ENGINES[arguments.engine](spark, pipeline, arguments.step, Path(folder))
        seconds = time.monotonic() - began
        spark.stop()
    print(json.dumps({"engine": arguments.engine, "seconds": round(seconds, 3)}))


if __name__ == "__main__":
    main()
