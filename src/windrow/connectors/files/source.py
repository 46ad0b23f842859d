"""A source of files that other programs write once, read in the order of their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from windrow import model as m
from windrow.connectors.cuts import Cut, Offset, Stage, StreamPlan
from windrow.connectors.files.listing import START, DataFile, FileSequence, Position, Span, list_partitions
from windrow.connectors.source import FoundLosses, Loss, Source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.connectors.files.stream import FilesStreamReader


class OrderedFiles(Source):
    """The files of a `FilesSource`, read as a log."""

    def __init__(self, source: m.FilesSource) -> None:
        self._source = source
        self._sequences = FileSequence.partitions(source)
        self._listed: list[list[DataFile]] | None = None

    @property
    def name(self) -> str:
        return self._source.place

    def read_as(self, at: Offset) -> OrderedFiles:
        found = OrderedFiles(self._source)
        found._sequences = self._sequences_at(at)
        return found

    def partitions(self) -> list[int]:
        return list(range(len(self._list())))

    def read_all(self) -> Iterator[pa.RecordBatch]:
        for partition, files in enumerate(self._list()):
            yield from _read(partition, self._sequences[partition].spans(files, START))

    def read_from(self, partition: int, begin: int) -> Iterator[pa.RecordBatch]:
        """Read a partition from an offset to its end; raise SourceError if it ends before the offset."""
        sequence = self._sequences[partition]
        files = sequence.files()
        return _read(partition, sequence.spans(files, sequence.after(files, begin)))

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return 0 and the current end of each partition, including new files."""
        self._listed = self._list()
        return {partition: (0, self._sequences[partition].end(files)) for partition, files in enumerate(self._listed)}

    def estimate_bytes(self, begin: Cut, end: Cut) -> int:
        listed = self._listed or self._list()
        return sum(
            int((last - begin.get(partition, 0)) * self._sequences[partition].mean_bytes(listed[partition]))
            for partition, last in end.items()
        )

    def incomplete(self) -> list[str]:
        """Return an empty list, because the last line of a file does not need a newline."""
        return []

    def beginning(self, start: Cut | None = None) -> Offset:
        listed = self._list()
        found = {}
        for partition, line in sorted((start or {}).items()):
            if line:
                sequence, files = self._sequences[partition], listed[partition]
                found[str(partition)] = sequence.noted(files, sequence.after(files, line))
        return found

    def reader(self, plan: StreamPlan) -> FilesStreamReader:
        from windrow.connectors.files.stream import FilesStreamReader  # noqa: PLC0415 - Spark only when a stream is opened

        return FilesStreamReader(FileSequence.partitions(self._source), plan)

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        """Return a frame of a stage's output for the files that the last call to `ends` has listed."""
        from windrow.connectors.stream_reader import frame_of  # noqa: PLC0415 - as above

        listed = self._listed or self._list()
        ranges = [
            (partition, first, last)
            for partition, last in sorted(end.items())
            if (first := begin.get(partition, 0)) < last
        ]
        spans = {}
        for partition, first, last in ranges:
            sequence, files = self._sequences[partition], listed[partition]
            spans[partition] = sequence.spans(files, sequence.after(files, first), last)
        return frame_of(spark, ranges, lambda partition, _, __: _read(partition, spans[partition]), stage, ddl)

    def identity(self, seconds: float = 0.0) -> str | None:  # noqa: ARG002 - see `Source`
        """Return None, because files are identified by their contents."""
        return None

    def find_losses(self, offset: Offset, identity: str | None) -> FoundLosses:  # noqa: ARG002 - see `Source`
        """Report files that have changed since they were read; reading continues after them."""
        sequences, moved, losses = self._sequences_at(offset), dict(offset), []
        listed = list_partitions(sequences)
        for name, at in offset.items():
            partition, position = int(name), Position.of(at)
            read = f"read up to offset {position.line}"
            if partition >= len(listed):
                path = "add the path to the pipeline again"
                losses.append(
                    Loss(partition, position.line, 0, f"{read}, and the pipeline no longer has that path", restore=path)
                )
                del moved[name]
                continue
            sequence, files = sequences[partition], listed[partition]
            if (change := sequence.change(files, position, at["mark"])) is not None:
                beyond = sequence.beyond(files, position)
                restore = "restore the files as they were"
                losses.append(Loss(partition, position.line, beyond.line, f"{read}, and {change}", restore=restore))
                moved[name] = sequence.noted(files, beyond)
        return FoundLosses(tuple(losses), moved)

    def _sequences_at(self, at: Offset) -> list[FileSequence]:
        return [sequence.read_as(at.get(str(partition))) for partition, sequence in enumerate(self._sequences)]

    def _list(self) -> list[list[DataFile]]:
        return list_partitions(self._sequences)


def _read(partition: int, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
    for span in spans:
        yield from span.read(partition)
