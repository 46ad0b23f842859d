"""The log of random walks: a record has the same offset whenever it is read, as `windrow.connectors.source` asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.connectors.source import FoundLosses, Source
from windrow.engine.schema import RAW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from windrow.connectors.cuts import Cut, Offset, Stage, StreamPlan
    from windrow_random_walks.connector import RandomWalksSource
    from windrow_random_walks.stream import WalkReader

_FIRST = 1_767_225_600_000
_SECOND = 1_000
_BATCH = 65_536


def read_walk(source: RandomWalksSource, walk: int, begin: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield steps of a walk in RAW batches."""
    # PCG64's stream of bits never changes, unlike what numpy's generators make of it
    bits = np.random.PCG64([source.seed, walk]).random_raw(end) & 1
    positions = np.cumsum(2 * bits.astype(np.int64) - 1)
    for first in range(begin, end, _BATCH):
        offsets = np.arange(first, min(first + _BATCH, end))
        times, at = (pa.array(one).cast(pa.string()) for one in (_FIRST + offsets * _SECOND, positions[offsets]))
        values = pc.binary_join_element_wise(f'{{"walk": {walk}, "t": ', times, ', "position": ', at, "}", "")
        columns = [
            pa.repeat(walk, len(offsets)),
            pa.array(offsets),
            *(pa.nulls(len(offsets)) for _ in range(2)),
            values,
        ]
        yield pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(columns, RAW, strict=True)], schema=RAW)


def offset_of(steps: Cut) -> Offset:
    """Return the offset at the next steps of some walks."""
    return {str(walk): {"line": step} for walk, step in sorted(steps.items())}


class RandomWalks(Source):
    """The connector of a `RandomWalksSource`; see `windrow.connectors.source.Source`."""

    def __init__(self, source: RandomWalksSource) -> None:
        self._source = source

    @property
    def name(self) -> str:
        """The seed, and how many walks there are."""
        return self._source.place

    def partitions(self) -> list[int]:
        """Return the walks."""
        return list(range(self._source.walks))

    def read_all(self) -> Iterator[pa.RecordBatch]:
        """Yield all steps, walk after walk."""
        for walk in self.partitions():
            yield from self.read_from(walk, 0)

    def read_from(self, partition: int, begin: int) -> Iterator[pa.RecordBatch]:
        """Yield the steps of a walk from an offset on."""
        return read_walk(self._source, partition, begin, self._source.steps)

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return 0 and the number of steps of each walk."""
        return dict.fromkeys(self.partitions(), (0, self._source.steps))

    def incomplete(self) -> list[str]:
        """Return none: a walk ends with a whole step."""
        return []

    def beginning(self, start: Cut | None = None) -> Offset:
        """Return where a run begins: at the first step of each walk, but for those that `start` names."""
        return offset_of(start or {})

    def reader(self, plan: StreamPlan) -> WalkReader:
        """Return what reads the walks for Spark."""
        from windrow_random_walks.stream import WalkReader  # noqa: PLC0415 - Spark only when a stream is opened

        return WalkReader(self._source, plan)

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        """Return a frame of what a stage makes of a range."""
        from windrow.connectors.stream_reader import frame_of  # noqa: PLC0415 - as above

        source, ranges = self._source, [(walk, begin.get(walk, 0), last) for walk, last in sorted(end.items())]

        def read(walk: int, first: int, last: int) -> Iterable[pa.RecordBatch]:
            return read_walk(source, walk, first, last)

        return frame_of(spark, [part for part in ranges if part[1] < part[2]], read, stage, ddl)

    def identity(self, seconds: float = 0.0) -> str | None:  # noqa: ARG002 - the contract's
        """Return the seed, which makes the log."""
        return str(self._source.seed)

    def find_losses(self, offset: Offset, identity: str | None) -> FoundLosses:  # noqa: ARG002 - the contract's
        """Return none: nothing that is computed is lost."""
        return FoundLosses((), offset)
