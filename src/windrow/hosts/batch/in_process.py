"""A batch run without Spark: the same reading and the same steps, by the memory host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa

from windrow.core.changelog import StepOutput
from windrow.core.columns import to_micros
from windrow.core.operators.base import GroupOutput
from windrow.core.schema import RAW
from windrow.hosts.batch.plan import Plan, batch_plan
from windrow.hosts.batch.settings import BatchSettings
from windrow.hosts.batch.since import ending_after
from windrow.hosts.batch.slices import END
from windrow.hosts.memory import MemoryHost
from windrow.hosts.report import OnStep, StepReport, Stopwatch
from windrow.hosts.savepoint import refuse_used
from windrow.model import AnyPipeline
from windrow.sinks.base import Run, Sink
from windrow.sources import Source, open_source


class InProcessRun:
    """Does what `BatchRun` does, for logs that fit in memory. The sink is given a step an epoch."""

    def __init__(self, pipeline: AnyPipeline, sink: Sink, settings: BatchSettings) -> None:
        self._pipeline = pipeline
        self._sink = sink
        self._settings = settings
        self._source = open_source(pipeline.source)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask the run to finish its step and return; from any thread."""
        self._stop.set()

    def run(self, on_step: OnStep) -> Literal["end", "asked"]:
        """Run; return why it ended. Raise a WindrowError if it failed; what was committed stays."""
        settings = self._settings
        if settings.savepoint is not None:
            refuse_used(settings.savepoint)
        plan = batch_plan(self._pipeline, self._source, settings)
        run = settings.run or Run.new(self._pipeline.name)
        host = MemoryHost(self._pipeline, plan.partitions, settings.floors)
        self._sink.open(run)
        none = StepOutput.empty(self._pipeline)
        first = none if settings.journal is None else replace(none, clocks=settings.journal)
        watch, epoch = Stopwatch(), -1
        for groups in self._steps(host, plan):
            epoch += 1
            rows = [group.rows for group in groups]
            self._sink.commit(epoch, StepOutput.concat(rows if epoch else [first, *rows]))
            on_step(StepReport.of(epoch, [group.stats for group in groups], watch.lap()))
            if self._stop.is_set():
                return "asked"
        if epoch < 0:
            epoch = 0
            self._sink.commit(epoch, first)
        if settings.savepoint is not None:
            plan.savepoint(self._pipeline, run, epoch).write(settings.savepoint, enumerate(host.states))
        return "end"

    def _steps(self, host: MemoryHost, plan: Plan) -> Iterator[list[GroupOutput]]:
        since = self._settings.since
        for groups in self._all_steps(host, plan):
            yield groups if since is None else [ending_after(since, group) for group in groups]

    def _all_steps(self, host: MemoryHost, plan: Plan) -> Iterator[list[GroupOutput]]:
        raw = _read(self._source, plan)
        at = plan.begin
        for number, upto in enumerate(plan.cut.upto):
            parts = [raw[partition].slice(*_range(raw[partition], at[partition], upto[partition])) for partition in at]
            yield host.step(pa.concat_tables(parts))
            told = plan.cut.told.get(number, ())
            if any(packet.kind == "idle" for packet in told):
                yield host.rest(self._settings.silence)
            if END in told:
                yield host.end()
            at = upto


def _read(source: Source, plan: Plan) -> dict[int, pa.Table]:
    """Read the log, partition by partition; what was not there when the plan was made is not used."""
    found: dict[int, list[pa.RecordBatch]] = {partition: [] for partition in plan.begin}
    for batch in source.read_all():
        numbers = np.unique(batch.column("partition").to_numpy()).tolist()
        for number in numbers:
            if number in found:
                found[number].append(batch if len(numbers) == 1 else _only(batch, number))
    return {number: pa.Table.from_batches(batches, schema=RAW) for number, batches in found.items()}


def _only(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    return batch.filter(pa.array(batch.column("partition").to_numpy() == partition))


def _range(raw: pa.Table, begin: int, end: int) -> tuple[int, int]:
    """Return where the offsets of a range begin in a table, and how many there are."""
    first, last = np.searchsorted(to_micros(raw.column("offset")), [begin, end]).tolist()
    return first, last - first
