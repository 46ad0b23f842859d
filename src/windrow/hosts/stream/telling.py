"""What the key groups are told beside the records: that some are gone, and that the input ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from windrow.hosts.stream.note import Note
from windrow.sources.loss import Loss

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from windrow.sources.spark import StreamReader


class TellingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what the reader of a source reads, from a note on, and tells the key groups what is gone.

    It tells the end too, where it is said how many `ends` were told before the run: once, in a step of its own after
    all that was there when the query began. A step with the end that was planned before, and is taken again, is that
    one, unless records have come since. A file `size` says how many records the next step takes at the most, if there
    is one.
    """

    def __init__(
        self,
        reader: StreamReader[Any],
        begin: Note,
        key_groups: int,
        *,
        ends: int | None = None,
        size: Path | None = None,
    ) -> None:
        self._reader = reader
        self._begin = begin
        self._key_groups = key_groups
        self._ends = ends
        self._size = size

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the run begins."""
        return self._begin.written()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return that of the source."""
        return self._reader.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Let what is there now be the input."""
        self._reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the next step ends; `start` itself if there is nothing to read, and nothing to tell."""
        note = Note.of(start)
        if self._size is not None:
            limit = ReadMaxRows(int(self._size.read_text(encoding="utf-8")))
        at = self._reader.latestOffset(dict(note.at), limit)
        ends = note.ends
        if self._ends is not None:
            if at != note.at:
                self._ends = ends  # whatever was told before these records
            elif ends <= self._ends and not note.lost:
                ends += 1
        return Note(at, ends).written()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return an input partition for each task, and one for what is told."""
        begins, ends = Note.of(start), Note.of(end)
        parts = self._reader.partitions(dict(begins.at), dict(ends.at))
        told = Told(begins.lost, is_end=ends.ends > begins.ends)
        return [*parts, told] if told.lost or told.is_end else parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's share of a step, or what is told in it, a packet for each key group."""
        return self._told(partition) if isinstance(partition, Told) else self._reader.read(partition)

    def _told(self, told: Told) -> Iterator[pa.RecordBatch]:
        # who plans a query does not load what the tasks work with
        from windrow.core.messages import Packet  # noqa: PLC0415
        from windrow.hosts.stream.wire import packet_batch  # noqa: PLC0415

        for group in range(self._key_groups):
            for one in told.lost:
                blob = one.what.encode()
                yield packet_batch(Packet(group, "lost", partition=one.partition, first=one.goes_on, blob=blob))
            if told.is_end:
                yield packet_batch(Packet(group, "end"))


class Told(InputPartition):
    """What a step tells beside the records."""

    def __init__(self, lost: tuple[Loss, ...], *, is_end: bool) -> None:
        super().__init__(None)
        self.lost = lost
        self.is_end = is_end
