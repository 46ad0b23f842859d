"""A streaming data source for Spark that reads files, and the rules for where its steps end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from windrow.connectors.cuts import Cut, Offset, StreamPlan, fair_shares, limited_ends
from windrow.connectors.files.listing import START, DataFile, FileSequence, Position, Span, list_partitions
from windrow.connectors.stream_reader import WORTH_RECORDS, CutReader, share_partitions
from windrow.errors import InputError, SourceError

Part = list[Span]
Listed = list[list[DataFile]]

_SHORT = 0.01
"""If listing takes at most this many seconds, it is done each time Spark polls, several times a second."""
_SHARE = 0.1
"""The maximum share of time spent on listing if it takes longer."""


class FilesStreamReader(CutReader[Part]):
    """Reads existing files, and new files as they appear."""

    def __init__(self, sequences: list[FileSequence], plan: StreamPlan) -> None:
        super().__init__(plan)
        self._sequences = sequences
        self._is_bounded = False
        self._last: list[str] | None = None
        self._seen: Listed | None = None
        self._there: Listed | None = None
        self._stale = 0.0

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Set the reader to stop after the files that exist at its first step, which determines their order."""
        self._is_bounded = True

    def step_to(self, start: dict[str, Any], cut: Cut | None, max_records: int | None = None) -> dict[str, Any]:
        self._read_as(start)
        there = self._list()
        if cut is None and there == self._seen:  # unchanged since the last poll, which found nothing
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
        most = self._most_rows(offered, begin)
        if max_records is None:
            return {partition: advance(partition, at, most.get(partition)) for partition, at in begin.items()}

        def rows_left(partition: int, at: Position) -> int | None:
            return None if partition not in most else begin[partition].line + most[partition] - at.line

        def left(partition: int, at: Position) -> int:
            return 0 if rows_left(partition, at) == 0 else self._sequences[partition].bytes_left(offered[partition], at)

        def advance_within(partition: int, at: Position, rows: int) -> Position:
            limit = rows_left(partition, at)
            return advance(partition, at, rows if limit is None else min(rows, limit))

        return limited_ends(begin, left, advance_within, max_records)

    def _most_rows(self, offered: Sequence[Sequence[DataFile]], begin: Mapping[int, Position]) -> dict[int, int]:
        """Return the number of rows of each partition with a backlog that have its share of `max_bytes`."""
        if self.max_bytes is None:
            return {}
        waiting = {p: left for p, at in begin.items() if (left := self._sequences[p].bytes_left(offered[p], at))}
        shares = fair_shares(waiting, self.max_bytes) if waiting else {}
        return {p: self._sequences[p].rows_within(offered[p], begin[p], share) for p, share in shares.items()}

    def waiting(self, start: Offset) -> int:
        """Estimate how many records follow a position, based on the files that were already counted."""
        self._read_as(start)
        begin, listed = _positions(start), self._offered(self._list())
        return sum(
            sequence.about_left(files, begin.get(partition, START))
            for partition, (sequence, files) in enumerate(zip(self._sequences, listed, strict=True))
        )

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._read_as(end)
        there, begin = self._list(), _positions(start)
        self._verify(there, end)  # a step that was planned before has the same records
        parts = {
            partition: self._sequences[partition].spans(there[partition], begin.get(partition, START), position.line)
            for partition, position in _positions(end).items()
        }
        parts = {partition: part for partition, part in parts.items() if part}
        return share_partitions(parts, lambda spans: sum(span.rows for span in spans), self._tasks, WORTH_RECORDS)

    def read_parts(self, parts: Mapping[int, Part]) -> Iterable[pa.RecordBatch]:
        return chain.from_iterable(span.read(number) for number, spans in sorted(parts.items()) for span in spans)

    def _offered(self, there: Listed) -> Sequence[Sequence[DataFile]]:
        """Return the files that may be read: in a bounded run, only those up to the last file at its start.

        These are the first of the current files, even if files were added or changed since, so their order stays the
        same.
        """
        if not self._is_bounded:
            return there
        if self._last is None:
            self._last = [files[-1].name if files else "" for files in there]
        listed = zip(self._sequences, there, self._last, strict=True)
        return [sequence.up_to(files, last) for sequence, files, last in listed]

    def _read_as(self, at: Offset) -> None:
        """Read the files in the order in which the run has read them up to a position."""
        sequences = [
            sequence if (noted := at.get(str(partition))) is None else sequence.read_as(noted)
            for partition, sequence in enumerate(self._sequences)
        ]
        if any(new is not old for new, old in zip(sequences, self._sequences, strict=True)):
            self._sequences, self._there = sequences, None

    def _list(self) -> Listed:
        """Return the current files. If listing takes long, the result of a recent listing is used."""
        began = time.monotonic()
        if self._there is None or began >= self._stale:
            try:
                self._there = list_partitions(self._sequences)
            except InputError as exc:  # they existed when the query began
                raise SourceError(exc.message) from exc
            took = time.monotonic() - began
            self._stale = began + (took / _SHARE if took > _SHORT else 0)
        return self._there

    def _verify(self, there: Listed, at: Offset) -> None:
        for partition, position in _positions(at).items():
            self._sequences[partition].verify(there[partition], position, at[str(partition)]["mark"])


def _positions(offset: Offset) -> dict[int, Position]:
    return {int(partition): Position.of(at) for partition, at in offset.items()}
