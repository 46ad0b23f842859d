"""A sink that keeps nothing."""

from __future__ import annotations

import pyarrow as pa

from windrow.core.changelog import StepOutput
from windrow.core.schema import CLOCKS
from windrow.sinks.base import Follows, Run
from windrow.sinks.fence import is_new


class DiscardSink:
    """Has rows dropped where they are made: what a run costs without a database."""

    needs_rows: bool = False

    def __init__(self) -> None:
        self.last: int | None = None

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

    def commit(self, epoch: int, output: StepOutput) -> None:  # noqa: ARG002 - the protocol's signature
        """Count a step; an epoch that is already there changes nothing, a gap raises SinkError."""
        if is_new(epoch, self.last, "that is discarded"):
            self.last = epoch

    def close(self) -> None:
        """Let go of nothing."""
