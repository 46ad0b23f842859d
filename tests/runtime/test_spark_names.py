"""What Spark's web interface calls the queries and the jobs of runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.contracts.stores import SqliteStore
from tests.runtime.runs import Runner, read
from tests.runtime.spend import Files, events, spend


def descriptions(spark: SparkSession) -> Iterator[tuple[int, str]]:
    """Yield each job's number and description, as Spark's REST API has them (``/api/v1/applications/ID/jobs``)."""
    jobs: Any = spark.sparkContext._jsc.sc().statusStore().jobsList(None)  # noqa: SLF001 - no other way without a server
    for number in range(jobs.size()):
        job = jobs.apply(number)
        if job.description().isDefined():
            yield job.jobId(), job.description().get()


def new_descriptions(spark: SparkSession, after: int) -> set[str]:
    return {text for number, text in descriptions(spark) if number > after}


def test_queries_and_jobs_have_the_names_of_pipeline_and_epoch(
    spark: SparkSession, files: Files, tmp_path: Path, runner: Runner
) -> None:
    store = SqliteStore(tmp_path)
    pipeline = spend(files.source, store.settings(), at_end="hold")
    files.append(events(60))
    last = max((number for number, _ in descriptions(spark)), default=-1)
    names: list[str | None] = []

    def scene() -> Any:  # noqa: ANN401 - a scene
        yield read(60)
        names.extend(query.name for query in spark.streams.active)

    runner.live(pipeline, scene(), max_records=20)
    assert names == ["user-spend"]
    found = new_descriptions(spark, last)
    assert {f"user-spend epoch {epoch}" for epoch in range(3)} <= found
    # a job that is not of a step is of the query, by Spark's own words
    assert all("user-spend" in text for text in found if text != "Python processes")
    last = max(number for number, _ in descriptions(spark))
    Runner(tmp_path / "batch").bounded(
        spend(files.source, SqliteStore(tmp_path).settings("batch")), max_records=20, host="batch"
    )
    assert new_descriptions(spark, last) - {"Python processes"} == {"user-spend batch"}
