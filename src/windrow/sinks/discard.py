"""A sink that keeps nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windrow.core.output import StepOutput
from windrow.sinks.base import Run
from windrow.sinks.fence import is_new


class DiscardSink:
    """Counts the changes of each step and drops them where they are: what a run costs without a database."""

    def __init__(self) -> None:
        self.last: int | None = None
        self.changes = 0

    def open(self, run: Run) -> int | None:  # noqa: ARG002 - the protocol's signature
        """Return the last committed epoch."""
        return self.last

    def clear(self) -> None:
        """Count from nothing."""
        self.last = None
        self.changes = 0

    def commit(self, epoch: int, output: StepOutput) -> None:
        """Count a step; an epoch that is already there changes nothing, a gap raises SinkError."""
        self.merge(epoch, [self.stage(epoch, [output])])

    def stage(self, epoch: int, parts: Iterable[StepOutput]) -> str:  # noqa: ARG002 - the protocol's signature
        """Return the number of changes."""
        return str(sum(part.changes.num_rows for part in parts))

    def merge(self, epoch: int, tokens: Sequence[str]) -> None:
        """Count a step as `commit` does."""
        if is_new(epoch, self.last, "that is discarded"):
            self.changes += sum(int(token) for token in tokens)
            self.last = epoch

    def close(self) -> None:
        """Let go of nothing."""
