"""The cases of bench/joins.py that plain PySpark has: joins of two streams (state in RocksDB), and with a static table.

The table of `static` is read from its topic once, kept in memory and broadcast: no state is involved.
"""

from __future__ import annotations

import os
import sys

from bench.graphs import chunks
from bench.peers.first_task import tell_ready
from bench.peers.job import DONE, tell
from bench.peers.join_job import LOGS, TOLERANCE_MINUTES, JoinJob
from bench.peers.pyspark.run import session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SCHEMAS = {
    "orders": "order_id string, user string, amount long, t long",
    "payments": "order_id string, paid long, t long",
    "rates": "currency string, rate long, t long",
    "sales": "currency string, sale_id string, amount long, t long",
}


def parsed(frame: DataFrame, name: str) -> DataFrame:
    """Parse the records of a topic."""
    return frame.select(f.from_json(f.col("value").cast("string"), SCHEMAS[name]).alias("r")).select("r.*")


def stream(spark: SparkSession, job: JoinJob, name: str, step: int) -> DataFrame:
    """Read a log, so many records of it in a micro-batch."""
    if not job.servers:
        files = str(chunks(job.logs / name, step, job.folder))
        return spark.readStream.schema(SCHEMAS[name]).option("maxFilesPerTrigger", 1).json(files)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.servers).option("subscribe", name)
    return parsed(reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", step).load(), name)


def interval(spark: SparkSession, job: JoinJob) -> DataFrame:
    """Join orders with the payments of their next 15 minutes."""

    def read(name: str) -> DataFrame:
        records = stream(spark, job, name, job.step // len(LOGS[job.case]))
        timed = records.withColumn("time", f.timestamp_millis("t"))
        return timed.withWatermark("time", f"{TOLERANCE_MINUTES} minutes").alias(name)

    near = "payments.time BETWEEN orders.time AND orders.time + INTERVAL 15 MINUTES"
    on = f.expr(f"orders.order_id = payments.order_id AND {near}")
    columns = ("orders.order_id", "user", "amount", "paid", "orders.t", "payments.t")
    how = "leftOuter" if job.case == "interval-left" else "inner"
    return read("orders").join(read("payments"), on, how).select(*columns)


def static(spark: SparkSession, job: JoinJob) -> DataFrame:
    """Join sales with a table that does not change."""
    if job.servers:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", job.servers).option("subscribe", "rates")
        rates = parsed(reader.load(), "rates")
    else:
        rates = spark.read.schema(SCHEMAS["rates"]).json(str(job.logs / "rates"))
    return stream(spark, job, "sales", job.step).join(f.broadcast(rates.drop("t").cache()), "currency")


def main(job: JoinJob) -> None:
    """Run it to the end of the logs."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(job.folder, rocksdb=True)
    joined = static(spark, job) if job.case == "static" else interval(spark, job)
    found = [0, 0]

    def count(step: DataFrame, _: int) -> None:
        rows, checksum = step.agg(f.count("*"), f.expr(f"sum({job.product})")).collect()[0]
        found[0] += rows
        found[1] += checksum or 0

    writer = joined.writeStream.foreachBatch(count).option("checkpointLocation", str(job.folder / "checkpoint"))
    tell_ready(spark)
    writer.trigger(availableNow=True).start().awaitTermination()
    job.write_found(*found)
    tell(DONE)


if __name__ == "__main__":
    main(JoinJob.told())
