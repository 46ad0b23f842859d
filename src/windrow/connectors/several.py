"""Several logs as one: its partitions are those of all, each with a number of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from windrow import model as m
from windrow.connectors.cuts import Cut, Offset, numbered_batches
from windrow.connectors.source import FoundLosses, Source
from windrow.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.connectors.cuts import Stage
    from windrow.connectors.stream_reader import SeveralReader

T = TypeVar("T")


class SeveralLogs:
    """The connector of several sources, by their names; see `windrow.connectors.source.Source`.

    Offsets are {"sources": [...]}, with the offset of each source in its own form.
    """

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._names = list(sources)
        self._sources = list(sources.values())

    @property
    def name(self) -> str:
        """The names of the logs."""
        return ", ".join(source.name for source in self._sources)

    def partitions(self) -> list[int]:
        """Return the partitions of all logs in order; raise as they do."""
        return list(self._joined(lambda source: dict.fromkeys(source.partitions())))

    def read_all(self) -> Iterator[pa.RecordBatch]:
        """Read what is in the logs now, one after the other, in RAW batches."""
        for number, source in enumerate(self._sources):
            yield from numbered_batches(number, source.read_all())

    def read_from(self, partition: int, begin: int) -> Iterator[pa.RecordBatch]:
        """Read a partition of one of the logs, from an offset to its end."""
        number, own = divmod(partition, m.MAX_PARTITIONS)
        return numbered_batches(number, self._sources[number].read_from(own, begin))

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return the first offset and the end of each partition, as of now."""
        return self._joined(lambda source: source.ends())

    def incomplete(self) -> list[str]:
        """Return the files and partitions that end in an incomplete record."""
        return [name for source in self._sources for name in source.incomplete()]

    def beginning(self, start: Cut | None = None) -> Offset:
        """Return where a run begins; see `windrow.connectors.source.Source.beginning`."""
        if start is None:
            return {"sources": [source.beginning() for source in self._sources]}
        parts = zip(self._sources, self._parts(start), strict=True)
        return {"sources": [source.beginning(part) for source, part in parts]}

    def reader(
        self,
        stage: Stage,
        begin: Offset,
        *,
        tasks: int,
        max_records: int | None = None,
        cuts: Sequence[Cut] | None = None,
    ) -> SeveralReader:
        """Return what reads the logs for Spark; see `windrow.connectors.source.Source.reader`."""
        from windrow.connectors.stream_reader import SeveralReader  # noqa: PLC0415 - Spark only when a stream is opened

        parts = None if cuts is None else [self._parts(cut) for cut in cuts]
        readers = [
            source.reader(_unchanged, at, tasks=tasks, cuts=None if parts is None else [part[number] for part in parts])
            for number, (source, at) in enumerate(zip(self._sources, begin["sources"], strict=True))
        ]
        return SeveralReader(readers, stage, begin, tasks=tasks, max_records=max_records, cuts=parts)

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        """Return a frame of what a stage makes of a range; see `windrow.connectors.source.Source.batch`."""
        frames = [
            source.batch(spark, first, last, _numbering(number, stage), ddl)
            for number, (source, first, last) in enumerate(
                zip(self._sources, self._parts(begin), self._parts(end), strict=True)
            )
            if last
        ]
        return reduce(lambda one, other: one.union(other), frames)

    def identity(self, seconds: float = 5.0) -> str | None:
        """Return the ids of the logs in JSON, None if none has one."""
        found = [source.identity(seconds) for source in self._sources]
        return None if found == [None] * len(found) else json.dumps(found)

    def find_losses(self, offset: Offset, identity: str | None) -> FoundLosses:
        """Return which records of any log were lost."""
        identities = [None] * len(self._sources) if identity is None else json.loads(identity)
        found = [
            source.find_losses(at, known)
            for source, at, known in zip(self._sources, offset["sources"], identities, strict=True)
        ]
        losses = [
            replace(
                loss,
                partition=self._number(number, loss.partition),
                name=f"{self._names[number]}/{loss.partition}",
            )
            for number, one in enumerate(found)
            for loss in one.losses
        ]
        return FoundLosses(tuple(losses), {"sources": [one.offset for one in found]})

    def _joined(self, of: Callable[[Source], Mapping[int, T]]) -> dict[int, T]:
        """Return what each source says by partition."""
        return {
            self._number(number, partition): value
            for number, source in enumerate(self._sources)
            for partition, value in sorted(of(source).items())
        }

    def _number(self, source: int, partition: int) -> int:
        if partition >= m.MAX_PARTITIONS:
            msg = f"partition {partition} of {self._names[source]}: a source of several has at most {m.MAX_PARTITIONS}"
            raise InputError(msg)
        return source * m.MAX_PARTITIONS + partition

    def _parts(self, cut: Cut) -> list[dict[int, int]]:
        """Return what a cut says of each source."""
        parts: list[dict[int, int]] = [{} for _ in self._sources]
        for partition, offset in cut.items():
            parts[partition // m.MAX_PARTITIONS][partition % m.MAX_PARTITIONS] = offset
        return parts


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(batches)


def _numbering(number: int, stage: Stage) -> Stage:
    """Return a stage that takes batches of one source, with the numbers that its partitions have in its log."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(numbered_batches(number, batches))

    return run
