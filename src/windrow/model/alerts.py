"""Alerts about a run: the limits at which they are raised, and where they are sent. They affect no results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

_MINUTE = 60_000_000

AlertName = Literal[
    "lag",
    "no-step",
    "watermark-stuck",
    "latency",
    "late-spike",
    "expired-share",
    "dead-letters",
    "internal-errors",
    "sink-errors",
    "checkpoint",
    "backpressure",
    "partition-idle",
    "hot-key",
]
ALERT_NAMES: Final[tuple[AlertName, ...]] = get_args(AlertName)
ALERT_CONDITIONS: Final[Mapping[AlertName, str]] = {
    "lag": "the run is behind the end of its log, and does not catch up",
    "no-step": "records wait, and no step is committed",
    "watermark-stuck": "the low watermark does not move while records arrive",
    "latency": "records take too long from the log to the commit",
    "late-spike": "more records are late than before",
    "expired-share": "records expire",
    "dead-letters": "records cannot be read",
    "internal-errors": "records or rows fail because of a defect",
    "sink-errors": "the run retries after faults, or has failed",
    "checkpoint": "the checkpoint is unusable, or the newest savepoint is too old",
    "backpressure": "steps take longer than the interval between their starts",
    "partition-idle": "a partition has no new records",
    "hot-key": "one key has a large share of the records",
}
"""When each alert is raised, in words."""
COUNTING_ALERTS: Final[frozenset[AlertName]] = frozenset(
    {
        *("watermark-stuck", "latency", "late-spike", "expired-share", "dead-letters", "internal-errors"),
        *("backpressure", "hot-key"),
    }
)
"""Alerts that a realtime run does not raise, because it reports offsets only."""


def field_of(name: AlertName) -> str:
    """Return the field of `Alerts` that holds the limits of an alert."""
    return name.replace("-", "_")


@dataclass(frozen=True)
class Off:
    """Marks an alert that is turned off."""


OFF: Final = Off()


@dataclass(frozen=True)
class LagLimit:
    """The run has been behind its log for `span` microseconds, and does not catch up.

    It is behind if it is `time` microseconds, or more than `records`, behind the end of the log.
    """

    time: int = 5 * _MINUTE
    records: int | None = None
    span: int = 10 * _MINUTE


@dataclass(frozen=True)
class TimeLimit:
    """A condition has lasted for `span` microseconds; None means 2 minutes, or 10 triggers if that is longer."""

    span: int | None


@dataclass(frozen=True)
class LatencyLimit:
    """The 99th percentile of the time from log to commit has been above `p99` microseconds over `span`."""

    p99: int
    span: int = 10 * _MINUTE


@dataclass(frozen=True)
class ShareLimit:
    """A share (0 to 1) has been greater than `share` over `span` microseconds."""

    share: float
    span: int = 10 * _MINUTE


@dataclass(frozen=True)
class RecentLimit:
    """Something has happened within the last `span` microseconds."""

    span: int = 10 * _MINUTE


@dataclass(frozen=True)
class SpikeLimit:
    """A share over `span` has been more than `times` that of the week before, and greater than `share` (0 to 1)."""

    times: float = 3.0
    share: float = 0.01
    span: int = 10 * _MINUTE


@dataclass(frozen=True)
class CheckpointLimit:
    """The checkpoint cannot be used, or the newest savepoint is older than `savepoint` microseconds (None: any age)."""

    savepoint: int | None = None


AlertLimit = LagLimit | TimeLimit | LatencyLimit | ShareLimit | RecentLimit | SpikeLimit | CheckpointLimit


@dataclass(frozen=True)
class Alerts:
    """The limits of each alert, and where alerts are sent in addition to the log.

    Each alert is posted as JSON to the URL `webhook`, which may refer to secrets, and passed on stdin to `command`, a
    program with its arguments.
    """

    lag: LagLimit | Off = LagLimit()
    no_step: TimeLimit | Off = TimeLimit(None)
    watermark_stuck: TimeLimit | Off = TimeLimit(5 * _MINUTE)
    latency: LatencyLimit | Off = OFF
    late_spike: SpikeLimit | Off = SpikeLimit()
    expired_share: ShareLimit | Off = ShareLimit(0.001)
    dead_letters: ShareLimit | Off = ShareLimit(0.001)
    internal_errors: RecentLimit | Off = RecentLimit()
    sink_errors: TimeLimit | Off = TimeLimit(5 * _MINUTE)
    checkpoint: CheckpointLimit | Off = CheckpointLimit()
    backpressure: TimeLimit | Off = TimeLimit(5 * _MINUTE)
    partition_idle: TimeLimit | Off = TimeLimit(60 * _MINUTE)
    hot_key: ShareLimit | Off = ShareLimit(0.25, 15 * _MINUTE)
    webhook: str | None = field(default=None, repr=False)
    command: tuple[str, ...] = field(default=(), repr=False)

    @property
    def limits(self) -> dict[AlertName, AlertLimit]:
        """The limits by name, without the alerts that are off."""
        named = ((name, getattr(self, field_of(name))) for name in ALERT_NAMES)
        return {name: limit for name, limit in named if not isinstance(limit, Off)}


DEFAULT_ALERTS: Final = Alerts()
"""The alerts of a pipeline without the section `alerts`."""
