"""Takes savepoints of a stopped run by reading the states of its key groups from Spark's state store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from windrow import model as m
from windrow.connectors.sink import Sink, SinkGroup
from windrow.connectors.source import listed
from windrow.engine.level import join_levels, levels_with_state
from windrow.engine.state.store import MemoryState
from windrow.errors import CheckpointError, InputError
from windrow.runtime.savepoint import Savepoint, require_new_folder
from windrow.runtime.settings import SparkOptions
from windrow.runtime.spark.cluster import preflight
from windrow.runtime.spark.errors import SPARK_ERRORS, translate_spark_error
from windrow.runtime.spark.key_groups import decompressed
from windrow.runtime.spark.session import spark_session
from windrow.runtime.spark.stages import balanced_key_groups
from windrow.runtime.stream.checkpoint import Checkpoint, locked
from windrow.runtime.stream.offsets import OffsetLog, agree
from windrow.telemetry.folders import Folder


def take_savepoint(
    graph: m.Graph, sink: Sink | SinkGroup, checkpoint: Folder, to: Folder | None, spark: SparkOptions
) -> Folder:
    """Write the state of a run after the last step in its tables, and return the folder of the savepoint.

    The folder is `to`, or by default a folder beside the checkpoint with its name and the epoch. Raise CheckpointError
    if a run is using the checkpoint, or if the checkpoint is missing or belongs to another pipeline. Raise InputError
    if the run has no state yet.
    """
    known = _open(graph, checkpoint)
    if to is not None:
        require_new_folder(to)
    with locked(checkpoint):
        sinks = SinkGroup.of(sink)
        epoch = agree(known, sinks.open(known.run, known.follows))
        if not sinks.is_even:
            msg = (
                f"the run of the checkpoint {checkpoint} ended between the commits of a step to two tables: run the "
                "pipeline once more, then take the savepoint"
            )
            raise CheckpointError(msg)
        note = OffsetLog(known).read()
        if note is not None and note.lost and epoch == _last_epoch(known):
            msg = (
                f"the run of the checkpoint {known.folder} has yet to record in its tables that records were lost "
                f"({listed(note.lost)}): run the pipeline once more, then take the savepoint"
            )
            raise CheckpointError(msg)
        batch = _batch(known, epoch)
        # a run that resumes from a savepoint may have ended before it recorded its beginning
        begun = known.carried()
        carried = begun if batch < 0 and not known.has_beginning else None
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
            decoded_since={} if begun is None else begun.decoded_since,
        )
        savepoint.write(folder, _states(graph, known, epoch, spark))
    return folder


def look(graph: m.Graph, checkpoint: Folder, spark: SparkOptions) -> tuple[int, Iterator[tuple[int, MemoryState]]]:
    """Return the last epoch that Spark recorded as done, and the states after it.

    Raise CheckpointError or InputError as `take_savepoint` does.
    """
    known = _open(graph, checkpoint)
    with locked(checkpoint):
        epoch = _last_epoch(known)
        _batch(known, epoch)
        return epoch, iter(list(_states(graph, known, epoch, spark)))


def _open(graph: m.Graph, checkpoint: Folder) -> Checkpoint:
    known = Checkpoint.open(checkpoint, graph)
    if known is None:
        msg = f"there is no checkpoint in {checkpoint}: run the pipeline first, or choose another --checkpoint"
        raise CheckpointError(msg)
    return known


def _last_epoch(known: Checkpoint) -> int:
    """Return the last epoch that Spark recorded as done, or else the epoch from which the run resumes."""
    return known.first_epoch - 1 if known.committed is None else known.committed


def _batch(known: Checkpoint, epoch: int) -> int:
    """Return Spark's number of an epoch, or -1 for the epoch from which the run resumes.

    Raise InputError if the run has not committed a step and does not resume from another run.
    """
    if epoch < known.first_epoch and known.follows is None:
        msg = f"the run of the checkpoint {known.folder} has not committed a step yet, so it has no state of its own"
        raise InputError(msg)
    return epoch - known.first_epoch


def _states(graph: m.Graph, known: Checkpoint, epoch: int, spark: SparkOptions) -> Iterator[tuple[int, MemoryState]]:
    """Yield the state of each key group after an epoch.

    Spark has no state for a key group that no step has reached; such a group still has the state with which the run
    began.
    """
    groups, batch = known.meaning["key_groups"], _batch(known, epoch)
    missing = set(range(groups))
    if batch >= 0:
        session = spark_session(spark, log=known.log)
        preflight(session, graph, known.folder)
        last, *others = levels_with_state(known.partitioned(graph))
        above = [dict(read_states(session, known.spark, batch, groups, level)) for level in others]
        for group, state in read_states(session, known.spark, batch, groups, last):
            missing.discard(group)
            yield group, join_levels([*(states[group] for states in above), state])
    for group in sorted(missing):
        yield group, MemoryState() if known.follows is None else Savepoint.state(known.start, group)


def read_states(
    spark: SparkSession, checkpoint: Folder, batch: int, groups: int, level: int = 0
) -> Iterator[tuple[int, MemoryState]]:
    """Yield the states of key groups after a batch at a level, in no particular order.

    Levels are counted from the last, which is 0, as Spark numbers its stateful operators. The state must exist, and no
    run may be writing it. Raise EngineError if Spark cannot read it.
    """
    numbers = balanced_key_groups(groups)
    try:
        with _committed(checkpoint, batch) as folder:
            known: dict[int, MemoryState] = {}
            for row in _read(spark, folder, (level, batch), "summary").toLocalIterator():
                group = numbers.index(row.slot)
                known[group] = MemoryState()
                known[group].set_summary(bytes(row.blob))
            partition = None
            found: set[int] = set()
            for row in _read(spark, folder, (level, batch), "blobs").toLocalIterator():
                if row.partition_id != partition:
                    # Spark sends one partition at a time, with all blobs of some key groups
                    yield from ((group, known.pop(group)) for group in sorted(found))
                    partition, found = row.partition_id, set()
                group = numbers.index(row.slot)
                found.add(group)
                known[group].set(row.kind, row.bucket, decompressed(bytes(row.blob)))
            yield from sorted(known.items())
    except SPARK_ERRORS as exc:
        raise translate_spark_error(exc) from exc


def _read(spark: SparkSession, folder: Folder, at: tuple[int, int], variable: str) -> DataFrame:
    operator, batch = at
    frame = (
        spark.read.format("statestore")
        .option("operatorId", operator)
        .option("batchId", batch)
        .option("stateVarName", variable)
        .load(str(folder))
    )
    if variable == "summary":
        return frame.select(f.col("key.slot").alias("slot"), f.col("value.blob").alias("blob"))
    return frame.select(
        f.col("key.slot").alias("slot"),
        f.col("user_map_key.kind").alias("kind"),
        f.col("user_map_key.bucket").alias("bucket"),
        f.col("user_map_value.blob").alias("blob"),
        "partition_id",
    )


@contextmanager
def _committed(checkpoint: Folder, batch: int) -> Iterator[Folder]:
    """Yield a folder in which a batch is recorded as done, as Spark requires, even if only the sink has committed it.

    The states of a batch are written before the sink receives it. Raise CheckpointError if the record is missing in an
    object store, which has no links.
    """
    note = checkpoint / "commits" / str(batch)
    if note.exists():
        yield checkpoint.absolute()
        return
    if not isinstance(checkpoint, Path):
        msg = f"{note} does not exist yet: run the pipeline once more, then try again"
        raise CheckpointError(msg)
    # beside the checkpoint: executors of a cluster read the links too
    with tempfile.TemporaryDirectory(prefix="reading-", dir=checkpoint.parent) as temporary:
        folder = Path(temporary)
        for path in checkpoint.iterdir():
            if path.name != "commits":
                (folder / path.name).symlink_to(path.absolute())
        commits = folder / "commits"
        shutil.copytree(checkpoint / "commits", commits) if (checkpoint / "commits").exists() else commits.mkdir()
        (commits / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8")
        yield folder
