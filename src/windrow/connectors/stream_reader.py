"""Streaming data sources for Spark whose tasks pass the records that they read through a stage."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from windrow.connectors.cuts import Cut, Offset, Stage, StreamPlan, numbered_batches, portions

T = TypeVar("T")


def stream_of(spark: SparkSession, name: str, reader: DataSourceStreamReader, ddl: str) -> DataFrame:
    """Return a streaming frame of a reader's output, in the schema `ddl`.

    Spark pickles the data source class together with the reader, so the reader's settings do not appear among the
    options in query plans.
    """

    class Bound(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return ddl

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name and parameter
            return reader

    spark.dataSource.register(Bound)
    return spark.readStream.format(name).load()


class Sealed:
    """A pickled stage that only tasks unpickle, so that planning a query does not import the stage's modules."""

    def __init__(self, stage: Stage) -> None:
        self._pickled: bytes = cloudpickle.dumps(stage)  # type: ignore[no-untyped-call] # it has no types

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpickle the stage and apply it to batches."""
        stage: Stage = pickle.loads(self._pickled)  # noqa: S301 - the driver of this run pickled it
        return stage(batches)


class Share(InputPartition, Generic[T]):
    """The part of a step that one task reads: ranges of some partitions of the log."""

    def __init__(self, parts: Mapping[int, T]) -> None:
        super().__init__(None)
        self.parts = parts


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[T]):
    """Follows a log. Spark keeps one reader in a separate process while a query runs, and one in each task.

    `max_bytes` is the approximate number of bytes that a step may read, None if there is no limit. A reader divides it
    among the partitions by their backlogs, and reads at least one record of each partition that has any.
    """

    def __init__(self, plan: StreamPlan) -> None:
        self._stage = Sealed(plan.stage)
        self._begin = plan.begin
        self._tasks = plan.tasks
        self._max_records = plan.max_records
        self.max_bytes = plan.max_bytes
        self._target: dict[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the run begins. Partitions missing there are read from their beginning."""
        return dict(self._begin)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable() if self._max_records is None else ReadMaxRows(self._max_records)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self.step_from(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the stage's output for a task's share of a step."""
        if not isinstance(partition, Share):
            raise TypeError(partition)
        return self._stage(self.read_parts(partition.parts))

    @abstractmethod
    def step_from(self, start: dict[str, Any], max_records: int | None) -> dict[str, Any]:
        """Return the end of the step that starts at `start`, or `start` itself if there is nothing to read."""

    @abstractmethod
    def waiting(self, start: Offset) -> int:
        """Estimate the number of records between `start` and the end of the log."""

    @abstractmethod
    def read_parts(self, parts: Mapping[int, T]) -> Iterable[pa.RecordBatch]:
        """Read ranges of some partitions in RAW batches."""


class CutReader(StreamReader[T]):
    """Follows a log whose steps can be prescribed with `cuts`.

    An offset is {partition: {"line": next offset, ...}}.
    """

    def __init__(self, plan: StreamPlan) -> None:
        super().__init__(plan)
        self._cuts = plan.cuts or ()

    def step_from(self, start: dict[str, Any], max_records: int | None) -> dict[str, Any]:
        cut = next((cut for cut in self._cuts if self.is_before(start, cut)), None)
        return self.step_to(start, cut, None if self._cuts else max_records)

    def is_before(self, start: Offset, cut: Cut) -> bool:
        """Return True if a position is before a cut in any partition."""
        return any(line > start.get(str(partition), {"line": 0})["line"] for partition, line in cut.items())

    @abstractmethod
    def step_to(self, start: dict[str, Any], cut: Cut | None, max_records: int | None = None) -> dict[str, Any]:
        """Return the end of a step: the cut, if there is one, otherwise at most the current end of the log."""


class SeveralReader(StreamReader[Mapping[int, Any]]):
    """Follows several logs as one. An offset is {"sources": [the offset of each log]}.

    A step reads from each log in proportion to its backlog, so that the logs advance together. If there are `cuts`, the
    step ends at the next of them instead; each has a cut for every log.
    """

    def __init__(
        self, readers: Sequence[StreamReader[Any]], plan: StreamPlan, cuts: Sequence[Sequence[Cut]] = ()
    ) -> None:
        super().__init__(plan)
        self._readers = readers
        self._cuts = cuts

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Set each log's reader to stop at the log's current end."""
        for reader in self._readers:
            reader.prepareForTriggerAvailableNow()

    def step_from(self, start: dict[str, Any], max_records: int | None) -> dict[str, Any]:
        starts: list[dict[str, Any]] = start["sources"]
        for cut in self._cuts:
            logs = [
                (reader, at, part)
                for reader, at, part in zip(self._readers, starts, cut, strict=True)
                if isinstance(reader, CutReader)  # a log without cuts has refused them
            ]
            if any(reader.is_before(at, part) for reader, at, part in logs):
                return {"sources": [reader.step_to(dict(at), part) for reader, at, part in logs]}
        limits: dict[int, int | None] = dict.fromkeys(range(len(starts)))
        if max_records is not None:
            readers = enumerate(zip(self._readers, starts, strict=True))
            waiting = {number: count for number, (reader, at) in readers if (count := reader.waiting(at))}
            shares = portions(waiting, max_records) if waiting else {}
            limits = {number: max(1, share) for number, share in shares.items()}
            for number in limits:
                self._readers[number].max_bytes = None if self.max_bytes is None else self.max_bytes // len(limits)
        ends = list(starts)
        for number, limit in limits.items():
            ends[number] = self._readers[number].step_from(dict(starts[number]), limit)
        return start if ends == starts else {"sources": ends}

    def waiting(self, start: Offset) -> int:
        return sum(reader.waiting(at) for reader, at in zip(self._readers, start["sources"], strict=True))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        parts: list[dict[int, Any]] = [{} for _ in range(self._tasks)]
        for number, (reader, *ends) in enumerate(zip(self._readers, start["sources"], end["sources"], strict=True)):
            for share in reader.partitions(*ends):
                if isinstance(share, Share):
                    # a task has one share of each log
                    min((part for part in parts if number not in part), key=len)[number] = share.parts
        return [Share(part) for part in parts if part]

    def read_parts(self, parts: Mapping[int, Mapping[int, Any]]) -> Iterable[pa.RecordBatch]:
        return chain.from_iterable(
            numbered_batches(number, self._readers[number].read_parts(its_own)) for number, its_own in parts.items()
        )


WORTH_RECORDS: Final = 8_000
"""Number of records that are worth a task of their own."""
WORTH_BYTES: Final = 1 << 20
"""Bytes of records that are worth a task of their own."""


def share_partitions(parts: Mapping[int, T], size: Callable[[T], int], tasks: int, worth: int = 1) -> list[Share[T]]:
    """Distribute the partitions of a step among at most `tasks` tasks, no more than one for each `worth` of size.

    Partitions are assigned in order of decreasing size, each to the task with the smallest share so far. A task costs
    more than the records of a small step, so a small step has one task, and a large step one task per core.
    """
    most = -(-sum(map(size, parts.values())) // worth)
    shares: list[dict[int, T]] = [{} for _ in range(min(tasks, len(parts), max(1, most)))]
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
    """Return a frame, in the schema `ddl`, of a stage's output for ranges (partition, offset, next offset).

    Each range is a task that reads its records with `read`, so that they do not pass through Java.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            yield from stage(read(*ranges[number]))

    return spark.range(0, len(ranges), 1, max(1, len(ranges))).mapInArrow(run, ddl)
