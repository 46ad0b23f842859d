"""Brings the results of a batch run into its sink."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Row

from windrow.core.operators.base import GroupStats
from windrow.core.output import StepOutput
from windrow.hosts.batch.wire import step_output
from windrow.hosts.report import OnStep, StepReport, Stopwatch
from windrow.hosts.stream.wire import group_stats
from windrow.model import AnyPipeline
from windrow.sinks.base import Sink

GroupOutputs = tuple[StepOutput, Sequence[GroupStats]]
"""The rows of a step, and what its key groups say of it."""


class Writer:
    """Commits steps, an epoch each, in a thread of its own, so that the next one is read meanwhile.

    The rows of `journal` are written with the first.
    """

    def __init__(self, pipeline: AnyPipeline, sink: Sink, journal: pa.Table | None, on_step: OnStep) -> None:
        self._pipeline = pipeline
        none = StepOutput.empty(pipeline)
        self._first = none if journal is None else replace(none, clocks=journal)
        self._sink = sink
        self._on_step = on_step
        self._watch = Stopwatch()
        self._thread = ThreadPoolExecutor(1, "windrow-sink")
        self._writing: Future[None] | None = None
        self.epoch = -1

    def read(self, rows: Sequence[Row]) -> GroupOutputs:
        """Read the rows of a step, one a key group."""
        ordered = sorted(rows, key=lambda row: row.key_group)
        outputs = [step_output(self._pipeline, row) for row in ordered]
        return StepOutput.concat(outputs), [group_stats(row.stats) for row in ordered]

    def write(self, step: GroupOutputs) -> None:
        """Have the next step committed; what was given before must be settled."""
        output, stats = step
        self.epoch += 1
        rows = output if self.epoch else StepOutput.concat([self._first, output])
        self._writing = self._thread.submit(self._commit, self.epoch, rows, stats)

    def settle(self) -> None:
        """Wait until what was given is committed; raise the WindrowError that says why it is not."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def finish(self) -> None:
        """See to it that there is an epoch, of nothing if nothing was read."""
        if self.epoch < 0:
            self.epoch = 0
            self._sink.commit(self.epoch, self._first)

    def close(self) -> None:
        """Wait for the epoch at hand."""
        self._thread.shutdown()

    def _commit(self, epoch: int, output: StepOutput, stats: Sequence[GroupStats]) -> None:
        self._sink.commit(epoch, output)
        self._on_step(StepReport.of(epoch, stats, self._watch.lap()))
