"""Takes a savepoint of a run that has stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from windrow.core.state import MemoryState
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
    checkpoint, or there is none, or it is of another pipeline.
    """
    known = _open(pipeline, checkpoint)
    if to is not None:
        refuse_used(to)
    with locked(checkpoint):
        epoch = agree(known, sink.open(known.run, known.follows))
        _refuse_untold(known, epoch)
        batch = _batch(known, epoch)
        folder = checkpoint.with_name(f"{checkpoint.name}-{epoch}") if to is None else to
        savepoint = Savepoint(
            run=known.run,
            epoch=epoch,
            offsets=known.offsets(batch),
            partitions=known.partitions,
            key_groups=known.meaning["key_groups"],
            meaning=known.meaning,
            at=known.note(batch).at,
            identity=known.identity,
        )
        savepoint.write(folder, _states(known, epoch, master))
    return folder


def look(pipeline: AnyPipeline, checkpoint: Path, master: str) -> tuple[int, Iterator[tuple[int, MemoryState]]]:
    """Return the last epoch that Spark noted as done, and what the key groups knew after it; raise as above."""
    known = _open(pipeline, checkpoint)
    with locked(checkpoint):
        epoch = known.first_epoch - 1 if known.committed is None else known.committed
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
    if note is not None and note.lost and epoch == known.committed:
        msg = (
            f"the run of the checkpoint {known.folder} has yet to note in its tables that records are gone "
            f"({listed(note.lost)}): run the pipeline once more, then take the savepoint"
        )
        raise CheckpointError(msg)


def _batch(known: Checkpoint, epoch: int) -> int:
    """Return Spark's number of an epoch; raise InputError if the run has none."""
    if epoch < known.first_epoch:
        msg = f"the run of the checkpoint {known.folder} has committed no step yet: it holds nothing of its own"
        raise InputError(msg)
    return epoch - known.first_epoch


def _states(known: Checkpoint, epoch: int, master: str) -> Iterator[tuple[int, MemoryState]]:
    """Go through what each key group knew after an epoch; one that Spark has nothing of knows nothing."""
    spark = spark_session(master, log=known.log)
    groups = known.meaning["key_groups"]
    missing = set(range(groups))
    for group, state in states(spark, known.spark, _batch(known, epoch), groups):
        missing.discard(group)
        yield group, state
    yield from ((group, MemoryState()) for group in sorted(missing))
