"""The keyed process: a user's function for each record, with state for each key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duck, schema
from windrow.core.clocks import Clocks
from windrow.core.keygroups import key_texts
from windrow.core.late import late_rows
from windrow.core.micros import to_micros
from windrow.core.operators.base import GroupOutput, GroupStats, StepInput
from windrow.core.operators.clock_step import ClockStep, take_clock_step
from windrow.core.output import StepOutput
from windrow.core.process.calls import Calls
from windrow.core.process.changes import change_rows
from windrow.core.process.held import Held
from windrow.core.process.memory import NEVER, Memories, Memory
from windrow.core.process.record import Columns
from windrow.core.process.shelves import Directory, Item, Shelves
from windrow.core.records import END, OFFSET, PARTITION, TIME, WATERMARK, WINDOW
from windrow.core.state import State
from windrow.model import ProcessPipeline


@dataclass
class ProcessSummary:
    """The small part of the state: the clocks, the shelves that the keys are on, and the records that are held."""

    clocks: Clocks
    directory: Directory = field(default_factory=Directory)
    held: Held = field(default_factory=Held)

    def encode(self) -> bytes:
        """Write as JSON."""
        return json.dumps(
            {"clocks": self.clocks.encode(), "shelves": self.directory.encode(), "held": self.held.encode()}
        ).encode()

    @staticmethod
    def decode(blob: bytes) -> ProcessSummary:
        """Read what `encode` wrote."""
        fields = json.loads(blob)
        return ProcessSummary(
            Clocks.decode(fields["clocks"]), Directory.decode(fields["shelves"]), Held.decode(fields["held"])
        )


@dataclass(frozen=True)
class _Batch:
    """Records of a step by key, each key's in the order of its calls; `rows` says where each key's are."""

    columns: Columns
    times: list[int]
    watermarks: list[int]
    rows: dict[str, range]


class KeyedProcess:
    """Calls a pipeline's functions for the records and timers of each key, and writes the rows that they emit.

    In the order of the log, the watermark of a call is that of its record. In the order of event time a record is held
    until the low watermark has passed it, and the watermark of its call is its own time: all that happened before is
    known then, whatever partition it came from. The Python loop over records is what the pipeline asks for; all around
    it works on columns.
    """

    def __init__(self, pipeline: ProcessPipeline, partitions: Iterable[int]) -> None:
        self._pipeline = pipeline
        self._partitions = tuple(partitions)
        self._in_event_time = pipeline.process.order == "event_time"
        self._duck = duck.connect()
        self._memories = Memories(pipeline)
        self._calls = Calls(pipeline)

    def step(self, group: int, given: StepInput, state: State) -> GroupOutput:
        """Take one step of one key group: give records and timers to the functions, key by key."""
        blob = state.summary()
        summary = ProcessSummary(Clocks.start(self._partitions)) if blob is None else ProcessSummary.decode(blob)
        time = take_clock_step(self._pipeline, summary.clocks, given)
        records = given.records.drop_columns(WATERMARK).append_column(WATERMARK, pa.array(time.watermarks))
        expired = records.slice(0, 0)
        if self._in_event_time:
            missed = pa.array(time.watermarks > to_micros(records.column(TIME)))
            expired = records.filter(missed)
            records = summary.held.turn(records.filter(pc.invert(missed)), NEVER if given.end else time.low, state)
        shelves = Shelves(summary.directory, state)
        self._calls.begin(time.latest)
        self._run(self._batch(records), shelves, time, end=given.end)
        # nothing is written before all calls are made: one that fails leaves the state as it was
        shelves.close()
        summary.held.close(state)
        state.set_summary(summary.encode())
        changes = change_rows(self._pipeline, self._calls.changes)
        late = late_rows(self._duck, self._pipeline, _with_windows(expired))
        return GroupOutput(
            StepOutput(
                changes=changes,
                late=late,
                dead=given.dead,
                # every key group knows the clocks; one of them tells
                clocks=time.journal if group == 0 else schema.CLOCKS.empty_table(),
            ),
            GroupStats(
                records=given.records.num_rows,
                late=0,
                expired=late.num_rows,
                dead=given.dead.num_rows,
                inserts=sum(change.before is None for change in self._calls.changes),
                revisions=sum(change.before is not None and change.after is not None for change in self._calls.changes),
                open_windows=summary.directory.keys,
                watermarks=dict(summary.clocks.watermarks),
                offsets=dict(summary.clocks.next),
                low=time.low,
                idle=sorted(summary.clocks.idle),
            ),
        )

    def _batch(self, records: pa.Table) -> _Batch:
        """Sort records by key, and within a key in the order of its calls."""
        texts = key_texts(self._duck, records.select(list(self._pipeline.key)))
        encoded = texts.combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy()
        places = [to_micros(records.column(name)) for name in (OFFSET, PARTITION)]
        times = to_micros(records.column(TIME))
        order = np.lexsort((*places, times, codes) if self._in_event_time else (*places, codes))
        ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary))).tolist()
        rows = {
            key: range(start, end)
            for key, start, end in zip(encoded.dictionary.to_pylist(), [0, *ends], ends, strict=False)
        }
        watermarks = times if self._in_event_time else to_micros(records.column(WATERMARK))
        return _Batch(Columns(records.take(pa.array(order))), times[order].tolist(), watermarks[order].tolist(), rows)

    def _run(self, batch: _Batch, shelves: Shelves, time: ClockStep, *, end: bool) -> None:
        """Make the calls of a step, and put the keys back."""
        due = set(shelves.due(NEVER - 1 if end else time.low, time.now))
        for key in sorted(due | batch.rows.keys()):
            shelf = shelves.of(key)
            blob = shelf.get(key)
            rows = batch.rows.get(key, range(0))
            memory = self._new(batch, rows) if blob is None else self._memories.decode(blob)
            self._calls.records(memory, batch.columns, rows, batch.times, batch.watermarks)
            self._calls.sweep(memory, time.low)
            if end:
                self._calls.end(memory)
            if time.now is not None and memory.tick <= time.now:
                self._calls.tick(memory, time.now, time.low)
            self._memories.prune(memory)
            shelf.put(key, None if memory.is_empty else Item(memory.due, memory.tick, self._memories.encode(memory)))

    def _new(self, batch: _Batch, rows: range) -> Memory:
        return self._memories.new(tuple(batch.columns[name][rows.start] for name in self._pipeline.key))


def _with_windows(expired: pa.Table) -> pa.Table:
    """Give records the window that they missed: their own microsecond."""
    times = to_micros(expired.column(TIME))
    return expired.append_column(WINDOW, pa.array(times)).append_column(END, pa.array(times + 1))
