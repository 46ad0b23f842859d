"""A Spark session as windrow needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from windrow.errors import EngineError
from windrow.hosts.jars import kafka_jars
from windrow.hosts.java import java

CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # a batch is decoded whole: large ones cost less a record
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stopTimeout": "60s",
}


def spark_session(master: str = "local[*]", *, log: Path | None = None) -> SparkSession:
    """Start Spark, or return the session that runs already.

    What Spark and its Python workers say goes to the file `log` where one is given, and else to stderr. Raise
    SetupError where Java or a jar is missing, EngineError where Spark does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("JAVA_HOME", str(java().resolve().parent.parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("windrow")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.jars", ",".join(str(jar) for jar in kafka_jars()))
    try:
        with _stderr_to(log):
            session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as exc:
        where = "" if log is None else f"; what it said is in {log}"
        msg = f"Spark did not start: {exc}{where}"
        raise EngineError(msg) from exc
    # as many parts as there are cores: a key group is a row or two, so more parts are only more tasks
    session.conf.set("spark.sql.shuffle.partitions", session.sparkContext.defaultParallelism)
    return session


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """Give the processes that are started meanwhile a file for their stderr."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
