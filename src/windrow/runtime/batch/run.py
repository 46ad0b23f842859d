"""A batch run: computes a range of the log in one Spark job, and commits the results step by step."""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyspark.sql import Row, SparkSession

from windrow import model as m
from windrow.connectors.cuts import Cut
from windrow.connectors.open_sources import open_sources
from windrow.connectors.sink import Run, Sink, SinkGroup
from windrow.connectors.source import Source
from windrow.engine.changelog import StepOutput, concat_by_sink, empty_by_sink
from windrow.engine.level import number_of_levels
from windrow.engine.messages import EndOfInput, Message
from windrow.engine.operators.base import GroupOutput
from windrow.engine.state.store import MemoryState
from windrow.engine.tick import Crash, PlayStep, Tick, with_crashes
from windrow.engine.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.errors import EngineError, RunError, WindrowError
from windrow.runtime.batch.plan import BatchPlan, BatchSettings, StepPlan, batch_plan, first_outputs
from windrow.runtime.run import Ended
from windrow.runtime.savepoint import require_new_folder
from windrow.runtime.spark.cluster import preflight
from windrow.runtime.spark.errors import SPARK_ERRORS, translate_spark_error
from windrow.runtime.spark.rows import NUMBERED_PACKET_DDL, RESULT_DDL, outputs, state_of
from windrow.runtime.spark.session import prestart, spark_session
from windrow.runtime.spark.stages import batch_ingest, batch_level
from windrow.runtime.spark.transport import TableTransport, carrying
from windrow.telemetry.part_times import PartTime, Stopwatch, timing
from windrow.telemetry.reports import OnStep, StepReport

_TRIES = 3
"""Maximum number of attempts for a job that fails for a transient reason before anything is written."""
_NOT_BEGUN = "\nnothing was written; start again"
_BEGUN = "\nonly some steps were committed: start over with --fresh"


class BatchRun:
    """One run of a pipeline over the current contents of the log; the sink's tables must be empty.

    All steps are computed before the first is written. Each step is written in an epoch of its own.
    """

    def __init__(self, graph: m.Graph, sink: Sink | SinkGroup, settings: BatchSettings) -> None:
        self._pipeline = graph
        self._sinks = SinkGroup.of(sink)
        self._settings = settings
        self._source = open_sources(graph, settings.read_as)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the run to return: after the epoch being written, or immediately if it is still computing.

        Can be called from any thread.
        """
        self._stop.set()

    def run(self, on_step: OnStep) -> Ended:
        """Run, and return why the run ended. Raise a WindrowError if it fails; steps already committed remain."""
        settings = self._settings
        if settings.savepoint is not None:
            require_new_folder(settings.savepoint)
        job = Job(
            pipeline=self._pipeline,
            source=self._source,
            plan=batch_plan(self._pipeline, self._source, settings),
            bounds=settings.bounds,
            since=settings.since,
            keeps_state=settings.savepoint is not None,
        )
        run = settings.run or Run.new(self._pipeline.name)
        self._sinks.open(run)
        spark = spark_session(settings.spark, log=settings.log)
        prestart(spark, has_state=False)
        preflight(spark, self._pipeline, None)
        tries = 1
        while True:
            writer = BatchWriter(self._pipeline, self._sinks, settings.journal, on_step)
            try:
                with (
                    carrying(spark, drops=not self._sinks.needs_rows) as transport,
                    closing(writer),
                    _cancel_when_stopped(spark, self._stop, f"{self._pipeline.name} batch"),
                ):
                    return self._write(job, run, job.results(spark, transport), writer)
            except SPARK_ERRORS as exc:
                if self._stop.is_set():
                    writer.settle()
                    return "asked"
                begun = writer.epoch >= 0
                failure = self._explain(translate_spark_error(exc, "the batch", _BEGUN if begun else _NOT_BEGUN))
                if begun or tries == _TRIES or not (isinstance(failure, RunError) and failure.passes):
                    raise failure from exc
            tries += 1

    def _write(self, job: Job, run: Run, results: Iterator[tuple[int, list[Row]]], writer: BatchWriter) -> Ended:
        """Commit the steps, then write the state after the last step to the savepoint."""
        cut = job.plan.cut
        states: Iterator[tuple[int, list[Row]]] = iter(())
        for position, rows in results:
            if position >= len(cut):
                states = chain([(position, rows)], results)
                break
            step = outputs(self._pipeline, rows)
            writer.settle()
            if self._stop.is_set():
                return "asked"
            writer.write(step, cut.upto[position])
        writer.settle()
        if self._stop.is_set():
            return "asked"
        writer.finish()
        if self._settings.savepoint is not None:
            known = ((position - len(cut), state_of(row["state"] for row in rows)) for position, rows in states)
            nothing = ((group, MemoryState()) for group in range(self._pipeline.key_groups))
            savepoint = job.plan.savepoint(self._pipeline, run, writer.epoch)
            savepoint.write(self._settings.savepoint, known if len(cut) else nothing)
        return "end"

    def _explain(self, exc: WindrowError) -> WindrowError:
        """Return the source's own error if it can no longer be read, else the error with the path of Spark's log."""
        if not isinstance(exc, EngineError):
            return exc
        try:
            self._source.partitions()
        except WindrowError as found:
            return found
        log = self._settings.log
        return type(exc)(f"{exc}; Spark's log is in {log}") if log is not None and log.exists() else exc


@contextmanager
def _cancel_when_stopped(spark: SparkSession, stop: threading.Event, description: str) -> Iterator[None]:
    """Cancel the Spark jobs started in the block when the run is asked to stop.

    Spark's UI shows these jobs with the `description`.
    """
    group, context = f"windrow-{uuid.uuid4()}", spark.sparkContext
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if stop.wait(0.2):
                with suppress(*SPARK_ERRORS):
                    context.cancelJobGroup(group)
                over.wait(0.2)

    context.setJobGroup(group, description, interruptOnCancel=True)
    watcher = threading.Thread(target=watch, name="windrow-stop", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        context._jsc.sc().clearJobGroup()  # noqa: SLF001 - no other way


@dataclass(frozen=True)
class Job:
    """A Spark job that computes the steps of a plan; see `BatchSettings` for the other fields."""

    pipeline: m.Graph
    source: Source
    plan: BatchPlan
    bounds: WatermarkBounds = NO_BOUNDS
    since: int | None = None
    keeps_state: bool = False

    def results(self, spark: SparkSession, transport: TableTransport) -> Iterator[tuple[int, list[Row]]]:
        """Compute all steps, then yield the number of each step that has output, with the rows of its key groups.

        With `keeps_state`, the state of each key group follows, at the number of steps plus the number of the key
        group.
        """
        plan, cut, groups = self.plan, self.plan.cut, self.pipeline.key_groups
        if not len(cut):
            return
        ingest = batch_ingest(self.pipeline, plan.partitions, self.bounds, cut)
        frame = self.source.batch(spark, plan.begin, plan.end, ingest, NUMBERED_PACKET_DDL)
        levels = number_of_levels(self.pipeline)
        for level in range(levels):
            stage = batch_level(
                self.pipeline,
                level,
                plan.partitions,
                cut,
                since=self.since,
                transport=transport,
                keeps_state=self.keeps_state,
            )
            ddl = RESULT_DDL if level == levels - 1 else NUMBERED_PACKET_DDL
            # one Spark partition of each key group, in the order of the steps; Spark spills what exceeds memory
            by_group = frame.repartitionById(groups, "key_group").sortWithinPartitions("slice")
            frame = by_group.mapInArrow(stage, ddl)
        # from here on results wait on disk, and come to the driver a step at a time
        by_step = frame.repartitionById(len(cut) + groups * self.keeps_state, "position")
        for position, rows in groupby(by_step.toLocalIterator(), lambda row: row.position):
            yield position, sorted(rows, key=lambda row: row.key_group)


class BatchWriter:
    """Commits each step as an epoch, in a background thread, so that the next step can be read meanwhile.

    The rows of `journal` are written with the first step.
    """

    def __init__(self, graph: m.Graph, sinks: SinkGroup, journal: pa.Table | None, on_step: OnStep) -> None:
        self._nothing = empty_by_sink(graph)
        self._first = first_outputs(self._nothing, journal)
        self._sinks = sinks
        self._on_step = on_step
        self._watch = Stopwatch()
        self._thread = ThreadPoolExecutor(1, "windrow-sink")
        self._writing: Future[None] | None = None
        self.epoch = -1

    def write(self, parts: Sequence[GroupOutput], upto: Cut) -> None:
        """Commit the next step, which ends at the cut `upto`, in the background; call `settle` first."""
        self.epoch += 1
        self._writing = self._thread.submit(self._commit, self.epoch, parts, upto)

    def settle(self) -> None:
        """Wait until the last step is committed; raise its WindrowError if the commit failed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def finish(self) -> None:
        """Commit an empty epoch if nothing was read, so that the tables have one."""
        if self.epoch < 0:
            self.epoch = 0
            self._sinks.commit(self.epoch, self._first)

    def close(self) -> None:
        """Wait until the current epoch is written."""
        self._thread.shutdown()

    def _commit(self, epoch: int, parts: Sequence[GroupOutput], upto: Cut) -> None:
        first, spent = self._nothing if epoch else self._first, list[PartTime]()
        rows = concat_by_sink(first, (part.by_sink for part in parts))
        with timing(spent, "commit"):
            refused = self._sinks.commit(epoch, rows)
        report = StepReport.of(epoch, parts, self._watch.lap(), parts=spent, refused=refused)
        self._on_step(report.up_to(upto))


def play(
    graph: m.Graph, steps: Sequence[PlayStep | Crash], at_end: Literal["fire", "hold"]
) -> list[dict[str, StepOutput]]:
    """Run a log given as steps; return the output by sink of each step and of the end of the input.

    All partitions exist from the start. After a crash, the run starts again from the beginning.
    """
    fed = [step for step in steps if not isinstance(step, Crash)]
    control: dict[int, tuple[Message, ...]] = {
        number: (step,) for number, step in enumerate(fed) if isinstance(step, Tick)
    }
    if at_end == "fire":
        control[len(fed)] = (EndOfInput(),)
    nothing = empty_by_sink(graph)
    found = [nothing for _ in range(len(fed) + 1)]
    with tempfile.TemporaryDirectory(prefix="windrow-") as folder:
        records = [() if isinstance(step, Tick) else step for step in fed]
        given, cuts = write_log(graph, [*records, ()], Path(folder))
        if not cuts[-1]:
            return with_crashes(steps, found, nothing)
        plan = BatchPlan(dict.fromkeys(cuts[-1], 0), StepPlan(tuple(cuts), control))
        job = Job(given, open_sources(given), plan)
        try:
            for number, rows in job.results(spark_session(log=Path(folder) / "spark.log"), TableTransport()):
                found[number] = concat_by_sink(nothing, (part.by_sink for part in outputs(given, rows)))
        except SPARK_ERRORS as exc:
            raise translate_spark_error(exc, "the batch", "") from exc
    return with_crashes(steps, found, nothing)


def write_log(
    graph: m.Graph, steps: Sequence[Sequence[tuple[int, bytes]]], folder: Path, upto: int | None = None
) -> tuple[m.Graph, list[Cut]]:
    """Write the records of the first `upto` steps (default: all) to a folder, which may already contain some of them.

    Return the pipeline that reads the written log, and the cut after each step.
    """
    logs: dict[int, list[bytes]] = {partition: [] for step in steps for partition, _ in step}
    cuts: list[Cut] = []
    for step in steps[:upto]:
        for partition, value in step:
            logs[partition].append(value + b"\n")
        cuts.append({partition: len(values) for partition, values in logs.items()})
    for source in graph.sources:
        (folder / source.source.label).mkdir(exist_ok=True)
    for partition, values in logs.items():
        number = partition % m.MAX_PARTITIONS if len(graph.sources) > 1 else partition
        path = folder / graph.source_of(partition).source.label / f"partition-{number}.jsonl"
        path.write_bytes(b"".join(values))

    def over_log(node: m.Node) -> m.Node:
        if not isinstance(node, m.SourceNode):
            return node
        form: m.TextFormat = "debezium" if node.source.format == "debezium" else "json"
        return replace(node, source=m.LogSource(str(folder / node.source.label), form))

    return graph.map_nodes(over_log), cuts
