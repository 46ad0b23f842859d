"""Other sizes for the steps of a live run, told to the process that plans them."""

from __future__ import annotations

from windrow.hosts.report import OnStep, StepReport
from windrow.hosts.stream.checkpoint import Checkpoint
from windrow.hosts.stream.pace import Pace


class Sizing:
    """Writes how many records a step takes into a file, which is looked at before each step is planned.

    No answer depends on where steps end, and a step that is planned already is taken as planned.
    """

    def __init__(self, pace: Pace, checkpoint: Checkpoint) -> None:
        self._pace = pace
        self._checkpoint = checkpoint
        self._reached: int | None = None

    def write(self) -> None:
        """Write the size of the next steps; raise CheckpointError if that cannot be written."""
        self._checkpoint.note_step_size(self._pace.size)

    def noting(self, on_step: OnStep) -> OnStep:
        """Return what is called with each step, and calls `on_step`."""

        def note(report: StepReport) -> None:
            on_step(report)
            # offsets, as Kafka's marks of transactions count in the size of a step
            reached = sum(report.offsets.values())
            read = report.events if self._reached is None else reached - self._reached
            self._reached = reached
            if self._pace.after(read, report.took):
                self.write()

        return note
