"""The session operator: runs a step, and stores the fragments of its keys in buckets.

The state of a key group is a summary and 64 blobs. Each blob has the fragments of the keys with the same hash. The
summary records when something in each bucket is due, so a step reads only the buckets of its records and the buckets
that are due.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.changelog import late_output
from windrow.engine.columns import MAX_TIME, MIN_TIME, Micros, pack, to_micros, unpack, unscale
from windrow.engine.operators.base import Judged, OperatorOutput, OperatorStep
from windrow.engine.operators.session import fragments
from windrow.engine.operators.session.fragments import EARLY, FIRED, ON_TIME, UNSEEN, Fragments, Numbers, SessionTime
from windrow.engine.operators.session.plan import SessionPlan, plan_step
from windrow.engine.operators.session.sql import SessionValues
from windrow.engine.operators.window.operator import emit_changes
from windrow.engine.operators.window.triggers import SqlTrigger, sql_trigger
from windrow.engine.schema import END, OFFSET, PARTITION, TIME, WATERMARK, WINDOW, record_schema
from windrow.engine.state.migrate import RowsByKeyGroup, StoredColumns, StoredState
from windrow.engine.state.store import BlobStore, MemoryState, OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.errors import PipelineError
from windrow.expressions import GAP, WindowSpec


class SessionOperator:
    """Computes the aggregate of each session and key.

    An on-time session holds the records that arrived before the watermark passed its end. On-time records that arrive
    later extend it, late records join it with the sessions that they touch, and rows that no longer represent a session
    are deleted. With `is_traced`, records come in the merged order, and the rows are also emitted as a changelog.
    Records also come in that order if early panes count them.
    """

    state: Final[Mapping[str, StoreKind]] = {"sessions": "buckets"}

    def __init__(self, spec: WindowSpec, *, is_traced: bool = False) -> None:
        if not isinstance(spec.node.window, m.Session):
            msg = f"{spec.node.window} is not a session window"
            raise TypeError(msg)
        if isinstance(spec.node.emit.late, m.Records):
            msg = "late records of sessions cannot be counted"
            raise TypeError(msg)
        self._spec = spec
        self._is_traced = is_traced
        early = spec.node.emit.early
        trigger = SqlTrigger(None, None, None) if early is None else sql_trigger(early)
        if trigger is None or trigger.times is not None:
            msg = f"sessions do not support early panes by {early}; use count, every, or any_of them"
            raise PipelineError(msg)
        self._every = trigger.micros
        self._gap = spec.node.window.gap if spec.node.window.by is None else None
        self._rules = fragments.SessionSpec(
            gap=self._gap or 0,
            lateness=spec.lateness,
            late=spec.node.emit.late,
            is_traced=is_traced,
            count=trigger.records,
            most=spec.node.window.gap,
        )
        self._duck = duckdb_sql.Connection(spec.key)
        no_records = unscale(record_schema(spec).empty_table())
        self._values = SessionValues(spec, self._duck, no_records, is_traced=is_traced)
        self._stored = StoredSessions(self._rules, no_records.select(list(spec.key)), self._values.none)

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group: judge the records, fire, merge and drop sessions."""
        summary = SessionSummary() if state.summary is None else SessionSummary.decode(state.summary)
        time = step.time
        summary.first_tick = time.latest if summary.first_tick is None else summary.first_tick
        # an early pane is due if its first unseen record arrived up to this processing time
        due = None if self._every is None or time.now is None else time.now - self._every
        moment = SessionTime(time.before, time.low, time.end, due)

        records, expired, judged = self._judge(step.records, summary.forgotten_until)
        watermarks = to_micros(records.column(WATERMARK))
        times, ends = to_micros(records.column(TIME)), self._ends(records)
        late = watermarks >= ends
        numbers, keys = fragments.number_keys(fragments.session_keys(records, self._spec.key))
        buckets = session_buckets(keys)
        arrivals = fragments.SessionRecords(
            keys=numbers,
            times=times,
            watermarks=watermarks,
            late=late,
            partitions=records.column(PARTITION).to_numpy().astype(np.int64),
            offsets=to_micros(records.column(OFFSET)),
            since=MIN_TIME if time.latest is None else time.latest,
            lasts=ends - self._rules.gap,
        )
        touched = {*np.unique(buckets).tolist(), *summary.due_buckets(moment)}
        changes, fired, closed = self._values.no_changes, 0, 0
        if touched:
            loaded = self._stored.load(state, summary, touched, keys, buckets)
            plan, changes, left = self._merge(moment, loaded, arrivals, records)
            self._stored.save(state, summary, touched, left, time.low)
            fired, closed = plan.fired, plan.closed
        state.summary = summary.encode()
        changes, emitted = emit_changes(changes, is_traced=self._is_traced)
        return OperatorOutput(
            changes=changes,
            records=emitted,
            late=expired,
            late_records=int(np.count_nonzero(late)),
            open_windows=sum(bucket.open for bucket in summary.buckets.values()),
            fired_windows=fired,
            closed_windows=closed,
            judged=(judged,),
            due=MAX_TIME if self._every is None else summary.earliest + self._every,
        )

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:
        """Migrate sessions bucket by bucket, since the bucket of a key does not depend on its key group."""
        columns, groups = StoredColumns(self._spec, change, self._duck), RowsByKeyGroup(self._spec, self._duck)
        for _, state in states:
            for (kind, bucket), blob in state.items():
                groups.add((kind, bucket), columns.panes(_add_missing_fields(unpack(blob))))
        lateness = self._spec.lateness
        known = SessionSummary.decode(states[0][0])
        forgotten_until = change.forgotten_until(known.forgotten_until, low, lateness)
        made: list[StoredState] = []
        for tables in groups.tables():
            summary, store = SessionSummary(known.first_tick, forgotten_until=forgotten_until), MemoryState()
            for (_, bucket), rows in tables.items():
                # with a shorter lateness, some sessions can be dropped at once
                self._stored.put(store, summary, bucket, rows, low, now=lateness < change.lateness)
            made.append((summary.encode(), store))
        return made

    def _judge(self, records: pa.Table, forgotten_until: int) -> tuple[pa.Table, pa.Table, Judged]:
        """Return the records that have not expired, the late output of the expired ones, and all verdicts."""
        times, watermarks = (to_micros(records.column(name)) for name in (TIME, WATERMARK))
        ends = self._ends(records)
        expired = (watermarks >= ends + self._rules.lateness) | (ends <= forgotten_until)
        judged = Judged(records, watermarks < ends, expired)
        if not expired.any():
            return unscale(records), schema.NO_LATE, judged
        windows = records.append_column(WINDOW, pa.array(times)).append_column(END, pa.array(ends))
        return (
            unscale(records.filter(pa.array(~expired))),
            late_output(self._duck, self._spec, windows.filter(pa.array(expired))),
            judged,
        )

    def _ends(self, records: pa.Table) -> Micros:
        """Return, for each record, the end of the session that contains only this record."""
        gap = to_micros(records.column(GAP)) if self._gap is None else self._gap
        ends: Micros = to_micros(records.column(TIME)) + gap
        return ends

    def _merge(
        self, moment: SessionTime, loaded: LoadedSessions, arrivals: fragments.SessionRecords, records: pa.Table
    ) -> tuple[SessionPlan, pa.Table, LoadedSessions]:
        """Merge the sessions of the loaded buckets; return the plan, the changes, and what remains in the buckets."""
        parts = loaded.parts
        is_concerned = np.zeros(loaded.keys.num_rows, dtype=np.bool_)
        is_concerned[arrivals.keys] = True
        is_concerned[parts["key"][self._rules.is_moved(parts, moment) | self._rules.is_evictable(parts, moment)]] = True
        chosen = np.flatnonzero(is_concerned[parts["key"]])
        plan = plan_step(self._rules, moment, parts[chosen], arrivals)
        totals = self._values.totals(plan, records, loaded.values.take(pa.array(chosen)))
        changes = self._values.changes(plan, totals, loaded.keys)
        remaining, values = self._values.remaining(plan, totals)
        stays = np.ones(len(parts), dtype=np.bool_)
        stays[chosen] = (plan.stored < 0) & ~plan.dropped
        left = replace(
            loaded,
            parts=np.concatenate([parts[stays], remaining]),
            values=pa.concat_tables([loaded.values.filter(pa.array(stays)), values]),
        )
        return plan, changes, left


SESSION_BUCKETS: Final = 64
"""Number of buckets. A step touches only those of its keys, so a small step reads and writes little state."""
_SESSION_KIND: Final = "sessions"
_FIELDS: Final = "__fields"
_NEVER: Final = 2**63 - 1


class SessionBucket(NamedTuple):
    """A bucket in the summary: when something in it is due, and the number of its open sessions.

    `due` is the smallest low watermark at which a session fires or is dropped. `since` is the earliest processing time
    at which a record that waits for an early pane arrived.
    """

    due: int
    since: int
    open: int


@dataclass
class SessionSummary:
    """The summary of the operator's state; `first_tick` is the first known processing time.

    Sessions that end at or before `forgotten_until` were forgotten when the lateness was shorter than it is now.
    """

    first_tick: int | None = None
    buckets: dict[int, SessionBucket] = field(default_factory=dict)
    forgotten_until: int = MIN_TIME

    @property
    def earliest(self) -> int:
        """The earliest processing time at which a record that waits for an early pane arrived."""
        return min((bucket.since for bucket in self.buckets.values()), default=_NEVER)

    def due_buckets(self, moment: SessionTime) -> set[int]:
        """Return the buckets that may change merely because time has passed."""
        return {
            number
            for number, bucket in self.buckets.items()
            if bucket.due <= moment.low
            or (moment.end and bucket.open)
            or (moment.due is not None and bucket.since <= moment.due)
        }

    def encode(self) -> dict[str, Any]:
        """Return the summary as plain JSON."""
        return {
            "first_tick": self.first_tick,
            "buckets": [[number, *bucket] for number, bucket in sorted(self.buckets.items())],
            "gone": self.forgotten_until,
        }

    @staticmethod
    def decode(fields: Any) -> SessionSummary:  # noqa: ANN401 - plain JSON
        """Read the JSON that `encode` returned."""
        buckets = {number: SessionBucket(*rest) for number, *rest in fields["buckets"]}
        return SessionSummary(fields["first_tick"], buckets, fields["gone"])


@dataclass(frozen=True)
class LoadedSessions:
    """The fragments and accumulators of the loaded buckets, with all keys of these and of the step.

    `buckets` has the bucket of each key.
    """

    parts: Fragments
    values: pa.Table
    keys: pa.Table
    buckets: Numbers


class StoredSessions:
    """Reads and writes fragments by bucket, each as one table of keys, accumulators and packed fields."""

    def __init__(self, rules: fragments.SessionSpec, no_keys: pa.Table, no_values: pa.Table) -> None:
        self._rules = rules
        self._keys = no_keys.column_names
        self._values = no_values.column_names
        columns = [*no_keys.columns, *no_values.columns, _to_column(fragments.make_fragments(0))]
        self._no_rows = pa.table(columns, names=[*self._keys, *self._values, _FIELDS])

    def load(
        self, state: BlobStore, summary: SessionSummary, touched: Iterable[int], keys: pa.Table, buckets: Numbers
    ) -> LoadedSessions:
        """Load the touched buckets; the keys of the step keep their numbers."""
        tables, numbers, lengths = [self._no_rows], [], []
        for bucket in sorted(touched):
            blob = state.get(_SESSION_KIND, bucket)
            if blob is not None:
                tables.append(_add_missing_fields(unpack(blob)))
                numbers.append(bucket)
                lengths.append(tables[-1].num_rows)
        rows = pa.concat_tables(tables)
        key_of, all_keys = fragments.number_keys(pa.concat_tables([keys, fragments.session_keys(rows, self._keys)]))
        key_of = key_of[keys.num_rows :]
        bucket_of = np.concatenate([buckets, np.zeros(all_keys.num_rows - len(buckets), dtype=np.int64)])
        bucket_of[key_of] = np.repeat(np.array(numbers, dtype=np.int64), lengths)
        parts = _from_column(rows.column(_FIELDS))
        parts["key"] = key_of
        if summary.first_tick is not None:
            # records before the first tick are timed from that tick
            parts["since"] = np.maximum(parts["since"], summary.first_tick)
        return LoadedSessions(parts, rows.select(self._values), all_keys, bucket_of)

    def save(
        self, state: BlobStore, summary: SessionSummary, touched: Iterable[int], left: LoadedSessions, low: int
    ) -> None:
        """Store the fragments that remain in the touched buckets, and record when each bucket is due after `low`."""
        buckets = left.buckets[left.parts["key"]]
        order = np.argsort(buckets, kind="stable")
        filled, firsts = np.unique(buckets[order], return_index=True)
        parts = left.parts[order]
        keys = left.keys.select(self._keys).take(pa.array(np.ascontiguousarray(parts["key"])))
        values = left.values.take(pa.array(order))
        rows = pa.table([*keys.columns, *values.columns, _to_column(parts)], names=self._no_rows.column_names)
        rows = rows.combine_chunks()
        for bucket in set(touched) - set(filled.tolist()):
            summary.buckets.pop(bucket, None)
            state.drop(_SESSION_KIND, bucket)
        sizes, entries = np.diff(firsts, append=len(order)), self._entries(parts, firsts, low)
        for bucket, first, size, entry in zip(filled.tolist(), firsts.tolist(), sizes.tolist(), entries, strict=True):
            state.set(_SESSION_KIND, bucket, pack(rows.slice(first, size)))
            summary.buckets[bucket] = entry

    def put(
        self, state: BlobStore, summary: SessionSummary, bucket: int, rows: pa.Table, low: int, *, now: bool
    ) -> None:
        """Store a bucket's rows from another state; with `now`, the bucket is due in the next step in any case."""
        parts = _from_column(rows.column(_FIELDS))
        parts["key"], _ = fragments.number_keys(fragments.session_keys(rows, self._keys))
        (entry,) = self._entries(parts, np.array([0]), low)
        state.set(_SESSION_KIND, bucket, pack(rows.select(self._no_rows.column_names)))
        summary.buckets[bucket] = entry._replace(due=low) if now else entry

    def _entries(self, parts: Fragments, firsts: Numbers, low: int) -> list[SessionBucket]:
        """Return the summary entry of each bucket; `firsts` has the index of each bucket's first fragment."""
        if len(firsts) == 0:
            return []
        ends = parts["closes"] + self._rules.gap
        is_open = (parts["role"] == ON_TIME) & (ends > low)
        expires = parts["end"] + self._rules.reach + self._rules.lateness
        # a row that an open session beside it keeps is checked again when that fires
        expires = np.where((parts["seen"] != UNSEEN) & (expires > low), expires, _NEVER)
        due = np.minimum(np.where(is_open, ends, _NEVER), expires)
        since = np.where(is_open & (parts["seen"] == UNSEEN), parts["since"], _NEVER)
        unfired = is_open & (parts["seen"] != FIRED)
        if (parts["seen"] == EARLY).any():
            # a session has a fragment for each of its rows, and one for the records in no row
            own = np.flatnonzero(unfired)
            unfired[:] = False
            unfired[own[fragments.distinct_fragments(parts[own], "closes")]] = True
        columns = (
            np.minimum.reduceat(due, firsts),
            np.minimum.reduceat(since, firsts),
            np.add.reduceat(unfired.astype(np.int64), firsts),
        )
        return list(map(SessionBucket, *(column.tolist() for column in columns)))


def session_buckets(keys: pa.Table) -> Numbers:
    """Return the bucket of each key. It is a hash of the key's text, so it is the same on every machine."""
    plain = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in keys.columns)
    texts = zip(*(map(str, column.to_pylist()) for column in plain), strict=True)
    return np.array([crc32("\0".join(text).encode()) % SESSION_BUCKETS for text in texts], dtype=np.int64)


def _to_column(parts: Fragments) -> pa.Array:
    """Pack fragments into a single binary column: the cost of a small table depends on its number of columns."""
    parts = parts.copy()
    parts["key"] = 0  # the number is only valid in the step
    return pa.Array.from_buffers(pa.binary(parts.itemsize), len(parts), [None, pa.py_buffer(parts)])


def _add_missing_fields(rows: pa.Table) -> pa.Table:
    """Return stored rows whose fragments have all current fields."""
    at, column = rows.column_names.index(_FIELDS), rows.column(_FIELDS)
    if column.type.byte_width == 8 * len(fragments.FRAGMENT_FIELDS):
        return rows
    return rows.set_column(at, _FIELDS, _to_column(_from_column(column)))


def _from_column(column: pa.ChunkedArray) -> Fragments:
    """Unpack fragments from a column made by `_to_column`; fields that older fragments lack are 0."""
    array = column.combine_chunks()
    names = fragments.FRAGMENT_FIELDS[: column.type.byte_width // 8]
    read = np.frombuffer(array.buffers()[1] or b"", dtype=[(name, "<i8") for name in names])
    read = read[array.offset : array.offset + len(array)]
    return fragments.make_fragments(len(read), **{name: read[name] for name in names})
