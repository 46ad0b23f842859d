"""The walks as a streaming data source of Spark: an offset is the next step of each walk, ``{"0": {"line": 17}}``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from windrow.connectors.cuts import Cut, Offset, StreamPlan, limited_ends
from windrow.connectors.stream_reader import CutReader, share_partitions
from windrow_random_walks.connector import RandomWalksSource
from windrow_random_walks.source import offset_of, read_walk


@dataclass(frozen=True)
class Place:
    """A place in a walk, before which are so many steps."""

    line: int


class WalkReader(CutReader[tuple[int, int]]):
    """Reads walks step by step."""

    def __init__(self, source: RandomWalksSource, plan: StreamPlan) -> None:
        super().__init__(plan)
        self._source = source

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the walks do not grow."""

    def step_to(self, start: dict[str, Any], cut: Cut | None, max_records: int | None = None) -> dict[str, Any]:
        """Return where a step ends: at the cut, at the end of the walks, or before."""
        last = self._source.steps
        begin = {walk: next_step(start, walk) for walk in range(self._source.walks)}
        if cut is not None:
            ends = {walk: max(at, min(cut.get(walk, at), last)) for walk, at in begin.items()}
        elif max_records is None:
            ends = dict.fromkeys(begin, last)
        else:
            places = limited_ends(
                {walk: Place(at) for walk, at in begin.items()},
                lambda _, place: last - place.line,
                lambda _, place, count: Place(min(last, place.line + count)),
                max_records,
            )
            ends = {walk: place.line for walk, place in places.items()}
        return start if ends == begin else dict(offset_of(ends))

    def waiting(self, start: Offset) -> int:
        """Return how many steps are left."""
        return sum(self._source.steps - next_step(start, walk) for walk in range(self._source.walks))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return an input partition for each task: steps of some walks."""
        parts = {walk: (next_step(start, walk), next_step(end, walk)) for walk in range(self._source.walks)}
        return share_partitions({walk: part for walk, part in parts.items() if part[0] < part[1]}, _size, self._tasks)

    def read_parts(self, parts: Mapping[int, tuple[int, int]]) -> Iterable[pa.RecordBatch]:
        """Read the steps of one walk after the other."""
        return chain.from_iterable(read_walk(self._source, walk, *part) for walk, part in sorted(parts.items()))


def _size(part: tuple[int, int]) -> int:
    begin, end = part
    return end - begin


def next_step(offset: Offset, walk: int) -> int:
    """Return the next step of a walk at an offset."""
    at: int = offset.get(str(walk), {"line": 0})["line"]
    return at
