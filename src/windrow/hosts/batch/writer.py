"""Brings the results of a batch run into its sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Row

from windrow.core.operators.base import GroupStats
from windrow.core.output import StepOutput
from windrow.hosts.batch.wire import step_output
from windrow.hosts.report import OnStep, StepReport, Stopwatch
from windrow.hosts.stream.wire import group_stats
from windrow.model import AnyPipeline
from windrow.sinks.base import ParallelSink, Sink


class Writer:
    """Commits steps: an epoch each, or all in one where key groups have staged them in the sink.

    The rows of `journal` are written before all.
    """

    def __init__(self, pipeline: AnyPipeline, sink: Sink, journal: pa.Table | None, on_step: OnStep) -> None:
        self._pipeline = pipeline
        none = StepOutput.empty(pipeline)
        self._first = none if journal is None else replace(none, clocks=journal)
        self._sink = sink
        self._on_step = on_step
        self._watch = Stopwatch()
        self._tokens: list[str] = []
        self._stats: dict[int, GroupStats] = {}
        self.epoch = -1

    def add(self, rows: Sequence[Row]) -> None:
        """Take the rows of the next step, one a key group."""
        ordered = sorted(rows, key=lambda row: row.key_group)
        if isinstance(self._sink, ParallelSink):
            self._tokens += [row.token for row in ordered]
            for row in ordered:
                self._stats[row.key_group] = _and(self._stats.get(row.key_group), group_stats(row.stats))
            return
        self.epoch += 1
        outputs = [step_output(self._pipeline, row) for row in ordered]
        self._sink.commit(self.epoch, StepOutput.concat(outputs if self.epoch else [self._first, *outputs]))
        self._on_step(StepReport.of(self.epoch, [group_stats(row.stats) for row in ordered], self._watch.lap()))

    def finish(self) -> None:
        """Commit what is not yet; there is at least one epoch, of nothing if nothing was read."""
        if isinstance(self._sink, ParallelSink):
            self.epoch = 0
            self._sink.merge(self.epoch, [self._sink.stage(self.epoch, [self._first]), *self._tokens])
            if self._stats:
                self._on_step(StepReport.of(self.epoch, self._stats.values(), self._watch.lap()))
        elif self.epoch < 0:
            self.epoch = 0
            self._sink.commit(self.epoch, self._first)


def _and(before: GroupStats | None, now: GroupStats) -> GroupStats:
    """Add up what was done; where the clocks stand is where they stand now."""
    if before is None:
        return now
    return replace(
        now,
        records=before.records + now.records,
        late=before.late + now.late,
        expired=before.expired + now.expired,
        dead=before.dead + now.dead,
        inserts=before.inserts + now.inserts,
        revisions=before.revisions + now.revisions,
    )
