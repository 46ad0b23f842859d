"""Health of a run: its states, and the conditions that need attention, with their limits and texts.

Alerts (`windrow.tools.alerts`), `windrow doctor`, `windrow status`, the dashboard and the rules for Prometheus judge by
this table. The section `alerts` of a pipeline changes only the limits of its alerts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import reduce
from importlib.resources import files
from typing import Final, Literal

from windrow import model as m

State = Literal["running", "retrying", "stalled", "ended", "failed", "killed", "lost", "unknown"]
"""`killed`: its process has died without a record of its end; `lost`: it has not written for a while, for example on
another machine."""

STATES: Final[Mapping[State, tuple[Literal["good", "warn", "bad", "done"], str]]] = {
    "running": ("good", "running"),
    "retrying": ("warn", "retrying after a fault"),
    "stalled": ("bad", "stalled: records wait, and no step is committed"),
    "ended": ("done", "ended"),
    "failed": ("bad", "failed"),
    "killed": ("bad", "not running: its process is gone without a word"),
    "lost": ("bad", "nothing was heard of it"),
    "unknown": ("warn", "unknown: an older version left only its steps"),
}
"""The level of each state, and its text."""
GOING: Final[frozenset[State]] = frozenset({"running", "retrying", "stalled"})
"""States of a run that has not ended."""
OVER: Final[frozenset[State]] = frozenset({"ended", "failed", "killed", "lost"})
"""States of a run that has ended, as far as is known."""

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_NUMBERS: Final = frozenset({"records", "share", "times"})
"""Limits that are not times."""
RUNBOOKS: Final = "docs/runbooks"
_LIMITS: Final[Mapping[m.AlertName, m.AlertLimit]] = {**m.DEFAULT_ALERTS.limits, "latency": m.LatencyLimit(_MINUTE)}
"""The default limits; that of `latency`, which has no default, is the first value of its rule for Prometheus."""


@dataclass(frozen=True)
class Condition:
    """A condition of a run: its texts, and its rule for Prometheus.

    `advice` is the first thing to check; alerts fill in the names in braces. `promql` is the expression of the rule,
    which has to hold for `hold`; `summary` and `description` are its annotations, and `note` a comment above it. In
    these `<time>`, `<p99>`, `<share>` and `<times>` stand for the limits of that name (times in seconds), `<span>` for
    the time over which the condition holds (`5m`), `<seconds>` and `<in words>` ("5 minutes") for the same, and
    `<rest>` for 2 minutes less.
    """

    name: m.AlertName
    advice: str
    promql: str
    summary: str
    description: str
    severity: Literal["critical", "warning", "info"] = "warning"
    hold: str = "<span>"
    note: str = ""

    @property
    def measure(self) -> str:
        """When the condition holds."""
        return m.ALERT_CONDITIONS[self.name]

    @property
    def limit(self) -> m.AlertLimit:
        """The default limit."""
        return _LIMITS[self.name]

    def fill(self, text: str) -> str:
        """Replace the names in angle brackets of a text by the default limit."""
        span = span_of(self.limit)
        values = {field.name: getattr(self.limit, field.name) for field in fields(self.limit)} | {"seconds": span}
        texts = {name: f"{value if name in _NUMBERS else value / _SECOND:g}" for name, value in values.items() if value}
        texts |= {"span": m.format_duration(span), "rest": m.format_duration(max(0, span - 2 * _MINUTE))}
        texts["in words"] = "an hour" if span == 60 * _MINUTE else f"{span / _MINUTE:g} minutes"
        return reduce(lambda filled, name: filled.replace(f"<{name}>", texts[name]), texts, text)


def runbook_of(name: m.AlertName, runbooks: str = RUNBOOKS) -> str:
    """Return the page of the documentation about a condition: its meaning, causes and remedies."""
    return f"{runbooks}/{name}.md"


def span_of(limit: m.AlertLimit, every: int = 0) -> int:
    """Return the time for which a condition has to hold or over which it is measured; steps begin every `every`."""
    if isinstance(limit, m.CheckpointLimit):
        return 0
    return max(2 * _MINUTE, 10 * every) if limit.span is None else limit.span


def default_limit(name: m.AlertName, part: Literal["time", "share", "span"]) -> float:
    """Return a part of the default limit of a condition: microseconds, or a share of 0 to 1."""
    value: float = getattr(_LIMITS[name], part)
    return value


_TABLE: Final = tomllib.loads(files("windrow.telemetry").joinpath("conditions.toml").read_text(encoding="utf-8"))
CONDITIONS: Final[Mapping[m.AlertName, Condition]] = {name: Condition(name, **_TABLE[name]) for name in m.ALERT_NAMES}
"""The conditions by the names of their alerts, from `conditions.toml`."""
