"""The session aggregate: records of a key less than a gap apart are in one window."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duck, schema
from windrow.core.aggregates import unscale
from windrow.core.clocks import Clocks
from windrow.core.late import late_rows
from windrow.core.micros import BEFORE_ALL, Micros, to_micros
from windrow.core.operators.base import GroupOutput, GroupStats, StepInput
from windrow.core.operators.clock_step import ClockStep, take_clock_step
from windrow.core.operators.session_keys import number_keys
from windrow.core.operators.session_moment import Arrivals, Moment, Rules
from windrow.core.operators.session_state import Loaded, SessionSummary, StoredSessions, bucket_of
from windrow.core.operators.session_step import work
from windrow.core.operators.session_values import SessionValues
from windrow.core.output import StepOutput
from windrow.core.records import END, OFFSET, PARTITION, TIME, WATERMARK, WINDOW, record_schema
from windrow.core.state import State
from windrow.errors import PipelineError
from windrow.model import AllOf, AnyOf, Every, Pipeline, Session, Trigger


class SessionAggregate:
    """The aggregate of each session and key.

    An on-time session is all that came before the watermark passed its end. On-time records that come after that make
    it longer, late ones join it with whatever they touch, and rows that are no session any more are deleted.

    It keeps nothing between steps: what is to be remembered is in the state that a step is given, so one object serves
    all key groups. `partitions` are those that the source had when the pipeline was first started.
    """

    def __init__(self, pipeline: Pipeline, partitions: Iterable[int]) -> None:
        if not isinstance(pipeline.window, Session):
            msg = f"{pipeline.window} is no session window"
            raise TypeError(msg)
        self._pipeline = pipeline
        self._partitions = tuple(partitions)
        self._rules = Rules(pipeline.window.gap, pipeline.emit.lateness, pipeline.emit.late)
        self._every = None if pipeline.emit.early is None else _period(pipeline.emit.early)
        self._duck = duck.connect()
        no_records = unscale(record_schema(pipeline).empty_table())
        self._values = SessionValues(pipeline, self._duck, no_records)
        self._stored = StoredSessions(self._rules, no_records.select(list(pipeline.key)), self._values.none)

    def step(self, group: int, given: StepInput, state: State) -> GroupOutput:
        """Take one step of one key group: judge its records, fire what the clocks have passed, join, forget."""
        blob = state.summary()
        summary = SessionSummary(Clocks.start(self._partitions)) if blob is None else SessionSummary.decode(blob)
        before = summary.clocks.low
        time = take_clock_step(self._pipeline, summary.clocks, given)
        summary.first_tick = time.latest if summary.first_tick is None else summary.first_tick
        moment = Moment(before, time.low, given.end, self._due(time))

        records, watermarks, missed = self._judge(given.records, time, summary.gone)
        late = watermarks >= to_micros(records.column(TIME)) + self._rules.gap
        numbers, keys = number_keys(records.select(list(self._pipeline.key)))
        buckets = bucket_of(keys)
        arrivals = Arrivals(
            keys=numbers,
            times=to_micros(records.column(TIME)),
            watermarks=watermarks,
            late=late,
            partitions=records.column(PARTITION).to_numpy().astype(np.int64),
            offsets=to_micros(records.column(OFFSET)),
            since=BEFORE_ALL if time.latest is None else time.latest,
        )
        touched = {*np.unique(buckets).tolist(), *summary.pressing(moment)}
        changes = schema.changes(self._pipeline).empty_table()
        if touched:
            there = self._stored.load(state, summary, touched, keys, buckets)
            changes, left = self._work(moment, there, arrivals, records)
            self._stored.save(state, summary, touched, left)
        state.set_summary(summary.encode())
        return GroupOutput(
            StepOutput(
                changes=changes,
                late=missed,
                dead=given.dead,
                # every key group knows the clocks; one of them tells
                clocks=time.journal if group == 0 else schema.CLOCKS.empty_table(),
            ),
            GroupStats(
                records=given.records.num_rows,
                late=int(np.count_nonzero(late)),
                expired=missed.num_rows,
                dead=given.dead.num_rows,
                inserts=_count(changes, "insert"),
                revisions=_count(changes, "update_after"),
                open_windows=sum(bucket.open for bucket in summary.buckets.values()),
                watermarks=dict(summary.clocks.watermarks),
                offsets=dict(summary.clocks.next),
                low=time.low,
                idle=sorted(summary.clocks.idle),
            ),
        )

    def _due(self, time: ClockStep) -> int | None:
        """Return up to which processing time a record must have come to be due for an early pane now."""
        return None if self._every is None or time.now is None else time.now - self._every

    def _judge(self, records: pa.Table, time: ClockStep, gone: int) -> tuple[pa.Table, Micros, pa.Table]:
        """Return the records that have not expired, the watermarks at them, and the late output of the others."""
        times = to_micros(records.column(TIME))
        expired = time.watermarks >= times + self._rules.gap + self._rules.lateness
        expired |= times + self._rules.gap <= gone
        if not expired.any():
            return unscale(records), time.watermarks, schema.LATE.empty_table()
        missed = records.filter(pa.array(expired)).drop_columns(WATERMARK)
        for name, values in (
            (WATERMARK, time.watermarks),
            (WINDOW, times),
            (END, times + self._rules.gap),
        ):
            missed = missed.append_column(name, pa.array(values[expired]))
        return (
            unscale(records.filter(pa.array(~expired))),
            time.watermarks[~expired],
            late_rows(self._duck, self._pipeline, missed),
        )

    def _work(self, moment: Moment, there: Loaded, arrivals: Arrivals, records: pa.Table) -> tuple[pa.Table, Loaded]:
        """Take the step in the buckets that it touches; return the changes, and what is left there."""
        concerned = np.zeros(there.keys.num_rows, dtype=np.bool_)
        concerned[arrivals.keys] = True
        of = there.atoms["key"]
        concerned[of[self._rules.moved(there.atoms, moment) | self._rules.gone(there.atoms, moment)]] = True
        chosen = np.flatnonzero(concerned[of])
        worked = work(self._rules, moment, there.atoms[chosen], arrivals)
        totals = self._values.totals(worked, records, there.values.take(pa.array(chosen)))
        changes = self._values.changes(worked, totals, there.keys)
        made, values = self._values.made(worked, totals)
        stays = np.ones(len(of), dtype=np.bool_)
        stays[chosen] = (worked.stored < 0) & ~worked.dropped
        return changes, Loaded(
            np.concatenate([there.atoms[stays], made]),
            pa.concat_tables([there.values.filter(pa.array(stays)), values]),
            there.keys,
            there.buckets,
        )


def _period(trigger: Trigger) -> int:
    """Return the processing time between early panes."""
    match trigger:
        case Every(micros):
            return micros
        case AnyOf(triggers):
            return min(map(_period, triggers))
        case AllOf(triggers):
            return max(map(_period, triggers))
        case _:
            msg = (
                f"sessions cannot have early panes by {trigger}, as counts start over whenever sessions merge; "
                "use processing time (every) alone"
            )
            raise PipelineError(msg)


def _count(changes: pa.Table, op: str) -> int:
    return int(pc.sum(pc.equal(changes.column("op"), op)).as_py() or 0)
