"""A stream run: live until it is asked to stop, or to the end of the input."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from windrow import model as m
from windrow.connectors.cuts import Cut
from windrow.connectors.memory import CollectSink
from windrow.connectors.open_sources import followers, open_sources
from windrow.connectors.sink import Sink, SinkGroup
from windrow.connectors.source import OnDataLoss
from windrow.engine.changelog import StepOutput, empty_by_sink
from windrow.engine.level import number_of_levels
from windrow.engine.tick import Crash, PlayStep, Tick, with_crashes
from windrow.engine.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.errors import (
    CheckpointBusyError,
    EngineError,
    RecordsLostError,
    RunError,
    SourceUnavailableError,
    WindrowError,
)
from windrow.runtime.settings import AS_GIVEN, SparkOptions
from windrow.runtime.spark.cluster import preflight
from windrow.runtime.spark.errors import SPARK_ERRORS, translate_spark_error
from windrow.runtime.spark.session import prestart, spark_session
from windrow.runtime.spark.transport import TableTransport, carrying, is_one_process
from windrow.runtime.stream.checkpoint import Checkpoint, locked
from windrow.runtime.stream.following import Following
from windrow.runtime.stream.integrity import checksum, refuse_damaged, refuse_damaged_tables
from windrow.runtime.stream.offsets import LossGuard, OffsetLog, agree, begin_from, note_beginning
from windrow.runtime.stream.query import BUSY, PlanGuard, QueryWatch, SinkWriter, close_stores, key_group_outputs
from windrow.runtime.stream.step_size import StepSizeController, StepSizeFile
from windrow.runtime.stream.trigger import Trigger
from windrow.runtime.written_log import write_log
from windrow.telemetry.folders import Folder, is_remote
from windrow.telemetry.lag import LagWatch
from windrow.telemetry.reports import Fault, OnLag, OnStep, OnTrouble, StepReport, counted

_POLL = 1
"""Seconds between looks at whether to stop, and at those that follow files and tables."""

_ROOM = 1 << 20
"""Bytes on the checkpoint's disk, below which a step that failed did so for want of them."""

_STEP = 120.0
"""Seconds that a step is given to finish when the run is asked to stop."""

_LEAVE = 1.0
"""Seconds that it is given when the run is stopped at once: what it writes then is not committed."""


LIVE_MAX_RECORDS = 500_000
"""Records in a step of a live run, if nothing else is said."""


@dataclass(frozen=True)
class StreamSettings:
    """Settings of a run on the stream host.

    A step reads at most `max_records`, if that is given. Live, a step starts every `every` microseconds if there is
    input, earlier if there is much (`windrow.runtime.stream.trigger`), and reads less if it would otherwise last longer
    than `step_time` microseconds. A new checkpoint starts where the run of `savepoint` ended, if one is given.

    `cuts` prescribes the steps instead, for an embedded log, whose partition `ticks` can hold processing times.
    `bounds` are watermarks from the clock journal of another run, which this one repeats. `on_trouble` is called with
    each fault after which the run retries, or what follows a table, and with lost records if `on_data_loss` lets the
    run continue, `on_warning` if a file that is followed cannot be read, `on_resume` when a checkpoint that was there
    is locked and is the pipeline's, `on_ready` when a query has started, `on_lag` every second or so with how far the
    run is behind. After `retry` seconds without a step (by default a minute, on a cluster ten) it gives up, and so does
    what follows a table. A run that `has_company` of others in this process has a session of its own in their Spark.
    """

    checkpoint: Folder
    until_end: bool = False
    max_records: int | None = None
    every: int = 1_000_000
    step_time: int | None = None
    savepoint: Folder | None = None
    cuts: Sequence[Cut] | None = None
    ticks: int | None = None
    bounds: WatermarkBounds = NO_BOUNDS
    spark: SparkOptions = AS_GIVEN
    on_trouble: OnTrouble = lambda _: None
    on_warning: Callable[[str], None] = lambda _: None
    on_resume: Callable[[], None] = lambda: None
    on_ready: Callable[[], None] = lambda: None
    on_lag: OnLag = lambda _: None
    retry: float | None = None
    on_data_loss: OnDataLoss = "stop"
    has_company: bool = False


class StreamRun:
    """One run of a pipeline on Spark."""

    def __init__(self, graph: m.Graph, sink: Sink | SinkGroup, settings: StreamSettings) -> None:
        self._pipeline = graph
        self._sinks = SinkGroup.of(sink)
        self._settings = settings
        self._source = open_sources(graph)
        self._following = Following({}, RetryPolicy, settings.on_trouble, settings.on_warning)
        self._stop = threading.Event()
        self._last_reported = -1
        self._unsure: StepReport | None = None
        self._unverified: list[Folder] = []
        self._begin = 0
        self._pace: StepSizeController | None = None
        if settings.step_time is not None and settings.max_records is not None and not settings.until_end:
            self._pace = StepSizeController(settings.max_records, settings.step_time / 1_000_000)

    def stop(self) -> None:
        """Ask the run to finish its step and return; from any thread."""
        self._stop.set()

    def run(self, on_step: OnStep) -> Literal["end", "asked"]:
        """Run; return why it ended. Raise a WindrowError if it failed; what was committed stays."""
        with ExitStack() as held:
            checkpoint = self._prepare(held)
            # only now: what is wrong with the source, the sink or the checkpoint is said at once
            spark = spark_session(self._settings.spark, log=checkpoint.log)
            prestart(spark, has_state=True)
            if self._settings.has_company:
                # settings, queries and data sources of a session are its own
                spark = spark.newSession()
            preflight(spark, self._pipeline, checkpoint.folder)
            limit = self._settings.retry
            if limit is None:
                limit = LIMIT if is_one_process(spark) else CLUSTER_LIMIT
            self._following = held.enter_context(
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
                self._settings.on_lag,
                self._following.lags,
            )
            on_step = self._report_once(held.enter_context(watch).with_lag(on_step))
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
                            on_step(self._unsure)  # Spark may have noted that step, and not take it again
                        self._unsure = None
                        self._losses(checkpoint).look(self._begun(written))
                        opened = True
                    ended = self._query(spark, checkpoint, ends, on_step)
                    return "asked" if self._stop.is_set() or not ended else "end"
                except RunError as exc:
                    failure = self._explained(exc, checkpoint)
                    pause = retries.after(self._last_reported) if failure.passes and not self._stop.is_set() else None
                    if pause is None:
                        raise failure from exc
                # as a run that is started anew would: from the last step that is in the tables
                opened = False
                fault = Fault.of(failure, str(failure).splitlines()[0], f"trying again in {pause:g} s")
                self._settings.on_trouble(fault)
                if self._stop.wait(pause):
                    return "asked"

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

    def _prepare(self, held: ExitStack) -> Checkpoint:
        """Lock the checkpoint, open it or make it, open the sink's tables, and see that they belong together."""
        folder = self._settings.checkpoint
        Checkpoint.refuse_foreign(folder)
        held.enter_context(locked(folder))  # before the sink: whose run it is may be settled nowhere but in its tables
        savepoint = self._settings.savepoint
        checkpoint = None if savepoint is not None else Checkpoint.open(folder, self._pipeline)
        if checkpoint is not None:
            self._settings.on_resume()
            for renamed in checkpoint.renamed(self._pipeline):
                self._settings.on_warning(
                    f"the source of rows is {renamed.here!r} from here on, and was {renamed.there!r}: to keep it, give "
                    "the folder of the log that name, or a link to it"
                )
        partitions = tuple(number for number in self._source.partitions() if number != self._settings.ticks)
        if savepoint is not None:
            begin_from(folder, self._pipeline, savepoint, self._sinks)
            checkpoint = Checkpoint.open(folder, self._pipeline)
        if checkpoint is None:
            checkpoint = Checkpoint.new(folder, self._pipeline, partitions)
        if checkpoint.follows is not None and not checkpoint.has_steps:
            checkpoint.sync()  # the tables are handed over to its run, and then belong to no other
        self._last_reported = self._open(checkpoint)
        self._warn_of_unverified(checkpoint)
        checkpoint.write()
        self._pipeline, changed = checkpoint.keep_lists(self._pipeline)
        for name in changed:
            self._settings.on_warning(
                f"the list {name!r} is another one now, and this run keeps it as it was when its checkpoint was made: "
                "to change it, take a savepoint and resume from that (run --from-savepoint)"
            )
        if not checkpoint.has_beginning and not checkpoint.has_steps:
            note_beginning(checkpoint, self._source)
        begun = self._begun(self._last_reported)
        self._losses(checkpoint).look(begun)
        if self._settings.max_records is not None:
            OffsetLog(checkpoint).forget_larger_plan(begun - checkpoint.first_epoch, self._settings.max_records)
        return checkpoint

    def _open(self, checkpoint: Checkpoint) -> int:
        """Open the sink's tables, and see that they and the checkpoint belong together; return the last epoch there."""
        written = agree(checkpoint, self._sinks.open(checkpoint.run, checkpoint.follows))
        # only now: the tables show what a power cut may have damaged
        self._unverified = refuse_damaged(checkpoint.spark, number_of_levels(self._pipeline))
        self._begin = written + 1 - checkpoint.first_epoch
        return written

    def _warn_of_unverified(self, checkpoint: Checkpoint) -> None:
        """Warn of what is missing in a checkpoint that a run can do without, but by which it would notice damage."""
        if self._unverified:
            first, number = checksum(self._unverified[0]), len(self._unverified)
            self._settings.on_warning(
                f"{counted(number, 'file')} of the checkpoint {checkpoint.folder} cannot be verified, as the checksums "
                f"are gone (such as {first}): whether they are damaged is not known. A copy without hidden files lacks "
                "them: copy the checkpoint again with all its files (cp -a), or take a savepoint and resume from that "
                "(run --from-savepoint)"
            )
        if checkpoint.has_steps and checkpoint.identity is None and self._source.identity() is not None:
            self._settings.on_warning(
                f"the checkpoint {checkpoint.folder} does not have the id of {self._source.name} (its source.json is "
                "gone): whether that was deleted and created again since the last run is not known"
            )

    def _begun(self, written: int) -> int:
        """Return the last epoch that any table has, if all have `written`: its step is not to be planned anew."""
        return written if self._sinks.is_even else written + 1

    def _losses(self, checkpoint: Checkpoint) -> LossGuard:
        return LossGuard(self._source, checkpoint, self._settings.on_data_loss, self._settings.on_trouble)

    def _explained(self, exc: RunError, checkpoint: Checkpoint) -> RunError:
        """Return what the source says if it cannot be read any more, else the error with where to look further.

        Raise CheckpointError if it comes of a damaged checkpoint.
        """
        try:
            if isinstance(exc, RecordsLostError) and not self._losses(checkpoint).look(
                self._begun(self._open(checkpoint))
            ):
                return SourceUnavailableError(
                    f"a task of Spark does not find what this process finds in the log: {exc}; on a cluster, let all "
                    "hosts have that folder"
                )
            if not isinstance(exc, EngineError):
                return exc
            if not exc.passes:
                refuse_damaged_tables(checkpoint.spark)
            self._source.partitions()
        except RunError as found:
            return found
        folder = checkpoint.folder
        if isinstance(folder, Path) and (left := shutil.disk_usage(folder).free) < _ROOM:
            # of the state store, Spark's Python processes say no more than that it is gone
            return EngineError(
                f"No space left on device: the disk of the checkpoint {folder} has {left:,} bytes left; "
                f"make room, and start again to continue from there ({exc})"
            )
        return type(exc)(f"{exc}; Spark's log is in {checkpoint.log}") if checkpoint.log.exists() else exc

    def _query(self, spark: SparkSession, checkpoint: Checkpoint, ends: int | None, on_step: OnStep) -> bool:
        """Run one query; return whether it ended by itself. If `ends` is given, it emits the end of the input."""
        check = self._losses(checkpoint).check_identity
        writer = SinkWriter(
            self._pipeline,
            self._sinks,
            on_step,
            begin=self._begin,
            first_epoch=checkpoint.first_epoch,
            check=check,
            sync=checkpoint.sync,
            guard=PlanGuard(spark, checkpoint) if is_remote(checkpoint.folder) else lambda _: None,
            query=QueryWatch(spark, checkpoint),
        )
        try:
            with (
                carrying(spark, drops=not self._sinks.needs_rows, shared=checkpoint.rows) as transport,
                self._started(spark, checkpoint, transport, ends, writer) as query,
            ):
                return self._wait(query, writer)
        except WindrowError as exc:
            if not writer.close(_STEP):  # who tries again needs the tables to himself
                msg = f"a step is still being written after {_STEP:g} s; what was committed stays; start again"
                raise EngineError(msg) from exc
            if not writer.has_begun and checkpoint.batch is not None and checkpoint.batch >= self._begin:
                raise CheckpointBusyError(BUSY) from exc  # it noted a step whose states were removed here
            raise
        finally:
            writer.close(_LEAVE)
            self._unsure = writer.unsure

    @contextmanager
    def _started(
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        transport: TableTransport,
        ends: int | None,
        writer: SinkWriter,
    ) -> Iterator[StreamingQuery]:
        """Start a query, and stop it and close its stores in the end."""
        settings = self._settings
        trigger = Trigger(settings.every)
        try:
            frame = key_group_outputs(
                spark,
                self._pipeline,
                self._source,
                checkpoint,
                transport,
                max_records=settings.max_records,
                cuts=settings.cuts,
                ticks=settings.ticks,
                bounds=settings.bounds,
                ends=ends,
                size=None if self._pace is None else checkpoint.step_size,
                trigger=None if settings.until_end else trigger,
            )
            # Spark's process is in the folder where it was started, and this one may have gone to another since
            place = str(checkpoint.spark.absolute())
            stream = frame.writeStream.foreachBatch(writer).option("checkpointLocation", place)
            # a session may run two pipelines of one name, which Spark would refuse
            if all(other.name != self._pipeline.name for other in spark.streams.active):
                stream = stream.queryName(self._pipeline.name)
            if settings.until_end:
                query = stream.trigger(availableNow=True).start()
            else:
                query = stream.trigger(processingTime=f"{trigger.poll} microseconds").start()
        except SPARK_ERRORS as exc:
            raise translate_spark_error(exc) from exc
        settings.on_ready()
        try:
            yield query
        finally:
            for end in (query.stop, partial(close_stores, spark, query, checkpoint.spark)):
                with suppress(*SPARK_ERRORS):  # what ends the run is what came before
                    end()

    def _wait(self, query: StreamingQuery, writer: SinkWriter) -> bool:
        try:
            while not query.awaitTermination(_POLL):
                if writer.failure is not None:
                    raise writer.failure
                self._following.raise_failure()
                if self._stop.is_set() and writer.close(_STEP):
                    writer.settle()
                    return False
            writer.settle()
        except SPARK_ERRORS as exc:
            raise writer.failure or translate_spark_error(exc) from exc
        return True


def play(
    graph: m.Graph, steps: Sequence[PlayStep | Crash], at_end: Literal["fire", "hold"]
) -> list[dict[str, StepOutput]]:
    """Run a log that is given in steps; return each step's output by sink, and the end's as the last.

    All partitions that occur are there from the start. The log is written to a folder and cut where the steps end;
    ticks are in a partition of their own.
    """
    fed = [step for step in steps if not isinstance(step, Crash)]
    last = max((partition for step in fed if not isinstance(step, Tick) for partition, _ in step), default=-1)
    written = [[(last + 1, b"%d" % step.micros)] if isinstance(step, Tick) else step for step in fed]
    sinks = {sink.name: CollectSink() for sink in graph.sinks}
    crashes = [(place - number, step) for number, (place, step) in enumerate(_crashes(steps))]
    with tempfile.TemporaryDirectory(prefix="windrow-") as made:
        folder = Path(made)

        def run(upto: int, at_end: Literal["fire", "hold"]) -> None:
            given, cuts = write_log(graph.ending(at_end), written, folder, upto)
            settings = StreamSettings(folder / "checkpoint", until_end=True, cuts=cuts, ticks=last + 1)
            StreamRun(given, SinkGroup(*(([name], sink) for name, sink in sinks.items())), settings).run(lambda _: None)

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


def _crashes(steps: Sequence[PlayStep | Crash]) -> Iterator[tuple[int, Crash]]:
    return ((place, step) for place, step in enumerate(steps) if isinstance(step, Crash))


def _lose_last_step(checkpoint: Path, sinks: Iterable[CollectSink], crash: Crash) -> None:
    """Leave a checkpoint as a process does that is killed before it has noted its last step as committed."""
    commits = checkpoint / "spark" / "commits"
    epoch = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name in (str(epoch), f".{epoch}.crc"):
        (commits / name).unlink(missing_ok=True)
    for sink in () if crash.is_committed else sinks:
        sink.steps.pop(epoch, None)


LIMIT, CLUSTER_LIMIT = 60.0, 600.0
"""Seconds without a step, after which a run gives up; on a cluster executors come back in tens of seconds."""

_LEAST = 3
"""So often it tries again in any case: a step of its own may take longer than the limit."""

_FIRST, _LONGEST = 0.5, 8.0
"""Seconds to wait before the first try and, as each wait is twice the one before, at the most."""


class RetryPolicy:
    """Decides whether and when to retry; each step that is committed between two faults resets it."""

    def __init__(self, limit: float = LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._epoch: int | None = None
        self._since = 0.0
        self._tries = 0
        self._pause = _FIRST

    @property
    def waited(self) -> float:
        """Seconds since the first of the faults that no step came between."""
        return self._clock() - self._since

    def after(self, epoch: int) -> float | None:
        """Return the seconds to wait after a fault, None to give up; `epoch` is the last that was committed."""
        if epoch != self._epoch:
            self._epoch, self._since, self._tries, self._pause = epoch, self._clock(), 0, _FIRST
        if self.waited >= self._limit and self._tries >= _LEAST:
            return None
        self._tries += 1
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST)
        return pause
