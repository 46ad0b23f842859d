"""Runs a pipeline over a range of its log as one Spark job."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Literal

from pyspark.sql import DataFrame, Row, SparkSession

from windrow.errors import EngineError, SourceError, WindrowError
from windrow.hosts.batch.settings import BatchSettings
from windrow.hosts.batch.slices import Slices, slices
from windrow.hosts.batch.stages import clock_stage, key_group_stage, spread_stage
from windrow.hosts.batch.wire import PACKET_DDL, RESULT_DDL, state_of
from windrow.hosts.batch.writer import Writer
from windrow.hosts.meaning import meaning
from windrow.hosts.report import OnStep
from windrow.hosts.savepoint import Savepoint, refuse_used
from windrow.hosts.stream.errors import SPARK_ERRORS, translate
from windrow.hosts.stream.session import spark_session
from windrow.model import AnyPipeline, KafkaSource, is_salted
from windrow.sinks.base import ParallelSink, Run, Sink
from windrow.sources import Cut, open_source


@dataclass(frozen=True)
class _Job:
    """Who writes, and what is read in which steps."""

    run: Run
    begin: dict[int, int]
    end: dict[int, int]
    cut: Slices

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(sorted(self.end))


class BatchRun:
    """One run of a pipeline over what its source holds; the sink's tables must be empty, or another pipeline's none.

    The steps of a run are computed before the first of them is written. A sink that is written in parallel is given
    them all in one epoch, and so in one transaction; any other a step an epoch.
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
        begin, end = self._range()
        fires = (settings.at_end or self._pipeline.at_end) == "fire"
        cut = slices(begin, end, settings.ends, settings.max_records, fires=fires)
        run = Run(self._pipeline.name, str(uuid.uuid4()))
        self._sink.open(run)
        writer = Writer(self._pipeline, self._sink, on_step)
        spark = spark_session(settings.master, log=settings.log)
        job = _Job(run, begin, end, cut)
        try:
            return self._compute(spark, job, writer)
        except EngineError as exc:
            raise self._explained(exc) from exc

    def _range(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return where each partition is read from and to; raise SourceError if that is not in the log."""
        there, settings = self._source.ends(), self._settings
        begin = {partition: first for partition, (first, _) in there.items()}
        end = {partition: last for partition, (_, last) in there.items()}
        if settings.begin is not None:
            begin |= _within(settings.begin, there)
        elif isinstance(self._pipeline.source, KafkaSource) and self._pipeline.source.start == "latest":
            begin = dict(end)
        if settings.end is not None:
            end = begin | _within(settings.end, there)
        return begin, end

    def _compute(self, spark: SparkSession, job: _Job, writer: Writer) -> Literal["end", "asked"]:
        steps = len(job.cut)
        with _cancelled(spark, self._stop):
            try:
                coming = _by_position(iter(self._results(spark, job).toLocalIterator()))
                for position, rows in coming:
                    if position >= steps:
                        coming = chain([(position, rows)], coming)
                        break
                    writer.add(rows)
                    if self._stop.is_set():
                        return "asked"
                writer.finish()
                if self._settings.savepoint is not None:
                    states = ((position - steps, state_of(rows)) for position, rows in coming)
                    Savepoint(
                        run=job.run,
                        epoch=writer.epoch,
                        offsets=job.end,
                        partitions=job.partitions,
                        key_groups=self._pipeline.key_groups,
                        meaning=meaning(self._pipeline),
                    ).write(self._settings.savepoint, states)
            except SPARK_ERRORS as exc:
                if self._stop.is_set():
                    return "asked"
                raise translate(exc) from exc
        return "end"

    def _results(self, spark: SparkSession, job: _Job) -> DataFrame:
        """Return what the key groups give, a Spark partition a step and then one for each group's state."""
        pipeline, settings, cut = self._pipeline, self._settings, job.cut
        raw = self._source.batch(spark, job.begin, job.end)
        packets = raw.mapInArrow(clock_stage(pipeline, settings.floors, cut), PACKET_DDL)
        if is_salted(pipeline):
            spread = spread_stage(pipeline, job.partitions, cut)
            packets = _by_key_group(packets, pipeline).mapInArrow(spread, PACKET_DDL)
        stage = key_group_stage(
            pipeline,
            job.partitions,
            cut,
            since=settings.since,
            sink=self._sink if isinstance(self._sink, ParallelSink) else None,
            keeps_state=settings.savepoint is not None,
        )
        positions = max(1, len(cut) + (pipeline.key_groups if settings.savepoint is not None else 0))
        return _by_key_group(packets, pipeline).mapInArrow(stage, RESULT_DDL).repartitionById(positions, "position")

    def _explained(self, exc: EngineError) -> WindrowError:
        """Return what the source says if it cannot be read any more, else the error with where to look further."""
        try:
            self._source.partitions()
        except WindrowError as found:
            return found
        log = self._settings.log
        return EngineError(f"{exc}; what Spark said is in {log}") if log is not None and log.exists() else exc


def _by_key_group(packets: DataFrame, pipeline: AnyPipeline) -> DataFrame:
    """Make one Spark partition of each key group, in the order of the steps: Spark spills, and not we."""
    return packets.repartitionById(pipeline.key_groups, "key_group").sortWithinPartitions("slice")


def _by_position(rows: Iterator[Row]) -> Iterator[tuple[int, list[Row]]]:
    for position, group in groupby(rows, lambda row: row.position):
        yield position, list(group)


def _within(asked: Cut, there: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Return a cut; raise SourceError if the log does not hold it (any more)."""
    for partition, offset in asked.items():
        first, end = there.get(partition, (0, 0))
        if not first <= offset <= end:
            msg = (
                f"offset {offset} of partition {partition} is asked for, but the log holds {first} to {end} now: "
                "records were lost, or it is another log"
            )
            raise SourceError(msg)
    return dict(asked)


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
