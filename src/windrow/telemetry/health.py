"""Health of a run: its states, and the conditions that need attention, with their limits and messages.

Alerts (`windrow.tools.alerts`), `windrow doctor`, `windrow status`, the dashboard and the Prometheus rules all use this
table. The `alerts` section of a pipeline changes only the limits of the pipeline's own alerts.
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
"""In state `killed`, the process died without recording its end. In state `lost`, it has not written for a while, for
example because it runs on another machine."""

STATES: Final[Mapping[State, tuple[Literal["good", "warn", "bad", "done"], str]]] = {
    "running": ("good", "running"),
    "retrying": ("warn", "retrying after a fault"),
    "stalled": ("bad", "stalled: records are waiting, but no step is committed"),
    "ended": ("done", "ended"),
    "failed": ("bad", "failed"),
    "killed": ("bad", "not running: its process died without recording its end"),
    "lost": ("bad", "unreachable: it has stopped reporting"),
    "unknown": ("warn", "unknown: an older version recorded only its steps"),
}
"""The severity and the description of each state."""
GOING: Final[frozenset[State]] = frozenset({"running", "retrying", "stalled"})
"""States of a run that has not ended."""
OVER: Final[frozenset[State]] = frozenset({"ended", "failed", "killed", "lost"})
"""States of a run that has ended, as far as known."""

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_NUMBERS: Final = frozenset({"records", "share", "times"})
"""Names of limits that are not times."""
RUNBOOKS: Final = "docs/guides/alerts.md"
"""The page with a section for each alert, whose heading is the alert's name."""
_LIMITS: Final[Mapping[m.AlertName, m.AlertLimit]] = {**m.DEFAULT_ALERTS.limits, "latency": m.LatencyLimit(_MINUTE)}
"""The default limits. `latency` has no default; its limit here is the initial value in its Prometheus rule."""


@dataclass(frozen=True)
class Condition:
    """A condition of a run: its messages, and its Prometheus rule.

    The first thing to check is `advice`; alerts fill in the names in braces. `promql` is the expression of the rule,
    which must hold for `hold`; `summary` and `description` are the annotations of the rule, and `note` is a comment
    above it. These texts may contain placeholders. `<time>`, `<p99>`, `<share>` and `<times>` stand for the limits of
    that name (times in seconds). The time over which the condition holds is `<span>` (`5m`), `<seconds>` (300), or `<in
    words>` ("5 minutes"). `<rest>` is 2 minutes less.
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
        """A description of when the condition holds."""
        return m.ALERT_CONDITIONS[self.name]

    @property
    def limit(self) -> m.AlertLimit:
        """The default limit."""
        return _LIMITS[self.name]

    @property
    def rule(self) -> str:
        """The name of the Prometheus rule."""
        return f"Windrow{self.name.title().replace('-', '')}"

    def fill(self, text: str) -> str:
        """Replace the placeholders in angle brackets in a text with the default limit."""
        span = span_of(self.limit)
        values = {field.name: getattr(self.limit, field.name) for field in fields(self.limit)} | {"seconds": span}
        texts = {name: f"{value if name in _NUMBERS else value / _SECOND:g}" for name, value in values.items() if value}
        texts |= {"span": m.format_duration(span), "rest": m.format_duration(max(0, span - 2 * _MINUTE))}
        texts["in words"] = "an hour" if span == 60 * _MINUTE else f"{span / _MINUTE:g} minutes"
        return reduce(lambda filled, name: filled.replace(f"<{name}>", texts[name]), texts, text)


def runbook_of(name: m.AlertName, runbooks: str = RUNBOOKS) -> str:
    """Return the address of a condition's runbook, the section of a page with its meaning, causes and remedies."""
    return f"{runbooks}#{name}"


def span_of(limit: m.AlertLimit, every: int = 0) -> int:
    """Return how long a condition must hold, or the period over which it is measured, in microseconds.

    If the limit has no span, this is two minutes or ten times `every`, the interval between steps, whichever is longer.
    It is 0 for a checkpoint limit.
    """
    if isinstance(limit, m.CheckpointLimit):
        return 0
    return max(2 * _MINUTE, 10 * every) if limit.span is None else limit.span


def default_limit(name: m.AlertName, part: Literal["time", "share", "span"]) -> float:
    """Return one part of a condition's default limit: a time in microseconds, or a share from 0 to 1."""
    value: float = getattr(_LIMITS[name], part)
    return value


_TABLE: Final = tomllib.loads(files("windrow.telemetry").joinpath("conditions.toml").read_text(encoding="utf-8"))
CONDITIONS: Final[Mapping[m.AlertName, Condition]] = {name: Condition(name, **_TABLE[name]) for name in m.ALERT_NAMES}
"""The condition of each alert, by the alert's name, from `conditions.toml`."""
