"""A sink that keeps nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from windrow.core.output import StepOutput
from windrow.core.schema import CLOCKS
from windrow.sinks.base import Follows, Run
from windrow.sinks.fence import is_new


class DiscardSink:
    """Counts the changes of each step and drops them where they are: what a run costs without a database."""

    def __init__(self) -> None:
        self.last: int | None = None
        self.changes = 0

    def open(self, run: Run, follows: Follows | None = None) -> int | None:  # noqa: ARG002 - the protocol's signature
        """Return the last committed epoch; a run that follows another goes on from where that one says it was."""
        if self.last is None and follows is not None:
            self.last = follows.epoch
        return self.last

    def journal(self) -> pa.Table:
        """Return no rows."""
        return CLOCKS.empty_table()

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
