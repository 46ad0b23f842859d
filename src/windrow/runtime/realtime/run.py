"""The Spark job of a realtime run: long-running tasks, each with the loops of some partitions.

Spark places the tasks, ships what they need, and restarts a task whose worker has died. The tasks keep their state in
Kafka. Only the failure of a partition goes through the driver, and no checkpoint directory is written.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from pyspark import Accumulator, AccumulatorParam, InheritableThread, TaskContext
from pyspark.sql import SparkSession

from windrow import model as m
from windrow.connectors.kafka.lists import ListWatch
from windrow.errors import InputError, RunError, SourceError, SourceUnavailableError, WindrowError
from windrow.runtime.realtime.key_sample import KeyWatch
from windrow.runtime.realtime.partition import Owner, Partition
from windrow.runtime.realtime.progress import REPORT_SECONDS, Progress
from windrow.runtime.realtime.stopping import Announced, StopRequests, announce, request_stop
from windrow.runtime.realtime.supervise import serve
from windrow.runtime.realtime.topics import prepare_topics, source_of, topic_lists
from windrow.runtime.run import RunSettings
from windrow.runtime.settings import SparkOptions
from windrow.runtime.spark.errors import SPARK_ERRORS, translate_spark_error
from windrow.runtime.stream.checkpoint import log_of
from windrow.telemetry.reports import OnStep

_FAILURES = "1000000"
"""Maximum number of failures of a task: a job that runs for a year must not end with its fourth failure."""
_STOP_SECONDS = 30.0
_RETRY_SECONDS = 600.0
"""Default seconds without an answer from a broker after which a run gives up."""
_JOBS = "windrow-realtime"


class _Failures(AccumulatorParam[list[tuple[str, str]]]):
    """Collects the class and message of each error that prevents a partition from running."""

    def zero(self, value: list[tuple[str, str]]) -> list[tuple[str, str]]:
        del value
        return []

    def addInPlace(self, value1: list[tuple[str, str]], value2: list[tuple[str, str]]) -> list[tuple[str, str]]:  # noqa: N802 - Spark's name
        return value1 + value2


@dataclass(frozen=True)
class _Task:
    """A task of the job; it ends when its run is asked to stop, or on a failure that a new attempt would repeat."""

    pipeline: m.Graph
    run: str
    retry: float
    failures: Accumulator[list[tuple[str, str]]]

    def __call__(self, groups: Iterable[list[int]]) -> None:
        context = TaskContext.get()
        owner = Owner(self.run, 0 if context is None else context.attemptNumber())
        jobs = [Partition(self.pipeline, number, owner) for group in groups for number in group]
        try:
            with StopRequests(self.pipeline, self.run) as requests:
                serve(jobs, requests.is_asked, self.retry)
        except WindrowError as exc:
            self.failures.add([(type(exc).__name__, str(exc))])


class RealtimeRun:
    """Runs a pipeline until it is asked to stop.

    It warns once if a sample shows that the topic is not partitioned by the key. It also warns about each key in the
    topic of a list that cannot be a list entry.
    """

    def __init__(self, graph: m.Graph, settings: RunSettings) -> None:
        self._pipeline = graph
        self._settings = settings
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the tasks to commit their results and end; can be called from any thread."""
        self._stop.set()

    def run(self, on_step: OnStep) -> Literal["asked"]:
        """Run, reporting progress once a second, until asked to stop.

        Raise a WindrowError if a partition cannot be run; results already committed remain.
        """
        partitions = prepare_topics(self._pipeline)
        run = Announced(uuid.uuid4().hex, time.time())
        try:
            announce(self._pipeline, run)
        except SourceError as exc:
            self._settings.on_warning(f"windrow status and stop do not see that the run is starting: {exc}")
        try:
            return self._run(run.run, partitions, on_step)
        finally:
            with suppress(SourceError):  # the tasks have committed their end, or the run is still shown as starting
                announce(self._pipeline, replace(run, ended=True))

    def _run(self, run: str, partitions: Sequence[int], on_step: OnStep) -> Literal["asked"]:
        from windrow.runtime.spark.cluster import preflight as preflight_executors  # noqa: PLC0415 - after the topics are there
        from windrow.runtime.spark.session import spark_session  # noqa: PLC0415 - the same

        options = task_options(self._settings.spark)
        spark = spark_session(options, log=log_of(self._settings.checkpoint))
        preflight_executors(spark, self._pipeline, None)
        lists = ListWatch(topic_lists(self._pipeline), source_of(self._pipeline), self._settings.on_warning)
        failures = spark.sparkContext.accumulator([], _Failures())
        errors: list[Exception] = []
        slots = min(len(partitions), int(spark.sparkContext.defaultParallelism))
        groups = [partitions[slot::slots] for slot in range(slots)]
        retry = _RETRY_SECONDS if self._settings.retry is None else self._settings.retry
        task = _Task(self._pipeline, run, retry, failures)
        job = InheritableThread(target=_run_job, args=(spark, groups, task, errors), name=_JOBS, daemon=True)
        watch = Progress(self._pipeline, run, partitions, self._settings.on_trouble, self._settings.on_lag)
        keys = KeyWatch(self._pipeline, self._settings.on_warning)
        job.start()
        self._settings.on_ready()
        try:
            while job.is_alive() and not failures.value and not self._stop.wait(REPORT_SECONDS):
                watch.report(on_step)
                keys.look()
                lists.look()
        finally:
            lists.close()
            # without a broker no transaction can be finished
            with suppress(SourceUnavailableError):
                request_stop(self._pipeline, [task.run])
                job.join(_STOP_SECONDS)
            with suppress(*SPARK_ERRORS):
                spark.sparkContext.cancelJobGroup(_JOBS)
        _raise_first(failures.value)
        if errors and not self._stop.is_set():
            raise errors[0]
        watch.report(on_step)
        return "asked"


def _run_job(spark: SparkSession, groups: list[list[int]], task: _Task, errors: list[Exception]) -> None:
    try:
        spark.sparkContext.setJobGroup(_JOBS, f"{task.pipeline.name} in real time", interruptOnCancel=True)
        spark.sparkContext.parallelize(groups, len(groups)).foreachPartition(task)
    except SPARK_ERRORS as exc:
        errors.append(translate_spark_error(exc, "the realtime run", ""))


def _raise_first(failures: Sequence[tuple[str, str]]) -> None:
    for kind, message in failures:
        if kind in {"InputError", "CheckpointError"}:
            raise InputError(message)
        raise RunError(message)


_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?")


def task_options(spark: SparkOptions) -> SparkOptions:
    """Return Spark's options for long-running tasks; raise InputError if speculation, which runs tasks twice, is on."""
    given = spark.settings()
    if given.get("spark.speculation", "false").lower() == "true":
        msg = "spark.speculation is set, and would run each partition twice; leave it out"
        raise InputError(msg)
    local = _LOCAL.fullmatch(given["spark.master"])
    master = f"local[{local[1] or 1},{_FAILURES}]" if local else spark.master
    return replace(spark, master=master, conf={"spark.task.maxFailures": _FAILURES, **spark.conf})
