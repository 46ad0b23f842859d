"""The embedded log as a streaming data source of Spark, and how far a step of it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from windrow.connectors.cuts import Cut, Offset, Stage, limited_ends
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.kept import START, Position
from windrow.connectors.stream_reader import CutReader, shared
from windrow.errors import InputError, SourceError

Part = tuple[Position, Position]


class LogStreamReader(CutReader[Part]):
    """Tails an embedded log."""

    def __init__(
        self,
        folder: LogFolder,
        stage: Stage,
        begin: Offset,
        *,
        tasks: int,
        max_records: int | None = None,
        cuts: Sequence[Cut] | None = None,
    ) -> None:
        super().__init__(stage, begin, tasks=tasks, max_records=max_records, cuts=cuts)
        self._folder = folder
        self._seen: dict[int, int] = {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Make the current sizes of the files the end of the input."""
        self._target = self._folder.sizes()

    def is_before(self, start: Offset, cut: Cut) -> bool:
        """Return whether a cut is ahead of a position."""
        begin = _positions(start)
        return any(count > _at(begin, number).line for number, count in cut.items())

    def step_to(self, start: dict[str, Any], cut: Cut | None, max_records: int | None = None) -> dict[str, Any]:
        """Return where a step ends: at the cut, if one is given, or at what is written now, or before."""
        sizes = self._sizes(start)
        if self._target is not None:
            sizes = {p: min(size, self._target.get(p, 0)) for p, size in sizes.items()}
        if cut is None and sizes == self._seen:  # nothing was written since a look that found nothing
            return start
        self._verify(start)
        begin = _positions(start)
        if cut is None:
            ends = up_to(self._folder, begin, sizes, max_records)
        else:
            ends = up_to_cut(self._folder, begin, sizes, cut)
        moved = {p: end for p, end in ends.items() if end != begin.get(p, START)}
        if not moved:
            if cut is None:
                self._seen = sizes
            return start
        self._seen = {}
        marked = {str(p): self._folder.noted(p, end) for p, end in moved.items()}
        return dict(sorted({**start, **marked}.items(), key=lambda item: int(item[0])))

    def waiting(self, start: Offset) -> int:
        """Return how many lines are about between a position and the end, by the length of those that come first."""
        begin = _positions(start)
        sizes = self._sizes(start) if self._target is None else self._target
        return sum(self._folder.about_lines(number, _at(begin, number), size) for number, size in sizes.items())

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
            note = start[str(partition)]
            self._folder.verify(partition, position, note["mark"], note.get("head"))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return an input partition for each task: the lines of some partitions of the log."""
        begin = _positions(start)
        parts = {partition: (begin.get(partition, START), position) for partition, position in _positions(end).items()}
        return shared({one: part for one, part in parts.items() if part[0] != part[1]}, _bytes, self._tasks)

    def read_parts(self, parts: Mapping[int, Part]) -> Iterable[pa.RecordBatch]:
        """Read the lines of one partition after the other."""
        return chain.from_iterable(self._folder.read(number, *part) for number, part in sorted(parts.items()))


def _bytes(part: Part) -> int:
    start, end = part
    return end.byte - start.byte


def _positions(offset: Mapping[str, Mapping[str, Any]]) -> Positions:
    return {int(partition): Position(at["line"], at["byte"]) for partition, at in offset.items()}


Positions = Mapping[int, Position]


def up_to(folder: LogFolder, start: Positions, sizes: Mapping[int, int], max_records: int | None) -> Positions:
    """Return where a step ends that takes what is there: within the first `sizes` bytes of each partition.

    With `max_records` as `limited_ends` says. The same files and start give the same end.
    """
    begin = {partition: _at(start, partition) for partition in sizes}
    if max_records is None:
        ends = {partition: folder.scan(partition, at, max_byte=sizes[partition]) for partition, at in begin.items()}
    else:
        ends = limited_ends(
            begin,
            lambda partition, at: sizes[partition] - at.byte,
            lambda partition, at, count: folder.scan(partition, at, max_lines=count, max_byte=sizes[partition]),
            max_records,
        )
    return {**start, **ends}


def up_to_cut(folder: LogFolder, start: Positions, sizes: Mapping[int, int], cut: Cut) -> Positions:
    """Return where a step ends by a cut. Records that are not there yet come when they are; the next cut waits."""
    ends = dict(start)
    for p, count in cut.items():
        at = _at(start, p)
        if p in sizes and count > at.line:
            ends[p] = folder.up_to(p, count, at, sizes[p])
    return ends


def _at(positions: Positions, partition: int) -> Position:
    return positions.get(partition, START)
