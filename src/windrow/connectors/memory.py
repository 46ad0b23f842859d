"""A sink that collects steps in memory."""

from __future__ import annotations

import pyarrow as pa

from windrow.connectors.ownership import CHOICES, is_new
from windrow.connectors.sink import Follows, Run, Sink
from windrow.engine.changelog import StepOutput
from windrow.engine.schema import CLOCKS
from windrow.errors import SinkError
from windrow.expressions import Rows


class CollectSink(Sink):
    """Keeps the output of each step in `steps`, by epoch, for the lifetime of the process."""

    needs_rows = True
    is_even = True

    def __init__(self) -> None:
        self.steps: dict[int, StepOutput] = {}
        self._run: Run | None = None

    @property
    def last(self) -> int | None:
        """The last committed epoch, or None."""
        return max(self.steps, default=None)

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Return the last committed epoch; raise SinkError if an unrelated run has committed steps."""
        self.preflight(run, follows)
        self._run = run
        return self.last

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        is_next = follows is not None and (self._run, self.last) == (follows.run, follows.epoch)
        if self.steps and self._run != run and not is_next:
            msg = f"this sink holds the steps of another run: {CHOICES}"
            raise SinkError(msg)

    def journal(self) -> pa.Table:
        return pa.concat_tables([CLOCKS.empty_table(), *(self.steps[epoch].clocks for epoch in sorted(self.steps))])

    def clear(self) -> None:
        self.steps.clear()
        self._run = None

    def commit(self, epoch: int, *outputs: StepOutput) -> None:
        if is_new(epoch, self.last, "in memory"):
            (self.steps[epoch],) = outputs

    def close(self) -> None:
        """Do nothing, so that a sink that is opened again continues after the collected steps."""

    def output(self, rows: Rows) -> StepOutput:
        """Concatenate the outputs of all steps in order; `rows` describes the rows of their changes."""
        return StepOutput.concat([StepOutput.empty(rows), *(self.steps[epoch] for epoch in sorted(self.steps))])
