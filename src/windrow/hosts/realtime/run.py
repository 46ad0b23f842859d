"""The Spark job of a realtime run: tasks that do not end, each with the loops of some partitions.

Spark places the tasks, ships what they need, and starts one again whose worker died. What the tasks keep is in Kafka:
nothing goes through the driver but the news that a partition cannot be run, and no checkpoint directory is written.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark import Accumulator, AccumulatorParam, InheritableThread, TaskContext
from pyspark.sql import SparkSession

from windrow.errors import InputError, RecordsLostError, RunError, SourceError, WindrowError
from windrow.hosts.realtime.partition import (
    POLL_SECONDS,
    FencedError,
    Owner,
    Partition,
    PartitionRun,
    group_of,
    sinks_of,
    source_of,
    state_topic,
)
from windrow.hosts.reports import OnStep, StepReport, Stopwatch, lag
from windrow.hosts.settings import AS_GIVEN, SparkOptions, is_local
from windrow.hosts.spark_errors import SPARK_ERRORS, translate_spark_error
from windrow.model import Runnable, companion
from windrow.sources.kafka import preflight
from windrow.sources.kafka.client import client_of, unreachable
from windrow.sources.kafka.options import TIMEOUT, client_options

_FAILURES = "1000000"
"""How often a task may fail: a job that lives for a year must not die of its fourth failure."""
_SAME = 60.0
"""Seconds within which a failure at the offset of the one before ends the run."""
_PAUSE = 0.5
"""Seconds between two attempts to open a partition whose broker does not answer."""
_HEALTHY = 60.0
"""Seconds without a failure after which an outage is over, where nothing comes that could be committed."""
_FENCED_WAIT = 5.0
"""Seconds that who is fenced waits, so that the one who did it has committed."""
_REPORT = 1.0
_STOP_SECONDS = 30.0
_JOBS = "windrow-realtime"


@dataclass(frozen=True)
class RealtimeSettings:
    """Settings of a run: `on_trouble` is called with what is retried, for `retry` seconds without an answer."""

    spark: SparkOptions = AS_GIVEN
    log: Path | None = None
    retry: float = 600.0
    on_trouble: Callable[[str], None] = lambda _: None
    on_ready: Callable[[], None] = lambda: None


def prepare_topics(pipeline: Runnable) -> list[int]:
    """Create the topics that are missing; return the partitions of the source.

    Raise SourceError for a broker that cannot be reached, InputError for a state topic of another number of partitions.
    """
    source = source_of(pipeline)
    partitions = sorted(preflight(source))
    settings = client_options(source)
    errors: list[Any] = []
    admin = client_of(AdminClient, source.topic, {**settings, "error_cb": errors.append})
    compacted = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "0.1"}
    stamped = {"message.timestamp.type": "LogAppendTime"}
    wanted = {state_topic(pipeline): compacted}
    for sink in sinks_of(pipeline):
        wanted |= dict.fromkeys((sink.topic, companion(sink, "late"), companion(sink, "dead")), stamped)
    try:
        known = admin.list_topics(timeout=TIMEOUT).topics
        missing = [
            NewTopic(name, len(partitions), config=config) for name, config in wanted.items() if name not in known
        ]
        if missing:
            for made in admin.create_topics(missing).values():
                made.result(TIMEOUT)
    except KafkaException as exc:
        raise SourceError(unreachable(source.servers, errors or [exc.args[0]])) from exc
    state = known.get(state_topic(pipeline))
    if state is not None and len(state.partitions) != len(partitions):
        msg = (
            f"topic {source.topic} has {len(partitions)} partitions, and had {len(state.partitions)} when the state in "
            f"{state_topic(pipeline)} was written: keys have moved to other partitions than their state. Give the "
            "pipeline another name, so that it begins anew"
        )
        raise InputError(msg)
    return partitions


class _Supervised:
    """A partition and its run, which is opened again after a failure that may pass."""

    def __init__(self, job: Partition, retry: float) -> None:
        self._job = job
        self._retry = retry
        self._run: PartitionRun | None = None
        self._down_since: float | None = None
        self._down_at = (0, 0.0)
        """At which offset it failed last, and when."""
        self._pause_until = 0.0
        self._failed: tuple[int, float] | None = None

    def turn(self, seconds: float) -> None:
        """Go once through the partition's loop; raise what cannot be mended, after leaving what is not committed."""
        if time.monotonic() < self._pause_until:
            time.sleep(0.01)
            return
        try:
            self._try(seconds)
        except BaseException:
            # its operators may have gone through half of a step
            self._abandon()
            raise

    def _try(self, seconds: float) -> None:
        try:
            if self._run is None:
                self._run = self._job.open()
            self._run.turn(seconds)
            offset, since = self._down_at
            # a turn that took nothing says little of what a transaction with records would meet
            if self._run.done > offset or time.monotonic() - since > _HEALTHY:
                self._down_since = None
        except FencedError:
            self._require_own()
        except (InputError, RecordsLostError):
            raise
        except (WindrowError, KafkaException) as exc:
            if not (isinstance(exc, KafkaException) or getattr(exc, "passes", False)):
                self._require_other(exc)
            self._wait(exc)
        except Exception as exc:  # noqa: BLE001 - a defect is reported with its place in the log, as any failure
            self._require_other(exc)
        else:
            return
        self._abandon()

    def close(self) -> None:
        """Commit what is decided."""
        if self._run is not None:
            with suppress(WindrowError, KafkaException):  # it is decided again by the next run
                self._run.close()

    def _abandon(self) -> None:
        if self._run is not None:
            self._run.abandon()
            self._run = None

    def _wait(self, exc: Exception) -> None:
        """Wait before the next attempt; raise if there was none without a failure for long."""
        now = time.monotonic()
        self._down_since = now if self._down_since is None else self._down_since
        self._down_at = (self._down_at[0] if self._run is None else self._run.done), now
        self._pause_until = now + _PAUSE
        if now - self._down_since > self._retry:
            raise exc

    def _require_other(self, exc: Exception) -> None:
        """Raise RunError if the partition has just failed at the same offset."""
        if self._run is None:
            raise exc
        offset, now = self._run.done, time.monotonic()
        if self._failed is not None and self._failed[0] == offset and now - self._failed[1] < _SAME:
            msg = f"partition {self._job.number} of {self._job.source.topic} failed twice behind offset {offset}: {exc}"
            raise RunError(msg) from exc
        self._failed = offset, now

    def _require_own(self) -> None:
        """Raise FencedError if somebody else has committed; what a stall let the broker abort is begun again."""
        if self._run is None:
            return
        time.sleep(_FENCED_WAIT)
        owner = self._run.owner()
        own = self._job.owner
        if owner is not None and (owner.run, owner.attempt) != (own.run, own.attempt):
            by = "a newer attempt of its task" if owner.run == own.run else "another run of the pipeline"
            msg = f"partition {self._job.number} of {self._job.source.topic} was taken over by {by}"
            raise FencedError(msg)


def serve(jobs: Sequence[Partition], is_stopped: Callable[[], bool], retry: float = 600.0) -> None:
    """Run partitions until asked to stop; raise a WindrowError for one that cannot be run."""
    loops = [_Supervised(job, retry) for job in jobs]
    try:
        while not is_stopped():
            for loop in loops:
                loop.turn(POLL_SECONDS / len(loops))
    finally:
        for loop in loops:
            loop.close()


class _Failures(AccumulatorParam[list[tuple[str, str]]]):
    """Gathers why partitions cannot be run: the class of the error, and its message."""

    def zero(self, value: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return nothing."""
        del value
        return []

    def addInPlace(self, value1: list[tuple[str, str]], value2: list[tuple[str, str]]) -> list[tuple[str, str]]:  # noqa: N802 - Spark's name
        """Join two lists."""
        return value1 + value2


@dataclass(frozen=True)
class _Task:
    """A task of the job; it ends when the file `flag` is there, and with a failure that Spark would only repeat."""

    pipeline: Runnable
    run: str
    flag: Path
    retry: float
    failures: Accumulator[list[tuple[str, str]]]

    def __call__(self, groups: Iterable[list[int]]) -> None:
        """Run the partitions of the task."""
        context = TaskContext.get()
        owner = Owner(self.run, 0 if context is None else context.attemptNumber())
        jobs = [Partition(self.pipeline, number, owner) for group in groups for number in group]
        try:
            serve(jobs, self.flag.exists, self.retry)
        except WindrowError as exc:
            self.failures.add([(type(exc).__name__, str(exc))])


class RealtimeRun:
    """Runs a pipeline until it is asked to stop."""

    def __init__(self, pipeline: Runnable, settings: RealtimeSettings) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the tasks to commit what they have decided, and end; from any thread."""
        self._stop.set()

    def run(self, on_step: OnStep) -> Literal["asked"]:
        """Run; report once a second. Raise a WindrowError if a partition cannot be run; what was committed stays."""
        from windrow.hosts.cluster import preflight as preflight_executors  # noqa: PLC0415 - after the topics are there
        from windrow.hosts.spark import scratch_folder, spark_session  # noqa: PLC0415 - the same

        partitions = prepare_topics(self._pipeline)
        options = task_options(self._settings.spark)
        spark = spark_session(options, log=self._settings.log)
        preflight_executors(spark, self._pipeline, None)
        flag = scratch_folder() / f"stop-{uuid.uuid4().hex}"
        failures = spark.sparkContext.accumulator([], _Failures())
        errors: list[Exception] = []
        slots = min(len(partitions), int(spark.sparkContext.defaultParallelism))
        groups = [partitions[slot::slots] for slot in range(slots)]
        task = _Task(self._pipeline, uuid.uuid4().hex, flag, self._settings.retry, failures)
        job = InheritableThread(target=_run_job, args=(spark, groups, task, errors), name=_JOBS, daemon=True)
        watch = _CommittedOffsets(self._pipeline, partitions, self._settings.on_trouble)
        job.start()
        self._settings.on_ready()
        try:
            while job.is_alive() and not failures.value and not self._stop.wait(_REPORT):
                watch.report(on_step)
        finally:
            flag.touch()
            if not is_local(options.settings()["spark.master"]):
                with suppress(*SPARK_ERRORS):
                    spark.sparkContext.cancelJobGroup(_JOBS)
            job.join(_STOP_SECONDS)
            with suppress(*SPARK_ERRORS):
                spark.sparkContext.cancelJobGroup(_JOBS)
        watch.report(on_step)
        _raise_first(failures.value)
        if errors and not self._stop.is_set():
            raise errors[0]
        return "asked"


def _run_job(
    spark: SparkSession, groups: list[list[int]], task: Callable[[Iterable[list[int]]], None], errors: list[Exception]
) -> None:
    try:
        spark.sparkContext.setJobGroup(_JOBS, "windrow: partitions in real time", interruptOnCancel=True)
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
    """Return Spark's options for tasks that do not end; raise InputError for speculation, which runs a task twice."""
    given = spark.settings()
    if given.get("spark.speculation", "false").lower() == "true":
        msg = "spark.speculation is set, and would run each partition twice; leave it out"
        raise InputError(msg)
    local = _LOCAL.fullmatch(given["spark.master"])
    master = f"local[{local[1] or 1},{_FAILURES}]" if local else spark.master
    return replace(spark, master=master, conf={"spark.task.maxFailures": _FAILURES, **spark.conf})


class _CommittedOffsets:
    """Asks how far the consumer group and the topic are."""

    def __init__(self, pipeline: Runnable, partitions: Sequence[int], on_trouble: Callable[[str], None]) -> None:
        self._source = source_of(pipeline)
        settings = {**client_options(self._source), "error_cb": lambda _: None}
        self._admin = client_of(AdminClient, self._source.topic, settings)
        self._asked = ConsumerGroupTopicPartitions(
            group_of(pipeline), [TopicPartition(self._source.topic, number) for number in partitions]
        )
        self._on_trouble = on_trouble
        self._is_down = False
        self._watch = Stopwatch()
        self._epoch = -1
        self._last: Mapping[int, int] = {}

    def report(self, on_step: OnStep) -> None:
        """Report what was committed since the last report; nothing if no broker answers, or none is."""
        try:
            (answer,) = self._admin.list_consumer_group_offsets([self._asked], request_timeout=TIMEOUT).values()
            offsets = {one.partition: one.offset for one in answer.result(TIMEOUT).topic_partitions if one.offset >= 0}
            ends = preflight(self._source, _REPORT)
        except (KafkaException, WindrowError) as exc:
            if not self._is_down:
                self._on_trouble(f"{exc}; the tasks try again")
            self._is_down = True
            return
        self._is_down = False
        behind = lag(ends, offsets)
        if offsets == self._last and any(behind.values()):
            return  # a report is of what was committed
        self._epoch += 1
        records = sum(at - self._last.get(number, at) for number, at in offsets.items())
        self._last = offsets
        seconds = self._watch.lap()
        on_step(
            StepReport(
                epoch=self._epoch,
                records=records,
                late=0,
                expired=0,
                dead=0,
                inserts=0,
                revisions=0,
                open_windows=0,
                watermarks={},
                offsets=dict(offsets),
                low_watermark=None,
                idle=[],
                seconds=seconds,
                took=seconds,
                lag=dict(behind),
            )
        )
