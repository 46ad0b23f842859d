"""Files as a streaming data source of Spark, and how far a step of it reads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from windrow.connectors.cuts import Cut, Offset, Stage, limited_ends
from windrow.connectors.files.listing import START, DataFile, FileSequence, Position, Span, list_partitions, up_to
from windrow.connectors.stream_reader import CutReader, shared
from windrow.errors import InputError, SourceError

Part = list[Span]
Listed = list[list[DataFile]]

_SHORT = 0.01
"""Seconds in which files are listed whenever Spark looks, which is several times a second."""
_SHARE = 0.1
"""The share of the time that listing takes at the most, if it takes longer than that."""


class FilesStreamReader(CutReader[Part]):
    """Reads files, and those that come."""

    def __init__(
        self,
        sequences: list[FileSequence],
        stage: Stage,
        begin: Offset,
        *,
        tasks: int,
        max_records: int | None = None,
        cuts: Sequence[Cut] | None = None,
    ) -> None:
        super().__init__(stage, begin, tasks=tasks, max_records=max_records, cuts=cuts)
        self._sequences = sequences
        self._last: list[str] | None = None
        self._seen: Listed | None = None
        self._there: Listed | None = None
        self._stale = 0.0

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Make the files that are there now the input."""
        self._last = [files[-1].name if files else "" for files in self._list()]

    def is_before(self, start: Offset, cut: Cut) -> bool:
        """Return whether a cut is ahead of a position."""
        begin = _positions(start)
        return any(line > begin.get(partition, START).line for partition, line in cut.items())

    def step_to(self, start: dict[str, Any], cut: Cut | None, max_records: int | None = None) -> dict[str, Any]:
        """Return where a step ends: at the cut, if one is given, or at the end of the files that are there now."""
        there = self._list()
        if cut is None and there == self._seen:  # nothing came since a look that found nothing
            return start
        self._verify(there, start)
        offered = self._offered(there)
        begin = {partition: _positions(start).get(partition, START) for partition in range(len(there))}
        ends = self._ends(offered, begin, cut, max_records)
        moved = {partition: end for partition, end in ends.items() if end.line > begin[partition].line}
        if not moved:
            self._seen = there if cut is None else self._seen
            return start
        self._seen = None
        noted = {
            str(partition): self._sequences[partition].noted(there[partition], at) for partition, at in moved.items()
        }
        return dict(sorted({**start, **noted}.items(), key=lambda item: int(item[0])))

    def _ends(
        self,
        offered: Sequence[Sequence[DataFile]],
        begin: Mapping[int, Position],
        cut: Cut | None,
        max_records: int | None,
    ) -> Mapping[int, Position]:
        def advance(partition: int, at: Position, rows: int | None) -> Position:
            return self._sequences[partition].advance(offered[partition], at, rows)

        if cut is not None:
            return {p: advance(p, at, max(0, cut.get(p, 0) - at.line)) for p, at in begin.items()}
        if max_records is None:
            return {partition: advance(partition, at, None) for partition, at in begin.items()}
        return limited_ends(begin, lambda p, at: self._sequences[p].bytes_left(offered[p], at), advance, max_records)

    def waiting(self, start: Offset) -> int:
        """Return how many records are about between a position and the end, by those of the files that were counted."""
        begin, listed = _positions(start), self._offered(self._list())
        return sum(
            sequence.about_left(files, begin.get(partition, START))
            for partition, (sequence, files) in enumerate(zip(self._sequences, listed, strict=True))
        )

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return an input partition for each task: spans of files of some partitions."""
        there, begin = self._list(), _positions(start)
        self._verify(there, end)  # a step that was planned before has the same records
        parts = {
            partition: self._sequences[partition].spans(there[partition], begin.get(partition, START), position.line)
            for partition, position in _positions(end).items()
        }
        return shared({one: part for one, part in parts.items() if part}, _rows, self._tasks)

    def read_parts(self, parts: Mapping[int, Part]) -> Iterable[pa.RecordBatch]:
        """Read the files of one partition after the other."""
        return chain.from_iterable(span.read(number) for number, spans in sorted(parts.items()) for span in spans)

    def _offered(self, there: Listed) -> Sequence[Sequence[DataFile]]:
        """Return the files that are input: of a bounded run those up to the last that there was when it began.

        They are the first of those that are there, whichever came or changed since: only so is their order the same.
        """
        if self._last is None:
            return there
        return [up_to(files, last) for files, last in zip(there, self._last, strict=True)]

    def _list(self) -> Listed:
        """Return the files that there are, as of now or, where there are so many that this takes long, a moment ago."""
        began = time.monotonic()
        if self._there is None or began >= self._stale:
            try:
                self._there = list_partitions(self._sequences)
            except InputError as exc:  # they were there when the query began
                raise SourceError(exc.message) from exc
            took = time.monotonic() - began
            self._stale = began + (took / _SHARE if took > _SHORT else 0)
        return self._there

    def _verify(self, there: Listed, at: Offset) -> None:
        for partition, position in _positions(at).items():
            self._sequences[partition].verify(there[partition], position, at[str(partition)]["mark"])


def _rows(part: Part) -> int:
    return sum(span.rows for span in part)


def _positions(offset: Offset) -> dict[int, Position]:
    return {int(partition): Position.of(at) for partition, at in offset.items()}
