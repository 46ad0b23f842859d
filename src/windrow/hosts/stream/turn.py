"""Other sizes for the steps of a live run: Spark's Kafka source is told its size once a query."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from windrow.hosts.report import OnStep, StepReport
from windrow.hosts.stream.errors import SPARK_ERRORS
from windrow.hosts.stream.pace import Pace

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from windrow.hosts.stream.checkpoint import Checkpoint
    from windrow.hosts.stream.query import SinkWriter

_POLL = 0.002
_NOTED = 10.0
"""Seconds that Spark is given to note that a step is done."""


class Turn:
    """Ends a query between two steps when the steps should have another size; the next query goes on from there.

    No answer depends on where steps end. If Spark has planned the next step already, that one is taken as planned.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._epoch = -1
        self._reached: int | None = None
        self._told: SimpleQueue[str] = SimpleQueue()
        self.is_due = False

    @property
    def size(self) -> int:
        """How many records a step takes now."""
        return self._pace.size

    def noting(self, on_step: OnStep) -> OnStep:
        """Return what is called with each step, and calls `on_step`."""

        def note(report: StepReport) -> None:
            on_step(report)
            # offsets, as Kafka's marks of transactions count in the size of a step
            reached = sum(report.offsets.values())
            read = report.events if self._reached is None else reached - self._reached
            self._reached, self._epoch = reached, report.epoch
            if self._pace.after(read, report.took):
                self.is_due = True
                self._told.put("due")

        return note

    @contextmanager
    def watching(self, query: StreamingQuery, writer: SinkWriter, checkpoint: Checkpoint) -> Iterator[None]:
        """End this query once a turn is due, which `is_due` tells afterwards."""
        self._told, self.is_due = SimpleQueue(), False
        thread = threading.Thread(
            target=self._watch, args=(query, writer, checkpoint), name="windrow-turn", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            self._told.put("over")
            thread.join()

    def _watch(self, query: StreamingQuery, writer: SinkWriter, checkpoint: Checkpoint) -> None:
        if self._told.get() == "over":
            return
        writer.close(_NOTED)  # the step is committed, and is being told
        deadline = time.monotonic() + _NOTED
        with suppress(*SPARK_ERRORS):  # a query that failed meanwhile says so itself
            # stopped before Spark has noted it, the step would be taken again
            while checkpoint.committed != self._epoch and query.isActive and time.monotonic() < deadline:
                time.sleep(_POLL)
            query.stop()
