"""When an engine on Spark has begun to work."""

from __future__ import annotations

import threading
import time

from bench.peers.job import READY, tell
from pyspark.sql import SparkSession

from windrow.runtime.spark.session import JOBS


def tell_ready(spark: SparkSession) -> None:
    """Tell READY as soon as Spark runs a task of the query: as with Flink, what starts and plans it is not counted."""

    def watch() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not set(tracker.getActiveJobsIds()) - set(tracker.getJobIdsForGroup(JOBS)):
            time.sleep(0.02)
        tell(READY)

    threading.Thread(target=watch, name="first-task", daemon=True).start()
