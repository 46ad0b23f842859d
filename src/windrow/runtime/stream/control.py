"""Control sources of a stream: ticks of processing time, lost records, and the end of the input.

Spark plans the steps of each source in a Python process that it starts for the query. That process loads this module,
so libraries that only tasks need (Arrow, pandas, DuckDB) are imported where they are used.

A tick is an offset: Spark records it before the step that reads it. A step that runs again after a crash therefore
reads the same tick, whether the run that resumes is live or bounded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

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
    before. A live run has a `trigger`.
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
    ) -> None:
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
        """Limit the input to the records that the log holds now."""
        self._reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next step, or `start` if there are neither records nor control messages."""
        if self._planned is not None and start == self._planned[0]:
            (_, end), self._planned = self._planned, None  # once: the source may have no records in that step
            return end
        note = StepOffsets.of(start)
        if self._size is not None:
            limit = ReadMaxRows(int(self._size.read_text(encoding="utf-8")))
        turn = None if self._trigger is None else self._trigger.turn()
        if turn is not None and turn == self._turn and not note.lost:
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else WORTH
            if self._reader.waiting(note.at) < min(most, WORTH):
                return start
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
        return StepOffsets(at, ends).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the input partitions of a step: those of the source, and one for control messages if there are any."""
        begins, ends = StepOffsets.of(start), StepOffsets.of(end)
        parts = self._reader.partitions(dict(begins.at), dict(ends.at))
        control = ControlSource(begins.lost, is_end=ends.ends > begins.ends)
        return [*parts, control] if control.lost or control.is_end else parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's share of a step, or the control messages of the step as a packet for each key group."""
        return self._control(partition) if isinstance(partition, ControlSource) else self._reader.read(partition)

    def _control(self, control: ControlSource) -> Iterator[pa.RecordBatch]:
        from windrow.engine.messages import EndOfInput, Packet, RecordsLost  # noqa: PLC0415
        from windrow.runtime.spark.rows import packet_batch  # noqa: PLC0415

        for group in range(self._key_groups):
            for loss in control.lost:
                yield packet_batch(Packet(group, RecordsLost(loss.partition, loss.goes_on, loss.what)))
            if control.is_end:
                yield packet_batch(Packet(group, EndOfInput()))


class ControlSource(InputPartition):
    """The control messages of a step."""

    def __init__(self, lost: tuple[Loss, ...], *, is_end: bool) -> None:
        super().__init__(None)
        self.lost = lost
        self.is_end = is_end


EVERY = 1_000_000
"""Ticks are multiples of this number of microseconds."""

Offset = dict[str, int]
"""The last tick, in microseconds since the epoch."""


class TickDataSource(DataSource):
    """Source of ticks; options: the number of `key_groups`, a `planned` step as JSON, and the trigger's `every`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.readStream.format`."""
        return "windrow_ticks"

    def schema(self) -> str:
        """Return the schema of packets."""
        from windrow.runtime.spark.rows import PACKET_DDL  # noqa: PLC0415 - as the module says

        return PACKET_DDL

    def streamReader(self, schema: StructType) -> TickStreamReader:  # noqa: ARG002, N802 - Spark's name and parameter
        """Return the reader that the options describe."""
        every = self.options.get("every")
        return TickStreamReader(
            int(self.options["key_groups"]),
            json.loads(self.options.get("planned", "null")),
            None if every is None else Trigger(int(every)),
        )


class TickPartition(InputPartition):
    """The tick of a step."""

    def __init__(self, tick: int) -> None:
        super().__init__(tick)
        self.tick = tick


class TickStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Emits the time at which a step is planned to every key group; a bounded run has no ticks.

    `planned` is the start and end of a step that was planned before. A live run has a `trigger`. As a tick begins a
    step, there is one tick in each interval of the trigger.
    """

    def __init__(self, key_groups: int, planned: Planned = None, trigger: Trigger | None = None) -> None:
        self._key_groups = key_groups
        self._planned = planned
        self._trigger = trigger
        self._turn: int | None = None
        self._bounded = False

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset before the first tick."""
        return {"tick": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop emitting ticks, because the input is bounded."""
        self._bounded = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802 - Spark's name and parameter
        """Return the current time as a tick, or `start` if no tick is due."""
        if self._planned is not None and start == self._planned[0]:
            (_, end), self._planned = self._planned, None  # once: that step may have no tick
            return end
        if self._trigger is not None:
            before, self._turn = self._turn, self._trigger.turn()
            if before == self._turn:
                return start
        now = time.time_ns() // 1000 // EVERY * EVERY
        return start if self._bounded else {"tick": max(now, start["tick"])}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return one input partition with the last tick, as only that one counts, or none if no time has passed.

        Spark also calls this for the first step of a bounded run, which has no tick.
        """
        return [TickPartition(end["tick"])] if end != start else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the tick of a step as a packet for each key group."""
        if not isinstance(partition, TickPartition):
            raise TypeError(partition)

        from windrow.engine.messages import Packet  # noqa: PLC0415
        from windrow.engine.tick import Tick  # noqa: PLC0415
        from windrow.runtime.spark.rows import packet_batch  # noqa: PLC0415

        for group in range(self._key_groups):
            yield packet_batch(Packet(group, Tick(partition.tick)))
