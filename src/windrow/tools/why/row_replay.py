"""Replays the log for a single row, through the operator that computes the row and with only the records of its key.

Verdicts depend on the clocks of whole partitions, so every record is read and decoded. The row's operator receives only
records of the row's key, and only those of its window if the event time alone determines the window. An operator keeps
the state of each key and window apart, so it computes the same verdicts and the same row as the run did.

If the row's operator reads records of a log, nothing more is needed: its records are listed as the operator judges
them, and each row of a flat map is listed separately. Any other row is traced back through its operators
(`windrow.tools.why.row_lineage`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, zip_longest
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.source import Source
from windrow.connectors.tables import plain_rows, plain_values
from windrow.engine.changelog import source_numbers, with_numbers
from windrow.engine.columns import FIRST_TIME, MIN_TIME, pack, to_micros, unpack
from windrow.engine.decode.decoder import log_times_inside
from windrow.engine.messages import DeadLetters, EndOfInput, Message, Packet, PartialPanes, PartitionIdle, Records
from windrow.engine.operators.base import GroupOutput, GroupStats, Judged, Mask
from windrow.engine.probe import NodeStep, NoProbe
from windrow.engine.schema import END, OFFSET, PARTITION, RAW, TIME, WATERMARK, WINDOW, raw_table
from windrow.engine.truncations import are_truncations
from windrow.engine.windows import window_bounds
from windrow.errors import StoppedError
from windrow.runtime.batch.plan import BatchPlan, BatchSettings
from windrow.runtime.memory import MemoryHost
from windrow.telemetry.facts import PartitionName
from windrow.telemetry.samples import Verdict
from windrow.tools.why.target import RowTarget, TargetRow, has_values, iso_time

RECORDS: Final = 10_000
"""Limit of listed records, on time and others each; more are only counted."""
DEAD: Final = 20
"""Dead letters that are listed."""
STEP: Final = 100_000
"""Records of a step of the replay, which stops between packets and operators."""
LOG_TIME: Final = "__log_time"
"""The log timestamp of a record (microseconds), or null."""
APART, BEYOND = "__apart", "__beyond"
"""Distance of a record from that of a join, and how far it is beyond the interval (microseconds)."""
_LOG_TIMES: Final = 100_000
_LOG_TIMES_PER_RECORD: Final = 4
"""Log timestamps that are kept for records that are judged in a later step: a minimum, and for each listed record."""
IN_TIME: Final = ("on_time", "taken", "truncation")
VERDICTS: Final = ("on_time", "taken", "late", "expired", "duplicate", "outside", "truncation")
"""The verdicts on records, as `Explanation.counts` has them."""


@dataclass(frozen=True)
class ExplainedRecord:
    """A record of the row's key and window; times are microseconds, and `values` are its inputs to the row.

    `watermark` is the watermark of its partition when it arrived, against which it was judged; None if there was none.
    `clock` is the greatest event time in the partition before it, or None if that does not determine the watermark: if
    a partition joins late or was idle, its watermark is raised to the low watermark. `window_end` is the end of the
    row's window, or None if another operator judged the record.

    The verdict is `duplicate` for a record that a deduplication drops, `taken` for a record in a table, which judges
    none, and `truncation` for a record that removes all rows of a table. A record is `outside` if a join found no
    partner for its key within the interval: `apart` is its distance in event time from the record on the other side
    (negative if it is earlier), and `beyond` its distance from the interval.
    """

    partition: PartitionName
    offset: int
    event_time: int
    log_time: int | None
    watermark: int | None
    clock: int | None
    window_end: int | None
    verdict: Verdict | Literal["duplicate", "taken", "outside", "truncation"]
    values: Mapping[str, Any]
    apart: int | None = None
    beyond: int | None = None


@dataclass(frozen=True)
class ExplainedDeadLetter:
    """A dead letter that may have the row's key, because its text contains the values of the key.

    `partition` and `offset` are None for a row that an operator made.
    """

    partition: PartitionName | None
    offset: int | None
    log_time: int | None
    reason: str
    raw: str | None


def _steps(source: Source, plan: BatchPlan) -> Iterator[pa.Table]:
    """Yield the records of each step of a plan as they are read."""
    readers = {partition: iter(source.read_from(partition, begin)) for partition, begin in plan.begin.items()}
    rest: dict[int, pa.RecordBatch] = {}
    for upto in plan.cut.upto:
        batches: list[pa.RecordBatch] = []
        for partition, reader in readers.items():
            for batch in chain([rest.pop(partition)] if partition in rest else [], reader):
                number = int(np.searchsorted(to_micros(batch.column("offset")), upto[partition]))
                batches.append(batch.slice(0, number))
                if number < batch.num_rows:
                    rest[partition] = batch.slice(number)
                    break
        yield raw_table(batches)


class _StepProbe(NoProbe):
    """Calls a function with the step of each operator."""

    def __init__(self, see: Callable[[NodeStep], None]) -> None:
        self._see = see

    def step(self, step: NodeStep) -> None:
        self._see(step)


class RowHost(MemoryHost):
    """Runs a pipeline for a single row and lists the verdicts of its operator.

    It stops soon after `is_stopped` returns True.
    """

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
        # with an exchange before each operator, where `kept` drops records
        exchanged = replace(graph, key_groups=1, copartitions=False)
        super().__init__(exchanged, plan.partitions, settings.bounds, probe=partial(_StepProbe, self._see))
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
            if not isinstance(graph.source_of(partition).source.records, m.KafkaSource)
        ]
        """The partitions whose records can have their log timestamp inside."""
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
        """The listed records, ordered by partition and offset; the limit is shared between the sources."""
        chosen: list[ExplainedRecord] = []
        for is_on_time in (True, False):
            found = [self._found[source, is_on_time] for source in range(len(self._graph.sources))]
            in_turn = (record for turn in zip_longest(*found) for record in turn if record is not None)
            chosen += islice(in_turn, self._most)
        return sorted(chosen, key=lambda record: (str(record.partition), record.offset))

    @property
    def low(self) -> int | None:
        """The low watermark of all sources after the last step."""
        return None if self._stats is None or self._stats.low == MIN_TIME else self._stats.low

    @property
    def notes(self) -> Iterator[str]:
        """Notes about the listed records."""
        if self._is_hidden:
            yield "records that the deduplication drops are not listed, because the key is computed after it"

    def run(self, source: Source) -> None:
        """Read the log through the operators behind the row; raise StoppedError if it is stopped."""
        for number, raw in enumerate(_steps(source, self._plan)):
            self._check_stopped()
            self._raw = raw
            self._keep(self.step(raw))
            control = self._plan.cut.control.get(number, ())
            if any(isinstance(message, PartitionIdle) for message in control):
                self._keep(self.rest(self._settings.idle_at_end))
            if EndOfInput() in control:
                self._keep(self.end())

    def _check_stopped(self) -> None:
        if self._is_stopped():
            raise StoppedError

    def _keep(self, groups: Sequence[GroupOutput]) -> None:
        """Keep the changes of the row, and dead letters that may have its key."""
        for group in groups:
            self._stats = group.stats
            output = group.by_sink[self._target.sink.name]
            # the others were dropped on their way to the last level
            self._look_at(with_numbers(self._graph, output.dead))
            changes = self._row.changes(output.changes, is_session=isinstance(self._target.window, m.Session))
            if changes.num_rows:
                self._changes.append(changes)

    def result(self) -> tuple[dict[str, Any] | None, list[tuple[str, str]]]:
        """Return the row that results from its changes (or None), and the windows of other sessions that overlap it."""
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
        window = None if self._row.window is None else tuple(map(iso_time, self._row.window))
        for row in rows.values():
            if window is not None and (row["window_start"], row["window_end"]) != window:
                others.append((row["window_start"], row["window_end"]))
            elif "revision" not in identity or self._row.revision in {None, row["revision"]}:
                found = row
        return found, others

    def kept(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Drop records of other keys and of operators that have no effect on the row."""
        for packet in packets:
            self._check_stopped()
            message: Message | None = packet.message
            match message:
                case Records(to, blob):
                    message = self._filter_records(message, to, unpack(blob)) if to in self._needed else None
                case PartialPanes(to) if to not in self._needed:
                    message = None
                case DeadLetters(blob=blob):
                    self._look_at(unpack(blob))
                    message = None
                case _:
                    pass
            if message is not None:
                yield Packet(packet.key_group, message)

    def _filter_records(self, message: Records, to: str, records: pa.Table) -> Records | None:
        """Return the records for an operator; the row's own operator gets only records of the row's key and time."""
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
        """Return a mask of the records that have the key and, if time alone determines the window, are in it."""
        mask = has_values(records, self._row.key)
        if self._target.is_by_time and self._row.window is not None:
            mask &= self._is_in_window(records)
        return mask

    def _note_log_times(self, records: pa.Table) -> None:
        """Keep the log timestamps of records just read, because they may be judged in a later step."""
        room = max(_LOG_TIMES, _LOG_TIMES_PER_RECORD * self._most) - len(self._log_times)
        if not records.num_rows or room <= 0:
            return
        records = records.slice(0, room)
        places = zip(*(records.column(name).to_pylist() for name in (PARTITION, OFFSET)), strict=True)
        self._log_times.update(zip(places, self._log_times_of(records).to_pylist(), strict=True))

    def _log_times_of(self, records: pa.Table) -> pa.Array:
        """Return the log timestamps of records in microseconds, null for records that were not read in this step."""
        read, own = (
            [to_micros(column.cast(pa.int64())) for column in (table.column(partition), table.column(offset))]
            for table, partition, offset in ((self._raw, "partition", "offset"), (records, PARTITION, OFFSET))
        )
        rows = np.full(records.num_rows, -1)
        for number in np.unique(own[0]).tolist():
            of_read, of_own = np.flatnonzero(read[0] == number), np.flatnonzero(own[0] == number)
            places = np.searchsorted(read[1][of_read], own[1][of_own])
            is_read = places < len(of_read)
            is_read[is_read] = read[1][of_read][places[is_read]] == own[1][of_own][is_read]
            rows[of_own[is_read]] = of_read[places[is_read]]
        places, is_text = pa.array(rows, mask=rows < 0), np.isin(own[0], self._texts_of)
        log_times = self._raw.column("log_time").cast(pa.int64()).combine_chunks().take(places)
        if not is_text.any():
            return log_times
        values = self._raw.column("value").combine_chunks().take(places)
        return log_times_inside(pc.if_else(pa.array(is_text), values, pa.scalar(None, values.type)), log_times)

    def _look_at(self, dead: pa.Table) -> None:
        """List dead letters that may have the key."""
        mask = np.ones(dead.num_rows, dtype=np.bool_)
        raw = dead.column("raw")
        for text in self._texts:
            # also as JSON may write it
            forms = {text, json.dumps(text)[1:-1]}
            has = [pc.match_substring(raw, form).fill_null(False).to_numpy() for form in forms]  # noqa: FBT003 - Arrow's
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
        """List the verdicts of the row's operator, and the records that upstream deduplications drop."""
        self._check_stopped()
        if seen.node == self._target.node.name:
            for judged in seen.judged:
                self._list_judged(judged)
            if isinstance(self._target.node, m.TableNode) and seen.given.num_rows:
                truncated = are_truncations(seen.given)
                are = np.zeros(seen.given.num_rows) if truncated is None else truncated.to_numpy()
                self._add(seen.given, np.where(are, "truncation", "taken").tolist())
        elif seen.node in self._target.above:
            for duplicates in seen.made.records[1:]:
                self._list_dropped(duplicates, "duplicate")
            for judged in seen.judged:
                # by the lateness of its source
                self._list_dropped(judged.records, "expired")

    def _list_dropped(self, records: pa.Table, verdict: Verdict | Literal["duplicate"]) -> None:
        """List records that do not reach the row's operator."""
        if self._has_key(records):
            records = records.filter(pa.array(self._is_own(records) & self._is_near(records)))
            self._add(records, [verdict] * records.num_rows)
        elif records.num_rows:
            self._is_hidden = True

    def _list_judged(self, judged: Judged) -> None:
        """List the verdicts for the row's window."""
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
        """Return a mask of the records in the row's session, or of all records if the window is not a session."""
        if not isinstance(self._target.window, m.Session) or self._row.window is None:
            return np.ones(records.num_rows, dtype=np.bool_)
        return self._is_in_window(records)

    def _is_in_window(self, records: pa.Table) -> Mask:
        """Return a mask of the records whose event time is in the row's window."""
        start, end = self._row.window or (0, 0)
        times = to_micros(records.column(TIME))
        mask: Mask = (times >= start) & (times < end)
        return mask

    def _add(self, records: pa.Table, verdicts: Sequence[Any]) -> None:
        """Count records that the row's operator has judged, and list them up to the limit."""
        sources = source_numbers(self._graph, records.column(PARTITION)).tolist()
        self.counts.update(zip(sources, verdicts, strict=True))
        self._list(records, verdicts, self._target.values, is_of_row=True)

    def _list(self, records: pa.Table, verdicts: Sequence[Any], named: Mapping[str, str], *, is_of_row: bool) -> None:
        """List records up to the limit of their source, with the values of the columns in `named`.

        `is_of_row` is True if the row's window has judged them.
        """
        window_end = self._row.window[1] if is_of_row and self._row.window is not None else None
        sources = source_numbers(self._graph, records.column(PARTITION)).tolist()
        kinds = [(source, verdict in IN_TIME) for source, verdict in zip(sources, verdicts, strict=True)]
        room = {kind: self._most - len(self._found[kind]) for kind in set(kinds)}
        chosen = []
        for row, kind in enumerate(kinds):
            room[kind] -= 1
            if room[kind] >= 0:
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
        """Return the clock that a watermark follows, or None if the watermark was raised or has no fixed delay."""
        known = self._graph.watermark_of(partition)
        is_raised = int(self._settings.bounds.at(partition, np.array([offset]))[0]) == watermark
        is_known = watermark > FIRST_TIME and not is_raised
        return watermark + known.micros if isinstance(known, m.Delay | m.Readings) and is_known else None
