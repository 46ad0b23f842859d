"""Brings the results of a batch run into its sink."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from windrow.core.changelog import StepOutput
from windrow.core.operators.base import GroupOutput
from windrow.hosts.report import OnStep, StepReport, Stopwatch
from windrow.model import AnyPipeline
from windrow.sinks.base import Sink


class Writer:
    """Commits steps, an epoch each, in a thread of its own, so that the next one is read meanwhile.

    The rows of `journal` are written with the first.
    """

    def __init__(self, pipeline: AnyPipeline, sink: Sink, journal: pa.Table | None, on_step: OnStep) -> None:
        self._none = StepOutput.empty(pipeline)
        self._first = self._none if journal is None else replace(self._none, clocks=journal)
        self._sink = sink
        self._on_step = on_step
        self._watch = Stopwatch()
        self._thread = ThreadPoolExecutor(1, "windrow-sink")
        self._writing: Future[None] | None = None
        self.epoch = -1

    def write(self, parts: Sequence[GroupOutput]) -> None:
        """Have the next step committed; what was given before must be settled."""
        self.epoch += 1
        self._writing = self._thread.submit(self._commit, self.epoch, parts)

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

    def _commit(self, epoch: int, parts: Sequence[GroupOutput]) -> None:
        first = self._none if epoch else self._first
        self._sink.commit(epoch, StepOutput.concat([first, *(part.rows for part in parts)]))
        self._on_step(StepReport.of(epoch, [part.stats for part in parts], self._watch.lap()))
