"""The query: source, clock stage, key groups, sink."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from windrow.core.floors import NO_FLOORS, Floors
from windrow.core.output import StepOutput
from windrow.errors import RunError, WindrowError
from windrow.hosts.report import OnStep, StepReport, Stopwatch
from windrow.hosts.stream.checkpoint import Checkpoint
from windrow.hosts.stream.slots import slots
from windrow.hosts.stream.stages import KeyGroupProcessor, SpreadProcessor, clock_stage, stage_parts
from windrow.hosts.stream.telling import TellingReader
from windrow.hosts.stream.ticks import TickDataSource
from windrow.hosts.stream.wire import OUTPUT_DDL, PACKET_DDL, STAGED_DDL, group_stats, outputs
from windrow.model import AnyPipeline, is_salted, needs_ticks
from windrow.sinks.base import ParallelSink, Sink
from windrow.sources.base import Cut, Source
from windrow.sources.spark import stream_of


def key_group_outputs(
    spark: SparkSession,
    pipeline: AnyPipeline,
    source: Source,
    checkpoint: Checkpoint,
    *,
    max_records: int | None = None,
    cuts: Sequence[Cut] | None = None,
    ticks: int | None = None,
    floors: Floors = NO_FLOORS,
    ends: int | None = None,
    size: Path | None = None,
) -> DataFrame:
    """Return the streaming frame of what the key groups give, one row a group and step (`OUTPUT_DDL`).

    The records of the partition `ticks`, if there is one, are ticks. The end of the input is told where it is said
    how many `ends` were told before the run. A file `size` says how many records the next step takes, if there is one.
    """
    begin, stage = checkpoint.note(None), clock_stage(pipeline, floors, ticks)
    tasks = spark.sparkContext.defaultParallelism
    reader = source.reader(stage, begin.at, tasks=tasks, max_records=max_records, cuts=cuts)
    telling = TellingReader(reader, begin, pipeline.key_groups, ends=ends, size=size)
    packets = stream_of(spark, "windrow", telling, PACKET_DDL)
    if needs_ticks(pipeline):
        spark.dataSource.register(TickDataSource)
        clock = spark.readStream.format(TickDataSource.name()).option("key_groups", pipeline.key_groups)
        packets = packets.union(clock.load())
    known = checkpoint.partitions, None if checkpoint.follows is None else checkpoint.start.absolute()
    if is_salted(pipeline):
        packets = _by_key_group(packets, pipeline, SpreadProcessor(pipeline, *known), PACKET_DDL)
    return _by_key_group(packets, pipeline, KeyGroupProcessor(pipeline, *known), OUTPUT_DDL)


def _by_key_group(packets: DataFrame, pipeline: AnyPipeline, processor: StatefulProcessor, ddl: str) -> DataFrame:
    numbers = f.array(*map(f.lit, slots(pipeline.key_groups)))
    slotted = packets.withColumn("slot", f.element_at(numbers, f.col("key_group") + 1))
    return slotted.groupBy("slot").transformWithStateInPandas(
        statefulProcessor=processor, outputStructType=ddl, outputMode="Append", timeMode="None"
    )


class SinkWriter:
    """What Spark calls with each step's frame: it commits the step, and keeps the error if that fails.

    `first_epoch` is the epoch of Spark's batch 0. `check` is called when the records of a step were read, and raises a
    WindrowError if they are not to be committed.
    """

    def __init__(
        self,
        pipeline: AnyPipeline,
        sink: Sink,
        on_step: OnStep,
        *,
        first_epoch: int = 0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._first_epoch = first_epoch
        self._check = check
        self._pipeline = pipeline
        self._sink = sink
        self._on_step = on_step
        self._watch = Stopwatch()
        self._step = threading.Lock()
        self._closed = False
        self.failure: WindrowError | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Commit one step."""
        epoch = self._first_epoch + batch
        with self._step:
            if self._closed:
                msg = f"step {epoch} is left to the next run: this one was asked to stop"
                raise RunError(msg)
            try:
                self._commit(frame, epoch)
            except WindrowError as exc:
                self.failure = exc
                raise

    def close(self, seconds: float) -> bool:
        """Wait for the step at hand to be committed, and take no other; return whether that was done in time."""
        if not self._step.acquire(timeout=seconds):
            return False
        self._closed = True
        self._step.release()
        return True

    def _commit(self, frame: DataFrame, epoch: int) -> None:
        work = Stopwatch()
        if isinstance(self._sink, ParallelSink):
            rows = frame.mapInArrow(stage_parts(self._pipeline, self._sink, epoch), STAGED_DDL).collect()
            self._check()
            self._sink.merge(epoch, [row.token for row in rows])
            stats = [group_stats(text) for row in rows for text in row.stats]
        else:
            parts = list(outputs(self._pipeline, frame.toArrow().sort_by("key_group")))
            self._check()
            self._sink.commit(
                epoch, StepOutput.concat([StepOutput.empty(self._pipeline), *(part.rows for part in parts)])
            )
            stats = [part.stats for part in parts]
        seconds = self._watch.lap()
        if stats:
            self._on_step(StepReport.of(epoch, stats, seconds, work.lap()))
