"""The session operator: runs a step, and stores the fragments of its keys in buckets.

The state of a key group is a summary and 64 blobs, each with the fragments of the keys with one hash. The summary says
when each bucket has something due, so that a step reads the buckets of its records and those that are due, and no
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.changelog import late_output
from windrow.engine.columns import MIN_TIME, Micros, pack, to_micros, unpack, unscale
from windrow.engine.operators.base import Judged, OperatorOutput, OperatorStep, StepTime
from windrow.engine.operators.session.fragments import (
    EARLY,
    FIRED,
    FRAGMENT_FIELDS,
    ON_TIME,
    UNSEEN,
    Fragments,
    Numbers,
    SessionRecords,
    SessionSpec,
    SessionTime,
    distinct_fragments,
    make_fragments,
    number_keys,
    session_keys,
)
from windrow.engine.operators.session.merge import SessionPlan, plan_step
from windrow.engine.operators.session.sql import SessionValues
from windrow.engine.operators.window.operator import change_records
from windrow.engine.schema import END, OFFSET, PARTITION, PLACE, TIME, WATERMARK, WINDOW, record_schema
from windrow.engine.state.migrate import RowsByKeyGroup, StoredColumns, StoredState
from windrow.engine.state.store import BlobStore, MemoryState, OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.errors import PipelineError
from windrow.expressions import GAP, WindowSpec


class SessionOperator:
    """The aggregate of each session and key.

    An on-time session is all that came before the watermark passed its end. On-time records that come after that make
    it longer, late ones join it with whatever they touch, and rows that are no session any more are deleted. With
    `is_traced` it takes its records in the merged order, and gives its rows as a changelog, too. It also takes them in
    that order where early panes count records.
    """

    state: Final[Mapping[str, StoreKind]] = {"sessions": "buckets"}

    def __init__(self, spec: WindowSpec, *, is_traced: bool = False) -> None:
        if not isinstance(spec.node.window, m.Session):
            msg = f"{spec.node.window} is not a session window"
            raise TypeError(msg)
        if isinstance(spec.node.emit.late, m.Records):
            msg = "late records of sessions are not counted"
            raise TypeError(msg)
        self._spec = spec
        self._is_traced = is_traced
        self._every, count = (None, None) if spec.node.emit.early is None else _early_panes(spec.node.emit.early)
        self._gap = spec.node.window.gap if spec.node.window.by is None else None
        self._rules = SessionSpec(
            gap=self._gap or 0,
            lateness=spec.lateness,
            late=spec.node.emit.late,
            is_traced=is_traced,
            count=count,
            most=spec.node.window.gap,
        )
        self._duck = duckdb_sql.Connection(spec.key)
        no_records = unscale(record_schema(spec).empty_table())
        self._values = SessionValues(spec, self._duck, no_records, is_traced=is_traced)
        self._stored = StoredSessions(self._rules, no_records.select(list(spec.key)), self._values.none)

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group: assign verdicts, fire what the watermark has passed, merge, drop."""
        summary = SessionSummary() if state.summary is None else SessionSummary.decode(state.summary)
        time = step.time
        summary.first_tick = time.latest if summary.first_tick is None else summary.first_tick
        moment = SessionTime(time.before, time.low, time.end, self._due(time))

        records, missed, judged = self._judge(step.records, summary.forgotten_until)
        watermarks = to_micros(records.column(WATERMARK))
        times, ends = to_micros(records.column(TIME)), self._ends(records)
        late = watermarks >= ends
        numbers, keys = number_keys(session_keys(records, self._spec.key))
        buckets = session_buckets(keys)
        arrivals = SessionRecords(
            keys=numbers,
            times=times,
            watermarks=watermarks,
            late=late,
            partitions=records.column(PARTITION).to_numpy().astype(np.int64),
            offsets=to_micros(records.column(OFFSET)),
            since=MIN_TIME if time.latest is None else time.latest,
            lasts=ends - self._rules.gap,
        )
        touched = {*np.unique(buckets).tolist(), *summary.pressing(moment)}
        changes, fired, closed = self._values.no_changes, 0, 0
        if touched:
            there = self._stored.load(state, summary, touched, keys, buckets)
            worked, changes, left = self._work(moment, there, arrivals, records)
            self._stored.save(state, summary, touched, left, time.low)
            fired, closed = worked.fired, worked.closed
        state.summary = summary.encode()
        made: tuple[pa.Table, ...] = ()
        if self._is_traced:
            made = (change_records(changes),)
            changes = changes.drop_columns(list(PLACE))
        return OperatorOutput(
            changes=changes,
            records=made,
            late=missed,
            late_records=int(np.count_nonzero(late)),
            open_windows=sum(bucket.open for bucket in summary.buckets.values()),
            fired_windows=fired,
            closed_windows=closed,
            judged=(judged,),
        )

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:
        """Migrate sessions, bucket by bucket: the bucket of a key does not depend on its key group."""
        columns, groups = StoredColumns(self._spec, change, self._duck), RowsByKeyGroup(self._spec, self._duck)
        for _, state in states:
            for (kind, bucket), blob in state.items():
                groups.add((kind, bucket), columns.panes(_whole(unpack(blob))))
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

    def _due(self, time: StepTime) -> int | None:
        """Return up to which processing time a record must have come to be due for an early pane now."""
        return None if self._every is None or time.now is None else time.now - self._every

    def _judge(self, records: pa.Table, forgotten_until: int) -> tuple[pa.Table, pa.Table, Judged]:
        """Return the records that have not expired, the late output of the others, and all with their verdicts."""
        times, watermarks = (to_micros(records.column(name)) for name in (TIME, WATERMARK))
        ends = self._ends(records)
        expired = (watermarks >= ends + self._rules.lateness) | (ends <= forgotten_until)
        judged = Judged(records, watermarks < ends, expired)
        if not expired.any():
            return unscale(records), schema.LATE.empty_table(), judged
        missed = records.append_column(WINDOW, pa.array(times)).append_column(END, pa.array(ends))
        return (
            unscale(records.filter(pa.array(~expired))),
            late_output(self._duck, self._spec, missed.filter(pa.array(expired))),
            judged,
        )

    def _ends(self, records: pa.Table) -> Micros:
        """Return where the windows of records that are alone end."""
        gap = to_micros(records.column(GAP)) if self._gap is None else self._gap
        ends: Micros = to_micros(records.column(TIME)) + gap
        return ends

    def _work(
        self, moment: SessionTime, there: LoadedSessions, arrivals: SessionRecords, records: pa.Table
    ) -> tuple[SessionPlan, pa.Table, LoadedSessions]:
        """Merge the sessions of the loaded buckets; return the plan, the changes, and what is left in the buckets."""
        concerned = np.zeros(there.keys.num_rows, dtype=np.bool_)
        concerned[arrivals.keys] = True
        of = there.atoms["key"]
        concerned[of[self._rules.moved(there.atoms, moment) | self._rules.is_evictable(there.atoms, moment)]] = True
        chosen = np.flatnonzero(concerned[of])
        worked = plan_step(self._rules, moment, there.atoms[chosen], arrivals)
        totals = self._values.totals(worked, records, there.values.take(pa.array(chosen)))
        changes = self._values.changes(worked, totals, there.keys)
        made, values = self._values.made(worked, totals)
        stays = np.ones(len(of), dtype=np.bool_)
        stays[chosen] = (worked.stored < 0) & ~worked.dropped
        left = LoadedSessions(
            np.concatenate([there.atoms[stays], made]),
            pa.concat_tables([there.values.filter(pa.array(stays)), values]),
            there.keys,
            there.buckets,
        )
        return worked, changes, left


def _early_panes(trigger: m.Trigger) -> tuple[int | None, int | None]:
    """Return the processing time between early panes, and the number of records, each None if it makes none."""
    match trigger:
        case m.Every(micros):
            return micros, None
        case m.Records(number):
            return None, number
        case m.AnyOf(triggers):
            times, counts = zip(*map(_early_panes, triggers), strict=True)
            return (
                min((time for time in times if time is not None), default=None),
                min((count for count in counts if count is not None), default=None),
            )
        case _:
            msg = f"sessions cannot have early panes by {trigger}; use count, every, or any_of them"
            raise PipelineError(msg)


SESSION_BUCKETS: Final = 64
"""A step touches the buckets of its keys, so a small one reads and writes little whatever the number of keys."""
_SESSION_KIND: Final = "sessions"
_FIELDS: Final = "__fields"
_NEVER: Final = 2**63 - 1


class SessionBucket(NamedTuple):
    """A bucket in the summary: when something in it is due, and how many sessions are open in it.

    `due` is the least low watermark at which a session fires or is dropped; `since` the least processing time from
    which an early pane waits.
    """

    due: int
    since: int
    open: int


@dataclass
class SessionSummary:
    """The operator's summary; `first_tick` is the first processing time that was known.

    Sessions that end by `forgotten_until` were forgotten when lateness was shorter than it is now.
    """

    first_tick: int | None = None
    buckets: dict[int, SessionBucket] = field(default_factory=dict)
    forgotten_until: int = MIN_TIME

    def pressing(self, moment: SessionTime) -> set[int]:
        """Return the buckets in which time alone may make something happen."""
        return {
            number
            for number, bucket in self.buckets.items()
            if bucket.due <= moment.low
            or (moment.end and bucket.open)
            or (moment.due is not None and bucket.since <= moment.due)
        }

    def encode(self) -> dict[str, Any]:
        """Return plain JSON."""
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
    """Fragments of some buckets and their accumulators; the keys of these and of the step, and the bucket of each."""

    atoms: Fragments
    values: pa.Table
    keys: pa.Table
    buckets: Numbers


class StoredSessions:
    """Reads and writes fragments by bucket: one table of key, accumulators and packed fields for each."""

    def __init__(self, rules: SessionSpec, no_keys: pa.Table, no_values: pa.Table) -> None:
        self._rules = rules
        self._keys = no_keys.column_names
        self._values = no_values.column_names
        self._no_rows = pa.table(
            {
                **dict(zip(no_keys.column_names, no_keys.columns, strict=True)),
                **dict(zip(no_values.column_names, no_values.columns, strict=True)),
                _FIELDS: _to_column(make_fragments(0)),
            }
        )

    def load(
        self, state: BlobStore, summary: SessionSummary, touched: Iterable[int], keys: pa.Table, buckets: Numbers
    ) -> LoadedSessions:
        """Read some buckets; the keys of a step keep their numbers."""
        tables, numbers, lengths = [self._no_rows], [], []
        for bucket in sorted(touched):
            blob = state.get(_SESSION_KIND, bucket)
            if blob is not None:
                tables.append(_whole(unpack(blob)))
                numbers.append(bucket)
                lengths.append(tables[-1].num_rows)
        rows = pa.concat_tables(tables)
        of, together = number_keys(pa.concat_tables([keys, session_keys(rows, self._keys)]))
        of = of[keys.num_rows :]
        bucket_of = np.concatenate([buckets, np.zeros(together.num_rows - len(buckets), dtype=np.int64)])
        bucket_of[of] = np.repeat(np.array(numbers, dtype=np.int64), lengths)
        loaded = _from_column(rows.column(_FIELDS))
        loaded["key"] = of
        if summary.first_tick is not None:
            # what came before the first tick counts from it
            loaded["since"] = np.maximum(loaded["since"], summary.first_tick)
        return LoadedSessions(loaded, rows.select(self._values), together, bucket_of)

    def save(
        self, state: BlobStore, summary: SessionSummary, touched: Iterable[int], left: LoadedSessions, low: int
    ) -> None:
        """Write the fragments left in some buckets, and when each bucket has something due after `low`."""
        buckets = left.buckets[left.atoms["key"]]
        order = np.argsort(buckets, kind="stable")
        there, firsts = np.unique(buckets[order], return_index=True)
        lengths = np.diff(firsts, append=len(order))
        its_atoms = left.atoms[order]
        keys = left.keys.select(self._keys).take(pa.array(np.ascontiguousarray(its_atoms["key"])))
        values = left.values.take(pa.array(order))
        rows = pa.table([*keys.columns, *values.columns, _to_column(its_atoms)], names=self._no_rows.column_names)
        rows = rows.combine_chunks()
        for bucket in set(touched) - set(there.tolist()):
            summary.buckets.pop(bucket, None)
            state.drop(_SESSION_KIND, bucket)
        looks = self._look(its_atoms, firsts, low)
        for bucket, first, length, look in zip(there.tolist(), firsts.tolist(), lengths.tolist(), looks, strict=True):
            state.set(_SESSION_KIND, bucket, pack(rows.slice(first, length)))
            summary.buckets[bucket] = look

    def put(
        self, state: BlobStore, summary: SessionSummary, bucket: int, rows: pa.Table, low: int, *, now: bool
    ) -> None:
        """Store a bucket's rows as another state held them; with `now` the next step looks at them, whatever is due."""
        its_atoms = _from_column(rows.column(_FIELDS))
        its_atoms["key"], _ = number_keys(session_keys(rows, self._keys))
        (look,) = self._look(its_atoms, np.array([0]), low)
        state.set(_SESSION_KIND, bucket, pack(rows.select(self._no_rows.column_names)))
        summary.buckets[bucket] = look._replace(due=low) if now else look

    def _look(self, its_atoms: Fragments, firsts: Numbers, low: int) -> list[SessionBucket]:
        """Return when each bucket has something due; `firsts` is where its fragments begin."""
        if len(firsts) == 0:
            return []
        ends = its_atoms["closes"] + self._rules.gap
        is_open = (its_atoms["role"] == ON_TIME) & (ends > low)
        goes = its_atoms["end"] + self._rules.reach + self._rules.lateness
        # a row that could go but for an open session beside it is looked at when that fires
        goes = np.where((its_atoms["seen"] != UNSEEN) & (goes > low), goes, _NEVER)
        due = np.minimum(np.where(is_open, ends, _NEVER), goes)
        since = np.where(is_open & (its_atoms["seen"] == UNSEEN), its_atoms["since"], _NEVER)
        unfired = is_open & (its_atoms["seen"] != FIRED)
        if (its_atoms["seen"] == EARLY).any():
            # a session has a fragment for each of its rows, and one for what is in none
            its_own = np.flatnonzero(unfired)
            unfired[:] = False
            unfired[its_own[distinct_fragments(its_atoms[its_own], "closes")]] = True
        columns = (
            np.minimum.reduceat(due, firsts),
            np.minimum.reduceat(since, firsts),
            np.add.reduceat(unfired.astype(np.int64), firsts),
        )
        return [SessionBucket(*one) for one in zip(*(column.tolist() for column in columns), strict=True)]


def session_buckets(keys: pa.Table) -> Numbers:
    """Return the bucket of each of some keys, by a hash of their text: it is the same on every machine."""
    plain = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in keys.columns)
    texts = zip(*(map(str, column.to_pylist()) for column in plain), strict=True)
    return np.array([crc32("\0".join(text).encode()) % SESSION_BUCKETS for text in texts], dtype=np.int64)


def _to_column(given: Fragments) -> pa.Array:
    """Return fragments as one column of bytes: a table of a few rows costs what its columns cost."""
    given = given.copy()
    given["key"] = 0  # it is the step's number of it
    return pa.Array.from_buffers(pa.binary(given.itemsize), len(given), [None, pa.py_buffer(given)])


def _whole(rows: pa.Table) -> pa.Table:
    """Return stored rows whose fragments have all fields."""
    at, column = rows.column_names.index(_FIELDS), rows.column(_FIELDS)
    if column.type.byte_width == 8 * len(FRAGMENT_FIELDS):
        return rows
    return rows.set_column(at, _FIELDS, _to_column(_from_column(column)))


def _from_column(column: pa.ChunkedArray) -> Fragments:
    """Read what `_to_column` wrote, also where fragments had fewer fields, which are 0."""
    array = column.combine_chunks()
    names = FRAGMENT_FIELDS[: column.type.byte_width // 8]
    read = np.frombuffer(array.buffers()[1] or b"", dtype=[(name, "<i8") for name in names])
    read = read[array.offset : array.offset + len(array)]
    return make_fragments(len(read), **{name: read[name] for name in names})
