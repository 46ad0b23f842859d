"""The streaming query: its sink, the guard against conflicting plans, and its state stores."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from windrow import model as m
from windrow.connectors.sink import SinkGroup
from windrow.engine.changelog import concat_by_sink, empty_by_sink
from windrow.engine.operators.base import GroupOutput
from windrow.errors import CheckpointBusyError, EngineError, RunError, WindrowError
from windrow.runtime.spark.errors import SPARK_ERRORS, translate_spark_error
from windrow.runtime.spark.rows import outputs
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.telemetry.folders import Folder, is_remote, matching
from windrow.telemetry.part_times import PartTime, Stopwatch, ending_now, timing
from windrow.telemetry.reports import NOTHING_REFUSED, OnStep, StepReport


class PlanGuard:
    """Refuses a step if the plan in the checkpoint is not the one that this query made; call it with the batch.

    Two drivers that plan a step at the same moment can overwrite each other's plan in an object store.
    """

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._own: dict[int, list[str]] = {}

    def __call__(self, batch: int) -> None:
        """Compare the plans, for the first time before the step is computed; raise EngineError if they differ."""
        if batch not in self._own:
            recent = {number: ends for number, ends in self._own.items() if number >= batch - 1}
            self._own = recent | {batch: self._planned()}
        if sorted(map(json.dumps, self._checkpoint.ends_of(batch))) != self._own[batch]:
            msg = (
                f"another process has planned step {batch} of the checkpoint {self._checkpoint.folder} at the same "
                "moment; what was committed stays: let only one of the two run, and start it again"
            )
            raise EngineError(msg)

    def _planned(self) -> list[str]:
        """Return the end of the current step in each source, as Spark holds it in memory."""
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
    """Gets metrics of the query that runs on a checkpoint from Spark; unknown values are left out."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._query: Any = None

    def planned(self) -> list[PartTime]:
        """Return the time that Spark spent on planning the current step, measured from the beginning of the step."""
        with suppress(*SPARK_ERRORS):
            if self._query is None:
                self._query = _running(self._spark, self._checkpoint)
            if self._query is not None:
                began = self._query.getLatestExecutionContext().currentTriggerStartTimestamp()
                return [ending_now("plan", max(0.0, time.time() - began / 1_000))]
        return []

    def state(self) -> list[tuple[int, int]]:
        """Return the rows and bytes of the state store of each level after the last step that Spark reports."""
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
    """Computes a step when it is called, and commits it in a background thread, in the order of the steps.

    A computed step waits until the previous one is committed, so the tables are at most one step behind Spark's records
    (see `agree`). `failure` is the error of a step that was not committed, or None. `unsure` is the report of a step
    whose commit failed but which may still be in the tables, as the answer to a COMMIT can be lost.

    `begin` is the next batch of the tables. If a later batch comes first, another process has recorded one since the
    tables were opened, and CheckpointBusyError is raised. `check` is called when the records of a step have been read,
    and raises a WindrowError if they must not be committed. The checkpoint is synced before each commit, when Spark has
    written the offsets and states of the step, because it must contain every step of the tables even after a power cut.
    With `has_ticks`, the time of the next tick that has an effect is noted before the next step is planned.
    """

    def __init__(
        self,
        graph: m.Graph,
        sinks: SinkGroup,
        on_step: OnStep,
        spark: SparkSession,
        checkpoint: Checkpoint,
        *,
        begin: int,
        check: Callable[[], None],
        has_ticks: bool = False,
    ) -> None:
        self._has_ticks = has_ticks
        self._query = QueryWatch(spark, checkpoint)
        self._guard = PlanGuard(spark, checkpoint) if is_remote(checkpoint.folder) else lambda _: None
        self._begin = begin
        self._checkpoint = checkpoint
        self._check = check
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
        epoch = self._checkpoint.first_epoch + batch
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
                    if self._has_ticks:
                        self._checkpoint.note_tick_due(min(group.stats.due for group in groups))
                    self._check()
                took = work.lap()
                with timing(spent, "wait"):
                    self.settle()
                self._writing = self._thread.submit(self._write, epoch, groups, took, spent)
            except WindrowError as exc:
                self.failure = exc
                raise

    def settle(self) -> None:
        """Wait until all computed steps are committed; raise a WindrowError if a commit failed."""
        if self._writing is not None:
            self._writing.result()
        if self.failure is not None:
            raise self.failure

    def close(self, seconds: float) -> bool:
        """Wait for the commit of the current step, and accept no further steps; return True if it was in time."""
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
            self._guard(epoch - self._checkpoint.first_epoch)
            with timing(spent, "sync"):
                self._checkpoint.sync()
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

    Otherwise Spark would keep them open for a while, and its maintenance could still write the snapshot of a step that
    the next query runs differently.
    """
    for store in stores_of(spark, query, checkpoint):
        state_package(spark).StateStore.removeFromLoadedProvidersAndClose(store)


def stores_of(spark: SparkSession, query: StreamingQuery, checkpoint: Folder) -> Iterator[Any]:
    """Yield Spark's IDs of a query's state stores."""
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
