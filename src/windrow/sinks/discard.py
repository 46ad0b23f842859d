"""A sink that keeps nothing."""

from __future__ import annotations

from windrow.core.output import StepOutput
from windrow.sinks.base import Run
from windrow.sinks.fence import is_new


class DiscardSink:
    """Counts the rows of each step and drops them: what a run costs without a database."""

    def __init__(self) -> None:
        self.clear()

    def open(self, run: Run) -> int | None:  # noqa: ARG002 - the protocol's signature
        """Return the last committed epoch."""
        return self.last

    def clear(self) -> None:
        """Count from nothing."""
        self.last: int | None = None
        self.changes = 0
        self.late = 0
        self.dead = 0
        self.clocks = 0

    def commit(self, epoch: int, output: StepOutput) -> None:
        """Count a step; an epoch that is already there changes nothing, a gap raises SinkError."""
        if not is_new(epoch, self.last, "that is discarded"):
            return
        self.changes += output.changes.num_rows
        self.late += output.late.num_rows
        self.dead += output.dead.num_rows
        self.clocks += output.clocks.num_rows
        self.last = epoch

    def close(self) -> None:
        """Let go of nothing."""
