"""``windrow run`` with its options, and what Spark says of its steps: ``python bench/live_run.py PIPELINE OPTION...``.

It ends when its stdin does, and prints one line of JSON: for each step that read something the milliseconds of its
parts as Spark has them, `took` (from Spark's call of the sink to the commit), when that was, and its records.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from windrow.authoring.load import open_pipeline
from windrow.cli.run import command
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.runtime.settings import SparkOptions
from windrow.runtime.spark.session import spark_session
from windrow.telemetry.reports import StepReport

_OFTEN = 10
"""Steps: Spark keeps what it says of the last hundred."""


class Steps:
    """What Spark said of each step, by its number."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._said: dict[int, dict[str, Any]] = {}
        self._told: dict[int, dict[str, float]] = {}

    def on_step(self, report: StepReport) -> None:
        """Note a step, and now and then what Spark says of those before it."""
        # what Spark calls input rows may be rows that pack many
        self._told[report.epoch] = {
            "at": time.monotonic(),
            "records": report.events,
            "took": 1000 * report.took,
        }
        if report.epoch % _OFTEN == 0:
            self.look()

    def look(self) -> None:
        """Note what Spark says of the steps before the one that is told of."""
        for query in self._spark.streams.active:
            for one in query.recentProgress:
                parts = {name: float(millis) for name, millis in one.durationMs.items()}
                commit = sum(float(operator.commitTimeMs) for operator in one.stateOperators)
                self._said[one.batchId] = {"stateCommit": commit, **parts}

    def told(self) -> list[dict[str, Any]]:
        """Return what is known of the steps that read something, in their order."""
        steps = ((epoch, told, self._said.get(epoch)) for epoch, told in sorted(self._told.items()))
        return [{"epoch": epoch, **told, **said} for epoch, told, said in steps if said is not None and told["records"]]


def main() -> None:
    """Run until stdin ends."""
    file, *words = sys.argv[1:]
    given = command.make_context("run", [file, *words]).params
    checkpoint = Path(file).with_suffix(".checkpoint")
    checkpoint.mkdir()
    steps = Steps(spark_session(SparkOptions(given["master"]), log=checkpoint / "spark.log"))
    options = RunSettings(
        checkpoint=checkpoint,
        max_records=given["max_records"],
        every=given["every"],
        step_time=given["step_time"],
        spark=SparkOptions(given["master"]),
    )

    def on_start(stop: Callable[[], None]) -> None:
        def wait() -> None:
            sys.stdin.read()
            steps.look()
            stop()

        threading.Thread(target=wait, daemon=True).start()

    launch(open_pipeline(file).runnable(), options, steps.on_step, on_start)
    print(json.dumps(steps.told()))


if __name__ == "__main__":
    main()
