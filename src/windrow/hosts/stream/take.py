"""Takes a savepoint of a run that has stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from windrow.core.state.store import MemoryState
from windrow.errors import CheckpointError, InputError
from windrow.hosts.savepoint import Savepoint, refuse_used
from windrow.hosts.stream.beginning import agree
from windrow.hosts.stream.checkpoint import Checkpoint
from windrow.hosts.stream.lock import locked
from windrow.hosts.stream.session import spark_session
from windrow.hosts.stream.standing import Standing
from windrow.hosts.stream.states import states
from windrow.model import AnyPipeline
from windrow.sinks.base import Sink
from windrow.sources.loss import listed


def take_savepoint(pipeline: AnyPipeline, sink: Sink, checkpoint: Path, to: Path | None, master: str) -> Path:
    """Write what the run of a checkpoint knows after the last step that its tables have; return the folder.

    That is `to`, or one beside the checkpoint named after it and the epoch. Raise CheckpointError if a run is using the
    checkpoint, or there is none, or it is of another pipeline; InputError if the run knows nothing yet.
    """
    known = _open(pipeline, checkpoint)
    if to is not None:
        refuse_used(to)
    with locked(checkpoint):
        epoch = agree(known, sink.open(known.run, known.follows))
        _refuse_untold(known, epoch)
        batch = _batch(known, epoch)
        # a run that goes on from a savepoint may have been ended before it noted where it begins
        carried = known.carried() if batch < 0 and not known.has_beginning else None
        folder = checkpoint.with_name(f"{checkpoint.name}-{epoch}") if to is None else to
        savepoint = Savepoint(
            run=known.run,
            epoch=epoch,
            offsets=known.offsets(batch),
            partitions=known.partitions,
            key_groups=known.meaning["key_groups"],
            meaning=known.meaning,
            at=known.note(batch).at if carried is None else carried.at,
            identity=known.identity if carried is None else carried.identity,
        )
        savepoint.write(folder, _states(known, epoch, master))
    return folder


def look(pipeline: AnyPipeline, checkpoint: Path, master: str) -> tuple[int, Iterator[tuple[int, MemoryState]]]:
    """Return the last epoch that Spark noted as done, and what the key groups knew after it; raise as above."""
    known = _open(pipeline, checkpoint)
    with locked(checkpoint):
        epoch = _noted(known)
        _batch(known, epoch)
        return epoch, iter(list(_states(known, epoch, master)))


def _open(pipeline: AnyPipeline, checkpoint: Path) -> Checkpoint:
    known = Checkpoint.open(checkpoint, pipeline)
    if known is None:
        msg = f"there is no checkpoint in {checkpoint}: run the pipeline first, or name another --checkpoint"
        raise CheckpointError(msg)
    return known


def _refuse_untold(known: Checkpoint, epoch: int) -> None:
    """Raise CheckpointError if records are gone that no key group was told of yet."""
    note = Standing(known).read()
    if note is not None and note.lost and epoch == _noted(known):
        msg = (
            f"the run of the checkpoint {known.folder} has yet to note in its tables that records are gone "
            f"({listed(note.lost)}): run the pipeline once more, then take the savepoint"
        )
        raise CheckpointError(msg)


def _noted(known: Checkpoint) -> int:
    """Return the last epoch that Spark noted as done; before the first, the one that the run goes on from."""
    return known.first_epoch - 1 if known.committed is None else known.committed


def _batch(known: Checkpoint, epoch: int) -> int:
    """Return Spark's number of an epoch, -1 for the one that the run goes on from; raise InputError if it has none."""
    if epoch < known.first_epoch and known.follows is None:
        msg = f"the run of the checkpoint {known.folder} has committed no step yet: it holds nothing of its own"
        raise InputError(msg)
    return epoch - known.first_epoch


def _states(known: Checkpoint, epoch: int, master: str) -> Iterator[tuple[int, MemoryState]]:
    """Go through what each key group knew after an epoch.

    One that no step has reached yet, and Spark has nothing of, knows what the run began with.
    """
    groups, batch = known.meaning["key_groups"], _batch(known, epoch)
    missing = set(range(groups))
    if batch >= 0:
        for group, state in states(spark_session(master, log=known.log), known.spark, batch, groups):
            missing.discard(group)
            yield group, state
    for group in sorted(missing):
        yield group, MemoryState() if known.follows is None else Savepoint.state(known.start, group)
