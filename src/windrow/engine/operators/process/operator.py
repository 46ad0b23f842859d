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
from windrow.engine.operators.base import Judged, Operator, OperatorOutput, OperatorStep, StepTime, add_own_windows
from windrow.engine.operators.process import context
from windrow.engine.operators.process.context import CurrentCall, EmissionTrace, EmittedChange, Record, RecordColumns
from windrow.engine.operators.process.state import KeyState, KeyStateCodec, KeyTimer
from windrow.engine.operators.route import input_schema
from windrow.engine.operators.settled import settle_ordered
from windrow.engine.schema import BEHIND_PARTITIONS, ID, OFFSET, PARTITION, TIME, WATERMARK
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
    """The summary of the operator's state: the index of the keys' buckets, and the buffer of records."""

    directory: BucketIndex = field(default_factory=BucketIndex)
    held: TimeBuffer = field(default_factory=TimeBuffer)

    def encode(self) -> dict[str, Any]:
        """Return the summary as plain JSON."""
        return {"buckets": self.directory.encode(), "held": self.held.encode()}

    @staticmethod
    def decode(fields: Any) -> ProcessSummary:  # noqa: ANN401 - plain JSON
        """Read the JSON that `encode` returned."""
        return ProcessSummary(BucketIndex.decode(fields["buckets"]), TimeBuffer.decode(fields["held"]))


_TEXT = pa.schema([("key", pa.string())])


Cause = tuple[tuple[int, int, int], str]
"""The position of a record in the merged order, and its identity."""


@dataclass(frozen=True)
class _RecordsByKey:
    """The records of a step by key; within a key, in the order of its calls. `rows` maps each key to its rows."""

    columns: RecordColumns
    times: list[int]
    watermarks: list[int]
    rows: dict[str, range]
    causes: list[Cause] | None = None


def build_process(graph: m.Graph, node: m.ProcessNode) -> Operator:
    """Return the operator for a process node."""
    return settle_ordered(graph, node, ProcessOperator(graph, node))


class ProcessOperator:
    """Calls a pipeline's functions for the records and timers of each key, and writes the rows that they emit.

    In log order, the watermark of a call is the watermark at its record. In event-time order, a record is held until
    the low watermark has passed it, and the watermark of its call is the record's own time, because all earlier records
    of all partitions have been processed by then. Only the calls loop over records in Python; all other code works on
    columns.

    If the stream of the node depends on the order of records, the operator receives them in the merged order, which
    then replaces log order. If other nodes read the rows, the operator also returns them as records of a stream, which
    are never deleted; `EmissionTrace` assigns their identities.
    """

    state: Final[Mapping[str, StoreKind]] = {KEYED_KIND: "keys", BUFFER_KIND: "buffer"}

    def __init__(self, graph: m.Graph, node: m.ProcessNode) -> None:
        spec = self._spec = spec_of(graph, node)
        self._is_settled = graph.is_ordered(node)
        self._is_traced = graph.is_read(node)
        self._labels = [source.source.label for source in graph.sources]
        self._records = input_schema(graph, node)
        self._in_event_time = node.process.order == "event_time"
        self._duck = duckdb_sql.Connection()
        self._memories = KeyStateCodec(spec)
        trace = EmissionTrace(node.name if m.is_behind_process(graph, node.input) else "")
        self._calls = FunctionCalls(spec, trace if self._is_traced else None)

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
        # state is written after all calls, so a call that fails leaves it unchanged
        buckets.close()
        summary.held.close(state)
        state.summary = summary.encode()
        return OperatorOutput(
            changes=context.change_rows(self._spec, self._calls.call.changes),
            records=(context.stream_rows(self._spec, self._calls.call.rows),) if self._is_traced else (),
            late=late_output(self._duck, self._spec, add_own_windows(expired)),
            open_windows=summary.directory.keys,
            judged=judged,
            due=summary.directory.tick,
        )

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened, no lateness kept
        """Migrate the state of each key, and the buffered records."""
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
            # so that the records derived from one log record keep their merged order
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

    def _causes(self, records: pa.Table) -> list[Cause]:
        """Return the position and identity of each record.

        In event-time order, the call of a record follows all records whose watermark is not past its time. Calls with
        the same time keep their own order.
        """
        first = TIME if self._in_event_time else WATERMARK
        times, partitions, offsets = (to_micros(records.column(name)).tolist() for name in (first, PARTITION, OFFSET))
        if ID in records.column_names:
            names = records.column(ID).to_pylist()
        else:
            count = len(self._labels)
            names = [
                f"{self._labels[m.source_number(number, count)]}/{number % m.MAX_PARTITIONS}/{offset}"
                for number, offset in zip(partitions, offsets, strict=True)
            ]
        if self._in_event_time:
            partitions = [number | BEHIND_PARTITIONS for number in partitions]
        return list(zip(zip(times, partitions, offsets, strict=True), names, strict=True))

    def _run(self, batch: _RecordsByKey, buckets: KeyedStore, time: StepTime) -> None:
        """Run the calls of a step, and store the state of the keys."""
        waiting = set(buckets.due(NEVER - 1 if time.end else time.low, time.now))
        for key in sorted(waiting | batch.rows.keys()):
            bucket = buckets.of(key)
            blob = bucket.get(key)
            rows = batch.rows.get(key, range(0))
            if blob is None:
                memory = self._memories.new(tuple(batch.columns[name][rows.start] for name in self._spec.key))
            else:
                memory = self._memories.decode(blob)
            self._calls.records(memory, batch, rows)
            self._calls.sweep(memory, time.low)
            if time.end:
                self._calls.end(memory)
            if time.now is not None and memory.tick <= time.now:
                self._calls.tick(memory, time.now, time.low)
            self._memories.prune(memory, time.low)
            due = min(memory.due, *memory.ended) if memory.ended else memory.due
            bucket.put(key, None if memory.is_empty else KeyedEntry(due, memory.tick, self._memories.encode(memory)))


_UserFunction = Callable[[context.CallContext, Any], object]
"""A user's function. It must return None; other values are rejected."""


class FunctionCalls:
    """Calls the functions of a pipeline, and collects the rows that they emit.

    A key's watermark advances with its calls. The call of a timer has the timer's time as both event time and
    watermark, so it is the same whether the timer is found to be due at the end of a step or before the key's next
    record.
    """

    def __init__(self, spec: ProcessSpec, trace: EmissionTrace | None) -> None:
        process = spec.node.process
        self._spec = spec
        self._function = process.function
        self._on_timer = process.on_timer
        self._on_processing_timer = process.on_processing_timer
        self._ttl = process.ttl
        self._trace = trace
        self.call = CurrentCall(trace=trace)
        self._context = context.CallContext(spec, self.call)

    def begin(self, now: int | None) -> None:
        """Start a step; `now` is the processing time of the latest tick."""
        self.call.changes = []
        self.call.rows = []
        self.call.now = now

    def records(self, memory: KeyState, batch: _RecordsByKey, rows: range) -> None:
        """Call the function for each record of a key, after the timers that the record's watermark has reached."""
        call, call_context, function, ttl = self.call, self._context, self._function, self._ttl
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
                trace.record(*causes[row])
            call.time = time = times[row]
            call.watermark = watermark
            if ttl is not None:
                memory.reached = max(memory.reached, watermark)
                call.horizon = memory.reached - ttl
            try:
                returned = function(call_context, Record(columns, row))
                if returned is not None:
                    _reject_return_value(returned)
            except BaseException as exc:  # noqa: BLE001 - raised again with its place
                place = record_place(self._spec.source.label, *columns.coordinates(row))
                self._fail(function, exc, memory, place)
            if ttl is not None:
                memory.extend_life(time + ttl)
            if memory.alarm <= watermark:
                self._fire_reached(memory, watermark)

    def sweep(self, memory: KeyState, bound: int) -> None:
        """Run the timers and the expiry of a key that are due up to a watermark, ordered by time."""
        while memory.due <= bound:
            if memory.expiry < memory.alarm:
                self._expire(memory)
            else:
                self._fire(memory, *memory.next_timer())

    def _fire_reached(self, memory: KeyState, watermark: int) -> None:
        """Immediately fire the timers that a call has set to times that its watermark has already reached.

        They belong to that call: the rows that they emit have its identity.
        """
        while memory.alarm <= watermark:
            self._fire(memory, *memory.next_timer(), is_reached=True)

    def end(self, memory: KeyState) -> None:
        """Fire each pending event-time timer once, ordered by time, because the input has ended."""
        alarms = [(alarm.due, name, alarm) for name, alarm in memory.timers.items() if alarm.kind == "event"]
        for due, name, alarm in sorted(alarms, key=lambda timer: timer[:2]):
            if memory.timers.get(name) is alarm:
                if memory.expiry < due:
                    self._expire(memory)
                self._fire(memory, name, alarm)

    def tick(self, memory: KeyState, now: int, low: int) -> None:
        """Fire the processing-time timers that are due."""
        for name, alarm in list(memory.timers.items()):
            if alarm.kind == "wait":
                memory.set_timer(name, KeyTimer("tick", now + alarm.due))
        alarms = [(alarm.due, name, alarm) for name, alarm in memory.timers.items() if alarm.kind == "tick"]
        for at, name, alarm in sorted(alarms, key=lambda timer: timer[:2]):
            if at <= now and memory.timers.get(name) is alarm and self._on_processing_timer is not None:
                memory.cancel(name)
                timer, time = m.Timer(name, time_of(at)), self._tick_time(memory, low)
                self.call.early = True
                try:
                    self._call_timer(memory, self._on_processing_timer, timer, time)
                finally:
                    self.call.early = False
                self._fire_reached(memory, self.call.watermark)

    def _tick_time(self, memory: KeyState, low: int) -> int:
        """Return the event time for the call of a processing-time timer."""
        time = max(low, memory.reached)
        if time == MIN_TIME and memory.expiry != NEVER and self._ttl is not None:
            return memory.expiry - self._ttl
        return time

    def _fire(self, memory: KeyState, name: str, alarm: KeyTimer, *, is_reached: bool = False) -> None:
        memory.cancel(name)
        if self._on_timer is None:  # the function of an earlier version set the timer
            return
        if self._trace is not None and not is_reached:
            self._trace.timer(memory.key, alarm.due, memory.ended.get(alarm.due, 0))
        self.call.in_timer = True
        try:
            self._call_timer(memory, self._on_timer, m.Timer(name, time_of(alarm.due)), alarm.due)
        finally:
            self.call.in_timer = False
        if self._trace is not None and not is_reached and self._trace.number:
            memory.ended[alarm.due] = self._trace.number

    def _call_timer(self, memory: KeyState, function: _UserFunction, timer: m.Timer, time: int) -> None:
        call, ttl = self.call, self._ttl
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
            memory.extend_life(time + ttl)

    def _expire(self, memory: KeyState) -> None:
        """Forget a key whose time to live has ended, and delete its row."""
        if memory.row is not None:
            change = EmittedChange(False, memory.key, memory.revision, memory.row, None)  # noqa: FBT003 - not early
            self.call.changes.append(change)
        memory.forget()

    def _fail(self, function: _UserFunction, exc: BaseException, memory: KeyState, where: str) -> NoReturn:
        key = key_text(self._spec.key, memory.key)
        raise_user_code_error(exc, f"the function {qualified_name(function)} failed {where}, {key}")


def _reject_return_value(returned: object) -> None:
    """Raise TypeError for a returned value, which may be a row that should have been emitted."""
    msg = f"it returned a value ({type(returned).__name__}), but must return nothing: write a row with ctx.emit(...)"
    raise TypeError(msg)
