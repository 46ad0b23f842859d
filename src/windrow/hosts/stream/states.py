"""The key groups' states in a checkpoint of Spark's, as of the end of a batch."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from windrow.core.state.store import MemoryState
from windrow.hosts.stream.errors import SPARK_ERRORS, translate
from windrow.hosts.stream.slots import slots

_OPERATOR = 0
"""Spark counts its stateful operators from the sink: this one is the last, also where keys are salted."""


def states(spark: SparkSession, checkpoint: Path, batch: int, groups: int) -> Iterator[tuple[int, MemoryState]]:
    """Go through what each of so many key groups knew after a batch, in no order.

    The state must be there, and nobody write it. Raise EngineError if Spark cannot read it.
    """
    numbers = slots(groups)
    try:
        with _committed(checkpoint, batch) as folder:
            known: dict[int, MemoryState] = {}
            for row in _read(spark, folder, batch, "summary").toLocalIterator():
                group = numbers.index(row.slot)
                known[group] = MemoryState()
                known[group].set_summary(bytes(row.blob))
            partition = None
            found: set[int] = set()
            for row in _read(spark, folder, batch, "blobs").toLocalIterator():
                if row.partition_id != partition:
                    # one partition of Spark's at a time is here, with all of some key groups
                    yield from ((group, known.pop(group)) for group in sorted(found))
                    partition, found = row.partition_id, set()
                group = numbers.index(row.slot)
                found.add(group)
                known[group].set(row.kind, row.bucket, bytes(row.blob))
            yield from sorted(known.items())
    except SPARK_ERRORS as exc:
        raise translate(exc) from exc


def _read(spark: SparkSession, folder: Path, batch: int, variable: str) -> DataFrame:
    frame = (
        spark.read.format("statestore")
        .option("operatorId", _OPERATOR)
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
def _committed(checkpoint: Path, batch: int) -> Iterator[Path]:
    """Give a folder in which a batch is noted as done, as Spark wants it, also if the sink alone knows that it is.

    The states of a batch are there before the sink is given it.
    """
    note = checkpoint / "commits" / str(batch)
    if note.exists():
        yield checkpoint.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="windrow-") as made:
        folder = Path(made)
        for path in checkpoint.iterdir():
            if path.name != "commits":
                (folder / path.name).symlink_to(path.absolute())
        commits = folder / "commits"
        shutil.copytree(checkpoint / "commits", commits) if (checkpoint / "commits").exists() else commits.mkdir()
        (commits / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8")
        yield folder
