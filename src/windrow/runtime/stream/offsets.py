"""Offsets to resume from: the offsets that Spark recorded, the beginning of a run, and the effect of lost records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from windrow import model as m
from windrow.connectors.cuts import Offset
from windrow.connectors.sink import Follows, SinkGroup
from windrow.connectors.source import FoundLosses, Loss, OnDataLoss, Source, another_log, listed, restoring
from windrow.errors import CheckpointError, RecordsLostError, SinkError, SourceError
from windrow.runtime.compatibility import upgraded
from windrow.runtime.savepoint import Savepoint
from windrow.runtime.stream.checkpoint import Checkpoint, last_noted, offsets_of
from windrow.runtime.stream.integrity import RESTORE, checksum, is_whole, refuse_damaged, write_checksum
from windrow.runtime.stream.steps import StepOffsets
from windrow.telemetry.folders import Folder, write_whole
from windrow.telemetry.reports import Fault, OnTrouble


@dataclass(frozen=True)
class OffsetLog:
    """The offsets at which the last committed step of a checkpoint ended, or at which its run begins."""

    checkpoint: Checkpoint

    def read(self) -> StepOffsets | None:
        """Return the offsets, or None if there are none yet; raise CheckpointError if they cannot be read."""
        return self._read(self.checkpoint.batch)

    def read_planned(self) -> StepOffsets | None:
        """Return the offsets of a step that is planned but not committed, or None.

        Raise CheckpointError if they cannot be read.
        """
        done = self.checkpoint.batch
        return self._read(0 if done is None else done + 1)

    def _read(self, batch: int | None) -> StepOffsets | None:
        path, _ = self.checkpoint.place(batch)
        return self.checkpoint.note(batch) if path.is_file() else None

    def take_back(self) -> None:
        """Make the last finished step run again as it was planned, and drop later plans.

        Its states are written again, and so are the states of the next step, which must be planned as before. The
        record that the step is done is removed last, so that an interrupted call is repeated.
        """
        done = self.checkpoint.batch
        if done is not None:
            if last_noted(self.checkpoint.spark / "offsets") == done + 1:
                self.checkpoint.keep_plan(done + 1)
            self._forget_after(done, done - 1)

    def forget_larger_plan(self, written: int, most: int, max_bytes: int) -> None:
        """Remove the plan of a step that reads too much, unless it is in the tables (up to `written`).

        That is more than `most` offsets, or any number if it was planned with more than `max_bytes`.
        Otherwise a step that failed because of its size could never run again with fewer records. No result depends on
        where steps end, and a step that is not in the tables has not been seen by anyone. Check for losses first, as a
        plan can reveal one.
        """
        before = self.checkpoint.max_bytes
        if before is not None and before > max_bytes:
            most = 0
        for begin, end in self.checkpoint.kept_plan[:1]:
            if _records(offsets_of(begin["at"]), offsets_of(end["at"])) > most:
                self.checkpoint.forget_plan()
        done, planned = self._done, last_noted(self.checkpoint.spark / "offsets")
        if planned != done + 1 or written > done:
            return
        if _records(self.checkpoint.offsets(done), self.checkpoint.offsets(planned)) > most:
            self._forget_after(done, done)

    def forget_torn(self, written: int) -> None:
        """Remove files that a power cut may have left incomplete, given that `written` is the last batch in the tables.

        The plan and the states of that batch, and of all earlier batches, were synced before it was committed. A later
        step with an incomplete plan is planned again. If the record that a step is done is incomplete, or is missing
        while a later one exists, it is removed, and the step runs again as planned. The states after the last step that
        is done or in the tables are removed too. They will be written again, but an incomplete snapshot among them
        might not be overwritten.
        """
        spark = self.checkpoint.spark
        planned, done = (-1 if (last := last_noted(spark / log)) is None else last for log in ("offsets", "commits"))
        for batch in range(written + 1, max(planned, done) + 1):
            if not is_whole(spark / "offsets" / str(batch)):
                self._forget_after(batch - 1, batch - 1)
                break
        for batch in range(max(written, 0), self._done + 1):
            if not is_whole(spark / "commits" / str(batch)):
                self._forget_after(batch, batch - 1)
                break
        self._forget_states(max(self._done, written))

    @property
    def _done(self) -> int:
        """The last batch that is done, or -1."""
        return -1 if self.checkpoint.batch is None else self.checkpoint.batch

    def _forget_after(self, planned: int, done: int) -> None:
        """Remove plans and states after the batch `planned`, then the records that batches after `done` are done."""
        self._forget_states(planned)
        _forget(self.checkpoint.spark.glob("offsets/*"), planned)
        self.checkpoint.sync()
        _forget(self.checkpoint.spark.glob("commits/*"), done)

    def move(self, offset: Offset, lost: Iterable[Loss]) -> None:
        """Make the next step begin at an offset and report losses; remove a step that was only planned.

        The state of the removed step is removed too, because the step will run with different records and Spark may not
        rewrite every file. Losses that the failed step was going to report are also reported, once.

        The plan is removed last: if this call is interrupted, a loss that only the plan reveals is found again.
        """
        note = self.read()
        before = StepOffsets(offset) if note is None else note
        losses = {str(loss): loss for loss in (*before.lost, *lost)}
        self._forget_states(self._done)
        self.checkpoint.forget_plan()
        self._write(self.checkpoint.batch, replace(before, at=offset, lost=tuple(losses.values())).to_json())
        self.checkpoint.sync()
        _forget(self.checkpoint.spark.glob("offsets/*"), self._done)

    def join_ticks(self) -> None:
        """Record the last ticks in the offsets of the source; earlier versions recorded them as a second source."""
        last = last_noted(self.checkpoint.spark / "offsets")
        for batch in () if last is None else range(max(0, last - 2), last + 1):
            path, line = self.checkpoint.place(batch)
            if path.is_file() and len(path.read_text(encoding="utf-8").splitlines()) > line + 1:
                self._write(batch, *self.checkpoint.ends_of(batch))

    def _write(self, batch: int | None, end: Any) -> None:  # noqa: ANN401 - plain JSON
        """Replace the end of a batch, or the beginning of the run."""
        path, line = self.checkpoint.place(batch)
        lines = path.read_text(encoding="utf-8").splitlines()[:line]
        checksum(path).unlink(missing_ok=True)
        text = "\n".join([*lines, json.dumps(end)])
        write_whole(path, text, drafts=self.checkpoint.folder)  # Spark reads every file of its folders
        if batch is not None:  # the beginning has no checksums
            write_checksum(path)

    def _forget_states(self, batch: int) -> None:
        """Remove the states of all batches after a batch."""
        for kind in ("zip", "changelog"):
            # the state after a batch has the number that follows the batch's
            _forget(self.checkpoint.spark.glob(f"state/*/*/*.{kind}"), batch + 1)


def _records(before: Mapping[int, int], after: Mapping[int, int]) -> int:
    """Return the number of offsets between two positions."""
    return sum(max(0, offset - before.get(partition, 0)) for partition, offset in after.items())


def _forget(paths: Iterable[Folder], last: int) -> None:
    """Remove the files whose name is a number greater than `last`."""
    for path in list(paths):
        if path.stem.isdigit() and int(path.stem) > last:
            checksum(path).unlink(missing_ok=True)
            path.unlink()


def agree(checkpoint: Checkpoint, written: int | None) -> int:
    """Return the last epoch in the tables (`written`), or the one before the first epoch if they are empty.

    The next step is the one after it. Spark records that a step is done while the step is still being written, so
    Spark's record may be one step ahead. That step then runs again. Spark's record may also be one step behind. Raise
    SinkError or CheckpointError if tables and checkpoint are from different times.
    """
    folder, done = checkpoint.folder, checkpoint.committed
    nothing = checkpoint.first_epoch - 1
    if written is None and done is not None and done > checkpoint.first_epoch:
        msg = (
            f"the checkpoint {folder} is at epoch {done}, but the tables hold nothing of it: they were dropped or "
            "emptied, or this is a different sink; restore them, or start over with --fresh"
        )
        raise SinkError(msg)
    known, last = (nothing if epoch is None else epoch for epoch in (done, written))
    if abs(known - last) > 1:
        msg = (
            f"the checkpoint {folder} is at epoch {done}, but the tables are at epoch {written}: one of them was "
            "restored from another time; restore the other too, or start over with --fresh"
        )
        raise CheckpointError(msg)
    log = OffsetLog(checkpoint)
    if last > known and not (plan := checkpoint.place(last - checkpoint.first_epoch)[0]).is_file():
        msg = f"{plan} is gone, and its step is in the tables; {RESTORE}"
        raise CheckpointError(msg)
    log.forget_torn(last - checkpoint.first_epoch)
    if checkpoint.committed is not None and checkpoint.committed > last:
        log.take_back()
        refuse_damaged(checkpoint.spark)
    return last


def begin_from(folder: Folder, graph: m.Graph, given: Folder, sinks: SinkGroup | None = None) -> None:
    """Create the checkpoint of a run that resumes from a savepoint, unless it exists, in a locked folder.

    Raise CheckpointError if an existing checkpoint began from something else, or if the pipeline cannot resume from the
    savepoint. Raise SinkError if the run cannot take over `sinks`; no checkpoint is created then. The next call repeats
    an interrupted one.
    """
    savepoint = Savepoint.read(given)
    follows = Follows(savepoint.run, savepoint.epoch)
    checkpoint = Checkpoint.read(folder)
    if checkpoint is not None:
        if checkpoint.follows != follows:
            msg = (
                f"the checkpoint {folder} did not begin from the savepoint {given}: use a new --checkpoint, or leave "
                "out --from-savepoint to resume from this one"
            )
            raise CheckpointError(msg)
        return
    checkpoint = Checkpoint.new(folder, graph, savepoint.partitions, follows)
    checkpoint.clear_start()
    known, states = upgraded(given, graph)
    if sinks is not None:
        sinks.preflight(checkpoint.run, follows)
    known.write(checkpoint.start, states)
    checkpoint.write()


def note_beginning(checkpoint: Checkpoint, source: Source) -> None:
    """Record where a run begins: at the end of the savepoint that it resumes from, or at the beginning of the source.

    The identity of the savepoint's log is recorded too, so that another log of the same name is detected. Raise
    CheckpointError if writing fails, and any error of `Source.partitions`.
    """
    savepoint = checkpoint.carried()
    if savepoint is None or savepoint.at is None:
        at = source.beginning(None if savepoint is None else savepoint.offsets)
    else:
        at = savepoint.at
        checkpoint.note_identity(savepoint.identity)
    checkpoint.note_beginning(StepOffsets(at))


_PROMPT = 0.5
"""Seconds that a step waits for the identity of the log, which usually takes a few milliseconds."""


@dataclass(frozen=True)
class LossGuard:
    """Compares the offsets of a checkpoint with the log; `policy` decides what happens if records were lost."""

    source: Source
    checkpoint: Checkpoint
    policy: OnDataLoss
    on_loss: OnTrouble

    def look(self, written: int) -> bool:
        """Return True if records were lost and the checkpoint was moved to the first available records.

        `written` is the last epoch in the tables, or -1. Raise SourceError if the policy is to stop, CheckpointError if
        the tables would have records that the state does not have, and any error of `Source.partitions`.
        """
        stands, identity = OffsetLog(self.checkpoint), self.source.identity()
        note = stands.read()
        found = None if note is None else self._find(note.at, stands.read_planned())
        if found is None or not found.losses:
            self.checkpoint.note_identity(identity)
            return False
        lost = f"the log {self.source.name} lost records: {listed(found.losses)}"
        if self.policy == "stop":
            choices = (
                *restoring(found.losses),
                "resume from the remaining records, and record the loss in the clock journal (--on-data-loss continue)",
                "or start over from the remaining records (--fresh)",
            )
            msg = f"{lost}. What was committed stays. Choose: {'; '.join(choices)}"
            raise SourceError(msg)
        done = self.checkpoint.committed
        if written > (self.checkpoint.first_epoch - 1 if done is None else done):
            msg = (
                f"{lost}. Epoch {written} is in the tables, but the checkpoint {self.checkpoint.folder} does not have "
                "it, and its records cannot be read again: start over with --fresh, or resume from a savepoint"
            )
            raise CheckpointError(msg)
        stands.move(found.offset, found.losses)
        self.checkpoint.note_identity(identity)
        for loss in found.losses:
            what = f"the log {self.source.name} lost records, and the run continues without them: {loss}"
            self.on_loss(Fault(what, "lost"))
        return True

    def _find(self, offset: Offset, planned: StepOffsets | None) -> FoundLosses:
        """Return the losses after an offset, including losses in the step that was planned from this offset."""
        found = self.source.find_losses(offset, self.checkpoint.identity)
        if planned is None:
            return found
        stood, behind = self.checkpoint.offsets(), {loss.partition for loss in found.losses}
        ahead = tuple(
            replace(loss, goes_on=stood.get(loss.partition, 0))
            for loss in self.source.find_losses(planned.at, self.checkpoint.identity).losses
            if loss.partition not in behind
        )
        return FoundLosses((*found.losses, *ahead), found.offset)

    def check_identity(self) -> None:
        """Raise RecordsLostError if the log was replaced; if its identity is unavailable, a later step checks it."""
        try:
            identity = self.source.identity(_PROMPT)
        except SourceError:
            return
        if identity != self.checkpoint.identity:
            raise RecordsLostError(another_log(self.source.name))
