"""The dashboard for Grafana: its panels, and the JSON that is made of them (schema version 39, of Grafana 10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Literal

Kind = Literal["timeseries", "stat", "heatmap", "state-timeline", "table"]


@dataclass(frozen=True)
class Panel:
    """A panel with its PromQL by legend; `unit` is an id of Grafana's, `width` of 24 columns.

    In an expression `$own` selects the pipeline that was chosen, and `$each` is the range of a rate.
    """

    title: str
    unit: str
    description: str
    queries: Mapping[str, str]
    kind: Kind = "timeseries"
    width: int = 8


ROWS: Final[Mapping[str, tuple[Panel, ...]]] = {
    "Overview": (
        Panel(
            "Last commit",
            "s",
            "How long ago the last step was committed. It grows where no record comes, too.",
            {"ago": "time() - windrow_last_commit_timestamp_seconds{$own}"},
            "stat",
            4,
        ),
        Panel("Epoch", "none", "The last committed epoch.", {"epoch": "windrow_epoch{$own}"}, "stat", 4),
        Panel(
            "Running for",
            "s",
            "How long ago the process began, where it answers, and the version of windrow.",
            {
                "{{instance}}, windrow {{version}}": "(time() - windrow_start_timestamp_seconds{$own}) "
                "* on (job, instance) group_left (version) windrow_build_info{$own}"
            },
            "stat",
        ),
        Panel(
            "Retrying",
            "none",
            "1 from a fault until the run takes steps again.",
            {"retrying": "windrow_retrying{$own}"},
            "stat",
            4,
        ),
        Panel(
            "Low watermark",
            "dateTimeAsIso",
            "Windows that end by then have fired.",
            {"low watermark": "windrow_low_watermark_timestamp_seconds{$own} * 1000"},
            "stat",
            4,
        ),
        Panel(
            "Events",
            "eps",
            "Records that were read, a second: good ones, dead letters, and duplicates that were left out.",
            {
                "good": "sum(rate(windrow_records_total{$own}[$each]))",
                "unreadable": 'sum(rate(windrow_dead_letters_total{$own, reason="unreadable"}[$each]))',
                "duplicates": "rate(windrow_duplicates_total{$own}[$each])",
            },
        ),
        Panel(
            "Lag",
            "s",
            "By partition, how long ago the log had the record that was read last; 0 where none waits. It is known "
            "where the log has timestamps.",
            {"partition {{partition}}": "windrow_consumer_lag_seconds{$own}"},
        ),
        Panel(
            "Lag in records",
            "short",
            "By partition, offsets between what was read and the end of the log.",
            {"partition {{partition}}": "windrow_consumer_lag_records{$own}"},
        ),
        Panel(
            "Lag of logs of tables",
            "s",
            "By replication slot, how far the log of a PostgreSQL table is behind the table.",
            {"slot {{slot}}": "windrow_slot_lag_seconds{$own}"},
        ),
        Panel(
            "WAL that is not in the log",
            "bytes",
            "By replication slot, what PostgreSQL has written since the last change that is in the log.",
            {"slot {{slot}}": "windrow_slot_lag_bytes{$own}"},
        ),
        Panel(
            "Watermark lag",
            "s",
            "From the low watermark to the clock. It contains the delay of the pipeline.",
            {"low watermark": "windrow_watermark_lag_seconds{$own}"},
        ),
        Panel(
            "End-to-end latency",
            "s",
            "From the log timestamp of a record to the commit of its step; rounded up to a bound.",
            {
                share: f"histogram_quantile({quantile}, rate(windrow_end_to_end_latency_seconds_bucket{{$own}}[$each]))"
                for share, quantile in {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}.items()
            },
        ),
        Panel(
            "Verdicts and dead letters",
            "percentunit",
            "Shares of the records. A record that is late for several windows counts for each of them.",
            {
                "{{verdict}}": "rate(windrow_verdicts_total{$own}[$each]) / ignoring (verdict) group_left "
                "rate(windrow_event_lateness_seconds_count{$own}[$each])",
                "dead letter, {{reason}}": "rate(windrow_dead_letters_total{$own}[$each]) / ignoring (reason) "
                "group_left () (sum without (partition) (rate(windrow_records_total{$own}[$each])) + ignoring (reason) "
                'rate(windrow_dead_letters_total{$own, reason="unreadable"}[$each]))',
            },
        ),
    ),
    "Time": (
        Panel(
            "Watermark by partition",
            "s",
            "How far each watermark, and the low watermark, is behind the clock: the highest line holds the others "
            "back, unless its partition is idle.",
            {
                "partition {{partition}}": "time() - windrow_partition_watermark_timestamp_seconds{$own}",
                "low watermark": "time() - windrow_low_watermark_timestamp_seconds{$own}",
            },
        ),
        Panel(
            "Holds the low watermark",
            "none",
            "1 while the low watermark waits for the partition.",
            {"partition {{partition}}": "windrow_partition_holds_watermark{$own}"},
            "state-timeline",
        ),
        Panel(
            "Idle",
            "none",
            "1 while the partition is idle: it does not hold the low watermark back.",
            {"partition {{partition}}": "windrow_partition_idle{$own}"},
            "state-timeline",
        ),
        Panel(
            "Lateness",
            "s",
            "How far records are behind the clock of their partition. Those above the delay may be late.",
            {"{{le}}": "sum by (le) (increase(windrow_event_lateness_seconds_bucket{$own}[$each]))"},
            "heatmap",
            12,
        ),
        Panel(
            "Quantiles of lateness",
            "s",
            "The delay that so many records would be on time with.",
            {
                share: f"histogram_quantile({quantile}, rate(windrow_event_lateness_seconds_bucket{{$own}}[$each]))"
                for share, quantile in {"p90": 0.9, "p99": 0.99, "p99.9": 0.999}.items()
            },
            width=12,
        ),
    ),
    "Steps": (
        Panel(
            "Duration of a step by part",
            "s",
            "The mean. `sync` and `commit` overlap with `compute` of the next step; a long `wait` is for the sink.",
            {
                "{{part}}": "rate(windrow_step_duration_seconds_sum{$own}[$each]) / ignoring (part) group_left "
                "rate(windrow_steps_total{$own}[$each])",
                "trigger": "windrow_trigger_interval_seconds{$own}",
            },
        ),
        Panel(
            "99th percentile by part",
            "s",
            "The slowest of a hundred steps, by part: `sync` is the checkpoint, `commit` the sink.",
            {"{{part}}": "histogram_quantile(0.99, rate(windrow_step_duration_seconds_bucket{$own}[$each]))"},
        ),
        Panel(
            "Task time",
            "none",
            "Cores that all tasks of `compute` keep busy, by part.",
            {"{{part}}": "rate(windrow_task_seconds_total{$own}[$each])"},
        ),
        Panel("Steps", "cps", "Steps a second.", {"steps": "rate(windrow_steps_total{$own}[$each])"}, width=12),
        Panel(
            "Changes",
            "cps",
            "Rows of changelogs a second: inserts, and updates for revisions.",
            {"{{op}}": "rate(windrow_changes_total{$own}[$each])"},
            width=12,
        ),
    ),
    "State": (
        Panel(
            "Size",
            "bytes",
            "Bytes of the state store, of all nodes and by node.",
            {"all": "windrow_state_bytes{$own}", "{{node}}": "windrow_node_state_bytes{$own}"},
        ),
        Panel(
            "Rows",
            "short",
            "Rows of the state store, each of many records or panes; of all nodes and by node.",
            {"all": "windrow_state_rows{$own}", "{{node}}": "windrow_node_state_rows{$own}"},
        ),
        Panel(
            "Open windows",
            "short",
            "Windows that have not fired, of the key group with the most.",
            {"open windows": "windrow_open_windows{$own}"},
        ),
        Panel(
            "Windows fired and closed",
            "short",
            "Windows a second that fire, and that no later record can revise, by node; of all key groups.",
            {
                "{{node}} fired": "rate(windrow_windows_fired_total{$own}[$each])",
                "{{node}} closed": "rate(windrow_windows_closed_total{$own}[$each])",
            },
        ),
        Panel(
            "Hottest key",
            "percentunit",
            "The share of records that the hottest key has in the last step, estimated; `windrow status` names it.",
            {"{{node}}": "windrow_hot_key_share_ratio{$own}"},
            width=12,
        ),
        Panel(
            "Load of the busiest key group",
            "none",
            "Its records in the last step, as a multiple of the mean.",
            {"load": "windrow_key_group_load_ratio{$own}"},
            width=12,
        ),
    ),
    "Alerts": (
        Panel(
            "Alerts",
            "none",
            "Those of the rules (`windrow monitoring prometheus`) that are pending or firing.",
            {"": 'ALERTS{$own, alertname=~"Windrow.+"}'},
            "table",
            12,
        ),
        Panel(
            "Faults and warnings",
            "short",
            "Faults after which the run went on, by where they were, and warnings; each in the interval of a point.",
            {
                "{{reason}}": "increase(windrow_retries_total{$own}[$each])",
                "warnings": "increase(windrow_warnings_total{$own}[$each])",
            },
            width=12,
        ),
    ),
}

_COLUMNS: Final = 24
_HEIGHT: Final[Mapping[Kind, int]] = {"timeseries": 8, "stat": 4, "heatmap": 8, "state-timeline": 8, "table": 8}
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_OPTIONS: Final[Mapping[Kind, Mapping[str, Any]]] = {
    "timeseries": {"legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"}},
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name", "colorMode": "none"},
    "heatmap": {
        "calculate": False,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
        "cellGap": 1,
        "yAxis": {"unit": "s"},
    },
    "state-timeline": {"mergeValues": True, "showValue": "never"},
    "table": {"showHeader": True},
}


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": "windrow-runs",
        "title": "windrow",
        "description": "Runs of windrow: windrow run --listen.",
        "tags": ["windrow"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "annotations": {"list": []},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "label": "Data source", "query": "prometheus"},
                {
                    "name": "pipeline",
                    "type": "query",
                    "label": "Pipeline",
                    "datasource": _DATASOURCE,
                    "query": "label_values(windrow_build_info, pipeline)",
                    "refresh": 2,
                    "sort": 1,
                },
            ]
        },
        "panels": list(_placed()),
    }


def _placed() -> Iterator[dict[str, Any]]:
    """Yield the panels of all rows, from left to right and from top to bottom."""
    ids, top = count(1), 0
    for title, panels in ROWS.items():
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        yield {"id": next(ids), "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        left, top, height = 0, top + 1, 0
        for panel in panels:
            if left + panel.width > _COLUMNS:
                left, top, height = 0, top + height, 0
            height = max(height, _HEIGHT[panel.kind])
            place = {"x": left, "y": top, "w": panel.width, "h": _HEIGHT[panel.kind]}
            yield {"id": next(ids), "gridPos": place, **_panel(panel)}
            left += panel.width
        top += height


def _panel(panel: Panel) -> dict[str, Any]:
    kind = panel.kind
    made = {
        "type": kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": _OPTIONS[kind],
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _DATASOURCE,
                "expr": expression.replace("$own", 'pipeline="$pipeline"').replace("$each", "$__rate_interval"),
                "legendFormat": legend,
                "format": {"heatmap": "heatmap", "table": "table"}.get(kind, "time_series"),
                "instant": kind == "table",
                "range": kind != "table",
            }
            for number, (legend, expression) in enumerate(panel.queries.items())
        ],
    }
    if kind == "table":
        hidden = ("Time", "Value", "__name__", "instance", "job", "pipeline")
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": dict.fromkeys(hidden, True)}}]
    return made
