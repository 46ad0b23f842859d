"""A streaming data source for Spark that reads an embedded log, and the rules for where its steps end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from windrow.connectors.cuts import Cut, Offset, StreamPlan, limited_ends, portions
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.segments import START, Position
from windrow.connectors.stream_reader import WORTH_BYTES, CutReader, share_partitions
from windrow.errors import InputError, SourceError

Part = tuple[Position, Position]


class LogStreamReader(CutReader[Part]):
    """Follows an embedded log."""

    def __init__(self, folder: LogFolder, plan: StreamPlan) -> None:
        super().__init__(plan)
        self._folder = folder
        self._seen: dict[int, int] = {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Set the reader to stop at the current ends of the files."""
        self._target = self._folder.sizes()

    def step_to(self, start: dict[str, Any], cut: Cut | None, max_records: int | None = None) -> dict[str, Any]:
        sizes = self._sizes(start)
        if self._target is not None:
            sizes = {p: min(size, self._target.get(p, 0)) for p, size in sizes.items()}
        if cut is None and sizes == self._seen:  # unchanged since the last poll, which found nothing
            return start
        begin = _positions(start)
        for partition, position in begin.items():
            note = start[str(partition)]
            self._folder.verify(partition, position, note["mark"], note.get("head"))
        ends: Positions
        if cut is None:
            ends = {
                partition: self._folder.between_transactions(partition, _at(begin, partition), end, sizes[partition])
                if partition in sizes
                else end
                for partition, end in up_to(self._folder, begin, sizes, max_records, self.max_bytes).items()
            }
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
        """Estimate how many lines follow a position, based on the length of the first of these lines."""
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
                self._folder.scan(partition, position)  # raises for a lost record
        return sizes

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        begin = _positions(start)
        parts = {partition: (begin.get(partition, START), position) for partition, position in _positions(end).items()}
        parts = {partition: part for partition, part in parts.items() if part[0] != part[1]}
        return share_partitions(parts, lambda part: part[1].byte - part[0].byte, self._tasks, WORTH_BYTES)

    def read_parts(self, parts: Mapping[int, Part]) -> Iterable[pa.RecordBatch]:
        return chain.from_iterable(self._folder.read(number, *part) for number, part in sorted(parts.items()))


def _positions(offset: Mapping[str, Mapping[str, Any]]) -> Positions:
    return {int(partition): Position(at["line"], at["byte"]) for partition, at in offset.items()}


Positions = Mapping[int, Position]


def up_to(
    folder: LogFolder,
    start: Positions,
    sizes: Mapping[int, int],
    max_records: int | None,
    max_bytes: int | None = None,
) -> Positions:
    """Return where a step ends that reads at most the first `sizes` bytes of each partition.

    `max_records` limits the step as in `limited_ends`. The partitions share `max_bytes` in proportion to their
    backlogs, and a record that is longer than its partition's share is read alone. The result depends only on the files
    and the start.
    """
    begin = {partition: _at(start, partition) for partition in sizes}
    if max_bytes is not None:
        waiting = {partition: left for partition, at in begin.items() if (left := sizes[partition] - at.byte) > 0}
        shares = portions(waiting, max(max_bytes, len(waiting)))
        within = {**sizes, **{partition: begin[partition].byte + share for partition, share in shares.items()}}
        ends = up_to(folder, start, within, max_records)
        for partition, share in shares.items():
            if share < waiting[partition] and _at(ends, partition) == begin[partition]:
                alone = folder.scan(partition, begin[partition], max_lines=1, max_byte=sizes[partition])
                ends = {**ends, partition: alone}
        return ends
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
    """Return where a step ends that is prescribed by a cut.

    If some records before the cut are not written yet, the step ends earlier, and the next step continues to the same
    cut.
    """
    ends = dict(start)
    for p, count in cut.items():
        at = _at(start, p)
        if p in sizes and count > at.line:
            ends[p] = folder.up_to(p, count, at, sizes[p])
    return ends


def _at(positions: Positions, partition: int) -> Position:
    return positions.get(partition, START)
