"""A stream run: either live, until it is asked to stop, or bounded, to the end of the input."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from windrow import model as m
from windrow.connectors.cuts import Cut, StreamPlan
from windrow.connectors.memory import CollectSink
from windrow.connectors.open_sources import followers, open_sources
from windrow.connectors.sink import Sink, SinkGroup
from windrow.connectors.stream_reader import stream_of
from windrow.engine.changelog import StepOutput, empty_by_sink
from windrow.engine.columns import MIN_TIME
from windrow.engine.level import number_of_levels
from windrow.engine.operators.ingest import divided_truncations
from windrow.engine.tick import Crash, PlayStep, Tick, with_crashes
from windrow.engine.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.errors import (
    CheckpointBusyError,
    EngineError,
    RecordsLostError,
    RunError,
    SourceUnavailableError,
    WindrowError,
    WorkerLostError,
)
from windrow.runtime.batch.plan import MAX_RECORDS
from windrow.runtime.batch.run import write_log
from windrow.runtime.run import RunSettings
from windrow.runtime.spark.cluster import SHUFFLE_PARTITIONS, partitions_of_state, preflight
from windrow.runtime.spark.errors import SPARK_ERRORS, fault_of, translate_spark_error
from windrow.runtime.spark.key_groups import KeyGroupProcessor
from windrow.runtime.spark.rows import OUTPUT_DDL, PACKET_DDL
from windrow.runtime.spark.session import close_dead_callbacks, prestart, spark_session
from windrow.runtime.spark.stages import LevelStep, balanced_key_groups, stream_ingest
from windrow.runtime.spark.transport import TableTransport, carrying, is_one_process
from windrow.runtime.stream.checkpoint import Checkpoint, locked
from windrow.runtime.stream.control import ControlReader, Ticks
from windrow.runtime.stream.following import CLUSTER_LIMIT, LIMIT, Following, RetryPolicy
from windrow.runtime.stream.integrity import checksum, refuse_damaged, refuse_damaged_tables
from windrow.runtime.stream.offsets import LossGuard, OffsetLog, agree, begin_from, note_beginning
from windrow.runtime.stream.query import BUSY, SinkWriter, close_stores
from windrow.runtime.stream.step_size import StepSizeController, StepSizeFile
from windrow.runtime.stream.steps import ClockGuard, Trigger
from windrow.telemetry.folders import Folder
from windrow.telemetry.lag import LagWatch
from windrow.telemetry.reports import Fault, Lag, OnLag, OnStep, StepReport, counted

_POLL = 1
"""Seconds between two checks whether to stop and whether a follower of a file or table has failed."""

_ROOM = 1 << 20
"""Free bytes on the checkpoint's disk below which the failure of a step is reported as a full disk."""

_STEP = 120.0
"""Seconds in which a step must finish when the run is asked to stop."""

_LEAVE = 1.0
"""Seconds in which a step must finish when the run has failed; writes after this time are not committed."""


_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings of a query: few rows pass through Java, so generating code in each step takes longer than it saves."""

LIVE_MAX_RECORDS = 500_000
"""Default number of records in a step of a live run."""


class _OverdueError(EngineError):
    """Raised when a step has not finished in time although the run was asked to stop."""


@dataclass(frozen=True)
class PrescribedSteps:
    """The steps of a run over an embedded log: the `cuts` at which they end, and the partition that holds `ticks`."""

    cuts: Sequence[Cut]
    ticks: int


def largest_step(settings: RunSettings) -> int:
    """Return the maximum number of records in a step of a run."""
    return settings.max_records or (MAX_RECORDS if settings.until_end else LIVE_MAX_RECORDS)


class StreamRun:
    """One run of a pipeline on Spark.

    `steps` prescribes its steps. `bounds` are watermarks from the clock journal of a run to repeat.
    """

    def __init__(
        self,
        graph: m.Graph,
        sink: Sink | SinkGroup,
        settings: RunSettings,
        *,
        steps: PrescribedSteps | None = None,
        bounds: WatermarkBounds = NO_BOUNDS,
    ) -> None:
        self._pipeline = graph
        self._sinks = SinkGroup.of(sink)
        self._settings = settings
        self._steps = steps
        self._bounds = bounds
        self._max_records = None if steps is not None else largest_step(settings)
        self._source = open_sources(graph)
        self._following = Following({}, RetryPolicy, settings.on_trouble, settings.on_warning)
        self._stop = threading.Event()
        self._last_reported = -1
        self._unsure: StepReport | None = None
        self._unverified: list[Folder] = []
        self._begin = 0
        is_idle = any(node.time.idle is not None for node in graph.sources)
        self._has_ticks = not settings.until_end and (is_idle or any(map(m.needs_ticks, graph.keyed)))
        self._pace: StepSizeController | None = None
        if settings.step_time is not None and self._max_records is not None and not settings.until_end:
            self._pace = StepSizeController(self._max_records, settings.step_time / 1_000_000)

    def stop(self) -> None:
        """Ask the run to finish its current step and return; can be called from any thread."""
        self._stop.set()

    def run(self, on_step: OnStep) -> Literal["end", "asked"]:
        """Run, and return why the run ended. Raise a WindrowError if it fails; steps already committed remain."""
        with ExitStack() as stack:
            checkpoint = self._prepare(stack)
            # only now: problems of the source, the sink and the checkpoint are reported before Spark starts
            spark = spark_session(self._settings.spark, log=checkpoint.log)
            prestart(spark, has_state=True)
            if self._settings.has_company:
                # each session has its own settings, queries and data sources
                spark = spark.newSession()
            preflight(spark, self._pipeline, checkpoint.folder)
            limit = self._settings.retry
            if limit is None:
                limit = LIMIT if is_one_process(spark) else CLUSTER_LIMIT
            self._following = stack.enter_context(
                Following(
                    {} if self._settings.until_end else followers(self._pipeline),
                    partial(RetryPolicy, limit),
                    self._settings.on_trouble,
                    self._settings.on_warning,
                )
            )
            watch = LagWatch(
                self._source,
                lambda epoch: checkpoint.offsets(epoch - checkpoint.first_epoch),
                self._last_reported,
                self._warning_of_partitions(checkpoint),
                self._following.lags,
            )
            on_step = self._report_once(stack.enter_context(watch).with_lag(on_step))
            if self._pace is not None:
                sizing = StepSizeFile(self._pace, checkpoint)
                sizing.write()
                on_step = sizing.noting(on_step)
            fires = self._settings.until_end and self._pipeline.at_end == "fire"
            ends = self._ends_emitted(checkpoint) if fires else None
            retries = RetryPolicy(limit)
            opened = True
            while True:
                try:
                    if not opened:
                        written = self._open(checkpoint)
                        if self._unsure is not None and self._unsure.epoch <= written:
                            on_step(self._unsure)  # if Spark noted that step as done, it does not run it again
                        self._unsure = None
                        self._losses(checkpoint).look(self._begun(written))
                        opened = True
                    ended = self._query(spark, checkpoint, ends, on_step)
                    return "asked" if self._stop.is_set() or not ended else "end"
                except (WindrowError, OSError) as exc:
                    failure = self._explain(exc, checkpoint)
                    pause = retries.after(self._last_reported) if failure.passes and not self._stop.is_set() else None
                    if pause is None:
                        raise failure from (exc.__cause__ if failure is exc else exc)
                # resume as a new run would: from the last step in the tables
                opened = False
                fault = Fault.of(failure, str(failure).splitlines()[0], f"trying again in {pause:g} s")
                self._settings.on_trouble(fault)
                if self._stop.wait(pause):
                    return "asked"

    def _warning_of_partitions(self, checkpoint: Checkpoint) -> OnLag:
        """Wrap `on_lag` so that it warns once if a source gets partitions that its truncations do not reach."""
        warned: set[str] = set()

        def on_lag(lag: Lag) -> None:
            partitions = [number for number in lag.records if isinstance(number, int)]
            for node in divided_truncations(self._pipeline, checkpoint.partitions, partitions):
                if node.name not in warned:
                    warned.add(node.name)
                    self._settings.on_warning(
                        f"the log {node.source.label} had one partition when the run began, and now has several: a "
                        "truncation of the table, which Debezium writes to one of them, leaves the rows of the others. "
                        "If the table is ever truncated, use a topic of one partition with a new snapshot"
                    )
            self._settings.on_lag(lag)

        return on_lag

    def _ends_emitted(self, checkpoint: Checkpoint) -> int:
        note = OffsetLog(checkpoint).read()
        return 0 if note is None else note.ends

    def _report_once(self, on_step: OnStep) -> OnStep:
        """Wrap `on_step` so that a step that is run again is reported with zero counts."""

        def report_once(report: StepReport) -> None:
            again = report.epoch <= self._last_reported
            self._last_reported = max(self._last_reported, report.epoch)
            on_step(report.again() if again else report)

        return report_once

    def _prepare(self, stack: ExitStack) -> Checkpoint:
        """Lock and open the checkpoint, or create it; open the sink's tables, and check that they belong together."""
        folder = self._settings.checkpoint
        Checkpoint.refuse_foreign(folder)
        stack.enter_context(locked(folder))  # before the sink, whose tables may be all that records which run owns them
        savepoint = self._settings.savepoint
        checkpoint = None if savepoint is not None else Checkpoint.open(folder, self._pipeline)
        if checkpoint is not None:
            self._settings.on_resume()
            for renamed in checkpoint.renamed(self._pipeline):
                self._settings.on_warning(
                    f"the source of rows is {renamed.here!r} from here on, but was {renamed.there!r}: to keep the old "
                    "name, give it to the folder of the log or to a link to that folder"
                )
        ticks = None if self._steps is None else self._steps.ticks
        partitions = tuple(number for number in self._source.partitions() if number != ticks)
        if savepoint is not None:
            begin_from(folder, self._pipeline, savepoint, self._sinks)
            checkpoint = Checkpoint.open(folder, self._pipeline)
        if checkpoint is None:
            checkpoint = Checkpoint.new(folder, self._pipeline, partitions)
        self._pipeline = checkpoint.partitioned(self._pipeline)
        if checkpoint.follows is not None and not checkpoint.has_steps:
            checkpoint.sync()  # before its run takes over the tables, which then belong to no other
        self._last_reported = self._open(checkpoint)
        OffsetLog(checkpoint).join_ticks()
        self._warn_of_unverified(checkpoint)
        checkpoint.write()
        self._pipeline, changed = checkpoint.keep_lists(self._pipeline)
        for name in changed:
            self._settings.on_warning(
                f"the list {name!r} has changed, but this run keeps the entries from when its checkpoint was created: "
                "to change them, take a savepoint and resume from it (run --from-savepoint)"
            )
        if not checkpoint.has_beginning and not checkpoint.has_steps:
            note_beginning(checkpoint, self._source)
        begun = self._begun(self._last_reported)
        self._losses(checkpoint).look(begun)
        if self._max_records is not None:
            most = self._settings.max_bytes
            OffsetLog(checkpoint).forget_larger_plan(begun - checkpoint.first_epoch, self._max_records, most)
            checkpoint.note_max_bytes(most)
        return checkpoint

    def _open(self, checkpoint: Checkpoint) -> int:
        """Open the sink's tables and check that they match the checkpoint; return the last epoch in the tables."""
        written = agree(checkpoint, self._sinks.open(checkpoint.run, checkpoint.follows))
        # only now: the tables show what a power cut may have damaged
        self._unverified = refuse_damaged(checkpoint.spark, number_of_levels(self._pipeline))
        self._begin = written + 1 - checkpoint.first_epoch
        return written

    def _warn_of_unverified(self, checkpoint: Checkpoint) -> None:
        """Warn about missing checksums and a missing log ID: without them, the run works but cannot detect damage."""
        if self._unverified:
            first, number = checksum(self._unverified[0]), len(self._unverified)
            self._settings.on_warning(
                f"{counted(number, 'file')} of the checkpoint {checkpoint.folder} cannot be verified, as the checksums "
                f"are missing (such as {first}), so damage would go unnoticed. A copy without hidden files lacks them: "
                "copy the checkpoint again with all its files (cp -a), or take a savepoint and resume from it "
                "(run --from-savepoint)"
            )
        if checkpoint.has_steps and checkpoint.identity is None and self._source.identity() is not None:
            self._settings.on_warning(
                f"the checkpoint {checkpoint.folder} does not have the ID of {self._source.name} (its source.json is "
                "missing), so windrow cannot tell whether it was deleted and recreated since the last run"
            )

    def _begun(self, written: int) -> int:
        """Return the last epoch in any of the tables, given that all have `written`; it must run again as planned."""
        return written if self._sinks.is_even else written + 1

    def _losses(self, checkpoint: Checkpoint) -> LossGuard:
        return LossGuard(self._source, checkpoint, self._settings.on_data_loss, self._settings.on_trouble)

    def _explain(self, raised: Exception, checkpoint: Checkpoint) -> RunError:
        """Return the source's own error if it can no longer be read, else the error with the path of Spark's log.

        Raise the error itself if it is no fault of the run, and CheckpointError if the checkpoint is damaged.
        """
        exc = fault_of(raised)
        if exc is None:
            raise raised
        try:
            if isinstance(exc, RecordsLostError) and not self._losses(checkpoint).look(
                self._begun(self._open(checkpoint))
            ):
                return SourceUnavailableError(
                    f"a Spark task does not find what this process finds in the log: {exc}; on a cluster, share that "
                    "folder with all hosts"
                )
            if not isinstance(exc, EngineError):
                return exc
            if not exc.passes:
                refuse_damaged_tables(checkpoint.spark)
            self._source.partitions()
        except RunError as found:
            return fault_of(found) or found
        folder = checkpoint.folder
        if isinstance(folder, Path) and (left := shutil.disk_usage(folder).free) < _ROOM:
            # Spark's Python processes only report that they lost the state store
            return EngineError(
                f"No space left on device: the disk of the checkpoint {folder} has {left:,} bytes left; "
                f"make room, and start again to continue from there ({exc})"
            )
        return type(exc)(f"{exc}; Spark's log is in {checkpoint.log}") if checkpoint.log.exists() else exc

    def _query(self, spark: SparkSession, checkpoint: Checkpoint, ends: int | None, on_step: OnStep) -> bool:
        """Run one query; return True if it ended by itself. If `ends` is given, it emits the end of the input."""
        check = self._losses(checkpoint).check_identity
        if self._has_ticks:
            checkpoint.note_tick_due(MIN_TIME)  # until the first step has computed it
        writer = SinkWriter(
            self._pipeline,
            self._sinks,
            on_step,
            spark,
            checkpoint,
            begin=self._begin,
            check=check,
            has_ticks=self._has_ticks,
        )
        try:
            with (
                carrying(spark, drops=not self._sinks.needs_rows, shared=checkpoint.rows) as transport,
                self._start_query(spark, checkpoint, transport, ends, writer) as query,
            ):
                return self._wait(spark, query, writer)
        except _OverdueError:
            raise
        except WindrowError as exc:
            if not writer.close(_STEP):  # a retry needs the tables to itself
                msg = f"a step is still being written after {_STEP:g} s; what was committed stays; start again"
                raise EngineError(msg) from exc
            if not writer.has_begun and checkpoint.batch is not None and checkpoint.batch >= self._begin:
                raise CheckpointBusyError(BUSY) from exc  # it noted a step whose states this run has removed
            raise
        finally:
            writer.close(_LEAVE)
            self._unsure = writer.unsure

    @contextmanager
    def _start_query(
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        transport: TableTransport,
        ends: int | None,
        writer: SinkWriter,
    ) -> Iterator[StreamingQuery]:
        """Start a query; when the block ends, stop the query and close its stores."""
        try:
            frame = self._outputs(spark, checkpoint, transport, ends)
            # absolute, as Spark's process stays in the folder where it started and this one may have changed its own
            place = str(checkpoint.spark.absolute())
            stream = frame.writeStream.foreachBatch(writer).option("checkpointLocation", place)
            # Spark refuses two queries of one name, and a session may run two pipelines of one name
            if all(other.name != self._pipeline.name for other in spark.streams.active):
                stream = stream.queryName(self._pipeline.name)
            if self._settings.until_end:
                stream = stream.trigger(availableNow=True)
            else:
                stream = stream.trigger(processingTime=f"{Trigger(self._settings.every).poll} microseconds")
            with _interpreting(spark):
                query = stream.start()
        except SPARK_ERRORS as exc:
            raise translate_spark_error(exc) from exc
        self._settings.on_ready()
        try:
            yield query
        finally:
            with suppress(*SPARK_ERRORS):  # the error that ended the run is the one to report
                query.stop()
                close_stores(spark, query, checkpoint.spark)

    def _outputs(
        self, spark: SparkSession, checkpoint: Checkpoint, transport: TableTransport, ends: int | None
    ) -> DataFrame:
        """Return the streaming data frame of the output, with rows for each key group and step (`OUTPUT_DDL`).

        With `ends`, the number of ends of the input before the run, the query emits the end of the input.
        """
        graph, steps = self._pipeline, self._steps
        cuts, ticks = (None, None) if steps is None else (steps.cuts, steps.ticks)
        trigger = None if self._settings.until_end else Trigger(self._settings.every)
        carried = checkpoint.carried()
        since = {} if carried is None else carried.decoded_since
        begin = checkpoint.note(None)
        stage = stream_ingest(graph, checkpoint.partitions, transport, self._bounds, ticks=ticks, decoded_since=since)
        # a checkpoint with steps keeps its number, which Spark has recorded with them
        spark.conf.set(SHUFFLE_PARTITIONS, partitions_of_state(spark, graph.key_groups))
        tasks = spark.sparkContext.defaultParallelism
        reader = self._source.reader(
            StreamPlan(stage, begin.at, tasks, self._max_records, self._settings.max_bytes, cuts)
        )
        control = ControlReader(
            reader,
            begin,
            graph.key_groups,
            ends=ends,
            ends_apart=cuts is not None,
            size=None if self._pace is None else checkpoint.step_size,
            planned=next(iter(checkpoint.kept_plan), None),
            trigger=trigger,
            ticks=Ticks(trigger, checkpoint.tick_due) if trigger is not None and self._has_ticks else None,
        )
        packets = stream_of(spark, "windrow", control, PACKET_DDL)
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

    def _wait(self, spark: SparkSession, query: StreamingQuery, writer: SinkWriter) -> bool:
        clock = ClockGuard()
        try:
            while not query.awaitTermination(_POLL):
                if writer.failure is not None:
                    raise writer.failure
                if not self._settings.until_end:  # a bounded run does not wait for a time
                    clock.check()
                self._following.raise_failure()
                is_lost = close_dead_callbacks(spark)
                if self._stop.is_set():
                    if not writer.close(_STEP):
                        msg = (
                            f"the step did not end within {_STEP:g} s of the request to stop; start again to repeat it"
                        )
                        raise _OverdueError(msg)
                    writer.settle()
                    return False
                if is_lost:
                    msg = "Spark's call of this process for a step was lost: it had no descriptors or threads left"
                    raise WorkerLostError(msg)
            writer.settle()
        except SPARK_ERRORS as exc:
            raise writer.failure or translate_spark_error(exc) from exc
        return True


@contextmanager
def _interpreting(spark: SparkSession) -> Iterator[None]:
    """Make a query that starts in the block interpret expressions; other queries of the session still compile them.

    A query has its own copy of the session's settings.
    """
    before = {name: spark.conf.get(name, None) for name in _INTERPRETED}
    for name, value in _INTERPRETED.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            if kept is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, kept)


def play(
    graph: m.Graph, steps: Sequence[PlayStep | Crash], at_end: Literal["fire", "hold"]
) -> list[dict[str, StepOutput]]:
    """Run a log given as steps; return the output by sink of each step and of the end of the input.

    All partitions exist from the start. The log is written to a folder and divided where the steps end. Ticks are in a
    separate partition.
    """
    fed = [step for step in steps if not isinstance(step, Crash)]
    last = max((partition for step in fed if not isinstance(step, Tick) for partition, _ in step), default=-1)
    written = [[(last + 1, b"%d" % step.micros)] if isinstance(step, Tick) else step for step in fed]
    sinks = {sink.name: CollectSink() for sink in graph.sinks}
    places = [(place, step) for place, step in enumerate(steps) if isinstance(step, Crash)]
    crashes = [(place - number, step) for number, (place, step) in enumerate(places)]
    # Spark's maintenance of the states may still write
    with tempfile.TemporaryDirectory(prefix="windrow-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)

        def run(upto: int, at_end: Literal["fire", "hold"]) -> None:
            given, cuts = write_log(graph.ending(at_end), written, folder, upto)
            settings, prescribed = RunSettings(folder / "checkpoint", until_end=True), PrescribedSteps(cuts, last + 1)
            group = SinkGroup(*(([name], sink) for name, sink in sinks.items()))
            StreamRun(given, group, settings, steps=prescribed).run(lambda _: None)

        for upto, crash in crashes:
            run(upto, "hold")
            _lose_last_step(folder / "checkpoint", sinks.values(), crash)
        run(len(written), at_end)
    nothing = empty_by_sink(graph)
    # a step without records is no epoch
    epochs = iter(sorted(next(iter(sinks.values())).steps))
    found = [next(epochs) if step else None for step in written]
    found.append(next(epochs, None))
    outputs = [
        {name: nothing[name] if epoch is None else sink.steps[epoch] for name, sink in sinks.items()} for epoch in found
    ]
    return with_crashes(steps, outputs, nothing)


def _lose_last_step(checkpoint: Path, sinks: Iterable[CollectSink], crash: Crash) -> None:
    """Make a checkpoint look as if its process had been killed before recording the last step as committed."""
    commits = checkpoint / "spark" / "commits"
    epoch = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name in (str(epoch), f".{epoch}.crc"):
        (commits / name).unlink(missing_ok=True)
    for sink in () if crash.is_committed else sinks:
        sink.steps.pop(epoch, None)
