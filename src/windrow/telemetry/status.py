"""Status of a run: whether it runs, where it stands and what holds it back, from the history beside its checkpoint.

A running process writes there how it stands every two seconds at the latest, so nothing is asked of it, nor of Spark or
the log. Reading it imports neither Spark nor Arrow.
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
"""Seconds in which records that wait are read, so that they are what comes between two steps."""
RECENT: Final = 60_000_000
"""Microseconds over which rates and trends are."""
_SILENT: Final = 15_000_000
"""Microseconds after which a process that has not written is lost."""
_PAUSE: Final = 5_000_000
"""Microseconds without a commit after which the lag's trend is since the last one."""
STEPS: Final = 120
"""Steps that are looked at."""
_OF_RECORD: Final = ("host", "machine", "pid", "began", "seen", "ended", "error", "fault", "fault_at")
_ALERTS: Final = 20
"""The last alerts, which are shown though they were resolved."""


@dataclass(frozen=True)
class PartitionStatus:
    """Where a partition stands: offsets, microseconds and seconds; what is not known is None.

    `per_second` are the records read of it lately. `held` says why it holds the low watermark back, if it does.
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
    """How a run stands at `now`, or stood when it ended (microseconds); what is not known is None.

    `per_second` are the events of the last minute. `lag_trend` is by how many offsets a second the lag grows (below 0
    it shrinks). `recent` are the steps of the last minute as one, None if there were none. `alerts` are the active ones
    and the last of the others, in the order in which they were raised.
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
        """Whether what waits is read in a few seconds: how it changes from one look to the next says nothing then."""
        return self.lag is not None and self.lag.behind < SHORT * self.per_second

    @property
    def until_clear(self) -> float | None:
        """Seconds until what waits is read, or nothing waits if the lag goes on to shrink; None if it does not."""
        if self.state in OVER or not self.lag or not self.lag.behind:
            return None
        if self.is_up_to_date:
            return self.lag.behind / self.per_second
        if self.lag_trend is None or self.lag_trend >= 0:
            return None
        return self.lag.behind / -self.lag_trend

    @property
    def busy(self) -> float | None:
        """Share of the last minute's time that its steps took; None if there were none."""
        recent = self.recent
        return None if recent is None or not recent.seconds else min(1.0, recent.took / recent.seconds)

    @property
    def watermark_lag(self) -> float | None:
        """Seconds from the low watermark to `now`."""
        if self.last is None or self.last.low_watermark is None:
            return None
        return (self.now - self.last.low_watermark) / 1_000_000

    @property
    def hot_keys(self) -> dict[str, dict[str, float]]:
        """The hot keys of the last minute by node, with their share of the node's records."""
        return {} if self.recent is None else {node: keys.hot for node, keys in self.recent.hot_keys.items()}

    @property
    def windows(self) -> dict[str, WindowCounts] | None:
        """The windows by node and key group: open now, fired and closed in the last minute; None if not known."""
        known = self.recent or (None if self.last is None else self.last.again())
        return None if known is None else known.windows

    @staticmethod
    def read(path: Path, now: int, graph: m.Graph | None = None) -> RunStatus:
        """Read the status of the last process that ran; raise InputError if there is no history.

        The `graph` that runs, if it is known, says which sources have `time.idle`.
        """
        runs = read_runs(path, last=1)
        found = RunStatus.of(runs[0] if runs else None, read_history(path, last=STEPS), now, graph)
        return replace(found, alerts=last_alerts(path))

    @staticmethod
    def of(record: RunRecord | None, steps: Sequence[StepReport], now: int, graph: m.Graph | None = None) -> RunStatus:
        """Return the status by a record, and the last steps, oldest first."""
        state = _state(record, now)
        if record is not None and state in OVER:
            now = record.ended or record.seen
        last = steps[-1] if steps else None
        lag = None if last is None else last.last_lag
        if record is not None and record.lag is not None:
            lag = record.lag
        recent = [step for step in steps if step.committed is not None and step.committed > now - RECENT]
        span = RECENT / 1_000_000 if record is None else min(RECENT, max(1, now - record.began)) / 1_000_000
        together = reduce(add, recent) if recent else None
        return RunStatus(
            state=state,
            now=now,
            record=record,
            last=last,
            recent=together,
            lag=lag,
            per_second=0.0 if together is None else together.events / span,
            lag_trend=_trend(recent, lag),
            partitions=() if last is None else tuple(_partitions(steps, together, lag, span, graph)),
        )

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON: times are microseconds, durations seconds."""
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
            "windows": self.windows and {node: one.plain() for node, one in self.windows.items()},
            "state_rows": None if last is None else last.state_rows,
            "state_bytes": None if last is None else last.state_bytes,
            "state_by_node": {} if last is None else last.state_by_node,
            "hot_keys": self.hot_keys,
            "partitions": [vars(partition) for partition in self.partitions],
            "alerts": [alert.plain() for alert in self.alerts],
            "since_start": None if record is None else record.totals,
        }


def standing_since(steps: Sequence[StepReport]) -> int | None:
    """Return when the low watermark got to where it stands, in microseconds, by the steps that are known, oldest first.

    If it stands there in all of them, that is the first one. None if there is no low watermark, or no time is known.
    """
    since = None
    for step in reversed(steps):
        if step.low_watermark is None or step.low_watermark != steps[-1].low_watermark:
            break
        since = step.committed or since
    return since


def last_alerts(path: Path) -> tuple[Alert, ...]:
    """Return the active alerts in a history and the last of the others; none if there is no history here."""
    alerts = read_alerts(path) if path.is_file() else []
    return tuple(one for number, one in enumerate(alerts) if one.is_active or number >= len(alerts) - _ALERTS)


def _state(record: RunRecord | None, now: int) -> State:
    if record is None:
        return "unknown"
    if record.ended is not None:
        return "ended" if record.error is None else "failed"
    if record.machine == socket.gethostname() and not _is_alive(record.pid):
        return "killed"
    if now - record.seen > _SILENT:
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
    """Return by how many offsets a second the lag has grown since the first of some steps.

    Where none was committed for a while, it is since the last one: the trend before says nothing of what follows.
    """
    known = [one for step in recent if (one := step.last_lag) is not None]
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
            held=_held(name, steps, lag, graph) if name in last.held_back_by else None,
        )
        for name in names
    ]


def _order(name: PartitionName) -> tuple[str, int]:
    source, _, number = str(name).rpartition("/")
    return source, int(number)


def _held(name: PartitionName, steps: Sequence[StepReport], lag: Lag | None, graph: m.Graph | None) -> str:
    """Return why a partition holds the low watermark back."""
    last = steps[-1]
    waits = _waits_for_ever(name, graph)
    if last.watermarks.get(name) is None:
        return f"none of its records has been read yet{waits}"
    if lag is not None and lag.records.get(name):
        return f"{lag.records[name]:,} of its records are not read yet"
    since = last.committed
    for step in reversed(steps):
        if step.watermarks.get(name) != last.watermarks[name]:
            break
        since = step.committed
    if since is None or last.committed is None or since == last.committed:
        return "its event times are the earliest"
    # the last step need not be the last time that it was looked at
    until = max(last.committed, 0 if lag is None else lag.asked)
    return f"nothing that moves it has come for {round((until - since) / 1_000_000):,} s{waits}"


def _waits_for_ever(name: PartitionName, graph: m.Graph | None) -> str:
    """Return what is said of a source without `time.idle`."""
    if graph is None:
        return ""
    source = next((source for source in graph.sources if source.name == str(name).rpartition("/")[0]), graph.sources[0])
    return "; without time.idle it holds the others back until it has more" if source.time.idle is None else ""
