"""Where a run begins: with a checkpoint and tables that belong together, or with the savepoint of another run."""

from __future__ import annotations

from pathlib import Path

from windrow.errors import CheckpointError, SinkError
from windrow.hosts.savepoint import Savepoint
from windrow.hosts.stream.checkpoint import Checkpoint
from windrow.hosts.stream.intact import refuse_damaged
from windrow.hosts.stream.note import Note
from windrow.hosts.stream.standing import Standing
from windrow.hosts.upgrade import upgraded
from windrow.model import AnyPipeline
from windrow.sinks.base import Follows
from windrow.sources.base import Source


def agree(checkpoint: Checkpoint, written: int | None) -> int:
    """Return the last epoch in the tables, `written`, -1 for none; the next step is the one after it.

    Spark notes that a step is done while it is written, so what it noted last may be one ahead: that step is taken
    once more. It may be one behind, too. Raise SinkError or CheckpointError if the two are not of one time.
    """
    folder, done = checkpoint.folder, checkpoint.committed
    nothing = checkpoint.first_epoch - 1
    if written is None and done is not None and done > checkpoint.first_epoch:
        msg = (
            f"the checkpoint {folder} is at epoch {done}, but the tables hold nothing of it: they were dropped or "
            "emptied, or the sink is another one; restore them, or begin anew with --fresh"
        )
        raise SinkError(msg)
    known, held = (nothing if epoch is None else epoch for epoch in (done, written))
    if abs(known - held) > 1:
        msg = (
            f"the checkpoint {folder} is at epoch {done}, but the tables are at epoch {written}: one of them was "
            "restored from another time; restore the other too, or begin anew with --fresh"
        )
        raise CheckpointError(msg)
    if known > held:
        Standing(checkpoint).take_back()
        refuse_damaged(checkpoint.spark)
    return held


def begin_from(folder: Path, pipeline: AnyPipeline, given: Path) -> None:
    """Make the checkpoint of a run that goes on from a savepoint, if it is not there, in a folder that is locked.

    Raise CheckpointError if it began otherwise, or if the pipeline cannot go on from there. What is ended half done is
    done again by the next call.
    """
    savepoint = Savepoint.read(given)
    follows = Follows(savepoint.run, savepoint.epoch)
    checkpoint = Checkpoint.read(folder)
    if checkpoint is not None:
        if checkpoint.follows != follows:
            msg = (
                f"the checkpoint {folder} did not begin from the savepoint {given}: name a new --checkpoint, or leave "
                "out --from-savepoint to go on from this one"
            )
            raise CheckpointError(msg)
        return
    checkpoint = Checkpoint.new(folder, pipeline, savepoint.partitions, follows)
    checkpoint.clear_start()
    known, states = upgraded(given, pipeline)
    known.write(checkpoint.start, states)
    checkpoint.write()


def note_beginning(checkpoint: Checkpoint, source: Source) -> None:
    """Note where a run begins: where the savepoint that it goes on from ended, else where the source says.

    What the savepoint knows of its log goes with it, so that another one of the same name is found as it would be with
    the checkpoint that was left. Raise CheckpointError if it cannot be written, and as `Source.partitions`.
    """
    savepoint = checkpoint.carried()
    if savepoint is None or savepoint.at is None:
        at = source.beginning(None if savepoint is None else savepoint.offsets)
    else:
        at = savepoint.at
        checkpoint.note_identity(savepoint.identity)
    checkpoint.note_beginning(Note(at))
