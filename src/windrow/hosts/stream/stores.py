"""The state stores that a query leaves open in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def is_one_process(spark: SparkSession) -> bool:
    """Return whether all tasks, and so their state stores, are in this process's JVM, and none in an executor."""
    return str(spark.sparkContext.master).partition("[")[0] == "local"


def close_stores(spark: SparkSession, query: StreamingQuery, checkpoint: Path) -> None:
    """Close the stores of a query that has ended.

    Spark keeps them for a while, and its maintenance would yet write the snapshot of a step that is taken otherwise
    by the next query.
    """
    for store in stores_of(spark, query, checkpoint):
        state(spark).StateStore.removeFromLoadedProvidersAndClose(store)


def stores_of(spark: SparkSession, query: StreamingQuery, checkpoint: Path) -> Iterator[Any]:
    """Yield how Spark names the stores of a query."""
    execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001 - no other way
    if execution is None:
        return
    run = _java(spark).java.util.UUID.fromString(query.runId)
    for folder in sorted(checkpoint.glob("state/[0-9]*/[0-9]*")):
        place = execution.checkpointLocation(), int(folder.parent.name), int(folder.name), "default"
        yield state(spark).StateStoreProviderId(state(spark).StateStoreId(*place), run)


def state(spark: SparkSession) -> Any:  # noqa: ANN401 - Java's
    """Return Spark's package of state stores."""
    return _java(spark).org.apache.spark.sql.execution.streaming.state


def _java(spark: SparkSession) -> Any:  # noqa: ANN401 - the same
    return spark._jvm  # noqa: SLF001 - no other way
