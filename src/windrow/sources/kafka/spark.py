"""Records of Spark's Kafka connector in the columns of `windrow.core.schema.RAW`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

_NO_TIMESTAMP = -1
"""Kafka's timestamp type of records from before there were timestamps."""


def raw_columns(frame: DataFrame) -> DataFrame:
    """Select the columns of raw records; each task stays one Kafka partition, in the order of its offsets."""
    return frame.select(
        "partition",
        "offset",
        f.when(f.col("timestampType") != _NO_TIMESTAMP, f.col("timestamp")).alias("log_time"),
        "key",
        "value",
    )
