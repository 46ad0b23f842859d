"""Runs a pipeline over a range of its log as one Spark job."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain
from typing import Literal

from pyspark.sql import Row, SparkSession

from windrow.core.state.store import MemoryState
from windrow.errors import EngineError, RunError, WindrowError
from windrow.hosts.batch.job import Job
from windrow.hosts.batch.plan import batch_plan
from windrow.hosts.batch.settings import BatchSettings
from windrow.hosts.batch.wire import state_of
from windrow.hosts.batch.writer import Writer
from windrow.hosts.report import OnStep
from windrow.hosts.savepoint import refuse_used
from windrow.hosts.stream.carrier import carrying
from windrow.hosts.stream.errors import SPARK_ERRORS, translate
from windrow.hosts.stream.prestart import prestart
from windrow.hosts.stream.session import spark_session
from windrow.hosts.stream.wire import outputs
from windrow.model import AnyPipeline
from windrow.sinks.base import Run, Sink
from windrow.sources import open_source

_TRIES = 3
"""How often a job is tried that fails by something that may pass, before anything is written."""
_NOT_BEGUN = "\nnothing was written; start again"
_BEGUN = "\nwhat was committed is not all: begin anew with --fresh"


class BatchRun:
    """One run of a pipeline over what its source holds; the sink's tables must be empty.

    The steps of a run are computed before the first of them is written, each in an epoch of its own.
    """

    def __init__(self, pipeline: AnyPipeline, sink: Sink, settings: BatchSettings) -> None:
        self._pipeline = pipeline
        self._sink = sink
        self._settings = settings
        self._source = open_source(pipeline.source)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the run to finish the epoch that it writes, or to drop what it computes, and return; from any thread."""
        self._stop.set()

    def run(self, on_step: OnStep) -> Literal["end", "asked"]:
        """Run; return why it ended. Raise a WindrowError if it failed; what was committed stays."""
        settings = self._settings
        if settings.savepoint is not None:
            refuse_used(settings.savepoint)
        job, run = self._job(), settings.run or Run.new(self._pipeline.name)
        self._sink.open(run)
        spark = spark_session(settings.master, log=settings.log)
        prestart(spark)
        tries = 1
        while True:
            writer = Writer(self._pipeline, self._sink, settings.journal, on_step)
            try:
                with (
                    carrying(spark, drops=not self._sink.needs_rows) as carrier,
                    closing(writer),
                    _cancelled(spark, self._stop),
                ):
                    return self._take(job, run, job.results(spark, carrier), writer)
            except SPARK_ERRORS as exc:
                if self._stop.is_set():
                    writer.settle()
                    return "asked"
                begun = writer.epoch >= 0
                failure = self._explained(translate(exc, "the batch", _BEGUN if begun else _NOT_BEGUN))
                if begun or tries == _TRIES or not (isinstance(failure, RunError) and failure.passes):
                    raise failure from exc
            tries += 1

    def _take(
        self, job: Job, run: Run, coming: Iterator[tuple[int, list[Row]]], writer: Writer
    ) -> Literal["end", "asked"]:
        """Write the steps that come, and what is known behind them to the savepoint."""
        cut = job.plan.cut
        states: Iterator[tuple[int, list[Row]]] = iter(())
        for position, rows in coming:
            if position >= len(cut):
                states = chain([(position, rows)], coming)
                break
            step = outputs(self._pipeline, rows)
            writer.settle()
            if self._stop.is_set():
                return "asked"
            writer.write(step)
        writer.settle()
        if self._stop.is_set():
            return "asked"
        writer.finish()
        if self._settings.savepoint is not None:
            known = ((position - len(cut), state_of(rows)) for position, rows in states)
            nothing = ((group, MemoryState()) for group in range(self._pipeline.key_groups))
            savepoint = job.plan.savepoint(self._pipeline, run, writer.epoch)
            savepoint.write(self._settings.savepoint, known if len(cut) else nothing)
        return "end"

    def _job(self) -> Job:
        return Job(
            pipeline=self._pipeline,
            source=self._source,
            plan=batch_plan(self._pipeline, self._source, self._settings),
            floors=self._settings.floors,
            since=self._settings.since,
            keeps_state=self._settings.savepoint is not None,
        )

    def _explained(self, exc: WindrowError) -> WindrowError:
        """Return what the source says if it cannot be read any more, else the error with where to look further."""
        if not isinstance(exc, EngineError):
            return exc
        try:
            self._source.partitions()
        except WindrowError as found:
            return found
        log = self._settings.log
        return type(exc)(f"{exc}; what Spark said is in {log}") if log is not None and log.exists() else exc


@contextmanager
def _cancelled(spark: SparkSession, stop: threading.Event) -> Iterator[None]:
    """Cancel what Spark does here once the run is asked to stop."""
    group, context = f"windrow-{uuid.uuid4()}", spark.sparkContext
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if stop.wait(0.2):
                with suppress(*SPARK_ERRORS):
                    context.cancelJobGroup(group)
                over.wait(0.2)

    context.setJobGroup(group, "windrow batch", interruptOnCancel=True)
    watcher = threading.Thread(target=watch, name="windrow-stop", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        context._jsc.sc().clearJobGroup()  # noqa: SLF001 - no other way
