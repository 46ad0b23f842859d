"""Records that are gone before they were read: a run stops with what is gone, or notes it and goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from windrow.errors import CheckpointError, RecordsLostError, SourceError
from windrow.hosts.stream.checkpoint import Checkpoint
from windrow.hosts.stream.note import Note
from windrow.hosts.stream.standing import Standing
from windrow.sources import Source
from windrow.sources.base import Offset
from windrow.sources.loss import Found, OnDataLoss, listed

_PROMPT = 0.5
"""Seconds that a step waits for what the log is, which takes some ms where all is well."""


@dataclass(frozen=True)
class LossGuard:
    """Holds where a checkpoint stands to what the log has; `policy` is what is done where records are gone."""

    source: Source
    checkpoint: Checkpoint
    policy: OnDataLoss
    on_loss: Callable[[str], None]

    def look(self, written: int) -> bool:
        """Return whether records are gone, and the checkpoint was moved to what is there.

        `written` is the last epoch in the tables, -1 for none. Raise SourceError where that is not wanted,
        CheckpointError where it would leave the tables with records that the state does not have, and as
        `Source.partitions` does.
        """
        stands, identity = Standing(self.checkpoint), self.source.identity()
        note = stands.read()
        found = None if note is None else self._find(note.at, stands.read_planned())
        if found is None or not found.losses:
            self.checkpoint.note_identity(identity)
            return False
        lost = f"the log {self.source.name} lost records: {listed(found.losses)}"
        if self.policy == "stop":
            msg = (
                f"{lost}. What was committed stays. Choose: bring the file back, if it is one; go on from what is "
                "there, and have the loss in the clock journal, with --on-data-loss continue; or begin anew with what "
                "is there, with --fresh"
            )
            raise SourceError(msg)
        done = self.checkpoint.committed
        if written > (self.checkpoint.first_epoch - 1 if done is None else done):
            msg = (
                f"{lost}. Epoch {written} is in the tables, but the checkpoint {self.checkpoint.folder} does not have "
                "it, and its records cannot be read again: begin anew with --fresh, or go on from a savepoint"
            )
            raise CheckpointError(msg)
        stands.move(found.offset, found.losses)
        self.checkpoint.note_identity(identity)
        for loss in found.losses:
            self.on_loss(f"the log {self.source.name} lost records, and the run goes on without them: {loss}")
        return True

    def _find(self, offset: Offset, planned: Note | None) -> Found:
        """Return what is gone behind an offset, and of a step that is planned from there: that is planned anew."""
        found = self.source.find_losses(offset, self.checkpoint.identity)
        if planned is None:
            return found
        stood, behind = self.checkpoint.offsets(), {loss.partition for loss in found.losses}
        ahead = tuple(
            replace(loss, goes_on=stood.get(loss.partition, 0))
            for loss in self.source.find_losses(planned.at, self.checkpoint.identity).losses
            if loss.partition not in behind
        )
        return Found((*found.losses, *ahead), found.offset)

    def check_identity(self) -> None:
        """Raise SourceError if what is read is not the log that it was; who cannot say it now is asked again later."""
        try:
            identity = self.source.identity(_PROMPT)
        except SourceError:
            return
        if identity != self.checkpoint.identity:
            msg = f"the log {self.source.name} lost records: it is another one of the same name now"
            raise RecordsLostError(msg)
