"""The replay of one row: the log through the operator that makes it, with the records of its key alone.

Verdicts depend on the clocks of whole partitions, so every record is read and decoded; of these, the row's operator is
only given those of the row's key, and of its window where that is known by the time alone. An operator keeps the state
of each key and window apart, so its verdicts, and the row that it makes, are those of the run.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.database import Condition, Value
from windrow.connectors.source import Source
from windrow.connectors.tables import Table, layout, plain_rows, plain_values, utc_text
from windrow.engine import schema
from windrow.engine.changelog import source_numbers, with_numbers
from windrow.engine.columns import FIRST_TIME, MIN_TIME, pack, to_micros, unpack
from windrow.engine.decode.decoder import log_times_inside
from windrow.engine.messages import DeadLetters, EndOfInput, Message, Packet, PartialPanes, PartitionIdle, Records
from windrow.engine.operators.base import GroupOutput, GroupStats, Judged, Mask
from windrow.engine.probe import NodeStep, NoProbe
from windrow.engine.schema import END, OFFSET, PARTITION, RAW, TIME, WATERMARK, WINDOW
from windrow.engine.windows import window_bounds
from windrow.errors import InputError, StoppedError
from windrow.expressions import SinkSpec, sink_spec, spec_of, stream_of
from windrow.expressions.inputs import arguments, computed_arguments
from windrow.runtime.batch.plan import BatchPlan, BatchSettings
from windrow.runtime.memory import MemoryHost
from windrow.telemetry.reports import PartitionName
from windrow.telemetry.samples import Verdict

RECORDS: Final = 10_000
"""Records on time that are listed, and others that are; more are only counted."""
DEAD: Final = 20
"""Dead letters that are listed."""
STEP: Final = 100_000
"""Records of a step of the replay, which is stopped between packets and operators."""
LOG_TIME: Final = "__log_time"
"""The log timestamp of a record (microseconds), or null."""
APART, BEYOND = "__apart", "__beyond"
"""How far a record is from the one that a join has, and how far that is beyond its interval (microseconds)."""
_LOG_TIMES: Final = 100_000
_LOG_TIMES_PER_RECORD: Final = 4
"""Log timestamps that are kept for records that are judged in a later step: at least so many, and by those listed."""
_IN_TIME: Final = ("on_time", "taken")
VERDICTS: Final = ("on_time", "taken", "late", "expired", "duplicate", "outside")
"""The verdicts on records, as `Explanation.counts` has them."""


@dataclass(frozen=True)
class ExplainedRecord:
    """A record of the row's key and window; times are microseconds, `values` those that the row is made of.

    It was judged by `watermark`, that of its partition when it came, None before there was one. `clock` is the greatest
    event time before it, None if the watermark was not made of that: a partition that joins late, or was idle, has its
    watermark raised to the low watermark. `window_end` is the end of the row's window, None if it was not that which
    judged the record, as behind other windows. A `duplicate` was left out by a deduplication; a table judges no record.
    One `outside` is of the key of a join that found no partner, and was too far away to be one: it is `apart` in event
    time from the record on the other side (below 0 if before it), and `beyond` the interval of the join by so much.
    """

    partition: PartitionName
    offset: int
    event_time: int
    log_time: int | None
    watermark: int | None
    clock: int | None
    window_end: int | None
    verdict: Verdict | Literal["duplicate", "taken", "outside"]
    values: Mapping[str, Any]
    apart: int | None = None
    beyond: int | None = None


@dataclass(frozen=True)
class ExplainedDeadLetter:
    """A dead letter that may be of the row's key: its text has the values of the key.

    `partition` and `offset` are None if it is of no record of a log, but of a row that an operator made.
    """

    partition: PartitionName | None
    offset: int | None
    log_time: int | None
    reason: str
    raw: str | None


@dataclass(frozen=True)
class RowTarget:
    """What makes the rows of a sink: the producer of its stream; `above` are the deduplications before it.

    It `is_direct` if it takes records of a log, and so judges each of them.
    """

    graph: m.Graph
    sink: m.SinkNode
    node: m.Node
    spec: SinkSpec
    above: tuple[str, ...]
    is_direct: bool

    @staticmethod
    def of(graph: m.Graph, name: str) -> RowTarget:
        """Return the target of a sink; raise InputError if its rows are not explained."""
        sink = next(sink for sink in graph.sinks if sink.name == name)
        node = graph.producer(sink.input)
        if isinstance(node, m.RulesNode):
            msg = (
                f"rows of {sink.sink.table!r} are not explained: it has alerts, which carry their evidence: "
                "see the column 'evidence'"
            )
            raise InputError(msg)
        is_direct = isinstance(node, m.WindowNode) or (isinstance(node, m.TableNode) and sink.input == node.name)
        above: dict[str, None] = {}
        waiting = list(node.inputs)
        while waiting:
            before = graph.producer(waiting.pop())
            is_direct = is_direct and isinstance(before, _PASSED)
            if isinstance(before, m.DeduplicateNode):
                above[before.name] = None
            waiting += before.inputs
        return RowTarget(graph, sink, node, sink_spec(graph, sink), tuple(above), is_direct)

    @property
    def operator(self) -> m.KeyedNode | m.SinkNode:
        """The node whose operator makes the rows."""
        return self.node if isinstance(self.node, m.ResultNode) else self.sink

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that name a row, but for its window: its key, or the place of a record."""
        return tuple(one.name for one in schema.row_key(self.spec.rows) if one.name not in WINDOW_COLUMNS)

    @property
    def has_window(self) -> bool:
        """Whether the window is in the identity of a row."""
        return WINDOW_COLUMNS[0] in self.identity

    @property
    def table(self) -> Table:
        """The table of results."""
        return layout(self.spec).result

    @property
    def window(self) -> m.Tumbling | m.Hopping | m.Cumulate | m.Calendar | m.Session | m.Global | None:
        """The windows; None for a table by key."""
        return self.node.window if isinstance(self.node, m.WindowNode) else None

    @property
    def is_by_time(self) -> bool:
        """Whether the windows of a record are known by its time alone."""
        return not isinstance(self.window, m.Session | m.Global | None)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return (*(one.name for one in schema.row_key(self.spec.rows)), *(["revision"] if self.spec.discards else []))

    @property
    def values(self) -> dict[str, str]:
        """The columns of records that a row is made of, by what they are called."""
        if not isinstance(self.node, m.WindowNode):
            fields = stream_of(self.graph, self.node.inputs[0]).fields
            hidden = {*self.key, *time_fields(self.graph, self.node.inputs[0])}
            return {field.name: field.name for field in fields if field.name not in hidden}
        spec = spec_of(self.graph, self.node)
        texts = {argument.name: argument.expression.text for argument in computed_arguments(spec)}
        columns = dict.fromkeys(one.column for given in arguments(spec) for one in given)
        return {texts.get(column, column): column for column in columns}


_PASSED: Final = (m.SourceNode, m.SelectNode, m.SplitNode, m.FlatMapNode, m.DeduplicateNode)
"""Nodes whose records are still records of a log."""
WINDOW_COLUMNS: Final = ("window_start", "window_end")


@dataclass(frozen=True)
class TargetRow:
    """The row that is explained: its key as Arrow scalars, its window, and what the table has of it, as plain JSON.

    `values` are those of its columns that are known and not null.
    """

    key: Mapping[str, pa.Scalar]
    window: tuple[int, int] | None
    revision: int | None
    there: dict[str, Any] | None
    values: Mapping[str, pa.Scalar]

    @property
    def plain_key(self) -> dict[str, Any]:
        """The key as plain JSON."""
        return {name: plain_values(pa.array([value.as_py()], value.type))[0] for name, value in self.key.items()}

    @property
    def conditions(self) -> list[Condition]:
        """What holds for the row in a table."""
        return [Condition(name, "=", condition_value(value)) for name, value in self.key.items()]

    def mask(self, records: pa.Table) -> Mask:
        """Return the mask of records that have the key."""
        return has_values(records, self.key)

    def changes(self, changes: pa.Table, *, is_session: bool) -> pa.Table:
        """Return the changes of the row, of a session also those of others that overlap it."""
        changes = changes.filter(pa.array(self.mask(changes)))
        if self.window is None:
            return changes
        starts, ends = (to_micros(changes.column(name)) for name in ("window_start", "window_end"))
        start, end = self.window
        is_own = (starts < end) & (ends > start) if is_session else (starts == start) & (ends == end)
        return changes.filter(pa.array(is_own))


def has_values(records: pa.Table, values: Mapping[str, pa.Scalar]) -> Mask:
    """Return the mask of records that have the values."""
    mask = np.ones(records.num_rows, dtype=np.bool_)
    for name, value in values.items():
        mask &= pc.equal(records.column(name), value).fill_null(False).to_numpy()  # noqa: FBT003 - Arrow's
    return mask


def time_fields(graph: m.Graph, stream: str) -> frozenset[str]:
    """Return the fields of a stream of records that have their event times."""
    node = graph.producer(stream)
    if isinstance(node, m.SourceNode):
        return frozenset() if node.time.sent is not None else frozenset({node.time.field})
    return frozenset.intersection(*(time_fields(graph, one) for one in node.inputs))


def condition_value(scalar: pa.Scalar) -> Value:
    """Return a scalar as a condition has it."""
    value: Value = scalar.value if pa.types.is_timestamp(scalar.type) else scalar.as_py()
    return value


def iso_time(micros: int | None) -> str | None:
    """Write a time of a table in ISO 8601."""
    if micros is None:
        return None
    (text,) = utc_text(pa.array([micros], pa.int64()).cast(schema.MICROS)).to_pylist()
    return f"{text.replace(' ', 'T')}Z"


def _steps(source: Source, plan: BatchPlan) -> Iterator[pa.Table]:
    """Yield the records of the steps of a plan, as they are read."""
    cursors = {partition: _Cursor(source.read_from(partition, begin)) for partition, begin in plan.begin.items()}
    for upto in plan.cut.upto:
        batches = [batch for partition, cursor in cursors.items() for batch in cursor.take(upto[partition])]
        yield pa.Table.from_batches(batches, schema=RAW)


class _Cursor:
    """Where a partition is read."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._held: pa.RecordBatch | None = None

    def take(self, upto: int) -> Iterator[pa.RecordBatch]:
        """Yield the next records, up to an offset."""
        while True:
            batch = self._held if self._held is not None else next(self._batches, None)
            if batch is None:
                return
            number = int(np.searchsorted(to_micros(batch.column("offset")), upto))
            self._held = batch.slice(number) if number < batch.num_rows else None
            if number:
                yield batch.slice(0, number)
            if self._held is not None:
                return


class _StepProbe(NoProbe):
    """Calls a function with the step of each operator."""

    def __init__(self, see: Callable[[NodeStep], None]) -> None:
        self._see = see

    def step(self, step: NodeStep) -> None:
        """Call it."""
        self._see(step)


class RowHost(MemoryHost):
    """Runs a pipeline for one row, and takes down what its operator does; stops soon after `is_stopped` is true."""

    def __init__(
        self,
        graph: m.Graph,
        plan: BatchPlan,
        settings: BatchSettings,
        *,
        target: RowTarget,
        row: TargetRow,
        most: int,
        is_stopped: Callable[[], bool],
    ) -> None:
        super().__init__(
            replace(graph, key_groups=1), plan.partitions, settings.bounds, probe=partial(_StepProbe, self._see)
        )
        self._target = target
        self._graph = graph
        self._row = row
        self._most = most
        self._plan = plan
        self._settings = settings
        self._needed = {target.node.name, target.sink.name, *target.above}
        self._raw = RAW.empty_table()
        self._log_times: dict[tuple[int, int], int | None] = {}
        self._texts_of = [
            partition
            for partition in plan.partitions
            if not isinstance(self._graph.sources[self._graph.source_number(partition)].source.records, m.KafkaSource)
        ]
        """The partitions whose records can have their log timestamp in themselves."""
        self._changes: list[pa.Table] = []
        self._stats: GroupStats | None = None
        self._texts = [str(value) for value in row.plain_key.values()]
        self._is_hidden = False
        self._is_stopped = is_stopped
        self._found: defaultdict[tuple[int, bool], list[ExplainedRecord]] = defaultdict(list)
        self.counts: Counter[tuple[int, str]] = Counter()
        self.dead: list[ExplainedDeadLetter] = []
        self.dead_letters = 0

    @property
    def records(self) -> list[ExplainedRecord]:
        """The records, in the order of partitions and offsets: sources share the limit of those that are listed."""
        chosen: list[ExplainedRecord] = []
        for is_on_time in (True, False):
            found = [self._found[source, is_on_time] for source in range(len(self._graph.sources))]
            in_turn = (one for several in zip_longest(*found) for one in several if one is not None)
            chosen += islice(in_turn, self._most)
        return sorted(chosen, key=lambda one: (str(one.partition), one.offset))

    @property
    def low(self) -> int | None:
        """The low watermark of all sources after the last step."""
        return None if self._stats is None or self._stats.low == MIN_TIME else self._stats.low

    @property
    def notes(self) -> Iterator[str]:
        """What to know of the records."""
        if self._is_hidden:
            yield "records that do not come past the deduplication are not listed, as the key is made behind it"

    def run(self, source: Source) -> None:
        """Read the log through the operators of the row; raise StoppedError if it is stopped."""
        for number, raw in enumerate(_steps(source, self._plan)):
            self._stop_if_asked()
            self._raw = raw
            self._keep(self.step(raw))
            control = self._plan.cut.control.get(number, ())
            if any(isinstance(message, PartitionIdle) for message in control):
                self._keep(self.rest(self._settings.idle_at_end))
            if EndOfInput() in control:
                self._keep(self.end())

    def _stop_if_asked(self) -> None:
        if self._is_stopped():
            raise StoppedError

    def _keep(self, groups: Sequence[GroupOutput]) -> None:
        """Keep the changes of the row, and dead letters that may be of it."""
        for group in groups:
            self._stats = group.stats
            output = group.by_sink[self._target.sink.name]
            # the others were left out on their way to the last level
            self._look_at(with_numbers(self._graph, output.dead))
            changes = self._row.changes(output.changes, is_session=isinstance(self._target.window, m.Session))
            if changes.num_rows:
                self._changes.append(changes)

    def result(self) -> tuple[dict[str, Any] | None, list[tuple[str, str]]]:
        """Return the row that the changes make, and the windows of others that overlap it, which only sessions have."""
        identity = self._target.identity
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for changes in self._changes:
            for values in plain_rows(changes):
                change = dict(zip(changes.column_names, values, strict=True))
                op, place = change.pop("op"), tuple(change[name] for name in identity)
                if op == "delete":
                    rows.pop(place, None)
                elif op != "update_before":
                    rows[place] = change
        found, others = None, []
        for row in rows.values():
            is_own = self._row.window is None or (row["window_start"], row["window_end"]) == tuple(
                map(iso_time, self._row.window)
            )
            if not is_own:
                others.append((row["window_start"], row["window_end"]))
            elif "revision" not in identity or self._row.revision in {None, row["revision"]}:
                found = row
        return found, others

    def kept(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Leave out the records of other keys, and of operators that have nothing to do with the row."""
        for packet in packets:
            self._stop_if_asked()
            message: Message | None = packet.message
            match message:
                case Records(to, blob):
                    message = self._kept(message, to, unpack(blob)) if to in self._needed else None
                case PartialPanes(to) if to not in self._needed:
                    message = None
                case DeadLetters(blob=blob):
                    self._look_at(unpack(blob))
                    message = None
                case _:
                    pass
            if message is not None:
                yield Packet(packet.key_group, message)

    def _kept(self, message: Records, to: str, records: pa.Table) -> Records | None:
        """Return records for an operator: for that of the row, only those of its key and time."""
        is_target = to == self._target.node.name
        if is_target or self._has_key(records):
            own = records.filter(pa.array(self._is_own(records)))
            self._note_log_times(own)
            if is_target:
                return replace(message, blob=pack(own)) if own.num_rows else None
        return message

    def _has_key(self, records: pa.Table) -> bool:
        return set(self._row.key) <= set(records.column_names)

    def _is_own(self, records: pa.Table) -> Mask:
        """Return the mask of records that have the key, and the time of the window if that decides."""
        mask = self._row.mask(records)
        if self._target.is_by_time and self._row.window is not None:
            start, end = self._row.window
            times = to_micros(records.column(TIME))
            mask &= (times >= start) & (times < end)
        return mask

    def _note_log_times(self, records: pa.Table) -> None:
        """Note the log timestamps of records that were just read, as they may be judged in a later step."""
        room = max(_LOG_TIMES, _LOG_TIMES_PER_RECORD * self._most) - len(self._log_times)
        if not records.num_rows or room <= 0:
            return
        records = records.slice(0, room)
        places = zip(*(records.column(name).to_pylist() for name in (PARTITION, OFFSET)), strict=True)
        self._log_times.update(zip(places, self._log_times_of(records).to_pylist(), strict=True))

    def _log_times_of(self, records: pa.Table) -> pa.Array:
        """Return the log timestamps of records by their place (microseconds); null for those not read in this step."""
        read, own = (
            [to_micros(column.cast(pa.int64())) for column in (table.column(partition), table.column(offset))]
            for table, partition, offset in ((self._raw, "partition", "offset"), (records, PARTITION, OFFSET))
        )
        rows = np.full(records.num_rows, -1)
        for number in np.unique(own[0]).tolist():
            there, wanted = np.flatnonzero(read[0] == number), np.flatnonzero(own[0] == number)
            places = np.searchsorted(read[1][there], own[1][wanted])
            is_there = places < len(there)
            is_there[is_there] = read[1][there][places[is_there]] == own[1][wanted][is_there]
            rows[wanted[is_there]] = there[places[is_there]]
        places, is_text = pa.array(rows, mask=rows < 0), np.isin(own[0], self._texts_of)
        log_times = self._raw.column("log_time").cast(pa.int64()).combine_chunks().take(places)
        if not is_text.any():
            return log_times
        values = self._raw.column("value").combine_chunks().take(places)
        return log_times_inside(pc.if_else(pa.array(is_text), values, pa.scalar(None, values.type)), log_times)

    def _look_at(self, dead: pa.Table) -> None:
        """Note dead letters that may be of the key."""
        mask = np.ones(dead.num_rows, dtype=np.bool_)
        raw = dead.column("raw")
        for text in self._texts:
            # as JSON may write it, too
            spelt = {text, json.dumps(text)[1:-1]}
            has = [pc.match_substring(raw, one).fill_null(False).to_numpy() for one in spelt]  # noqa: FBT003 - Arrow's
            mask &= np.logical_or.reduce(has)
        own = dead.filter(pa.array(mask))
        self.dead_letters += own.num_rows
        columns = [own.column(name) for name in ("partition", "offset", "log_time", "reason", "raw")]
        columns[2] = columns[2].cast(pa.int64())
        room = max(0, min(DEAD, self._most) - len(self.dead))
        for partition, offset, log_time, reason, value in zip(
            *(column.slice(0, room).to_pylist() for column in columns), strict=True
        ):
            shown = None if value is None else value.decode(errors="backslashreplace")
            name = None if partition is None else self._graph.partition_name(partition)
            self.dead.append(ExplainedDeadLetter(name, offset, log_time, reason, shown))

    def _see(self, seen: NodeStep) -> None:
        """Take down the verdicts of the row's operator, and what deduplications leave out."""
        self._stop_if_asked()
        if seen.node == self._target.node.name:
            for judged in seen.judged:
                self._judged(judged)
            if isinstance(self._target.node, m.TableNode) and seen.given.num_rows:
                self._add(seen.given, ["taken"] * seen.given.num_rows)
        elif seen.node in self._target.above:
            self._leave_out(seen.made.records[1], "duplicate")
            for judged in seen.judged:
                # by the lateness of its source
                self._leave_out(judged.records, "expired")

    def _leave_out(self, records: pa.Table, verdict: Verdict | Literal["duplicate"]) -> None:
        """Take down records that do not come to the row's operator."""
        if self._has_key(records):
            records = records.filter(pa.array(self._is_own(records) & self._is_near(records)))
            self._add(records, [verdict] * records.num_rows)
        elif records.num_rows:
            self._is_hidden = True

    def _judged(self, judged: Judged) -> None:
        """Take down verdicts for the row's window."""
        records = judged.records
        mask = self._is_near(records)
        window = self._target.window
        if {WINDOW, END} <= set(records.column_names) and self._target.is_by_time and self._row.window is not None:
            numbers = to_micros(records.column(WINDOW))
            starts = window_bounds(window, numbers).starts  # type: ignore[arg-type]
            mask &= (starts == self._row.window[0]) & (to_micros(records.column(END)) == self._row.window[1])
        if mask.any():
            verdicts = np.where(judged.expired, "expired", np.where(judged.on_time, "on_time", "late"))[mask]
            self._add(records.filter(pa.array(mask)), verdicts.tolist())

    def _is_near(self, records: pa.Table) -> Mask:
        """Return the mask of records that are, or would be, in the row's session; all of them in other windows."""
        if not isinstance(self._target.window, m.Session) or self._row.window is None:
            return np.ones(records.num_rows, dtype=np.bool_)
        start, end = self._row.window
        times = to_micros(records.column(TIME))
        mask: Mask = (times >= start) & (times < end)
        return mask

    def _add(self, records: pa.Table, verdicts: Sequence[Any]) -> None:
        """Count records that the operator of the row has judged, and list them as long as there is room."""
        sources = source_numbers(self._graph, records.column(PARTITION)).tolist()
        self.counts.update(zip(sources, verdicts, strict=True))
        self._list(records, verdicts, self._target.values, is_of_row=True)

    def _list(self, records: pa.Table, verdicts: Sequence[Any], named: Mapping[str, str], *, is_of_row: bool) -> None:
        """List records as long as there is room for their source, with the values of the columns `named`.

        With `is_of_row` the window of the row has judged them.
        """
        window_end = self._row.window[1] if is_of_row and self._row.window is not None else None
        sources = source_numbers(self._graph, records.column(PARTITION)).tolist()
        kinds = [(source, verdict in _IN_TIME) for source, verdict in zip(sources, verdicts, strict=True)]
        room = {kind: self._most - len(self._found[kind]) for kind in set(kinds)}
        ranks = Counter[tuple[int, bool]]()
        chosen = []
        for row, kind in enumerate(kinds):
            ranks[kind] += 1
            if ranks[kind] <= room[kind]:
                chosen.append(row)
        records = records.take(pa.array(chosen, pa.int64()))
        places = [to_micros(records.column(name)).tolist() for name in (PARTITION, OFFSET, TIME, WATERMARK)]
        log_times: list[int | None] = (
            records.column(LOG_TIME).to_pylist()
            if LOG_TIME in records.column_names
            else [
                self._log_times.get((partition, offset), now)
                for partition, offset, now in zip(*places[:2], self._log_times_of(records).to_pylist(), strict=True)
            ]
        )
        nothing = [None] * records.num_rows
        apart, beyond = (
            records.column(name).to_pylist() if name in records.column_names else nothing for name in (APART, BEYOND)
        )
        columns = {name: column for name, column in named.items() if column in records.column_names}
        values = list(
            zip(*(plain_values(records.column(column).combine_chunks()) for column in columns.values()), strict=True)
        )
        for row, (partition, offset, time, watermark) in enumerate(zip(*places, strict=True)):
            self._found[kinds[chosen[row]]].append(
                ExplainedRecord(
                    self._graph.partition_name(partition),
                    offset,
                    time,
                    log_times[row],
                    None if watermark <= FIRST_TIME else watermark,
                    self._clock(partition, offset, watermark),
                    window_end,
                    verdicts[chosen[row]],
                    dict(zip(columns, values[row], strict=True)) if columns else {},
                    apart[row],
                    beyond[row],
                )
            )

    def _clock(self, partition: int, offset: int, watermark: int) -> int | None:
        """Return the clock behind a watermark, None if it was raised, or is of no fixed delay."""
        known = self._graph.watermark_of(partition)
        is_raised = int(self._settings.bounds.at(partition, np.array([offset]))[0]) == watermark
        is_known = watermark > FIRST_TIME and not is_raised
        return watermark + known.micros if isinstance(known, m.Delay | m.Readings) and is_known else None
