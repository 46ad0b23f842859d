"""The rules of examples/fraud in Spark's real-time mode, by built-in expressions: Kafka to Kafka, state in RocksDB.

The state of a card is its newest 64 purchases, by `max_by`; each purchase that comes gives a row, which a filter
judges. An alert is a purchase with the names of its rules. It comes at least once; copies of a purchase are judged as
the first was, and nothing is judged again when a purchase comes late.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench.peers.pyspark.run import ROCKSDB
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from windrow.runtime.spark.jars import jar_set
from windrow.runtime.spark.session import stderr_to

FIELDS = "id string, card string, t long, amount double, lat double, lon double, merchant string, country string"
PURCHASE = "struct(t, id, amount, lat, lon)"
KM = """12742 * asin(sqrt(pow(sin(radians(prev.lat - n.lat) / 2), 2)
      + cos(radians(prev.lat)) * cos(radians(n.lat)) * pow(sin(radians(prev.lon - n.lon) / 2), 2)))"""
MEAN = "aggregate(h, 0D, (a, p) -> a + p.amount, a -> try_divide(a, size(h)))"
DEVIATION = (
    "aggregate(h, 0D, (a, p) -> a + (p.amount - mean) * (p.amount - mean), a -> sqrt(try_divide(a, size(h) - 1)))"
)
RULES = {
    "impossible_travel": f"prev is not null and {KM} > 100 + 900 * (n.t - prev.t) / 3.6e9",
    "unusual_amount": "size(h) >= 8 and n.amount > mean + 4 * deviation",
    "burst": "size(filter(h, p -> p.t >= n.t - 60000000)) >= 5",
    "blocked_merchant": "n.merchant in ({blocked}) or n.country in ({blocked})",
}


def session(partitions: int, folder: Path) -> SparkSession:
    """Start Spark; a partition takes a slot for its source and one for its state, at once."""
    builder = (
        SparkSession.builder.master(f"local[{2 * partitions}]")
        .config("spark.jars", ",".join(str(jar) for jar in jar_set("spark")))
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(partitions))
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        # a shuffle's buffer is otherwise held for up to 50 ms
        .config("spark.shuffle.streaming.networkBufferMaxWaitTimeMs", "5")
    )
    with stderr_to(folder / "spark.log"):
        return builder.getOrCreate()


def main(servers: str, topic: str, partitions: int, batch: str, folder: Path) -> None:
    """Run until killed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(partitions, folder)
    spark.sparkContext.setLogLevel("ERROR")
    values = ", ".join(f"'{value}'" for value in (folder / "blocked.csv").read_text(encoding="utf-8").split()[1:])
    kafka = {"kafka.bootstrap.servers": servers}
    raw = spark.readStream.format("kafka").options(**kafka, subscribe=topic, startingOffsets="earliest").load()
    known = (
        raw.select(f.from_json(f.col("value").cast("string"), FIELDS).alias("e"))
        .select("e.*")
        .groupBy("card")
        .agg(
            f.expr(f"max_by({PURCHASE}, struct(t, id), 64)").alias("h"),
            f.last(f.struct("t", "id", "amount", "lat", "lon", "merchant", "country")).alias("n"),
        )
        .withColumn("h", f.expr("filter(h, p -> (p.t, p.id) < (n.t, n.id) and p.t >= n.t - 86400000000)"))
        .withColumn("prev", f.expr("array_max(h)"))
        .withColumn("mean", f.expr(MEAN))
        .withColumn("deviation", f.expr(DEVIATION))
    )
    named = (f"CASE WHEN {when.format(blocked=values)} THEN '{name}' END" for name, when in RULES.items())
    alerts = known.withColumn("rules", f.expr(f"array_compact(array({', '.join(named)}))")).where("size(rules) > 0")
    value = f.to_json(f.struct(f.col("n.id").alias("subject"), "n.t", "card", "rules"))
    query = (
        alerts.select(f.col("card").alias("key"), value.alias("value"))
        .writeStream.format("kafka")
        .options(**kafka, topic=f"{topic}.alerts", checkpointLocation=str(folder / "checkpoint"))
        .outputMode("update")
        .trigger(realTime=batch)  # type: ignore[call-overload] # the stubs of PySpark do not have it
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
