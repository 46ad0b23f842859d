"""The streaming query: sources, stages and sink. A step is written while Spark computes the next."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from windrow import model as m
from windrow.connectors.cuts import Cut
from windrow.connectors.sink import SinkGroup
from windrow.connectors.source import Source
from windrow.connectors.stream_reader import stream_of
from windrow.engine.changelog import concat_by_sink, empty_by_sink
from windrow.engine.level import number_of_levels
from windrow.engine.operators.base import GroupOutput
from windrow.engine.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.errors import CheckpointBusyError, EngineError, RunError, WindrowError
from windrow.runtime.spark.cluster import SHUFFLE_PARTITIONS, partitions_of_state
from windrow.runtime.spark.errors import SPARK_ERRORS, translate_spark_error
from windrow.runtime.spark.key_groups import KeyGroupProcessor
from windrow.runtime.spark.rows import OUTPUT_DDL, PACKET_DDL, outputs
from windrow.runtime.spark.stages import LevelStep, balanced_key_groups, stream_ingest
from windrow.runtime.spark.transport import TableTransport
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.runtime.stream.control import ControlReader, TickDataSource
from windrow.runtime.stream.steps import Trigger
from windrow.telemetry.folders import Folder, matching
from windrow.telemetry.part_times import PartTime
from windrow.telemetry.reports import NOTHING_REFUSED, OnStep, StepReport, Stopwatch, ending_now, timing


def key_group_outputs(
    spark: SparkSession,
    graph: m.Graph,
    source: Source,
    checkpoint: Checkpoint,
    transport: TableTransport,
    *,
    max_records: int | None = None,
    cuts: Sequence[Cut] | None = None,
    ticks: int | None = None,
    bounds: WatermarkBounds = NO_BOUNDS,
    ends: int | None = None,
    size: Path | None = None,
    trigger: Trigger | None = None,
) -> DataFrame:
    """Return the streaming frame of the key groups' output, one row a group and step (`OUTPUT_DDL`).

    `transport` packs its tables, and the records on their way to the key groups. The records of the partition `ticks`,
    if there is one, are ticks. With `ends`, the number of ends of the input before the run, the query emits the end of
    the input. The file `size`, if given, has the maximum number of records of the next step. A live run has a
    `trigger`.
    """
    carried = checkpoint.carried()
    since = {} if carried is None else carried.decoded_since
    begin, stage = checkpoint.note(None), stream_ingest(graph, transport, bounds, ticks, since)
    # a checkpoint with steps keeps its number, which Spark has recorded with them
    spark.conf.set(SHUFFLE_PARTITIONS, partitions_of_state(spark, graph.key_groups))
    tasks = spark.sparkContext.defaultParallelism
    reader = source.reader(stage, begin.at, tasks=tasks, max_records=max_records, cuts=cuts)
    planned = dict(enumerate(checkpoint.kept_plan))
    control = ControlReader(
        reader,
        begin,
        graph.key_groups,
        ends=ends,
        ends_apart=cuts is not None,
        size=size,
        planned=planned.get(0),
        trigger=trigger,
    )
    packets = stream_of(spark, "windrow", control, PACKET_DDL)
    is_idle = any(node.time.idle is not None for node in graph.sources)
    if is_idle or any(map(m.needs_ticks, graph.keyed)):
        spark.dataSource.register(TickDataSource)
        clock = spark.readStream.format(TickDataSource.name()).option("key_groups", graph.key_groups)
        clock = clock if trigger is None else clock.option("every", trigger.every)
        packets = packets.union(clock.option("planned", json.dumps(planned.get(1))).load())
    start = None if checkpoint.follows is None else str(checkpoint.start.absolute())
    numbers = f.array(*map(f.lit, balanced_key_groups(graph.key_groups)))
    last = number_of_levels(graph) - 1
    for level in range(last + 1):
        step = LevelStep(graph, level, checkpoint.partitions, start, transport)
        slotted = packets.withColumn("slot", f.element_at(numbers, f.col("key_group") + 1))
        packets = slotted.groupBy("slot").transformWithStateInPandas(
            statefulProcessor=KeyGroupProcessor(step),
            outputStructType=OUTPUT_DDL if level == last else PACKET_DDL,
            outputMode="Append",
            timeMode="None",
        )
    return packets


class PlanGuard:
    """Refuses a step if its plan in the checkpoint is not this query's; call it with the batch.

    Two drivers that plan a step at the same moment can overwrite each other's plan in an object store.
    """

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._own: dict[int, list[str]] = {}

    def __call__(self, batch: int) -> None:
        """Compare the plans, first before the step is computed; raise EngineError if they differ."""
        if batch not in self._own:
            recent = {number: ends for number, ends in self._own.items() if number >= batch - 1}
            self._own = recent | {batch: self._planned()}
        if sorted(map(json.dumps, self._checkpoint.ends_of(batch))) != self._own[batch]:
            msg = (
                f"another process has planned step {batch} of the checkpoint {self._checkpoint.folder} at the same "
                "moment; what was committed stays: let one of the two run, and start it again"
            )
            raise EngineError(msg)

    def _planned(self) -> list[str]:
        """Return the end of the current step in each source, as Spark has it in memory."""
        running = _running(self._spark, self._checkpoint)
        if running is None:
            return []
        found = running.availableOffsets().values().toSeq()
        return sorted(json.dumps(json.loads(found.apply(number).json())) for number in range(found.size()))


def _running(spark: SparkSession, checkpoint: Checkpoint) -> Any:  # noqa: ANN401 - Java's
    """Return the query that runs on a checkpoint, or None."""
    for query in spark._jsparkSession.streams().active():  # noqa: SLF001 - no other way
        running = query.streamingQuery()
        if running.resolvedCheckpointRoot().endswith(str(checkpoint.spark.absolute())):  # after file:
            return running
    return None


class QueryWatch:
    """Asks Spark about the query that runs on a checkpoint; unknown values are left out."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._query: Any = None

    def planned(self) -> list[PartTime]:
        """Return the time since the current step began, in which Spark has planned it."""
        with suppress(*SPARK_ERRORS):
            if self._query is None:
                self._query = _running(self._spark, self._checkpoint)
            if self._query is not None:
                began = self._query.getLatestExecutionContext().currentTriggerStartTimestamp()
                return [ending_now("plan", max(0.0, time.time() - began / 1_000))]
        return []

    def state(self) -> list[tuple[int, int]]:
        """Return the rows and bytes of the state store by level after the last step that Spark reports."""
        with suppress(*SPARK_ERRORS):
            last = None if self._query is None else self._query.lastProgress()
            if last is not None:
                return [
                    (operator.get("numRowsTotal", 0), operator.get("customMetrics", {}).get(_STATE_BYTES, 0))
                    # from the root of the plan, which is the last level
                    for operator in reversed(json.loads(last.json())["stateOperators"])
                ]
        return []


_STATE_BYTES = "rocksdbSstFileSize"


BUSY = "another process was still finishing its last step of this checkpoint when this one began"


class SinkWriter:
    """Computes a step when it is called, and commits it in a thread of its own, in the order of the steps.

    A computed step waits until the one before is committed, so the tables are at most one step behind Spark's records
    (see `agree`). `failure` is the error of a step that was not committed, or None; `unsure` is the report of a step
    whose commit failed but may be in the tables, as the answer to a COMMIT can be lost.

    `first_epoch` is the epoch of Spark's batch 0, and `begin` the next batch of the tables: if a later one comes first,
    another process has recorded one since the tables were opened, which raises CheckpointBusyError. `check` is called
    when the records of a step were read, and raises a WindrowError if they must not be committed. `sync` is called
    before each commit, when Spark has written the step's offsets and states: after a power cut the checkpoint must have
    every step of the tables. `guard` is called with Spark's batch before a step is computed and before it is committed,
    and raises a WindrowError too. `query` has the facts about the query for reports.
    """

    def __init__(
        self,
        graph: m.Graph,
        sinks: SinkGroup,
        on_step: OnStep,
        *,
        begin: int,
        first_epoch: int = 0,
        check: Callable[[], None] = lambda: None,
        sync: Callable[[], None] = lambda: None,
        guard: Callable[[int], None] = lambda _: None,
        query: QueryWatch,
    ) -> None:
        self._query = query
        self._guard = guard
        self._begin = begin
        self._first_epoch = first_epoch
        self._check = check
        self._sync = sync
        self._pipeline = graph
        self._nothing = empty_by_sink(graph)
        self._sinks = sinks
        self._on_step = on_step
        self._watch = Stopwatch()
        self._step = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "windrow-sink")
        self._writing: Future[None] | None = None
        self._closed = False
        self.has_begun = False
        self.failure: WindrowError | None = None
        self.unsure: StepReport | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Compute one step, and commit it in the background."""
        epoch = self._first_epoch + batch
        with self._step:
            if self._closed:
                msg = f"step {epoch} is left to the next run: this one was asked to stop"
                raise RunError(msg)
            try:
                work, spent = Stopwatch(), self._query.planned()
                if not self.has_begun and batch > self._begin:
                    raise CheckpointBusyError(BUSY)
                self.has_begun = True
                self._guard(batch)
                # for Spark's web page; the group of the jobs stays the query's, which cancels them
                frame.sparkSession.sparkContext.setJobDescription(f"{self._pipeline.name} epoch {epoch}")
                with timing(spent, "compute"):
                    rows = frame.toArrow()
                with timing(spent, "collect"):
                    groups = outputs(self._pipeline, rows.to_pylist())
                    del rows  # free it before waiting for the commit of the step before
                    self._check()
                took = work.lap()
                with timing(spent, "wait"):
                    self.settle()
                self._writing = self._thread.submit(self._write, epoch, groups, took, spent)
            except WindrowError as exc:
                self.failure = exc
                raise

    def settle(self) -> None:
        """Wait until all computed steps are committed; raise the WindrowError of a failed commit."""
        if self._writing is not None:
            self._writing.result()
        if self.failure is not None:
            raise self.failure

    def close(self, seconds: float) -> bool:
        """Wait for the commit of the current step, and accept no other; return whether it was committed in time."""
        watch = Stopwatch()
        if not self._step.acquire(timeout=seconds):
            return False
        self._closed = True
        self._step.release()
        self._thread.shutdown(wait=False)
        return self._writing is None or not wait([self._writing], max(0, seconds - watch.lap())).not_done

    def _write(self, epoch: int, groups: Sequence[GroupOutput], took: float, spent: list[PartTime]) -> None:
        work = Stopwatch()

        def report(refused: Mapping[str, Mapping[str, int]] = NOTHING_REFUSED) -> StepReport:
            seconds = self._watch.seconds
            return StepReport.of(epoch, groups, seconds, took + work.seconds, parts=spent, refused=refused)

        try:
            rows = concat_by_sink(self._nothing, (group.by_sink for group in groups))
            self._guard(epoch - self._first_epoch)
            with timing(spent, "sync"):
                self._sync()
            self.unsure = report() if groups else None
            with timing(spent, "commit"):
                refused = self._sinks.commit(epoch, rows)
            self.unsure = None
            if groups:
                final = report(refused)
                self._watch.lap()
                self._on_step(final.with_state(self._pipeline, self._query.state()))
        except WindrowError as exc:
            self.failure = exc
        except Exception as exc:  # noqa: BLE001 - raised where the run waits
            self.failure = translate_spark_error(exc)


def close_stores(spark: SparkSession, query: StreamingQuery, checkpoint: Folder) -> None:
    """Close the state stores of a query that has ended.

    Spark keeps them open for a while, and its maintenance could still write the snapshot of a step that the next query
    runs differently.
    """
    for store in stores_of(spark, query, checkpoint):
        state_package(spark).StateStore.removeFromLoadedProvidersAndClose(store)


def stores_of(spark: SparkSession, query: StreamingQuery, checkpoint: Folder) -> Iterator[Any]:
    """Yield Spark's ids of the state stores of a query."""
    execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001 - no other way
    if execution is None:
        return
    run = _java(spark).java.util.UUID.fromString(query.runId)
    for folder in matching(checkpoint, "state/[0-9]*/[0-9]*"):
        place = execution.checkpointLocation(), int(folder.parent.name), int(folder.name), "default"
        yield state_package(spark).StateStoreProviderId(state_package(spark).StateStoreId(*place), run)


def state_package(spark: SparkSession) -> Any:  # noqa: ANN401 - Java's
    """Return the Java package of Spark's state stores."""
    return _java(spark).org.apache.spark.sql.execution.streaming.state


def _java(spark: SparkSession) -> Any:  # noqa: ANN401 - the same
    return spark._jvm  # noqa: SLF001 - no other way
