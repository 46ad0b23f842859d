"""The embedded log as a streaming data source of Spark, named ``windrow_log``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

from windrow.errors import InputError, SourceError
from windrow.sources.log.folder import START, LogFolder, Position
from windrow.sources.log.steps import Positions, up_to, up_to_cut

RAW_STRUCT = StructType(
    [
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("log_time", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)
"""`windrow.core.schema.RAW` in Spark's terms."""

Offset = dict[str, dict[str, int]]
"""For each partition that was read from: the lines and bytes before the position, and marks of the last bytes before it
and of the first of the file (`head`)."""


class LogDataSource(DataSource):
    """Options: `path`; `max_records` a step; `start`, a JSON {partition: next offset}; `cuts`, where steps end.

    Those are a JSON list of such offsets.
    """

    @classmethod
    def name(cls) -> str:
        """Return what `spark.readStream.format` calls it."""
        return "windrow_log"

    def schema(self) -> StructType:
        """Return the schema of raw records."""
        return RAW_STRUCT

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: ARG002, N802 - Spark's name and parameter
        """Return the reader that the options ask for."""
        limit = self.options.get("max_records")
        return LogStreamReader(
            self.options["path"],
            None if limit is None else int(limit),
            [_cut(cut) for cut in json.loads(self.options.get("cuts", "[]"))],
            _cut(json.loads(self.options.get("start", "{}"))),
        )


class LinesPartition(InputPartition):
    """The lines of one log partition that a step reads."""

    def __init__(self, partition: int, start: Position, end: Position) -> None:
        super().__init__(partition)
        self.partition = partition
        self.start = start
        self.end = end


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tails an embedded log; Spark keeps one in a process of its own for a query's life, and one a task to read."""

    def __init__(
        self, path: str, max_records: int | None, cuts: Sequence[Mapping[int, int]], start: Mapping[int, int]
    ) -> None:
        self._folder = LogFolder(path)
        self._max_records = max_records
        self._cuts = cuts
        self._start = start
        self._target: dict[int, int] | None = None
        self._seen: dict[int, int] = {}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the beginning of every partition, also of those that come later, but for those that `start` names."""
        return {
            str(partition): _offset(self._folder, partition, self._folder.after(partition, line))
            for partition, line in self._start.items()
            if line
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return what `max_records` says; cuts are their own limit."""
        return ReadAllAvailable() if self._max_records is None else ReadMaxRows(self._max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take the bytes that are there now as the end of the input."""
        self._target = self._folder.sizes()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return where the next step ends; `start` itself if there is nothing to read."""
        sizes = self._sizes(start)
        if self._target is not None:
            sizes = {p: min(size, self._target.get(p, 0)) for p, size in sizes.items()}
        if sizes == self._seen:  # nothing was written since a look that found nothing
            return start
        self._verify(start)
        begin = _positions(start)
        if self._cuts:
            ends = up_to_cut(self._folder, begin, sizes, self._cuts)
        else:
            ends = up_to(self._folder, begin, sizes, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        moved = {p: end for p, end in ends.items() if end != begin.get(p, START)}
        if not moved:
            self._seen = sizes
            return start
        self._seen = {}
        marked = {str(p): _offset(self._folder, p, end) for p, end in moved.items()}
        return dict(sorted({**start, **marked}.items(), key=lambda item: int(item[0])))

    def _sizes(self, start: Offset) -> dict[int, int]:
        try:
            sizes = self._folder.sizes()
        except InputError as exc:  # it was a log when the query began
            raise SourceError(exc.message) from exc
        for partition, position in _positions(start).items():
            if sizes.get(partition, -1) < position.byte:
                self._folder.scan(partition, position)  # says what is lost
        return sizes

    def _verify(self, start: Offset) -> None:
        positions = _positions(start)
        for partition, position in positions.items():
            self._folder.verify(partition, position, start[str(partition)]["mark"])

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return one input partition for each log partition that has records in the step."""
        begin = _positions(start)
        return [
            LinesPartition(partition, begin.get(partition, START), position)
            for partition, position in _positions(end).items()
            if position != begin.get(partition, START)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a step's lines of a partition, in RAW."""
        if not isinstance(partition, LinesPartition):
            raise TypeError(partition)
        return self._folder.read(partition.partition, partition.start, partition.end)


def _cut(plain: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in plain.items()}


def _positions(offset: Mapping[str, Mapping[str, Any]]) -> Positions:
    return {int(partition): Position(at["line"], at["byte"]) for partition, at in offset.items()}


def _offset(folder: LogFolder, partition: int, at: Position) -> dict[str, int]:
    return {"line": at.line, "byte": at.byte, "mark": folder.mark(partition, at), "head": folder.head(partition)}
