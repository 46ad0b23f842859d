"""Health of a run: its states, and the conditions that need attention, with their limits and texts.

Alerts (`windrow.tools.alerts`), `windrow doctor`, `windrow status`, the dashboard and the rules for Prometheus judge by
this table. The section `alerts` of a pipeline changes only the limits of its alerts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import reduce
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


_TABLE: Final = (
    Condition(
        "lag",
        advice="First see {parts}",
        promql="windrow:lag:seconds > <time> and deriv(windrow:lag:seconds[<span>]) > -0.1",
        summary="{{ $labels.pipeline }} is {{ $value | humanizeDuration }} behind its log, and does not catch up",
        description="""{{ with printf "topk(1, windrow_consumer_lag_records{pipeline=%q,instance=%q})" $labels.pipeline
        $labels.instance | query }}{{ . | first | value | printf "%.0f" }} records wait in partition {{ . | first |
        label "partition" }}, the farthest behind.{{ end }}""",
        note="a run that catches up is left alone: its lag shrinks by 6 s a minute or more",
    ),
    Condition(
        "no-step",
        advice="First see whether {servers} and Spark answer (`{status}`, and `spark.log` in the checkpoint's folder)",
        severity="critical",
        promql="""time() - last_over_time(windrow:progress:timestamp_seconds[1d]) > <seconds>
        unless time() - windrow:progress:timestamp_seconds < 10 * windrow_trigger_interval_seconds
        and on (job, instance) (
          sum by (job, instance) (windrow_consumer_lag_records) > 0
          or sum by (job, instance) (windrow_retrying) > 0
          or up == 0
        )""",
        summary="{{ $labels.pipeline }} has committed no step for {{ $value | humanizeDuration }}",
        description="""{{ with printf "up{instance=%q} == 0" $labels.instance | query }}{{ . | first | label "instance"
        }} does not answer. {{ end }}{{ with printf "sum(windrow_consumer_lag_records{pipeline=%q,instance=%q})"
        $labels.pipeline $labels.instance | query }}{{ . | first | value | printf "%.0f" }} records wait. {{ end
        }}`windrow status` says whether its process runs, and which fault it retries.""",
        hold="1m",
        note="records wait, faults are retried, or the process does not answer; that was seen within a day",
    ),
    Condition(
        "watermark-stuck",
        advice="First see whether the producer of that partition is alive and its clock right",
        promql="""max without (partition) (windrow_partition_holds_watermark) == 1
        unless windrow_low_watermark_timestamp_seconds > windrow_low_watermark_timestamp_seconds offset 2m
        and sum without (partition) (increase(windrow_records_total[2m])) > 0""",
        summary="The low watermark of {{ $labels.pipeline }} has stood for <in words>, though records come",
        description="""{{ with printf "windrow_watermark_lag_seconds{pipeline=%q,instance=%q}" $labels.pipeline
        $labels.instance | query }}It is {{ . | first | value | humanizeDuration }} behind the clock{{ else }}There is
        none yet{{ end }}; it waits for{{ range printf "topk(5,
        windrow_partition_holds_watermark{pipeline=%q,instance=%q} == 1)" $labels.pipeline $labels.instance | query }}
        partition {{ .Labels.partition }},{{ end }} and no window fires meanwhile.""",
        hold="<rest>",
    ),
    Condition(
        "latency",
        advice="First see whether the run is behind, and {parts}",
        promql="histogram_quantile(0.99, rate(windrow_end_to_end_latency_seconds_bucket[5m])) > <p99>",
        summary="1 % of the records of {{ $labels.pipeline }} take {{ $value | humanizeDuration }} or longer",
        description="From the log timestamp of a record to the commit of its step, over the last 5 minutes.",
    ),
    Condition(
        "late-spike",
        advice="First compare delays by `{tune}`, and ask whether a producer sends old records",
        promql="""increase(windrow_verdicts_total{verdict="late"}[<span>])
          / ignoring (verdict) increase(windrow_event_lateness_seconds_count[<span>]) > <share>
        and ignoring (verdict)
          increase(windrow_verdicts_total{verdict="late"}[<span>])
            / ignoring (verdict) increase(windrow_event_lateness_seconds_count[<span>])
          > <times> * increase(windrow_verdicts_total{verdict="late"}[1w])
            / ignoring (verdict) increase(windrow_event_lateness_seconds_count[1w])""",
        summary="{{ $value | humanizePercentage }} of the records of {{ $labels.pipeline }} are late",
        description="That is more than <times> times the share of the week. `windrow tune` says which delay would do.",
    ),
    Condition(
        "expired-share",
        advice="First see by `{tune}` which lateness they would have needed",
        promql="""increase(windrow_verdicts_total{verdict="expired"}[<span>])
          / ignoring (verdict) increase(windrow_event_lateness_seconds_count[<span>]) > <share>""",
        summary="{{ $value | humanizePercentage }} of the records of {{ $labels.pipeline }} are expired",
        description="They are in no result, but in the late output. `windrow tune` says which lateness would do.",
    ),
    Condition(
        "dead-letters",
        advice="First see {dead}",
        promql="""sum without (reason) (increase(windrow_dead_letters_total[<span>]))
        / (
          sum without (partition) (increase(windrow_records_total[<span>]))
          + sum without (reason) (increase(windrow_dead_letters_total{reason="unreadable"}[<span>]))
        ) > <share>""",
        summary="{{ $value | humanizePercentage }} of the records of {{ $labels.pipeline }} are dead letters",
        description="The column `reason` of its table of dead letters says why (`windrow show PIPELINE dead`).",
    ),
    Condition(
        "sink-errors",
        advice="First see {fault}",
        promql="increase(windrow_retries_total[<span>]) > 0",
        summary='{{ $labels.pipeline }} had {{ printf "%.0f" $value }} faults ({{ $labels.reason }}) in <in words>',
        description="""It has retried for at least <in words>, and gives up after a minute without a step (`run
        --retry`). `windrow status` has the last fault.""",
    ),
    Condition(
        "checkpoint",
        advice="First stop the run, take one by `{savepoint}`, and start the run again",
        promql="""rate(windrow_step_duration_seconds_sum{part="sync"}[5m])
          / ignoring (part) rate(windrow_steps_total[5m]) > 5""",
        summary="The checkpoint of {{ $labels.pipeline }} takes {{ $value | humanizeDuration }} a step to sync",
        description="Its disk is slow, nearly full, or failing.",
        hold="10m",
        note="before each commit the checkpoint is synced: the next commits wait for that",
    ),
    Condition(
        "backpressure",
        advice="First see by `{status}` whether the lag grows; if so, fix that part, or give the run more cores",
        promql="""
        sum without (part) (rate(windrow_step_duration_seconds_sum{part=~"plan|compute|collect|wait"}[<span>]))
          / rate(windrow_steps_total[<span>]) > windrow_trigger_interval_seconds""",
        summary="A step of {{ $labels.pipeline }} takes {{ $value | humanizeDuration }}, longer than its trigger",
        description="""Most of it is {{ with printf "topk(1,
        rate(windrow_step_duration_seconds_sum{pipeline=%q,instance=%q, part=~'plan|compute|collect|wait'}[5m]))"
        $labels.pipeline $labels.instance | query }}{{ . | first | label "part" }}{{ end }}.""",
    ),
    Condition(
        "partition-idle",
        advice="First see whether {producers} alive, and how keys are divided among partitions",
        severity="info",
        promql="""windrow_partition_idle == 1
        and ignoring (partition) min without (partition) (windrow_partition_idle) == 0""",
        summary="Partition {{ $labels.partition }} of {{ $labels.pipeline }} has been idle for <in words>",
        description="""Others have records. Those that come in it later may be late, as it does not hold the watermark
        back.""",
    ),
    Condition(
        "hot-key",
        advice="One key group has them all: first see whether that is a producer's fault, else set `salt`",
        severity="info",
        promql="avg_over_time(windrow_hot_key_share_ratio[5m]) > <share>",
        summary="One key has {{ $value | humanizePercentage }} of the records of {{ $labels.node }}",
        description="""All its records are one task's{{ with printf
        "windrow_key_group_load_ratio{pipeline=%q,instance=%q}" $labels.pipeline $labels.instance | query }}; the
        busiest key group has {{ . | first | value | printf "%.1f" }} times the mean{{ end }}. `windrow status` names
        the key.""",
    ),
)
CONDITIONS: Final[Mapping[m.AlertName, Condition]] = {condition.name: condition for condition in _TABLE}
"""The conditions by the names of their alerts."""
