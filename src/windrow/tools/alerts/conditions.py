"""Conditions of alerts, evaluated from a run's step reports, lag and faults.

Nothing here reads a clock. The time is an argument, so the alerts are a function of the reports and their times. An
alert is raised when its condition has held for the configured time span. It is resolved when the condition has not held
for that span or for a minute, whichever is shorter. While an alert is active its limit is a fifth lower, so that a
value near the limit does not raise the alert repeatedly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from shlex import quote
from typing import Any, Final, assert_never

from windrow import model as m
from windrow.errors import CheckpointError, InputError, RunError
from windrow.runtime.run import PLACEHOLDER, CommandLines
from windrow.telemetry.facts import PartitionName, internal_of
from windrow.telemetry.health import CONDITIONS, span_of
from windrow.telemetry.numbers import duration, first_line, format_time
from windrow.telemetry.reports import Alert, Fault, FaultReason, Lag, StepReport, counted
from windrow.telemetry.status import RunStatus

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_WEEK: Final = 7 * 24
"""Hours over which the usual share is taken."""
_QUIET: Final = _MINUTE
"""An alert is resolved when its condition has not held for this time; faults that are farther apart do not add up."""
_SLACK: Final = 0.8
"""Factor of a limit while its alert is active."""
_PARTS: Final = 20
"""Number of parts in which a span is summed up."""
_LEAST: Final = 100
"""A share needs at least this number of records."""
_NAMED: Final = 5
"""Greatest number of partitions and reasons in a message."""


@dataclass(frozen=True)
class Past:
    """What is known about a checkpoint's earlier runs when a process starts.

    `events` and `late` are counts for the past week, and `reasons` are the dead-letter reasons seen so far. `saved` is
    the time of the newest savepoint and `began` the time of the first run (microseconds, None if unknown). `active` are
    the alerts that were active when the previous process ended.
    """

    events: int = 0
    late: int = 0
    reasons: frozenset[str] = frozenset()
    saved: int | None = None
    began: int | None = None
    active: tuple[Alert, ...] = ()


NO_PAST: Final = Past()


@dataclass(frozen=True)
class _Breach:
    """A condition that has held since `since`.

    With `at_once` the alert is raised without waiting; with `is_end` the run has ended.
    """

    since: int
    message: str
    figures: dict[str, Any] = field(default_factory=dict)
    at_once: bool = False
    is_end: bool = False


@dataclass(frozen=True)
class _Faults:
    """A series of faults, each at most a minute after the one before.

    `since` and `last` are the times of the first and the last fault; `message` and `reason` belong to the last.
    """

    since: int
    last: int = 0
    count: int = 0
    message: str = ""
    reason: FaultReason = "engine"


class _Recent:
    """The step reports of the last `span` microseconds, summed over `_PARTS` equal intervals of the span."""

    def __init__(self, span: int) -> None:
        self.span = span
        self._width = max(1, span // _PARTS)
        self._sums: deque[tuple[int, StepReport]] = deque()
        self._since: int | None = None
        self._all: tuple[int, StepReport | None] | None = None
        """The sum of all, with its time: several alerts need the same one."""

    def add(self, report: StepReport, at: int) -> None:
        """Add the report of a step that was committed at the time `at`."""
        self._all = None
        self._since = at if self._since is None else self._since
        part = at // self._width
        if self._sums and self._sums[-1][0] == part:
            report = self._sums.pop()[1] + report
        self._sums.append((part, report))

    def steps(self, now: int) -> list[StepReport]:
        """Return the sums of the intervals, oldest first."""
        while self._sums and (self._sums[0][0] + 1) * self._width <= now - self.span:
            self._sums.popleft()
        return [report for _, report in self._sums]

    def total(self, now: int) -> StepReport | None:
        """Return the sum of all steps, or None if there are no steps or less than the whole span has been observed."""
        return None if self._since is None or now - self._since < self.span else self.total_so_far(now)

    def total_so_far(self, now: int) -> StepReport | None:
        """Return the sum of all steps, even before the whole span has been observed; None if there are no steps."""
        if self._all is None or self._all[0] != now:
            steps = self.steps(now)
            self._all = now, reduce(add, steps) if steps else None
        return self._all[1]


class AlertEvaluator:
    """Decides which alerts of a run to raise and resolve.

    The run's steps begin at `now`, `every` microseconds apart. `commands` supplies the command lines quoted in
    messages.
    """

    def __init__(
        self, graph: m.Graph, *, every: int, now: int, past: Past = NO_PAST, commands: CommandLines = PLACEHOLDER
    ) -> None:
        self._graph = graph
        self._commands = commands
        self._is_realtime = graph.mode == "realtime"
        # a realtime run has no checkpoint: the brokers have its status
        self._status = commands.of("status" if self._is_realtime else "status {c}")
        self._servers = "the brokers" if self._is_realtime else "the database"
        self._every = every
        self._began = now
        self._past = past
        self._limits = graph.alerts.limits
        spans = {span_of(limit, every) for limit in self._limits.values()}
        self._recent = {span: _Recent(span) for span in spans if span}
        self.active: dict[m.AlertName, Alert] = {alert.name: alert for alert in past.active}
        self._clear: dict[m.AlertName, int] = {}
        self._last: StepReport | None = None
        self._last_at = now
        self._lag: Lag | None = None
        self._lags: deque[Lag] = deque()
        self._far_since: int | None = None
        self._waiting: int | None = None
        self._low: tuple[int | None, int, int] = (None, now, 0)
        """The low watermark, the time since which it stands, and the number of records since then."""
        self._slow_since: int | None = None
        self._read_at: dict[PartitionName, int] = {}
        self._reasons: dict[str, int] = {}
        """The first time of each new kind of dead letters."""
        self._known = set(past.reasons)
        self._hours: deque[tuple[int, int, int]] = deque(maxlen=_WEEK)
        """By hour: events, and the late ones among them."""
        self._faults: _Faults | None = None
        self._is_retrying = False
        self._error: BaseException | None = None

    def add_step(self, report: StepReport, now: int) -> None:
        """Add the report of a committed step."""
        at = now if report.committed is None else report.committed
        for recent in self._recent.values():
            recent.add(report, at)
        self._waiting = at if report.last_lag is not None and report.last_lag.behind else None
        if report.last_lag is not None:
            self._note_lag(report.last_lag)
        low, stands, records = self._low
        has_moved = report.low_watermark != low or self._last is None
        self._low = (report.low_watermark, at, 0) if has_moved else (low, stands, records + report.records)
        self._is_retrying = False
        # a step that did not begin at the end of the one before shows that there was time left
        has_waited = (report.seconds - report.took) * _SECOND > self._every + _SECOND
        since = at if has_waited or self._slow_since is None else self._slow_since
        self._slow_since = since if report.took * _SECOND > self._every else None
        self._read_at |= {partition: at for partition, records in report.read.items() if records}
        for kind in report.dead_reasons:
            if kind not in self._known:
                self._known.add(kind)
                self._reasons[kind] = at
        hour = at // _HOUR
        events, late = report.records, report.late
        if self._hours and self._hours[-1][0] == hour:
            _, more, later = self._hours.pop()
            events, late = events + more, late + later
        self._hours.append((hour, events, late))
        self._last, self._last_at = report, at

    def add_lag(self, lag: Lag) -> None:
        """Add a measurement of the run's lag."""
        self._waiting = (self._waiting or lag.asked) if lag.behind else None
        self._note_lag(lag)

    def add_fault(self, fault: Fault, now: int) -> None:
        """Add a fault from which the run recovers."""
        known = self._faults
        if known is None or now - known.last >= _QUIET:
            known = _Faults(since=now)
        self._faults = _Faults(known.since, now, known.count + 1, fault.what, fault.reason)
        self._is_retrying = True

    def add_ready(self) -> None:
        """Note that the run is processing steps again."""
        self._is_retrying = False

    def add_end(self, error: BaseException) -> None:
        """Note the error that has ended the run."""
        self._error = error

    def evaluate(self, now: int) -> list[Alert]:
        """Return the alerts that are raised or resolved at the time `now`, which must never decrease between calls."""
        found: list[Alert] = []
        for name in m.ALERT_NAMES:
            limit, active = self._limits.get(name), self.active.get(name)
            span = 0 if limit is None else span_of(limit, self._every)
            breach = None if limit is None else self._check(name, limit, now)
            if breach is not None and (breach.at_once or now - breach.since >= span):
                self._clear.pop(name, None)
                if active is not None and breach.is_end and active.message != breach.message:
                    # the receivers know that the run retries, and have to learn that it has ended
                    found.append(replace(active, resolved=now))
                    active = None
                if active is None:
                    alert = Alert(self._graph.name, name, breach.message, breach.since, now, figures=breach.figures)
                    found.append(alert)
                    self.active[name] = alert
            elif active is not None:
                # an alert of the previous process stays until this one has watched for the span
                wait = self._began + span if active.raised < self._began and limit is not None else now
                since = self._clear.setdefault(name, max(now, wait))
                if now - since >= min(span, _QUIET):
                    del self.active[name], self._clear[name]
                    found.append(replace(active, resolved=now))
        return found

    def _note_lag(self, lag: Lag) -> None:
        self._lag = lag
        limit = self._limits.get("lag")
        if not isinstance(limit, m.LagLimit):
            return
        slack = self._slack("lag")
        far = (lag.longest or 0.0) * _SECOND > limit.time * slack
        far |= limit.records is not None and lag.behind > limit.records * slack
        self._far_since = (self._far_since or lag.asked) if far else None
        if not self._lags or lag.asked - self._lags[-1].asked >= limit.span // _PARTS:
            self._lags.append(lag)
        while len(self._lags) > 1 and self._lags[1].asked <= lag.asked - limit.span:
            self._lags.popleft()

    def _slack(self, name: m.AlertName) -> float:
        return _SLACK if name in self.active else 1.0

    def _check(self, name: m.AlertName, limit: m.AlertLimit, now: int) -> _Breach | None:
        """Return the breach, or None if the condition of the alert does not hold."""
        if name in m.COUNTING_ALERTS and (self._last is None or self._last.only_offsets):
            return None
        return self._conditions[name](self, limit, now)

    def _behind(self, limit: m.LagLimit, now: int) -> _Breach | None:
        del now
        lag = self._lag
        if lag is None or self._far_since is None:
            return None
        first = self._lags[0]
        grown, seconds = lag.behind - first.behind, (lag.asked - first.asked) / _SECOND
        if grown < 0 and "lag" not in self.active:
            return None
        time = "" if lag.longest is None else f", {duration(lag.longest * _SECOND)}"
        trend = f"growing by {grown / seconds:,.0f} a second" if grown and seconds else "not catching up"
        farthest = max(lag.records, key=lag.records.__getitem__)
        limits = [m.format_duration(limit.time)] if lag.longest is not None else []
        limits += [counted(limit.records, "record")] if limit.records is not None else []
        return _Breach(
            self._far_since,
            f"the run is {counted(lag.behind, 'record')}{time} behind the end of the log, and {trend}; the limit is "
            f"{' or '.join(limits)}, exceeded since {_time(self._far_since)}. Farthest behind is "
            f"partition {farthest} with {counted(lag.records[farthest], 'record')}. {self._advice('lag')}",
            {"records": lag.behind, "seconds": lag.longest, "grown": grown, "partition": farthest},
        )

    def _no_step(self, limit: m.TimeLimit, now: int) -> _Breach | None:
        del limit
        if self._waiting is None:
            return None
        waits = 0 if self._lag is None else self._lag.behind
        faults = self._faults
        fault = f" The last fault: {faults.message}." if faults is not None and faults.last >= self._waiting else ""
        return _Breach(
            self._waiting,
            f"{counted(waits, 'record')} {'waits' if waits == 1 else 'wait'}, and no step was committed for "
            f"{duration(now - self._waiting)}, since {_time(self._waiting)}.{fault} {self._advice('no-step')}",
            {"records": waits, "seconds": (now - self._waiting) / _SECOND},
        )

    def _watermark_stuck(self, limit: m.TimeLimit, now: int) -> _Breach | None:
        span = span_of(limit, self._every)
        low, since, records = self._low
        steps, last = self._recent[span].steps(now), self._last
        active = self.active.get("watermark-stuck")
        if active is not None and last is not None and last.held_back_by:
            return _Breach(since, active.message)  # the end of the records does not move it
        if last is None or not records or not any(step.records for step in steps) or not last.held_back_by:
            return None
        status = RunStatus.of(None, steps, now, self._graph)
        holders = [partition for partition in status.partitions if partition.held is not None]
        if not holders:
            return None
        at = "there has been no low watermark" if low is None else f"the low watermark has been at {_time(low)}"
        why = "; ".join(f"partition {holder.partition} holds it back: {holder.held}" for holder in holders[:_NAMED])
        more = f"; so do {len(holders) - _NAMED} more" if len(holders) > _NAMED else ""
        return _Breach(
            since,
            f"{at} since {_time(since)}, while {counted(records, 'record')} arrived, so no window fires. {why}{more}. "
            f"{self._advice('watermark-stuck')}",
            {"low_watermark": low, "records": records, "partitions": [holder.partition for holder in holders]},
        )

    def _latency(self, limit: m.LatencyLimit, now: int) -> _Breach | None:
        total = self._recent[limit.span].total(now)
        p99 = None if total is None else total.latency.quantile(0.99)
        if total is None or p99 is None or p99 <= limit.p99 * self._slack("latency"):
            return None
        return _Breach(
            now - limit.span,
            f"of the {counted(total.latency.total, 'record')} since {_time(now - limit.span)}, 99 % took up to "
            f"{duration(p99)} from log to commit; the limit is {m.format_duration(limit.p99)}. "
            f"{self._advice('latency')}",
            {"p99_seconds": p99 / _SECOND, "records": total.latency.total},
        )

    def _late_spike(self, limit: m.SpikeLimit, now: int) -> _Breach | None:
        total = self._recent[limit.span].total(now)
        if total is None or total.records < _LEAST:
            return None
        past = self._past.events + sum(events for _, events, _ in self._hours) - total.records
        usual = (self._past.late + sum(late for _, _, late in self._hours) - total.late) / past if past else 0.0
        share = total.late / total.records
        most = max(limit.times * usual, limit.share)
        if past < _LEAST or share <= most * self._slack("late-spike"):
            return None
        return _Breach(
            now - limit.span,
            f"{total.late:,} of {counted(total.records, 'record')} since {_time(now - limit.span)} were late "
            f"({share:.2%}), compared with {usual:.2%} before; the limit is {most:.2%} ({limit.times:g} times the "
            f"usual share, but at least {limit.share:.2%}). {self._advice('late-spike')}",
            {"share": share, "usual": usual, "late": total.late, "records": total.records},
        )

    def _expired_share(self, limit: m.ShareLimit, now: int) -> _Breach | None:
        total = self._recent[limit.span].total(now)
        if total is None or total.records < _LEAST:
            return None
        share = total.expired / total.records
        if share <= limit.share * self._slack("expired-share"):
            return None
        return _Breach(
            now - limit.span,
            f"{total.expired:,} of {counted(total.records, 'record')} since {_time(now - limit.span)} have expired "
            f"({share:.2%}), so no result includes them; the limit is {limit.share:.2%}. "
            f"{self._advice('expired-share')}",
            {"share": share, "expired": total.expired, "records": total.records},
        )

    def _dead_letters(self, limit: m.ShareLimit, now: int) -> _Breach | None:
        new = {kind: since for kind, since in self._reasons.items() if now - since < limit.span}
        total = self._recent[limit.span].total_so_far(now)
        whole = self._recent[limit.span].total(now)
        dead = 0 if total is None else total.dead + total.rejected
        share = dead / total.events if total is not None and total.events else 0.0
        most = limit.share * self._slack("dead-letters")
        is_large = whole is not None and whole.events >= _LEAST and share > most
        if total is None or not (new or is_large):
            return None
        begin = _time(max(self._began, now - limit.span))
        of = f"of {counted(total.events, 'record')} since {begin}"
        met = {kind: total.dead_reasons.get(kind, 1) for kind in new}
        if is_large:
            shown = total.dead_reasons
            what = f"{dead:,} {of} are dead letters ({share:.2%}; the limit is {limit.share:.2%}): {_list_top(shown)}"
            what += f". New reasons: {', '.join(list(new)[:_NAMED])}" if new else ""
        else:
            shown = met
            what = (
                f"{counted(sum(met.values()), 'dead letter')} for a reason that is new in this pipeline: "
                f"{_list_top(shown)}. In total, {dead:,} {of} are dead letters ({share:.2%}; the limit is "
                f"{limit.share:.2%} in {m.format_duration(limit.span)})"
            )
        return _Breach(
            min(new.values()) if new else now - limit.span,
            f"{what}. {self._advice('dead-letters', dead=self._see_dead(shown, total))}",
            {"share": share, "dead": dead, "reasons": _greatest(shown), "new": sorted(new)},
            at_once=bool(new),
        )

    def _internal_errors(self, limit: m.RecentLimit, now: int) -> _Breach | None:
        total = self._recent[limit.span].total_so_far(now)
        if total is None or not total.internal:
            return None
        kinds = internal_of(total.dead_reasons)
        begin = max(self._began, now - limit.span)
        return _Breach(
            begin,
            f"{counted(total.internal, 'dead letter')} since {_time(begin)} because of a defect: {_list_top(kinds)}. "
            f"{self._advice('internal-errors', dead=self._see_dead(kinds, total))}",
            {"internal": total.internal, "reasons": _greatest(kinds)},
            at_once=True,
        )

    def _sink_errors(self, limit: m.TimeLimit, now: int) -> _Breach | None:
        span = span_of(limit, self._every)
        if isinstance(self._error, RunError):
            message = first_line(str(self._error))
            return _Breach(
                now, f"the run has ended: {message}. Fix the cause, then start it again", at_once=True, is_end=True
            )
        faults = self._faults
        if faults is None:
            return None
        last = now if self._is_retrying else faults.last
        if last - faults.since < span or now - last >= _QUIET:
            return None
        return _Breach(
            faults.since,
            f"the run has had {counted(faults.count, 'fault')} since {_time(faults.since)} and is retrying; the last "
            f"was: {faults.message}. {self._advice('sink-errors', fault=self._see_fault(faults.reason))}",
            {"faults": faults.count, "last": faults.message},
        )

    def _checkpoint(self, limit: m.CheckpointLimit, now: int) -> _Breach | None:
        if isinstance(self._error, CheckpointError):
            message = first_line(str(self._error))
            return _Breach(
                now, f"the run has ended because its checkpoint cannot be used: {message}", at_once=True, is_end=True
            )
        saved = self._past.saved
        since = self._past.began if saved is None else saved
        if limit.savepoint is None or since is None or now - since <= limit.savepoint:
            return None
        which = (
            "no savepoint has been taken since the first run, at" if saved is None else "the newest savepoint is from"
        )
        takes = self._commands.of(f"savepoint --to {quote(f'{self._graph.name}-{_time(now)[:10]}')} {{c}}")
        return _Breach(
            since + limit.savepoint,
            f"{which} {_time(since)}, {duration(now - since)} ago; the limit is {m.format_duration(limit.savepoint)}. "
            f"{self._advice('checkpoint', savepoint=takes)}",
            {"saved": saved, "seconds": (now - since) / _SECOND},
        )

    def _backpressure(self, limit: m.TimeLimit, now: int) -> _Breach | None:
        span = span_of(limit, self._every)
        if self._slow_since is None or self._last_at - self._slow_since < span:
            return None
        total, last = self._recent[span].total_so_far(now), self._last
        if total is None or last is None:
            return None
        part = max(total.parts, key=total.parts.__getitem__, default=None)
        where = f", most of it in `{part}`" if part is not None else ""
        return _Breach(
            self._slow_since,
            f"each step since {_time(self._slow_since)} took longer than the interval of "
            f"{m.format_duration(self._every)}; the last took {last.took:,.1f} s{where}. "
            f"{self._advice('backpressure')}",
            {"seconds": last.took, "parts": total.parts, "every_seconds": self._every / _SECOND},
        )

    def _partition_idle(self, limit: m.TimeLimit, now: int) -> _Breach | None:
        span = span_of(limit, self._every)
        if not self._read_at or now - max(self._read_at.values()) >= span:
            return None
        since = min(self._read_at.values())
        idle = [name for name, at in self._read_at.items() if now - at >= span]
        named = idle or [min(self._read_at, key=self._read_at.__getitem__)]
        noun, producers = ("partition", "its producer is") if len(named) == 1 else ("partitions", "their producers are")
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        which = f"{', '.join(map(str, named[:_NAMED]))}{more}"
        return _Breach(
            since,
            f"no records have arrived from {noun} {which} for {duration(now - since)}, since {_time(since)}, "
            f"while others continue. {self._advice('partition-idle', producers=producers)}",
            {"partitions": named, "seconds": (now - since) / _SECOND},
        )

    def _hot_key(self, limit: m.ShareLimit, now: int) -> _Breach | None:
        total = self._recent[limit.span].total(now)
        if total is None:
            return None
        shares = [
            (share, key, node)
            for node, keys in total.hot_keys.items()
            if keys.records >= _LEAST
            for key, share in keys.hot.items()
        ]
        share, key, node = max(shares, default=(0.0, "", ""))
        if share <= limit.share * self._slack("hot-key"):
            return None
        return _Breach(
            now - limit.span,
            f"the key {key!r} has about {share:.0%} of the records{f' of {node}' if node else ''} since "
            f"{_time(now - limit.span)}; the limit is {limit.share:.0%}. {self._advice('hot-key')}",
            {"key": key, "share": share, "node": node},
        )

    def _advice(self, name: m.AlertName, **given: str) -> str:
        """Return the advice for an alert, filled in with the `given` texts and the commands for this run."""
        parts = f"where its steps spend their time (`{self._commands.of('doctor --no-restore {c}')}`)"
        if self._is_realtime:  # it reports only its partitions
            parts = f"whether one partition is behind, or all of them (`{self._status}`)"
        words = {
            "status": self._status,
            "servers": self._servers,
            "tune": self._commands.of("tune {c}"),
            "parts": parts,
        }
        return CONDITIONS[name].advice.format(**words, **given)

    def _see_fault(self, reason: FaultReason) -> str:
        match reason:
            case "source" | "lost":
                return f"whether {'the brokers answer' if self._is_realtime else 'the log can be read'}"
            case "sink":
                return f"whether {self._servers} answer{'' if self._is_realtime else 's'}"
            case "engine":
                return "`spark.log` in the checkpoint's folder"
            case _:
                assert_never(reason)

    def _see_dead(self, kinds: Mapping[str, int], total: StepReport) -> str:
        """Return the commands that list dead letters, and point to the redrive guide if they can be redriven."""
        from windrow.tools.redrive.copies import check_redrivable  # noqa: PLC0415 - needs Arrow, unlike evaluation

        try:
            check_redrivable(self._graph)
        except InputError:
            tables = [node.sink.companion("dead") for node in self._sinks_given(kinds, total.dead_by_sink)]
            shown = " and ".join(f"`{self._commands.of(f'show {table} --limit 20')}`" for table in tables[:_NAMED])
            return f"them with {shown}" + (f" (and {len(tables) - _NAMED} more tables)" if len(tables) > _NAMED else "")
        lists = self._commands.of("redrive --list")
        return f"them with `{lists}`; its guide says how to redrive them once the cause is fixed"

    def _sinks_given(self, kinds: Mapping[str, int], by_sink: Mapping[str, Mapping[str, int]]) -> list[m.SinkNode]:
        """Return sinks whose dead letters together cover all counts in `kinds`.

        Several sinks may hold the same dead letter.
        """
        missing, found = dict(kinds), []
        for node in sorted(
            self._graph.sinks, key=lambda node: -sum(by_sink.get(node.name, {}).get(kind, 0) for kind in kinds)
        ):
            given = by_sink.get(node.name, {})
            if any(left > 0 and given.get(kind) for kind, left in missing.items()):
                found.append(node)
                missing = {kind: left - given.get(kind, 0) for kind, left in missing.items()}
        return found or [self._graph.sinks[0]]  # older versions did not count by sink

    _conditions: Final[dict[m.AlertName, Callable[[AlertEvaluator, Any, int], _Breach | None]]] = {
        "lag": _behind,
        "no-step": _no_step,
        "watermark-stuck": _watermark_stuck,
        "latency": _latency,
        "late-spike": _late_spike,
        "expired-share": _expired_share,
        "dead-letters": _dead_letters,
        "internal-errors": _internal_errors,
        "sink-errors": _sink_errors,
        "checkpoint": _checkpoint,
        "backpressure": _backpressure,
        "partition-idle": _partition_idle,
        "hot-key": _hot_key,
    }
    """The condition of each alert, a function of its limits and the time."""


def _greatest(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the largest counts in descending order."""
    return dict(sorted(counts.items(), key=lambda pair: -pair[1])[:_NAMED])


def _list_top(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} ({count:,})" for kind, count in _greatest(counts).items())


def _time(micros: int) -> str:
    return f"{format_time(micros)}Z"  # read apart from the run, where nothing else says that times are UTC
