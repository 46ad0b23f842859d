"""Starts Spark's Python processes while a query is being planned: they load as long as that takes."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from pyspark import InheritableThread
from pyspark.sql import SparkSession

JOBS = "windrow-prestart"
"""The group of the jobs that do no more than that."""


@lru_cache(maxsize=1)
def prestart(spark: SparkSession) -> None:
    """Have a task on each core that takes a Python process, once a session; what fails here fails later, and is said.

    Return at once.
    """

    def start() -> None:
        with suppress(Exception):  # a session that has ended meanwhile has no context, and so on
            tasks = spark.sparkContext.defaultParallelism
            spark.sparkContext.setJobGroup(JOBS, "Python processes")
            spark.range(0, tasks, 1, tasks).mapInArrow(lambda batches: batches, "id long").collect()

    InheritableThread(target=start, name=JOBS, daemon=True).start()
