"""Status of a run, read from the history beside its checkpoint: its state, its position, and what holds it back.

A running process writes its record there at least every two seconds, so neither the process, Spark nor the log is
queried. Reading the status imports neither Spark nor Arrow.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Final

from windrow import model as m
from windrow.telemetry.facts import PartitionName
from windrow.telemetry.health import CONDITIONS, OVER, State, span_of
from windrow.telemetry.history import RunRecord, read_alerts, read_history, read_runs
from windrow.telemetry.reports import Alert, Lag, StepReport
from windrow.telemetry.window_counts import WindowCounts

SHORT: Final = 5.0
"""If all waiting records will be read within this many seconds, they are just the records of the next step."""
RECENT: Final = 60_000_000
"""Microseconds over which rates and trends are measured."""
_LOST: Final = 15_000_000
"""Microseconds without a write to its record after which a process is considered lost."""
_PAUSE: Final = 5_000_000
"""After this many microseconds without a commit, the trend of the lag is measured from the last commit."""
STEPS: Final = 120
"""Number of steps from which a status is computed."""
_OF_RECORD: Final = ("host", "machine", "pid", "began", "seen", "ended", "error", "fault", "fault_at")
_ALERTS: Final = 20
"""This many of the last alerts are shown even if they were resolved."""


@dataclass(frozen=True)
class PartitionStatus:
    """The state of a partition: offsets, microseconds and seconds. Unknown values are None.

    `per_second` is the recent number of records per second. `held` says why the partition holds the low watermark back,
    or is None if it does not.
    """

    partition: PartitionName
    offset: int | None
    lag: int | None
    lag_seconds: float | None
    watermark: int | None
    is_idle: bool
    per_second: float
    held: str | None


@dataclass(frozen=True)
class RunStatus:
    """Status of a run at `now`, or at its end (microseconds). Unknown values are None.

    `per_second` is the number of events per second over the last minute. `lag_trend` is the growth of the lag in
    offsets per second (negative if it shrinks). `recent` is the sum of the steps of the last minute, or None if there
    were none. `alerts` are the active alerts and the most recent resolved ones, in the order in which they were raised.
    """

    state: State
    now: int
    record: RunRecord | None
    last: StepReport | None
    recent: StepReport | None
    lag: Lag | None
    per_second: float
    lag_trend: float | None
    partitions: tuple[PartitionStatus, ...]
    alerts: tuple[Alert, ...] = ()

    @property
    def is_up_to_date(self) -> bool:
        """True if the waiting records will be read within seconds, in which case changes of the lag are meaningless."""
        return self.lag is not None and self.lag.behind < SHORT * self.per_second

    @property
    def until_clear(self) -> float | None:
        """Seconds until no records are waiting if the lag keeps shrinking, or None if it is not shrinking."""
        if self.state in OVER or not self.lag or not self.lag.behind:
            return None
        if self.is_up_to_date:
            return self.lag.behind / self.per_second
        if self.lag_trend is None or self.lag_trend >= 0:
            return None
        return self.lag.behind / -self.lag_trend

    @property
    def busy(self) -> float | None:
        """The share of the last minute spent on steps, or None if there were none."""
        recent = self.recent
        return None if recent is None or not recent.seconds else min(1.0, recent.took / recent.seconds)

    @property
    def watermark_lag(self) -> float | None:
        """Seconds from the low watermark to `now`, or None if there is no low watermark."""
        if self.last is None or self.last.low_watermark is None:
            return None
        return (self.now - self.last.low_watermark) / 1_000_000

    @property
    def hot_keys(self) -> dict[str, dict[str, float]]:
        """Map each node to its hot keys in the last minute, with each key's share of the node's records."""
        return {} if self.recent is None else {node: keys.hot for node, keys in self.recent.hot_keys.items()}

    @property
    def windows(self) -> dict[str, WindowCounts] | None:
        """Window counts of each node and key group: open now, fired and closed in the last minute. None if unknown."""
        known = self.recent or (None if self.last is None else self.last.again())
        return None if known is None else known.windows

    @staticmethod
    def read(path: Path, now: int, graph: m.Graph | None = None) -> RunStatus:
        """Read the status of the last process from its history; raise InputError if there is no history.

        With `graph`, the explanation of a partition that waits for records mentions if its source lacks `time.idle`.
        """
        runs = read_runs(path, last=1)
        status = RunStatus.of(runs[0] if runs else None, read_history(path, last=STEPS), now, graph)
        return replace(status, alerts=last_alerts(path))

    @staticmethod
    def of(record: RunRecord | None, steps: Sequence[StepReport], now: int, graph: m.Graph | None = None) -> RunStatus:
        """Return the status for a process record and its last steps, oldest first."""
        state = _state(record, now)
        if record is not None and state in OVER:
            now = record.ended or record.seen
        last = steps[-1] if steps else None
        lag = None if last is None else last.last_lag
        if record is not None and record.lag is not None:
            lag = record.lag
        recent = [step for step in steps if step.committed is not None and step.committed > now - RECENT]
        span = RECENT / 1_000_000 if record is None else min(RECENT, max(1, now - record.began)) / 1_000_000
        total = reduce(add, recent) if recent else None
        return RunStatus(
            state=state,
            now=now,
            record=record,
            last=last,
            recent=total,
            lag=lag,
            per_second=0.0 if total is None else total.events / span,
            lag_trend=_trend(recent, lag),
            partitions=() if last is None else tuple(_partitions(steps, total, lag, span, graph)),
        )

    def plain(self) -> dict[str, Any]:
        """Return the status as plain JSON: times are microseconds, durations seconds."""
        record, last = self.record, self.last
        return {
            "pipeline": None if record is None else record.pipeline,
            "state": self.state,
            **{name: getattr(record, name, None) for name in _OF_RECORD},
            "epoch": None if last is None else last.epoch,
            "committed": None if last is None else last.committed,
            "events_per_second": round(self.per_second, 1),
            "low_watermark": None if last is None else last.low_watermark,
            "watermark_lag": self.watermark_lag,
            "held_back_by": [] if last is None else last.held_back_by,
            "behind": None if self.lag is None else self.lag.behind,
            "lag_seconds": None if self.lag is None else self.lag.longest,
            "lag_trend": self.lag_trend,
            "seconds_until_clear": self.until_clear,
            "slots": [] if self.lag is None else [asdict(slot) for slot in self.lag.slots],
            "open_windows": None if last is None or last.only_offsets else last.open_windows,
            "windows": self.windows and {node: counts.plain() for node, counts in self.windows.items()},
            "state_rows": None if last is None else last.state_rows,
            "state_bytes": None if last is None else last.state_bytes,
            "state_by_node": {} if last is None else last.state_by_node,
            "hot_keys": self.hot_keys,
            "partitions": [vars(partition) for partition in self.partitions],
            "alerts": [alert.plain() for alert in self.alerts],
            "since_start": None if record is None else record.totals,
        }


def standing_since(steps: Sequence[StepReport]) -> int | None:
    """Return the time in microseconds since which the low watermark has not moved, given the known steps, oldest first.

    If it did not move in any of them, return the time of the first. Return None if there is no low watermark or no
    known time.
    """
    since = None
    for step in reversed(steps):
        if step.low_watermark is None or step.low_watermark != steps[-1].low_watermark:
            break
        since = step.committed or since
    return since


def last_alerts(path: Path) -> tuple[Alert, ...]:
    """Return the active alerts of a history and the most recent resolved ones.

    Return an empty tuple if there is no history on this machine.
    """
    alerts = read_alerts(path) if path.is_file() else []
    return tuple(alert for number, alert in enumerate(alerts) if alert.is_active or number >= len(alerts) - _ALERTS)


def _state(record: RunRecord | None, now: int) -> State:
    if record is None:
        return "unknown"
    if record.ended is not None:
        return "ended" if record.error is None else "failed"
    if record.machine == socket.gethostname() and not _is_alive(record.pid):
        return "killed"
    if now - record.seen > _LOST:
        return "lost"
    if record.is_retrying:
        return "retrying"
    limit = span_of(CONDITIONS["no-step"].limit, record.every or 0)
    return "stalled" if record.waiting is not None and now - record.waiting > limit else "running"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _trend(recent: Sequence[StepReport], lag: Lag | None) -> float | None:
    """Return the growth of the lag since the first of the recent steps, in offsets per second.

    If no step was committed for a while, measure from the last step, as the growth before it no longer matters.
    """
    known = [past for step in recent if (past := step.last_lag) is not None]
    if not known or lag is None:
        return None
    first = known[-1] if lag.asked - known[-1].asked > _PAUSE else known[0]
    if lag.asked <= first.asked:
        return None
    return (lag.behind - first.behind) / ((lag.asked - first.asked) / 1_000_000)


def _partitions(
    steps: Sequence[StepReport], recent: StepReport | None, lag: Lag | None, span: float, graph: m.Graph | None
) -> list[PartitionStatus]:
    last = steps[-1]
    names = sorted({**last.offsets, **last.watermarks, **({} if lag is None else lag.records)}, key=_order)
    seconds = {} if lag is None or lag.seconds is None else lag.seconds
    return [
        PartitionStatus(
            partition=name,
            offset=last.offsets.get(name),
            lag=None if lag is None else lag.records.get(name),
            lag_seconds=seconds.get(name),
            watermark=last.watermarks.get(name),
            is_idle=name in last.idle,
            per_second=0.0 if recent is None else recent.read.get(name, 0) / span,
            held=_why_held(name, steps, lag, graph) if name in last.held_back_by else None,
        )
        for name in names
    ]


def _order(name: PartitionName) -> tuple[str, int]:
    source, _, number = str(name).rpartition("/")
    return source, int(number)


def _why_held(name: PartitionName, steps: Sequence[StepReport], lag: Lag | None, graph: m.Graph | None) -> str:
    """Return the reason why a partition holds the low watermark back."""
    last = steps[-1]
    waits = _idle_hint(name, graph)
    if last.watermarks.get(name) is None:
        return f"none of its records has been read yet{waits}"
    if lag is not None and lag.records.get(name):
        return f"{lag.records[name]:,} of its records have not been read yet"
    since = last.committed
    for step in reversed(steps):
        if step.watermarks.get(name) != last.watermarks[name]:
            break
        since = step.committed
    if since is None or last.committed is None or since == last.committed:
        return "its event times are the earliest"
    # the lag may be more recent than the last step
    until = max(last.committed, 0 if lag is None else lag.asked)
    return f"no record has advanced it for {round((until - since) / 1_000_000):,} s{waits}"


def _idle_hint(name: PartitionName, graph: m.Graph | None) -> str:
    """Return a hint to add to the message if the source has no `time.idle`, or an empty string."""
    if graph is None:
        return ""
    source = next((source for source in graph.sources if source.name == str(name).rpartition("/")[0]), graph.sources[0])
    return "; without time.idle it holds the others back until it has more records" if source.time.idle is None else ""
