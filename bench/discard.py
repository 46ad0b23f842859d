"""A sink that discards the steps."""

from __future__ import annotations

import pyarrow as pa

from windrow.connectors.ownership import is_new
from windrow.connectors.sink import Follows, Run
from windrow.engine.changelog import StepOutput
from windrow.engine.schema import CLOCKS


class DiscardSink:
    """A sink that drops all rows, to measure a run without a database."""

    needs_rows: bool = False
    is_even = True

    def __init__(self) -> None:
        self.last: int | None = None

    def open(self, run: Run, follows: Follows | None = None) -> int | None:  # noqa: ARG002 - the protocol's signature
        """Return the last committed epoch; a run that follows another resumes from where that one says it was."""
        if self.last is None and follows is not None:
            self.last = follows.epoch
        return self.last

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Do nothing: no run is refused."""

    def journal(self) -> pa.Table:
        """Return no rows."""
        return CLOCKS.empty_table()

    def clear(self) -> None:
        """Count from nothing."""
        self.last = None

    def commit(self, epoch: int, *outputs: StepOutput) -> None:  # noqa: ARG002 - the protocol's signature
        """Count a step; an epoch that is already there changes nothing, a gap raises SinkError."""
        if is_new(epoch, self.last, "that is discarded"):
            self.last = epoch

    def close(self) -> None:
        """Do nothing: there is no connection."""
