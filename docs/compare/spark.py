"""What each user spends in five minutes, in PySpark: python spark.py LOG DATABASE FILES_A_BATCH."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

TABLES = """
CREATE TABLE IF NOT EXISTS spend (window_start TEXT, user_id TEXT, total TEXT, PRIMARY KEY (window_start, user_id));
CREATE TABLE IF NOT EXISTS dead (raw TEXT PRIMARY KEY);
"""
UPSERT = "INSERT INTO spend VALUES (?, ?, ?) ON CONFLICT (window_start, user_id) DO UPDATE SET total = excluded.total"


def main(log: str, database: str, files: str) -> None:
    """Read the log to its end, and write the sums and the malformed records."""
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")

    def write(statement: str, frame: DataFrame) -> None:
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.executescript(TABLES)
            connection.executemany(statement, [tuple(map(str, row)) for row in frame.collect()])

    # as text: from_json reads "12,50" as the decimal 1250.00
    fields = "user_id string, event_time timestamp, amount string"
    lines = spark.readStream.option("maxFilesPerTrigger", files).text(log)
    records = lines.select(f.from_json("value", fields).alias("record"), "value").select("record.*", "value")
    records = records.withColumn("amount", f.col("amount").try_cast("decimal(12,2)"))
    is_good = f.col("user_id").isNotNull() & f.col("event_time").isNotNull() & f.col("amount").isNotNull()

    totals = (
        records.where(is_good)
        .withWatermark("event_time", "11 minutes")
        .groupBy(f.window("event_time", "5 minutes"), "user_id")
        .agg(f.sum("amount").alias("total"))
        .select("window.start", "user_id", "total")
    )
    query = (
        totals.writeStream.outputMode("update")
        .foreachBatch(lambda frame, _: write(UPSERT, frame))
        .option("checkpointLocation", f"{database}.checkpoint/totals")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    dead = (
        records.where(~is_good)
        .select("value")
        .writeStream.foreachBatch(lambda frame, _: write("INSERT OR IGNORE INTO dead VALUES (?)", frame))
        .option("checkpointLocation", f"{database}.checkpoint/dead")
        .trigger(availableNow=True)
        .start()
    )
    dead.awaitTermination()
    dropped = sum(
        one["numRowsDroppedByWatermark"] for progress in query.recentProgress for one in progress["stateOperators"]
    )
    print("dropped", dropped)


if __name__ == "__main__":
    main(*sys.argv[1:])
