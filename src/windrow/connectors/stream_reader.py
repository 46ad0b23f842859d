"""The common part of streaming data sources of Spark, whose tasks apply a stage to the records that they read."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from windrow.connectors.cuts import Cut, Offset, Stage, numbered_batches, portions

T = TypeVar("T")


def stream_of(spark: SparkSession, name: str, reader: DataSourceStreamReader, ddl: str) -> DataFrame:
    """Return a streaming frame, in the schema `ddl`, of what a reader gives.

    Spark pickles the class with the reader in it, so nothing of it stands among the options of a plan.
    """

    class Bound(DataSource):
        """A data source of one reader."""

        @classmethod
        def name(cls) -> str:
            """Return what `spark.readStream.format` calls it."""
            return name

        def schema(self) -> str:
            """Return the schema of what the reader gives."""
            return ddl

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name and parameter
            """Return the reader."""
            return reader

    spark.dataSource.register(Bound)
    return spark.readStream.format(name).load()


class Sealed:
    """A stage on its way to the tasks: who plans a query does not load what it works with."""

    def __init__(self, stage: Stage) -> None:
        self._pickled: bytes = cloudpickle.dumps(stage)  # type: ignore[no-untyped-call] # it has no types

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the stage makes of batches."""
        stage: Stage = pickle.loads(self._pickled)  # noqa: S301 - the driver of this run pickled it
        return stage(batches)


class Share(InputPartition, Generic[T]):
    """The share of a step that one task reads: ranges of some partitions of the log."""

    def __init__(self, parts: Mapping[int, T]) -> None:
        super().__init__(None)
        self.parts = parts


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[T]):
    """Tails a log; Spark keeps one in a process of its own for a query's life, and one a task to read."""

    def __init__(self, stage: Stage, begin: Offset, *, tasks: int, max_records: int | None) -> None:
        self._stage = Sealed(stage)
        self._begin = begin
        self._tasks = tasks
        self._max_records = max_records
        self._target: dict[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the run begins; a partition that is not named there, or comes later, from its beginning on."""
        return dict(self._begin)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return what `max_records` says."""
        return ReadAllAvailable() if self._max_records is None else ReadMaxRows(self._max_records)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the next step ends; `start` itself if there is nothing to read."""
        return self.step_from(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield what the stage makes of a task's share of a step."""
        if not isinstance(partition, Share):
            raise TypeError(partition)
        return self._stage(self.read_parts(partition.parts))

    @abstractmethod
    def step_from(self, start: dict[str, Any], max_records: int | None) -> dict[str, Any]:
        """Return where the next step ends that begins at `start`, and `start` itself if there is nothing to read."""

    @abstractmethod
    def waiting(self, start: Offset) -> int:
        """Return about how many records a step from `start` on could read."""

    @abstractmethod
    def read_parts(self, parts: Mapping[int, T]) -> Iterable[pa.RecordBatch]:
        """Read parts of some partitions, in RAW batches."""


class CutReader(StreamReader[T]):
    """Tails a log whose steps can be prescribed: by `cuts`, which are their own limit."""

    def __init__(
        self,
        stage: Stage,
        begin: Offset,
        *,
        tasks: int,
        max_records: int | None = None,
        cuts: Sequence[Cut] | None = None,
    ) -> None:
        super().__init__(stage, begin, tasks=tasks, max_records=max_records)
        self._cuts = cuts or ()

    def step_from(self, start: dict[str, Any], max_records: int | None) -> dict[str, Any]:
        """Return where the next step ends: at the next cut, or at the end of what is there now, or before."""
        cut = next((cut for cut in self._cuts if self.is_before(start, cut)), None)
        return self.step_to(start, cut, None if self._cuts else max_records)

    @abstractmethod
    def is_before(self, start: Offset, cut: Cut) -> bool:
        """Return whether a cut is ahead of a position."""

    @abstractmethod
    def step_to(self, start: dict[str, Any], cut: Cut | None, max_records: int | None = None) -> dict[str, Any]:
        """Return where a step ends: at the cut, if one is given, or at the end of what is there now, or before."""


class SeveralReader(StreamReader[Mapping[int, Any]]):
    """Tails several logs as one; an offset is {"sources": [the offset of each]}.

    A step has of each log as much as its share of what waits, so that a long backlog is read abreast; or it ends at the
    next of `cuts`, each of which has a cut of each log.
    """

    def __init__(
        self,
        readers: Sequence[StreamReader[Any]],
        stage: Stage,
        begin: Offset,
        *,
        tasks: int,
        max_records: int | None,
        cuts: Sequence[Sequence[Cut]] | None = None,
    ) -> None:
        super().__init__(stage, begin, tasks=tasks, max_records=max_records)
        self._readers = readers
        self._cuts = cuts or ()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Make what is there now the end of each log."""
        for reader in self._readers:
            reader.prepareForTriggerAvailableNow()

    def step_from(self, start: dict[str, Any], max_records: int | None) -> dict[str, Any]:
        """Return where the next step ends."""
        starts: list[dict[str, Any]] = start["sources"]
        for cut in self._cuts:
            logs = [
                (reader, at, part)
                for reader, at, part in zip(self._readers, starts, cut, strict=True)
                if isinstance(reader, CutReader)  # one that cannot be cut has refused the cuts
            ]
            if any(reader.is_before(at, part) for reader, at, part in logs):
                return {"sources": [reader.step_to(dict(at), part) for reader, at, part in logs]}
        limits: dict[int, int | None] = dict.fromkeys(range(len(starts)))
        if max_records is not None:
            readers = enumerate(zip(self._readers, starts, strict=True))
            waiting = {number: count for number, (reader, at) in readers if (count := reader.waiting(at))}
            limits = {one: max(1, share) for one, share in portions(waiting, max_records).items()} if waiting else {}
        ends = list(starts)
        for number, limit in limits.items():
            ends[number] = self._readers[number].step_from(dict(starts[number]), limit)
        return start if ends == starts else {"sources": ends}

    def waiting(self, start: Offset) -> int:
        """Return about how many records of all logs wait."""
        return sum(reader.waiting(at) for reader, at in zip(self._readers, start["sources"], strict=True))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return an input partition for each task: some partitions of some logs."""
        parts: list[dict[int, Any]] = [{} for _ in range(self._tasks)]
        for number, (reader, *ends) in enumerate(zip(self._readers, start["sources"], end["sources"], strict=True)):
            for share in reader.partitions(*ends):
                if isinstance(share, Share):
                    # a task has one share of each log
                    min((part for part in parts if number not in part), key=len)[number] = share.parts
        return [Share(part) for part in parts if part]

    def read_parts(self, parts: Mapping[int, Mapping[int, Any]]) -> Iterable[pa.RecordBatch]:
        """Read parts of some partitions of one log after the other."""
        return chain.from_iterable(
            numbered_batches(number, self._readers[number].read_parts(its_own)) for number, its_own in parts.items()
        )


def shared(parts: Mapping[int, T], size: Callable[[T], int], tasks: int) -> list[Share[T]]:
    """Share the partitions of a step among at most so many tasks, the greatest first to who has least.

    A task costs more than a small step's records: so many as there are cores are enough.
    """
    shares: list[dict[int, T]] = [{} for _ in range(min(tasks, len(parts)))]
    for number in sorted(parts, key=lambda number: (-size(parts[number]), number)):
        least = min(shares, key=lambda share: sum(map(size, share.values())))
        least[number] = parts[number]
    return [Share(share) for share in shares]


def frame_of(
    spark: SparkSession,
    ranges: Sequence[tuple[int, int, int]],
    read: Callable[[int, int, int], Iterable[pa.RecordBatch]],
    stage: Stage,
    ddl: str,
) -> DataFrame:
    """Return a frame, in the schema `ddl`, of what a stage makes of ranges (partition, offset, next offset).

    Each is a task, which reads its own by `read`: the records do not go through Java.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            yield from stage(read(*ranges[number]))

    return spark.range(0, len(ranges), 1, max(1, len(ranges))).mapInArrow(run, ddl)
