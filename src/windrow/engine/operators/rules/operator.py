"""The rules operator: judges each record by a pipeline's rules, and revises alerts when a late record arrives.

It keeps two kinds of rows in runs (`windrow.engine.state.runs`): records, each until no judgement can see it any more,
and the alerts that a late record can still revise. Each run is sorted by the hash of the series (`SERIES`), which
consists of the records of a key in a partition. So a step reads and writes little more than the rows of its own series.

Rows that are kept longer than needed have no effect. Let F be the partition's watermark less the lateness. Every record
that is still to come and does not expire has an event time after F, so no record up to F is judged again. Of the
records up to F, a series needs only the newest `last` records that are less than `within` before F.

If a rule uses `next`, the newest record up to F is judged again for as long as a record after it can arrive, which
extends the period by `within`. Then a series also needs the `last` records before that record, and alerts are kept for
that much longer. So are ids, because another record with the id of a record that is still judged would share its alert.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.changelog import late_output
from windrow.engine.columns import MAX_TIME, MIN_TIME, Micros, distinct, pack, to_micros, unpack
from windrow.engine.decode.field_columns import all_but
from windrow.engine.keys import hashable, key_numbers
from windrow.engine.merged_order import in_log_order
from windrow.engine.messages import DeadLetters, Packet
from windrow.engine.operators.base import Judged, Operator, OperatorOutput, OperatorStep, add_own_windows
from windrow.engine.operators.dead_letters import DeadLetterTable, RowDeadLetters
from windrow.engine.operators.rules.histories import Judgements, Mask, OrderedRecords, Places, ranges
from windrow.engine.operators.rules.judge import Finding, Versions, alert_id, value_text
from windrow.engine.schema import OFFSET, PARTITION, TIME, WATERMARK, record_schema
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState
from windrow.engine.state.runs import Runs
from windrow.engine.state.store import BlobStore, MemoryState, OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.expressions import RulesSpec, emitted_rows, spec_of

SERIES: Final = "__card"
"""The column with the hash of the series; its name is part of the stored state."""
_STANDS: Final = "__stands"
_TWO: Final = 2
_RECORDS, _ALERTS = "records", "alerts"
_MOST: Final = 1 << 14
"""Maximum number of judgements in one evaluation."""


@dataclass
class RulesSummary:
    """The summary of the operator's state: its runs, and the watermark at the last record of each partition.

    The watermarks cover the records of the key group. For each partition, records up to `forgotten_until` expired
    before the run resumed with a longer lateness, and remain expired.
    """

    records: Runs
    alerts: Runs
    watermarks: dict[int, int] = field(default_factory=dict)
    forgotten_until: dict[int, int] = field(default_factory=dict)

    def encode(self) -> dict[str, Any]:
        """Return the summary as plain JSON."""
        return {
            "records": self.records.encode(),
            "alerts": self.alerts.encode(),
            "watermarks": list(self.watermarks.items()),
            "forgotten_until": list(self.forgotten_until.items()),
        }

    @staticmethod
    def decode(fields: Any) -> RulesSummary:  # noqa: ANN401 - plain JSON, None at first
        """Read the JSON that `encode` returned; None gives an empty summary."""
        known = fields or {}
        return RulesSummary(
            Runs.decode(_RECORDS, known.get("records")),
            Runs.decode(_ALERTS, known.get("alerts")),
            dict(known.get("watermarks", ())),
            dict(known.get("forgotten_until", ())),
        )

    def advance(self, partitions: Places, watermarks: Micros) -> None:
        """Advance the watermarks of partitions to the watermarks at the given records."""
        for partition in distinct(partitions):
            at = int(watermarks[partitions == partition].max())
            self.watermarks[partition] = max(self.watermarks.get(partition, MIN_TIME), at)

    def expired_until(self, partitions: Places, watermarks: Micros, lateness: int) -> Micros:
        """Return, for each record, the time up to which records of its partition expire at its watermark."""
        until = _less(watermarks, lateness)
        for partition, forgotten in self.forgotten_until.items():
            until = np.where(partitions == partition, np.maximum(until, forgotten), until)
        return until

    def passed(self, partitions: Places, lateness: int) -> Micros:
        """Return, for each row, the time up to which no record of its partition can arrive any more."""
        known = np.array(sorted(self.watermarks.items()), dtype=np.int64).reshape(-1, 2)
        return self.expired_until(partitions, known[np.searchsorted(known[:, 0], partitions), 1], lateness)

    def all_passed(self, lateness: int) -> int:
        """Return the time up to which no record of any partition can arrive any more."""
        until = self.passed(np.array(sorted(self.watermarks), dtype=np.int64), lateness)
        return int(until.min()) if len(until) else -MAX_TIME

    def forget(self, lateness: int) -> None:
        """Set `forgotten_until` of all partitions, given the old lateness, which is shorter than the new one."""
        for partition in self.watermarks:
            self.forgotten_until[partition] = int(self.passed(np.array([partition]), lateness)[0])


def _less(times: Micros, by: int) -> Micros:
    return np.where(times <= MIN_TIME + by, -MAX_TIME, times - by)


@dataclass(frozen=True)
class _Alert:
    """An alert after its last change: its revision, its last row, and whether it stands or has been cleared."""

    revision: int
    row: tuple[Any, ...]
    stands: bool


_Row = tuple[Any, ...]
"""A change of an alert (operation, pane, revision, and the values of its row), or only the values of a row."""


def _revise(before: _Alert | None, row: _Row | None, pane: str) -> tuple[_Alert, list[_Row]] | None:
    """Return the alert after a new row (None to clear it), with its changes; return None if nothing changes."""
    old = before.row if before is not None and before.stands else None
    revision = 0 if before is None else before.revision + 1
    if old is not None and row is None:
        return _Alert(revision, old, stands=False), [("delete", pane, revision, *old)]
    if row is None or row == old:
        return None
    alert = _Alert(revision, row, stands=True)
    if old is None:
        return alert, [("insert", pane, revision, *row)]
    return alert, [("update_before", pane, revision - 1, *old), ("update_after", pane, revision, *row)]


@dataclass(frozen=True)
class _Subject:
    """The record that alerts refer to: the hash of its series, its position, event time and key, and its id or None."""

    series: int
    partition: int
    offset: int
    time: int
    key: _Row
    id: str | None

    @property
    def name(self) -> str:
        """The name of the record in the alert table: its id, or its partition and offset."""
        return f"{self.partition}:{self.offset}" if self.id is None else self.id

    def row(self, pipeline: str, rule: m.Rule, hashed: str, finding: Finding, before: _Alert | None) -> _Row:
        """Return the row of an alert; an existing alert keeps its identity."""
        # without an id, the name already includes the partition
        partition = 0 if self.id is None else self.partition
        identity = alert_id(pipeline, rule.name, self.key, self.name, partition) if before is None else before.row[0]
        about = (*self.key, self.name, self.time, finding.text, finding.evidence)
        return (identity, rule.name, rule.severity, hashed, *about)


@dataclass(frozen=True)
class _Known:
    """The records of a step, after the stored records of their series, with the needed columns.

    `table` starts with `stored` rows of stored records. `series` has the series number of each row, and `watermarks`
    the watermark at each new record. A new record that repeats an earlier one is not accepted; `repeats` maps its row
    to whether the content differs.
    """

    table: pa.Table
    series: Places
    stored: int
    is_accepted: Mask
    watermarks: Micros
    repeats: Mapping[int, bool]

    def column(self, name: str) -> Micros:
        return to_micros(self.table.column(name))


_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_OTHER_CONTENT: Final = "repeated id, other content"


def build_rules(graph: m.Graph, node: m.RulesNode) -> Operator:
    """Return the operator for a rules node."""
    spec = spec_of(graph, node)
    return RulesOperator(spec, RowDeadLetters(graph, node.input, spec.decode.fields, spec.key))


class RulesOperator:
    """Judges records in log order; `histories` defines the records that a judgement sees."""

    state: Final[Mapping[str, StoreKind]] = {_RECORDS: "runs", _ALERTS: "runs"}

    def __init__(self, spec: RulesSpec, dead_letters: DeadLetterTable) -> None:
        rules = self._rules = spec.node.rules
        self._dead_letters = dead_letters
        self._spec = spec
        self._duck = duckdb_sql.Connection()
        versions = self._versions = Versions(spec)
        self._ahead = versions.within if versions.sees_next else 0
        """How far before F, in microseconds, a record can be that is judged again."""
        records = record_schema(spec)
        self._names = [name for name in records.names if name != WATERMARK]
        self._stored = pa.schema([pa.field(SERIES, pa.int64()), *(records.field(name) for name in self._names)])
        self._changes = schema.changes(emitted_rows(spec))
        self._row = pa.schema(list(self._changes)[self._changes.names.index("alert_id") :])
        self._alerts = pa.schema(
            [
                *(self._stored.field(name) for name in (SERIES, PARTITION, OFFSET, TIME)),
                pa.field(_STANDS, pa.bool_()),
                self._changes.field("revision"),
                *self._row,
            ]
        )
        unique = [] if rules.unique is None else [rules.unique]
        needed = dict.fromkeys([*spec.key, *unique, *self._versions.fields])
        self._fields = [name for name in self._names if name not in (PARTITION, OFFSET, TIME)]
        self._needed = [SERIES, PARTITION, OFFSET, TIME, *needed]

    def change_lists(self, changes: Iterable[m.ListChange]) -> None:
        """Change lists for the records that are still to come."""
        self._versions.add(changes)

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        if not step.records.num_rows:
            state.summary = state.summary or RulesSummary.decode(None).encode()
            return OperatorOutput(self._changes.empty_table())
        summary = RulesSummary.decode(state.summary)
        records = in_log_order(step.records)
        watermarks, times = to_micros(records.column(WATERMARK)), to_micros(records.column(TIME))
        summary.advance(to_micros(records.column(PARTITION)), watermarks)
        expired_until = summary.expired_until(to_micros(records.column(PARTITION)), watermarks, self._rules.lateness)
        is_expired = times <= expired_until
        judged = Judged(records, watermarks < times, is_expired)
        expired = records.filter(pa.array(is_expired)) if is_expired.any() else records.slice(0, 0)
        if expired.num_rows:
            records = records.filter(pa.array(~is_expired))
            watermarks, expired_until = watermarks[~is_expired], expired_until[~is_expired]
        new = records.select(self._names).add_column(0, SERIES, pa.array(self._hash_series(records)))
        known = self._known(summary, new, watermarks, expired_until, state)
        changes, failed = self._judge(known, summary, state)
        accepted = new.filter(pa.array(known.is_accepted)) if known.repeats else new
        self.add(summary, _RECORDS, accepted, state)
        state.summary = summary.encode()
        reasons = {row: _OTHER_CONTENT for row, is_other in known.repeats.items() if is_other} | failed
        packets: tuple[Packet, ...] = ()
        if rows := sorted(reasons):
            dead = self._dead_letters(new.take(pa.array(rows)), [reasons[row] for row in rows])
            packets = (Packet(step.group, DeadLetters(state.name, pack(dead))),)
        return OperatorOutput(
            changes=_to_table(self._changes, changes),
            late=late_output(self._duck, self._spec, add_own_windows(expired)),
            late_records=int(np.count_nonzero((watermarks >= to_micros(new.column(TIME))) & known.is_accepted)),
            duplicates=sum(not is_other for is_other in known.repeats.values()),
            packets=packets,
            judged=(judged,),
        )

    def _hash_series(self, records: pa.Table) -> Places:
        """Return a hash of the series of each record."""
        hashed = to_micros(records.column(PARTITION)).astype(np.uint64)
        for name in self._spec.key:
            hashed = (hashed * _FACTOR) ^ hashable(records.column(name)).astype(np.uint64)
        return (hashed * _FACTOR).view(np.int64)

    def _known(
        self, summary: RulesSummary, new: pa.Table, watermarks: Micros, expired_until: Micros, state: BlobStore
    ) -> _Known:
        """Return the records of a step together with the stored records of their series."""
        pieces = list(_find_rows(summary.records.read(state), np.unique(to_micros(new.column(SERIES)))))
        parts = [table.select(self._needed).take(pa.array(rows)) for table, rows in pieces]
        table = pa.concat_tables([*parts, new.select(self._needed)]).combine_chunks()
        stored = table.num_rows - new.num_rows
        numbers = key_numbers(table.select([PARTITION, *self._spec.key]))
        repeats: dict[int, bool] = {}
        if self._rules.unique is not None:
            times = to_micros(table.column(TIME))
            passed = np.concatenate([np.full(stored, MAX_TIME), _less(expired_until, self._ahead)])
            found = self._repeats(table, numbers, times, passed, stored)
            if found:
                rows_of = pa.concat_tables([*(part.take(pa.array(rows)) for part, rows in pieces), new])
                for row, first in found.items():
                    pair = rows_of.select(self._fields).take(pa.array([row, first])).to_pylist()
                    repeats[row - stored] = pair[0] != pair[1]
        return _Known(table, numbers, stored, all_but(new.num_rows, repeats), watermarks, repeats)

    def _repeats(self, table: pa.Table, series: Places, times: Micros, passed: Micros, stored: int) -> dict[int, int]:
        """Map each new record that repeats the id of an earlier record of its series to the row of that record.

        An id is remembered as long as a copy of its record would not be expired, or the record can still be judged
        again. `passed` is, for each record, the time up to which neither is the case. Only records whose id occurs
        twice are examined one by one.
        """
        near = np.flatnonzero(times > passed[stored:].min(initial=MAX_TIME))
        near = np.union1d(near, np.arange(stored, len(series)))
        encoded = table.column(self._rules.unique).take(pa.array(near)).combine_chunks().dictionary_encode()
        names = series[near] * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
        _, groups, counts = np.unique(names, return_inverse=True, return_counts=True)
        contested = np.flatnonzero(counts[groups] > 1)
        earlier: defaultdict[int, list[int]] = defaultdict(list)
        found: dict[int, int] = {}
        # stored records come first, then the new ones in the order of the log
        for row, group in zip(near[contested].tolist(), groups[contested].tolist(), strict=True):
            first = next((other for other in earlier[group] if row >= stored and times[other] > passed[row]), None)
            if first is None:
                earlier[group].append(row)
            else:
                found[row] = first
        return found

    def _judge(self, known: _Known, summary: RulesSummary, state: BlobStore) -> tuple[list[_Row], dict[int, str]]:
        """Return the changes of a step, and the reason for each new record whose rules failed."""
        order = self._order(known)
        times, offsets = known.column(TIME)[order], known.column(OFFSET)[order]
        records = OrderedRecords(known.series[order], times, offsets, order >= known.stored)
        judged = records.judgements(
            self._versions.within, revise=self._rules.revise, sees_next=self._versions.sees_next
        )
        numbers = self._version_numbers(known, order[judged.records])
        found: dict[tuple[int, int], Finding] = {}
        failed: dict[int, str] = {}
        for number in np.unique(numbers).tolist():
            version = self._versions.all[number]
            recent = version.rules.recent
            rows = np.flatnonzero(numbers == number)
            for first in range(0, len(rows), _MOST):
                these = rows[first : first + _MOST]
                some = judged.take(these)
                histories = records.histories(some, recent.within, recent.last, sees_next=version.sees_next)
                verdicts = version.judge.judge(known.table, order, some.records, histories)
                found |= {(int(these[row]), rule): finding for (row, rule), finding in verdicts.found.items()}
                failed |= {int(these[row]): why for row, why in verdicts.failed.items()}
        own = int(np.count_nonzero(records.is_new))
        reasons = {int(order[judged.records[row]]) - known.stored: why for row, why in failed.items() if row < own}
        revised = np.unique(judged.records[own:])
        alerts = self._stored_alerts(known, order[revised], summary, state) if len(revised) else {}
        if not found and not alerts:
            return [], reasons
        changes, changed = self._change_alerts(known, order, judged, found, alerts)
        if self._rules.revise:
            self.add(summary, _ALERTS, self._alert_rows(changed), state)
        return changes, reasons

    def _version_numbers(self, known: _Known, rows: Places) -> Places:
        """Return the number of the rules version that judges each record."""
        return self._versions.numbers(known.column(PARTITION)[rows], known.column(OFFSET)[rows])

    def _order(self, known: _Known) -> Places:
        """Return the accepted records sorted by series, event time, and id (or offset if records have no id)."""
        times, offsets = (to_micros(known.table.column(name)) for name in (TIME, OFFSET))
        order = np.lexsort([offsets, times, known.series])
        if known.repeats:
            is_accepted = np.concatenate([np.ones(known.stored, dtype=np.bool_), known.is_accepted])
            order = order[is_accepted[order]]
        if self._rules.unique is None or len(order) < _TWO:
            return order
        is_tied = (times[order][1:] == times[order][:-1]) & (known.series[order][1:] == known.series[order][:-1])
        if is_tied.any():
            places = np.flatnonzero(np.append(is_tied, [False]) | np.concatenate([[False], is_tied]))
            rows = order[places]
            ids = known.table.column(self._rules.unique).take(pa.array(rows)).combine_chunks()
            ranks = pc.rank(ids, tiebreaker="dense").to_numpy()
            order[places] = rows[np.lexsort([offsets[rows], ranks, times[rows], known.series[rows]])]
        return order

    def _stored_alerts(
        self, known: _Known, rows: Places, summary: RulesSummary, state: BlobStore
    ) -> dict[tuple[int, str], _Alert]:
        """Return the alerts of the given records before the step, by row and rule."""
        taken = known.table.select([PARTITION, OFFSET]).take(pa.array(rows))
        places = dict(zip(_rows(taken, taken.column_names), rows.tolist(), strict=True))
        found: dict[tuple[int, str], _Alert] = {}
        for table, at in _find_rows(summary.alerts.read(state), np.unique(known.column(SERIES)[rows])):
            some = table.take(pa.array(at))
            place = some.column_names.index("event_time")
            some = some.set_column(place, "event_time", some.column(place).cast(pa.int64()))
            about = _rows(some, (PARTITION, OFFSET, _STANDS, "revision", "rule"))
            for (partition, offset, stands, revision, rule), row in zip(
                about, _rows(some, self._row.names), strict=True
            ):
                if (partition, offset) in places:
                    found[places[partition, offset], rule] = _Alert(revision, row, stands)
        return found

    def _change_alerts(
        self,
        known: _Known,
        order: Places,
        judged: Judgements,
        found: Mapping[tuple[int, int], Finding],
        alerts: Mapping[tuple[int, str], _Alert],
    ) -> tuple[list[_Row], list[tuple[_Subject, _Alert]]]:
        """Return the changes of alerts in the order of their causes, and the alerts that have changed.

        `found` has the findings by judgement and rule number, and `alerts` the alerts before the step by row and rule
        name.
        """
        rows, causes = order[judged.records], order[judged.causes]
        concerned = {int(rows[number]) for number, _ in found} | {row for row, _ in alerts}
        numbers = np.flatnonzero(np.isin(rows, list(concerned)))
        keys = [judged.records, judged.moments, known.column(OFFSET)[causes], known.column(PARTITION)[causes]]
        numbers = numbers[np.lexsort([key[numbers] for key in keys])]
        subjects = self._subjects(known, sorted(concerned))
        is_on_time = known.column(TIME)[known.stored :] > known.watermarks
        versions = [self._versions.all[number] for number in self._version_numbers(known, rows[numbers]).tolist()]
        changes: list[_Row] = []
        now = dict(alerts)
        changed: dict[tuple[int, str], None] = {}
        for number, version in zip(numbers.tolist(), versions, strict=True):
            row = int(rows[number])
            pane = "on_time" if row == causes[number] and is_on_time[row - known.stored] else "late"
            for place, rule in enumerate(version.rules.rules):
                finding, name = found.get((number, place)), (row, rule.name)
                made = None
                if finding is not None:
                    hashed = version.hashes[place]
                    made = subjects[row].row(self._spec.pipeline, rule, hashed, finding, now.get(name))
                after = _revise(now.get(name), made, pane)
                if after is not None:
                    now[name], own_changes = after
                    changes += own_changes
                    changed[name] = None
        return changes, [(subjects[name[0]], now[name]) for name in changed]

    def _subjects(self, known: _Known, rows: list[int]) -> dict[int, _Subject]:
        """Map each of the given rows to its record."""
        unique = self._rules.unique
        table = known.table.select(self._needed).take(pa.array(rows, pa.int64()))
        places = (to_micros(table.column(name)).tolist() for name in (SERIES, PARTITION, OFFSET, TIME))
        ids = [None] * len(rows) if unique is None else map(value_text, table.column(unique).to_pylist())
        fields = zip(*places, _rows(table, self._spec.key), ids, strict=True)
        return {row: _Subject(*values) for row, values in zip(rows, fields, strict=True)}

    def _alert_rows(self, alerts: Iterable[tuple[_Subject, _Alert]]) -> pa.Table:
        rows = [
            (of.series, of.partition, of.offset, of.time, alert.stands, alert.revision, *alert.row)
            for of, alert in alerts
        ]
        return _to_table(self._alerts, rows)

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - the state depends on the partitions' watermarks alone
        """Migrate records and alerts to the key groups of their keys; records that have expired remain expired."""
        groups = RowsByKeyGroup(self._spec, self._duck)
        # a watermark bounds the future records of its partition in all key groups
        together = RulesSummary(Runs(_RECORDS), Runs(_ALERTS))
        for summary, state in states:
            known = RulesSummary.decode(summary)
            for partition, at in known.watermarks.items():
                together.watermarks[partition] = max(together.watermarks.get(partition, MIN_TIME), at)
            together.forgotten_until |= known.forgotten_until
            for (kind, _), blob in sorted(state.items()):
                # the order of fields may have changed
                names = self._stored.names if kind == _RECORDS else self._alerts.names
                groups.add((kind, 0), unpack(blob).select(names))
        if self._rules.lateness > change.lateness:
            together.forget(change.lateness)
        made: list[StoredState] = []
        for tables in groups.tables():
            summary, store = RulesSummary.decode(together.encode()), MemoryState()
            for (kind, _), table in tables.items():
                self.add(summary, kind, table, store)
            made.append((summary.encode(), store))
        return made

    def add(self, summary: RulesSummary, kind: str, rows: pa.Table, state: BlobStore) -> None:
        """Add rows of a kind to the state, and drop rows that are no longer needed."""
        all_passed = np.array(summary.all_passed(self._rules.lateness))
        judged_until = int(_less(all_passed, self._ahead))
        if kind == _ALERTS:
            summary.alerts.add(rows, judged_until, state, partial(self._needed_alerts, summary))
        else:
            after = int(_less(np.array(judged_until), self._versions.within))
            summary.records.add(rows, after, state, partial(self._needed_records, summary))

    def _needed_records(self, summary: RulesSummary, rows: pa.Table, _: bool) -> pa.Table:  # noqa: FBT001 - a callback
        """Return the records of runs that judgements can still see, by series and event time."""
        last = self._versions.last + self._versions.sees_next
        series, times = (to_micros(rows.column(name)) for name in (SERIES, TIME))
        order = np.lexsort([times, series])
        series, times = series[order], times[order]
        starts = np.flatnonzero(np.concatenate([[True], series[1:] != series[:-1]]))
        counts = np.diff(np.append(starts, len(series)))
        if counts.max(initial=0) > last:
            passed = summary.passed(to_micros(rows.column(PARTITION))[order], self._rules.lateness)
            # records up to F are the first of each series; the newest `last` of them are needed
            below = np.add.reduceat((times <= passed).astype(np.int64), starts)
            oldest = times[starts + np.maximum(below - last, 0)]
            is_needed = times >= np.repeat(oldest, counts)
            is_needed &= times > _less(passed, self._versions.within + self._ahead)
            if self._versions.sees_next and self._rules.unique is not None:
                is_needed |= times > _less(passed, self._ahead)
            order = order[is_needed]
        return rows.take(pa.array(order))

    def _needed_alerts(self, summary: RulesSummary, rows: pa.Table, _: bool) -> pa.Table:  # noqa: FBT001 - a callback
        """Return the newest row of each alert in runs that can still be revised, by series."""
        newest = {name: number for number, name in enumerate(_rows(rows, (PARTITION, OFFSET, "rule")))}
        series = to_micros(rows.column(SERIES))
        passed = _less(summary.passed(to_micros(rows.column(PARTITION)), self._rules.lateness), self._ahead)
        places = np.array(list(newest.values()), dtype=np.int64)
        places = places[to_micros(rows.column(TIME))[places] > passed[places]]
        return rows.take(pa.array(places[np.argsort(series[places], kind="stable")]))


def _rows(table: pa.Table, names: Iterable[str]) -> Iterator[_Row]:
    """Return an iterator over rows, as tuples of the Python values of the named columns."""
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


def _to_table(fields: pa.Schema, rows: Sequence[_Row]) -> pa.Table:
    """Convert rows of Python values to a table."""
    if not rows:
        return fields.empty_table()
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(values, type_) for values, type_ in zip(columns, fields.types, strict=True)], schema=fields
    )


def _find_rows(tables: Iterable[pa.Table], series: Places) -> Iterator[tuple[pa.Table, Places]]:
    """Yield each table that has rows of the given series, with the numbers of these rows.

    The tables must be sorted by series.
    """
    for table in tables:
        own = to_micros(table.column(SERIES))
        firsts, ends = (np.searchsorted(own, series, side=side) for side in ("left", "right"))
        rows, _ = ranges(firsts, ends)
        if len(rows):
            yield table, rows
