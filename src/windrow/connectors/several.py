"""Several logs combined into one, with renumbered partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from windrow import model as m
from windrow.connectors.cuts import Cut, Offset, Stage, StreamPlan, numbered_batches
from windrow.connectors.source import FoundLosses, Source
from windrow.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.connectors.stream_reader import SeveralReader

T = TypeVar("T")


class SeveralLogs(Source):
    """The logs of several sources, by source name, combined into one.

    An offset is {"sources": [...]}, with the offset of each source as that source represents it.
    """

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._names = list(sources)
        self._sources = list(sources.values())

    @property
    def name(self) -> str:
        return ", ".join(source.name for source in self._sources)

    def read_as(self, at: Offset) -> SeveralLogs:
        # the run may have had other sources than the pipeline has now
        known = dict(enumerate(at.get("sources", ())))
        sources = enumerate(zip(self._names, self._sources, strict=True))
        return SeveralLogs({name: source.read_as(known.get(number, {})) for number, (name, source) in sources})

    def partitions(self) -> list[int]:
        return list(self._by_partition(lambda source: dict.fromkeys(source.partitions())))

    def read_all(self) -> Iterator[pa.RecordBatch]:
        for number, source in enumerate(self._sources):
            yield from numbered_batches(number, source.read_all())

    def read_from(self, partition: int, begin: int) -> Iterator[pa.RecordBatch]:
        number, own = divmod(partition, m.MAX_PARTITIONS)
        return numbered_batches(number, self._sources[number].read_from(own, begin))

    def ends(self) -> dict[int, tuple[int, int]]:
        return self._by_partition(lambda source: source.ends())

    def estimate_bytes(self, begin: Cut, end: Cut) -> int:
        parts = zip(self._sources, self._parts(begin), self._parts(end), strict=True)
        return sum(source.estimate_bytes(first, last) for source, first, last in parts)

    def incomplete(self) -> list[str]:
        return [name for source in self._sources for name in source.incomplete()]

    def beginning(self, start: Cut | None = None) -> Offset:
        if start is None:
            return {"sources": [source.beginning() for source in self._sources]}
        parts = zip(self._sources, self._parts(start), strict=True)
        return {"sources": [source.beginning(part) for source, part in parts]}

    def reader(self, plan: StreamPlan) -> SeveralReader:
        from windrow.connectors.stream_reader import SeveralReader  # noqa: PLC0415 - Spark only when a stream is opened

        parts = None if plan.cuts is None else [self._parts(cut) for cut in plan.cuts]
        readers = []
        for number, (source, at) in enumerate(zip(self._sources, plan.begin["sources"], strict=True)):
            cuts = None if parts is None else [part[number] for part in parts]
            readers.append(source.reader(StreamPlan(iter, at, plan.tasks, cuts=cuts)))
        return SeveralReader(readers, plan, parts or ())

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        frames = [
            source.batch(spark, first, last, _numbering(number, stage), ddl)
            for number, (source, first, last) in enumerate(
                zip(self._sources, self._parts(begin), self._parts(end), strict=True)
            )
            if last
        ]
        return reduce(lambda frame, other: frame.union(other), frames)

    def identity(self, seconds: float = 5.0) -> str | None:
        """Return the ids of the logs as JSON; None if none of the logs has an id."""
        found = [source.identity(seconds) for source in self._sources]
        return None if found == [None] * len(found) else json.dumps(found)

    def find_losses(self, offset: Offset, identity: str | None) -> FoundLosses:
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
            for number, lost in enumerate(found)
            for loss in lost.losses
        ]
        return FoundLosses(tuple(losses), {"sources": [lost.offset for lost in found]})

    def _by_partition(self, of: Callable[[Source], Mapping[int, T]]) -> dict[int, T]:
        """Merge what `of` returns for each source, with renumbered partitions."""
        return {
            self._number(number, partition): value
            for number, source in enumerate(self._sources)
            for partition, value in sorted(of(source).items())
        }

    def _number(self, source: int, partition: int) -> int:
        if partition >= m.MAX_PARTITIONS:
            msg = (
                f"partition {partition} of {self._names[source]}: "
                f"each of several sources can have at most {m.MAX_PARTITIONS}"
            )
            raise InputError(msg)
        return source * m.MAX_PARTITIONS + partition

    def _parts(self, cut: Cut) -> list[dict[int, int]]:
        """Split a cut into one cut per source."""
        parts: list[dict[int, int]] = [{} for _ in self._sources]
        for partition, offset in cut.items():
            parts[partition // m.MAX_PARTITIONS][partition % m.MAX_PARTITIONS] = offset
        return parts


def _numbering(number: int, stage: Stage) -> Stage:
    """Wrap a stage so that the partitions of its source are renumbered first."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(numbered_batches(number, batches))

    return run
