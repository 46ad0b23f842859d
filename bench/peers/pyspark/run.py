"""The main job as one writes it in plain PySpark, on either state store; and its limits: reading, and parsing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psycopg
from bench.peers.first_task import tell_ready
from bench.peers.job import DONE, TABLE, Job, tell, told
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from windrow.runtime.spark.jars import jar_set
from windrow.runtime.spark.session import stderr_to

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MERGE = f"""
INSERT INTO {TABLE} SELECT * FROM fresh
ON CONFLICT (window_start, user_id) DO UPDATE SET total = excluded.total, events = excluded.events
"""


def session(folder: Path, *, rocksdb: bool) -> SparkSession:
    """Start Spark with two cores, as many shuffle partitions, and 4 GiB; its log goes into the folder."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in jar_set("spark")))
        .config("spark.driver.memory", "4g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
    )
    if rocksdb:
        builder = builder.config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        builder = builder.config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    with stderr_to(folder / "spark.log"):
        return builder.getOrCreate()


def raw(spark: SparkSession, job: Job) -> DataFrame:
    """Read the topic."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.servers)
    reader = reader.option("subscribe", job.topic).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", job.step).load()


def parsed(frame: DataFrame) -> DataFrame:
    """Parse the records."""
    record = f.from_json(f.col("value").cast("string"), "user_id string, event_time long, amount decimal(12,2)")
    return frame.select(record.alias("r")).select(
        "r.user_id", f.timestamp_millis("r.event_time").alias("event_time"), "r.amount"
    )


def summed(events: DataFrame) -> DataFrame:
    """Sum them by window and user."""
    return (
        events.withWatermark("event_time", "10 minutes")
        .groupBy(f.window("event_time", "5 minutes").alias("w"), "user_id")
        .agg(f.sum("amount").alias("total"), f.count(f.lit(1)).alias("events"))
        .select(f.col("w.start").alias("window_start"), "user_id", "total", "events")
    )


def upsert(address: str, frame: DataFrame) -> None:
    """Write a batch: each task copies its rows into a table of its own, and merges that."""

    def write(batches):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - Spark's
        with psycopg.connect(address) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TEMP TABLE fresh (LIKE {TABLE}) ON COMMIT DROP")
            with cursor.copy("COPY fresh FROM STDIN") as copy:
                for row in batches:
                    copy.write_row((row.window_start, row.user_id, row.total, row.events))
            cursor.execute(MERGE)

    frame.foreachPartition(write)


def main(job: Job) -> None:
    """Run it to the end of the topic."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(job.folder, rocksdb=job.engine == "pyspark")
    tell_ready(spark)
    frame = raw(spark, job)
    if job.engine != "read":
        frame = parsed(frame)
    if job.engine.startswith("pyspark"):
        frame = summed(frame)
    writer = frame.writeStream.option("checkpointLocation", str(job.folder / "checkpoint")).outputMode("append")
    address = job.postgres
    writer = writer.format("noop") if address is None else writer.foreachBatch(lambda batch, _: upsert(address, batch))
    writer.trigger(availableNow=True).start().awaitTermination()
    tell(DONE)
    spark.stop()


if __name__ == "__main__":
    main(told())
