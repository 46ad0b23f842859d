"""The control messages of a stream: ticks of processing time, lost records, and the end of the input.

Spark plans the steps of a query in a Python process that it starts for it. That process loads this module, so libraries
that only tasks need (Arrow, pandas, DuckDB) are imported where they are used.

A tick is part of an offset: Spark records it before the step that reads it. A step that runs again after a crash
therefore reads the same tick, whether the run that resumes is live or bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from windrow.connectors.source import Loss
from windrow.runtime.stream.steps import WORTH, StepOffsets, Trigger

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from windrow.connectors.stream_reader import StreamReader


Planned = tuple[dict[str, Any], dict[str, Any]] | None
"""The start and end of a planned step."""

REST = 1.1
"""The last step of a bounded run may exceed the limit by this factor, so that no small step remains."""


class ControlReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a source from a given offset, and adds control messages: lost records, and the end of a bounded input.

    If `ends`, the number of ends of the input that earlier runs emitted, is given, the reader emits the end of the
    input once. It does so with the last of the records that the log held when the query started, or in a separate step
    if there are none, if a loss is reported first, or if steps are prescribed (`ends_apart`). If such a step was
    already planned and runs again, it counts as this end, unless records have arrived since. The file `size`, if given,
    contains the maximum number of records of the next step. `planned` is the start and end of a step that was planned
    before. A live run has a `trigger`. With `ticks`, a step also has a tick; if there are no records, a step is taken
    only when a tick is due.
    """

    def __init__(
        self,
        reader: StreamReader[Any],
        begin: StepOffsets,
        key_groups: int,
        *,
        ends: int | None = None,
        ends_apart: bool = False,
        size: Path | None = None,
        planned: Planned = None,
        trigger: Trigger | None = None,
        ticks: Ticks | None = None,
    ) -> None:
        self._ticks = ticks
        self._planned = planned
        self._trigger = trigger
        self._turn: int | None = None
        self._ends_apart = ends_apart
        self._reader = reader
        self._begin = begin
        self._key_groups = key_groups
        self._ends = ends
        self._size = size

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at which the run begins."""
        return self._begin.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the read limit of the source."""
        return self._reader.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the input to the records that the log holds now, and emit no more ticks."""
        self._reader.prepareForTriggerAvailableNow()
        self._ticks = None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next step, or `start` if there are neither records nor control messages."""
        if self._planned is not None and start == self._planned[0]:
            (_, end), self._planned = self._planned, None  # once: the source may have no records in that step
            return end
        note = StepOffsets.of(start)
        step = self._end(note, limit)
        if self._ticks is not None and (step != note or self._ticks.is_due()):
            step = replace(step, tick=self._ticks.after(note.tick))
        return step.to_json()

    def _end(self, note: StepOffsets, limit: ReadLimit) -> StepOffsets:
        """Return the end of the records of the next step, with the last tick."""
        if self._size is not None:
            limit = ReadMaxRows(int(self._size.read_text(encoding="utf-8")))
        turn = None if self._trigger is None else self._trigger.turn()
        if turn is not None and turn == self._turn and not note.lost:
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else WORTH
            if self._reader.waiting(note.at) < min(most, WORTH):
                return note
        if self._ends is not None and isinstance(limit, ReadMaxRows):
            waiting = self._reader.waiting(note.at)
            limit = limit if waiting > REST * limit.max_rows else ReadMaxRows(max(waiting, limit.max_rows))
        at = self._reader.latestOffset(dict(note.at), limit)
        if at != note.at:
            self._turn = turn
        ends = note.ends
        if self._ends is not None:
            if at != note.at:
                self._ends = ends  # whatever was emitted before these records
            is_last = at == note.at or not (self._ends_apart or self._reader.waiting(at))
            if is_last and ends <= self._ends and not note.lost:
                ends += 1
        return StepOffsets(at, ends, tick=note.tick)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the input partitions of a step: those of the source, the first with the control messages if any."""
        begins, ends = StepOffsets.of(start), StepOffsets.of(end)
        parts = self._reader.partitions(dict(begins.at), dict(ends.at))
        tick = None if ends.tick == begins.tick else ends.tick
        # no task of their own, which would cost more than the messages
        share, others = (parts[0], parts[1:]) if parts else (None, ())
        control = ControlSource(begins.lost, tick, share, is_end=ends.ends > begins.ends)
        return [control, *others] if control.has_messages else parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's share of a step, and the control messages of the step as a packet for each key group."""
        if not isinstance(partition, ControlSource):
            return self._reader.read(partition)
        share = iter(()) if partition.share is None else self._reader.read(partition.share)
        return chain(self._control(partition), share)

    def _control(self, control: ControlSource) -> Iterator[pa.RecordBatch]:
        from windrow.engine.messages import EndOfInput, Packet, RecordsLost  # noqa: PLC0415
        from windrow.engine.tick import Tick  # noqa: PLC0415
        from windrow.runtime.spark.rows import packet_batch  # noqa: PLC0415

        for group in range(self._key_groups):
            for loss in control.lost:
                yield packet_batch(Packet(group, RecordsLost(loss.partition, loss.goes_on, loss.what)))
            if control.tick is not None:
                yield packet_batch(Packet(group, Tick(control.tick)))
            if control.is_end:
                yield packet_batch(Packet(group, EndOfInput()))


class ControlSource(InputPartition):
    """The control messages of a step, and the share of its records that the same task reads."""

    def __init__(self, lost: tuple[Loss, ...], tick: int | None, share: InputPartition | None, *, is_end: bool) -> None:
        super().__init__(None)
        self.lost = lost
        self.tick = tick
        self.share = share
        self.is_end = is_end

    @property
    def has_messages(self) -> bool:
        """True if there are any control messages."""
        return bool(self.lost) or self.tick is not None or self.is_end


EVERY = 1_000_000
"""Ticks are multiples of this number of microseconds."""


class Ticks:
    """The ticks of a live run: each is the time at which a step is planned, at most one in each turn of the trigger.

    A step without records is taken only for a tick that has an effect: a partition becomes idle, or an early pane or a
    timer is due. The file `due` has the first such time, as of the last step.
    """

    def __init__(self, trigger: Trigger, due: Path) -> None:
        self._trigger = trigger
        self._due = due
        self._turn: int | None = None

    def is_due(self) -> bool:
        """Return True if a tick would have an effect now, even without records."""
        return self._trigger.turn() != self._turn and self._now() >= int(self._due.read_text(encoding="utf-8"))

    def after(self, last: int | None) -> int | None:
        """Return the tick of a step that is planned now, given the last tick; this is again the last within a turn."""
        before, self._turn = self._turn, self._trigger.turn()
        return last if before == self._turn else max(self._now(), last or 0)

    def _now(self) -> int:
        return self._trigger.clock() // 1_000 // EVERY * EVERY
