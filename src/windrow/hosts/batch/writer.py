"""Brings the results of a batch run into its sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Row

from windrow.core.output import StepOutput
from windrow.hosts.batch.wire import step_output
from windrow.hosts.report import OnStep, StepReport, Stopwatch
from windrow.hosts.stream.wire import group_stats
from windrow.model import AnyPipeline
from windrow.sinks.base import Sink


class Writer:
    """Commits steps, an epoch each. The rows of `journal` are written with the first."""

    def __init__(self, pipeline: AnyPipeline, sink: Sink, journal: pa.Table | None, on_step: OnStep) -> None:
        self._pipeline = pipeline
        none = StepOutput.empty(pipeline)
        self._first = none if journal is None else replace(none, clocks=journal)
        self._sink = sink
        self._on_step = on_step
        self._watch = Stopwatch()
        self.epoch = -1

    def add(self, rows: Sequence[Row]) -> None:
        """Commit the rows of the next step, one a key group."""
        self.epoch += 1
        ordered = sorted(rows, key=lambda row: row.key_group)
        outputs = [step_output(self._pipeline, row) for row in ordered]
        self._sink.commit(self.epoch, StepOutput.concat(outputs if self.epoch else [self._first, *outputs]))
        self._on_step(StepReport.of(self.epoch, [group_stats(row.stats) for row in ordered], self._watch.lap()))

    def finish(self) -> None:
        """See to it that there is an epoch, of nothing if nothing was read."""
        if self.epoch < 0:
            self.epoch = 0
            self._sink.commit(self.epoch, self._first)
