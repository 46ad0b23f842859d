"""The embedded log: a folder with ``partition-0.jsonl``, ``partition-1.jsonl``, ..."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from windrow import model as m
from windrow.connectors.cuts import Cut, Offset, Stage, StreamPlan
from windrow.connectors.log.folder import LogFolder, trimmed
from windrow.connectors.log.segments import START, Position, Retained
from windrow.connectors.source import FoundLosses, Loss, Source
from windrow.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.connectors.log.stream import LogStreamReader

__all__ = ["START", "EmbeddedLog", "LogFolder", "Position"]


class EmbeddedLog(Source):
    """The log of a `LogSource`, read from its folder."""

    def __init__(self, source: m.LogSource) -> None:
        self._folder = LogFolder(source.path)
        self._counted: dict[int, Position] = {}

    @property
    def name(self) -> str:
        return str(self._folder.path)

    def partitions(self) -> list[int]:
        partitions = self._folder.partitions()
        for partition in partitions:
            self._folder.scan(partition, self._folder.first(partition), max_lines=0)  # opens it
        return partitions

    def read_all(self) -> Iterator[pa.RecordBatch]:
        first = {partition: self._folder.first(partition) for partition in self._folder.partitions()}
        ends = {partition: self._folder.scan(partition, at) for partition, at in first.items()}
        for partition, end in ends.items():
            yield from self._folder.read(partition, first[partition], end)

    def read_from(self, partition: int, begin: int) -> Iterator[pa.RecordBatch]:
        """Read a partition to its end from an offset or, if that was trimmed, from its first record.

        Raise SourceError if the partition ends before the offset.
        """
        first = self._folder.first(partition)
        return self._folder.read(partition, self._folder.after(partition, max(begin, first.line), first))

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return the first offset and the end of each partition. Only records added since the last call are counted."""
        counted, found = {}, {}
        for partition, size in sorted(self._folder.sizes().items()):
            # one look for both, as the log may be trimmed meanwhile
            first, at = self._folder.read_stable(partition, partial(self._end, partition, size))
            counted[partition], found[partition] = at, (first.line, at.line)
        self._counted = counted
        return found

    def estimate_bytes(self, begin: Cut, end: Cut) -> int:
        counted = ((number, self._counted.get(number, START)) for number in end)
        return sum((end[number] - begin.get(number, 0)) * at.byte // at.line for number, at in counted if at.line)

    def _end(self, partition: int, size: int, kept: Retained) -> tuple[Position, Position]:
        before = max(kept.first, self._counted.get(partition, START))
        return kept.first, self._folder.scan(partition, before if before.byte <= size else kept.first)

    def incomplete(self) -> list[str]:
        """Return the files whose last line has no newline and is therefore not read."""
        return [
            str(self._folder.file(partition))
            for partition in self._folder.partitions()
            if not self._folder.ends_with_newline(partition)
        ]

    def beginning(self, start: Cut | None = None) -> Offset:
        first = {partition: self._folder.first(partition) for partition in self._folder.partitions()}
        at = {
            **first,
            **{partition: self._folder.after(partition, line) for partition, line in (start or {}).items() if line},
        }
        return {
            str(partition): self._folder.noted(partition, position)
            for partition, position in at.items()
            if position.line
        }

    def reader(self, plan: StreamPlan) -> LogStreamReader:
        from windrow.connectors.log.stream import LogStreamReader  # noqa: PLC0415 - Spark only when a stream is opened

        return LogStreamReader(LogFolder(self._folder.path.absolute()), plan)

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        from windrow.connectors.stream_reader import frame_of  # noqa: PLC0415 - as above

        ranges = [
            (partition, first, last)
            for partition, last in sorted(end.items())
            if (first := begin.get(partition, self._folder.first(partition).line)) < last
        ]
        return frame_of(spark, ranges, LogFolder(self._folder.path.absolute()).read_lines, stage, ddl)

    def identity(self, seconds: float = 0.0) -> str | None:  # noqa: ARG002 - see `Source`
        """Return None, because a log file is identified by its contents."""
        return None

    def find_losses(self, offset: Offset, identity: str | None) -> FoundLosses:  # noqa: ARG002 - see `Source`
        """Report files that were deleted, truncated or replaced."""
        return find_losses(self._folder, offset)


_RESTORE = "bring the file back"


def find_losses(folder: LogFolder, offset: Mapping[str, Mapping[str, int]]) -> FoundLosses:
    """Check each file against the checksums of the bytes that were read from it, which the offset contains.

    If a file still has the same first line, it was truncated or changed: reading continues at its end or at the
    recorded position. A file with a different first line was replaced and is read from its start. Raise SourceError if
    a file cannot be read.
    """
    there = set(folder.partitions())
    moved = dict(offset)
    losses = []
    for name, at in offset.items():
        partition, stood = int(name), Position(at["line"], at["byte"])
        if partition not in there:
            gone = f"{folder.file(partition)} is gone, read up to {_at(stood)}"
            losses.append(Loss(partition, stood.line, 0, gone, restore=_RESTORE))
            del moved[name]
            continue
        if (first := folder.first(partition)).line > stood.line:
            losses.append(Loss(partition, stood.line, first.line, trimmed(stood.line, first.line)))
            moved[name] = folder.noted(partition, first)
            continue
        try:
            folder.verify(partition, stood, at["mark"], at.get("head"))
        except SourceError:
            size = folder.sizes()[partition]
            if "head" in at and size and folder.head(partition) == at["head"]:
                goes_on = folder.up_to(partition, stood.line, first)
                short = goes_on.line < stood.line
                what = "was cut off" if short else "holds other bytes now"
                moved[name] = folder.noted(partition, goes_on)
            else:
                goes_on, what = Position(), "is another file now"
                del moved[name]
            what_lost = f"{folder.file(partition)} {what}, read up to {_at(stood)}"
            losses.append(Loss(partition, stood.line, goes_on.line, what_lost, restore=_RESTORE))
    for partition in sorted(there - set(map(int, offset))):
        if (first := folder.first(partition)).line:
            losses.append(Loss(partition, 0, first.line, trimmed(0, first.line)))
            moved[str(partition)] = folder.noted(partition, first)
    return FoundLosses(tuple(losses), moved)


def _at(position: Position) -> str:
    return f"offset {position.line} (byte {position.byte})"
