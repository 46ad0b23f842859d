"""The process operator: calls a user's functions for the records and timers of each key, in the defined order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql
from windrow.engine.changelog import late_output
from windrow.engine.columns import MIN_TIME, cast_table, to_micros, unpack
from windrow.engine.keys import key_texts
from windrow.engine.merged_order import in_event_time_order, in_merged_order
from windrow.engine.operators.base import Judged, Operator, OperatorOutput, OperatorStep, StepTime
from windrow.engine.operators.process.context import (
    CallContext,
    CurrentCall,
    EmissionTrace,
    EmittedChange,
    EmittedRow,
    Record,
    RecordColumns,
    change_rows,
    stream_rows,
)
from windrow.engine.operators.process.state import KeyState, KeyStateCodec, KeyTimer
from windrow.engine.operators.route import input_schema
from windrow.engine.operators.settled import settle_ordered
from windrow.engine.schema import (
    BEHIND_PARTITIONS,
    END,
    ID,
    OFFSET,
    PARTITION,
    TIME,
    WATERMARK,
    WINDOW,
    record_schema,
)
from windrow.engine.state.keyed import KEYED_KIND, NEVER, BucketIndex, KeyedEntry, KeyedStore
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState
from windrow.engine.state.store import MemoryState, OperatorState, StoreKind
from windrow.engine.state.time_buffer import BUFFER_KIND, TimeBuffer
from windrow.engine.state.widening import StateChange
from windrow.engine.user_code import key_text, qualified_name, raise_user_code_error, record_place
from windrow.engine.value_codec import time_of
from windrow.expressions import ProcessSpec, spec_of


@dataclass
class ProcessSummary:
    """The operator's summary: the index of the keys' buckets, and the records that are held."""

    directory: BucketIndex = field(default_factory=BucketIndex)
    held: TimeBuffer = field(default_factory=TimeBuffer)

    def encode(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"buckets": self.directory.encode(), "held": self.held.encode()}

    @staticmethod
    def decode(fields: Any) -> ProcessSummary:  # noqa: ANN401 - plain JSON
        """Read the JSON that `encode` returned."""
        return ProcessSummary(BucketIndex.decode(fields["buckets"]), TimeBuffer.decode(fields["held"]))


_TEXT = pa.schema([("key", pa.string())])


@dataclass(frozen=True)
class Causes:
    """The places of some records in the merged order, and what they are made of."""

    places: list[tuple[int, int, int]]
    names: list[str]


@dataclass(frozen=True)
class _RecordsByKey:
    """Records of a step by key, each key's in the order of its calls; `rows` says where each key's are."""

    columns: RecordColumns
    times: list[int]
    watermarks: list[int]
    rows: dict[str, range]
    causes: Causes | None = None


def build_process(graph: m.Graph, node: m.ProcessNode) -> Operator:
    """Return the operator of a process function."""
    operator = ProcessOperator(
        spec_of(graph, node),
        is_settled=graph.is_ordered(node),
        is_traced=graph.is_read(node),
        name=node.name if m.is_behind_process(graph, node.input) else "",
        labels=[source.source.label for source in graph.sources],
        records=input_schema(graph, node),
    )
    return settle_ordered(graph, node, operator)


class ProcessOperator:
    """Calls a pipeline's functions for the records and timers of each key, and writes the rows that they emit.

    In the order of the log, the watermark of a call is that of its record. In the order of event time a record is held
    until the low watermark has passed it, and the watermark of its call is its own time: all that happened before is
    known then, whatever partition it came from. The Python loop over records is what the pipeline asks for; all around
    it works on columns.

    If it `is_settled` it is given its records in the merged order, which then is the order of the log. With `is_traced`
    it gives the rows as a stream of records, too: what is emitted is not taken back; `name` is for their identity where
    the records are rows that were emitted (see `EmissionTrace`). `labels` name the sources.
    """

    state: Final[Mapping[str, StoreKind]] = {KEYED_KIND: "keys", BUFFER_KIND: "buffer"}

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        is_settled: bool = False,
        is_traced: bool = False,
        name: str = "",
        labels: Sequence[str] = (),
        records: pa.Schema | None = None,
    ) -> None:
        self._spec = spec
        self._is_settled = is_settled
        self._is_traced = is_traced
        self._labels = labels
        self._records = record_schema(spec) if records is None else records
        self._in_event_time = spec.node.process.order == "event_time"
        self._duck = duckdb_sql.Connection()
        self._memories = KeyStateCodec(spec)
        self._calls = FunctionCalls(spec, EmissionTrace(name) if is_traced else None)

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group: call the functions for records and timers, key by key."""
        summary = ProcessSummary() if state.summary is None else ProcessSummary.decode(state.summary)
        time, records = step.time, step.records
        expired = records.slice(0, 0)
        judged: tuple[Judged, ...] = ()
        if self._in_event_time:
            missed = pc.greater(records.column(WATERMARK), records.column(TIME))
            is_missed = missed.to_numpy()
            judged = (Judged(records, ~is_missed, is_missed),)
            expired = records.filter(missed)
            records = summary.held.turn(records.filter(pc.invert(missed)), NEVER if time.end else time.low, state)
        buckets = KeyedStore(summary.directory, state)
        self._calls.begin(time.latest)
        self._run(self._batch(records), buckets, time)
        # nothing is written before all calls are made: one that fails leaves the state as it was
        buckets.close()
        summary.held.close(state)
        state.summary = summary.encode()
        return OperatorOutput(
            changes=change_rows(self._spec, self._calls.changes),
            records=(stream_rows(self._spec, self._calls.rows),) if self._is_traced else (),
            late=late_output(self._duck, self._spec, _with_own_windows(expired)),
            open_windows=summary.directory.keys,
            judged=judged,
        )

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened, no lateness kept
        """Migrate the states of keys, and the records that are held."""
        groups, records = RowsByKeyGroup(self._spec, self._duck), self._records
        for _, state in states:
            for (kind, _), blob in state.items():
                table = unpack(blob)
                if kind == KEYED_KIND:
                    groups.add_texts((KEYED_KIND, 0), table, table.select(["key"]).cast(_TEXT))
                else:
                    groups.add((BUFFER_KIND, 0), cast_table(table.select(records.names), records))
        made: list[StoredState] = []
        for tables in groups.tables():
            summary, store = ProcessSummary(), MemoryState()
            if (KEYED_KIND, 0) in tables:
                KeyedStore(summary.directory, store).fill(tables[KEYED_KIND, 0])
            if (BUFFER_KIND, 0) in tables:
                summary.held.put(tables[BUFFER_KIND, 0], store)
            made.append((summary.encode(), store))
        return made

    def _batch(self, records: pa.Table) -> _RecordsByKey:
        """Sort records by key, and within a key in the order of its calls."""
        if self._in_event_time:
            records = in_event_time_order(records)
        elif ID in records.column_names and not self._is_settled:
            # so that those of one record are in the same order as in the merged one
            records = in_merged_order(records)
        texts = key_texts(self._duck, records.select(list(self._spec.key)))
        encoded = texts.combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy()
        times = to_micros(records.column(TIME))
        if self._in_event_time or self._is_settled:
            order = np.argsort(codes, kind="stable")
        else:
            order = np.lexsort((*(to_micros(records.column(name)) for name in (OFFSET, PARTITION)), codes))
        ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary))).tolist()
        rows = {
            key: range(start, end)
            for key, start, end in zip(encoded.dictionary.to_pylist(), [0, *ends], ends, strict=False)
        }
        watermarks = times if self._in_event_time else to_micros(records.column(WATERMARK))
        records = records.take(pa.array(order))
        return _RecordsByKey(
            RecordColumns(records),
            times[order].tolist(),
            watermarks[order].tolist(),
            rows,
            self._causes(records) if self._is_traced else None,
        )

    def _causes(self, records: pa.Table) -> Causes:
        """Return the places of records, and their names.

        In the order of event time a record's call is after all records whose watermark is not past its time, and those
        of one time are in the order of their calls.
        """
        columns = [to_micros(records.column(name)).tolist() for name in (WATERMARK, PARTITION, OFFSET)]
        places = list(zip(*columns, strict=True))
        if ID in records.column_names:
            names = records.column(ID).to_pylist()
        else:
            names = [
                f"{self._labels[m.source_number(at, len(self._labels))]}/{at % m.MAX_PARTITIONS}/{offset}"
                for _, at, offset in places
            ]
        if self._in_event_time:
            times = to_micros(records.column(TIME)).tolist()
            places = [
                (time, partition | BEHIND_PARTITIONS, offset)
                for time, (_, partition, offset) in zip(times, places, strict=True)
            ]
        return Causes(places, names)

    def _run(self, batch: _RecordsByKey, buckets: KeyedStore, time: StepTime) -> None:
        """Make the calls of a step, and store the keys."""
        waiting = set(buckets.due(NEVER - 1 if time.end else time.low, time.now))
        for key in sorted(waiting | batch.rows.keys()):
            bucket = buckets.of(key)
            blob = bucket.get(key)
            rows = batch.rows.get(key, range(0))
            memory = self._new(batch, rows) if blob is None else self._memories.decode(blob)
            self._calls.records(memory, batch, rows)
            self._calls.sweep(memory, time.low)
            if time.end:
                self._calls.end(memory)
            if time.now is not None and memory.tick <= time.now:
                self._calls.tick(memory, time.now, time.low)
            self._memories.prune(memory, time.low)
            due = min(memory.due, *memory.ended) if memory.ended else memory.due
            bucket.put(key, None if memory.is_empty else KeyedEntry(due, memory.tick, self._memories.encode(memory)))

    def _new(self, batch: _RecordsByKey, rows: range) -> KeyState:
        return self._memories.new(tuple(batch.columns[name][rows.start] for name in self._spec.key))


def _with_own_windows(expired: pa.Table) -> pa.Table:
    """Add the window that each expired record missed: its own microsecond."""
    times = to_micros(expired.column(TIME))
    return expired.append_column(WINDOW, pa.array(times)).append_column(END, pa.array(times + 1))


_UserFunction = Callable[[CallContext, Any], object]
"""A function of the user's as it may be: what it returns is looked at."""


class FunctionCalls:
    """Calls the functions of a pipeline, and gathers what they emit.

    A key's watermark goes on with its calls: a timer's call has the timer's time as event time and as watermark, so it
    is the same whether the timer is found due at the end of a step or before the key's next record.
    """

    def __init__(self, spec: ProcessSpec, trace: EmissionTrace | None) -> None:
        process = spec.node.process
        self._spec = spec
        self._function = process.function
        self._on_timer = process.on_timer
        self._on_processing_timer = process.on_processing_timer
        self._ttl = process.ttl
        self._trace = trace
        self._call = CurrentCall(trace=trace)
        self._context = CallContext(spec, self._call)

    def begin(self, now: int | None) -> None:
        """Begin a step; `now` is the last processing time that is known."""
        self._call.changes = []
        self._call.rows = []
        self._call.now = now

    @property
    def changes(self) -> list[EmittedChange]:
        """The rows emitted since `begin`."""
        return self._call.changes

    @property
    def rows(self) -> list[EmittedRow]:
        """The same as rows of a stream, if they are traced."""
        return self._call.rows

    def records(self, memory: KeyState, batch: _RecordsByKey, rows: range) -> None:
        """Give a key its records, each after the timers that its watermark has reached."""
        call, context, function, ttl = self._call, self._context, self._function, self._ttl
        columns, times, watermarks = batch.columns, batch.times, batch.watermarks
        trace, causes = self._trace, batch.causes
        call.memory = memory
        if trace is not None:
            trace.begin()
        for row in rows:
            watermark = watermarks[row]
            if memory.due <= watermark:
                self.sweep(memory, watermark)
            if trace is not None and causes is not None:
                trace.record(causes.places[row], causes.names[row])
            call.time = time = times[row]
            call.watermark = watermark
            if ttl is not None:
                memory.reached = max(memory.reached, watermark)
                call.horizon = memory.reached - ttl
            try:
                returned = function(context, Record(columns, row))
                if returned is not None:
                    _reject_return_value(returned)
            except BaseException as exc:  # noqa: BLE001 - raised again with its place
                self._fail(function, exc, memory, self._place(columns, row))
            if ttl is not None:
                memory.lives_until(time + ttl)
            if memory.alarm <= watermark:
                self._fire_reached(memory, watermark)

    def sweep(self, memory: KeyState, bound: int) -> None:
        """Run what is due for a key up to a watermark, in order of time: timers, and its expiry."""
        while memory.due <= bound:
            if memory.expiry < memory.alarm:
                self._expire(memory)
            else:
                self._fire(memory, *memory.next_timer())

    def _fire_reached(self, memory: KeyState, watermark: int) -> None:
        """Fire the timers that a call has set for a time that its watermark has reached, before anything else.

        They belong to that call: what they emit is made of the same.
        """
        while memory.alarm <= watermark:
            self._fire(memory, *memory.next_timer(), is_reached=True)

    def end(self, memory: KeyState) -> None:
        """Fire each timer of event time that is set now once, in order of time."""
        alarms = [(alarm.due, name, alarm) for name, alarm in memory.timers.items() if alarm.kind == "event"]
        for due, name, alarm in sorted(alarms, key=lambda each: each[:2]):
            if memory.timers.get(name) is alarm:
                if memory.expiry < due:
                    self._expire(memory)
                self._fire(memory, name, alarm)

    def tick(self, memory: KeyState, now: int, low: int) -> None:
        """Fire the timers of processing time that are due."""
        for name, alarm in list(memory.timers.items()):
            if alarm.kind == "wait":
                memory.set_timer(name, KeyTimer("tick", now + alarm.due))
        due = [(alarm.due, name, alarm) for name, alarm in memory.timers.items() if alarm.kind == "tick"]
        for at, name, alarm in sorted(due, key=lambda each: each[:2]):
            if at <= now and memory.timers.get(name) is alarm and self._on_processing_timer is not None:
                memory.cancel(name)
                self._call.early = True
                try:
                    self._timed(memory, self._on_processing_timer, m.Timer(name, time_of(at)), self._known(memory, low))
                finally:
                    self._call.early = False
                self._fire_reached(memory, self._call.watermark)

    def _known(self, memory: KeyState, low: int) -> int:
        """Return the event time of a call that no record's or timer's event time explains."""
        time = max(low, memory.reached)
        if time == MIN_TIME and memory.expiry != NEVER and self._ttl is not None:
            return memory.expiry - self._ttl
        return time

    def _fire(self, memory: KeyState, name: str, alarm: KeyTimer, *, is_reached: bool = False) -> None:
        memory.cancel(name)
        if self._on_timer is None:  # it was set when there was one
            return
        if self._trace is not None and not is_reached:
            self._trace.timer(memory.key, alarm.due, memory.ended.get(alarm.due, 0))
        self._call.in_timer = True
        try:
            self._timed(memory, self._on_timer, m.Timer(name, time_of(alarm.due)), alarm.due)
        finally:
            self._call.in_timer = False
        if self._trace is not None and not is_reached and self._trace.number:
            memory.ended[alarm.due] = self._trace.number

    def _timed(self, memory: KeyState, function: _UserFunction, timer: m.Timer, time: int) -> None:
        call, ttl = self._call, self._ttl
        call.memory, call.time, call.watermark = memory, time, time
        if ttl is not None:
            memory.reached = max(memory.reached, time)
            call.horizon = memory.reached - ttl
        try:
            returned = function(self._context, timer)
            if returned is not None:
                _reject_return_value(returned)
        except BaseException as exc:  # noqa: BLE001 - as above
            self._fail(function, exc, memory, f"in the timer {timer.name!r} of {timer.at.isoformat()}")
        if ttl is not None and time != MIN_TIME:
            memory.lives_until(time + ttl)

    def _expire(self, memory: KeyState) -> None:
        """Forget a key whose time to live is over, and take its row out of the table."""
        if memory.row is not None:
            self.changes.append(
                EmittedChange(early=False, key=memory.key, revision=memory.revision, before=memory.row, after=None)
            )
        memory.forget()

    def _place(self, columns: RecordColumns, row: int) -> str:
        return record_place(self._spec.source.label, *columns.coordinates(row))

    def _fail(self, function: _UserFunction, exc: BaseException, memory: KeyState, where: str) -> NoReturn:
        key = key_text(self._spec.key, memory.key)
        raise_user_code_error(exc, f"the function {qualified_name(function)} failed {where}, {key}")


def _reject_return_value(returned: object) -> None:
    """Raise TypeError for what a function returned: to drop it in silence would drop a row that was meant."""
    msg = f"it returned a value ({type(returned).__name__}), and must return nothing: a row is written by ctx.emit(...)"
    raise TypeError(msg)
