"""Metrics of a run for Prometheus: sums over its steps, and where it stands. docs/reference/metrics.md lists them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, Literal, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from windrow.telemetry.histogram import BOUNDS, Histogram
from windrow.telemetry.reports import FAULT_REASONS, Fault, Lag, StepReport, Totals, now_micros

_SECOND: Final = 1_000_000


@dataclass(frozen=True)
class Described:
    """A metric: its labels beside `pipeline`, and for a histogram its least and greatest bound in microseconds."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    bounds: tuple[int, int] = (0, BOUNDS[-1])


METRICS: Final = (
    Described("windrow_build_info", "gauge", ("version",), "1, with the version of windrow"),
    Described("windrow_start_timestamp_seconds", "gauge", (), "When the run began"),
    Described("windrow_trigger_interval_seconds", "gauge", (), "Time between the starts of two steps"),
    Described("windrow_steps_total", "counter", (), "Committed steps"),
    Described("windrow_epoch", "gauge", (), "The last committed epoch"),
    Described("windrow_last_commit_timestamp_seconds", "gauge", (), "When the last step was committed"),
    Described("windrow_retries_total", "counter", ("reason",), "Faults after which the run went on"),
    Described("windrow_retrying", "gauge", (), "1 from a fault until the run takes steps again, else 0"),
    Described("windrow_warnings_total", "counter", (), "Warnings that the run goes on in spite of"),
    Described("windrow_records_total", "counter", ("partition",), "Good records read"),
    Described("windrow_verdicts_total", "counter", ("verdict",), "Verdicts late and expired, one a record and window"),
    Described(
        "windrow_dead_letters_total", "counter", ("reason",), "Dead letters: unreadable, or rejected by a stream"
    ),
    Described("windrow_duplicates_total", "counter", (), "Records left out by deduplications"),
    Described("windrow_changes_total", "counter", ("op",), "Rows of changelogs: insert, or update"),
    Described("windrow_windows_fired_total", "counter", ("node",), "Windows that fired, each once in a key group"),
    Described("windrow_windows_closed_total", "counter", ("node",), "Windows that no later record can revise"),
    Described("windrow_event_lateness_seconds", "histogram", (), "How far records were behind their partition's clock"),
    Described(
        "windrow_end_to_end_latency_seconds",
        "histogram",
        (),
        "From the log timestamp of a record to the commit of its step",
        (10_000, 86_400 * _SECOND),
    ),
    Described(
        "windrow_step_duration_seconds", "histogram", ("part",), "Time of a step by part", (10_000, 600 * _SECOND)
    ),
    Described("windrow_task_seconds_total", "counter", ("part",), "Time of all tasks by part"),
    Described("windrow_partition_watermark_timestamp_seconds", "gauge", ("partition",), "The watermark of a partition"),
    Described("windrow_partition_idle", "gauge", ("partition",), "1 if the partition is idle, else 0"),
    Described(
        "windrow_partition_holds_watermark", "gauge", ("partition",), "1 if it holds the low watermark back, or 0"
    ),
    Described("windrow_low_watermark_timestamp_seconds", "gauge", (), "The low watermark"),
    Described("windrow_watermark_lag_seconds", "gauge", (), "How far the low watermark is behind the wall clock"),
    Described("windrow_consumer_lag_records", "gauge", ("partition",), "Offsets between what was read and the end"),
    Described("windrow_consumer_lag_seconds", "gauge", ("partition",), "How long ago the log had what was read last"),
    Described("windrow_slot_lag_bytes", "gauge", ("slot",), "WAL of PostgreSQL that is not in the log of a table yet"),
    Described("windrow_slot_lag_seconds", "gauge", ("slot",), "How far the log of a table is behind the table"),
    Described("windrow_open_windows", "gauge", (), "Windows that have not fired"),
    Described(
        "windrow_key_group_load_ratio", "gauge", (), "Records of the busiest key group, as a multiple of the mean"
    ),
    Described("windrow_state_rows", "gauge", (), "Rows in the state store"),
    Described("windrow_state_bytes", "gauge", (), "Bytes of the state store"),
    Described("windrow_node_state_rows", "gauge", ("node",), "Rows in the state store by node"),
    Described("windrow_node_state_bytes", "gauge", ("node",), "Bytes of the state store by node"),
    Described(
        "windrow_hot_key_share_ratio", "gauge", ("node",), "Share of records that the hottest key has, estimated"
    ),
)

_OF_COUNTS: Final = frozenset(
    {
        "windrow_verdicts_total",
        "windrow_dead_letters_total",
        "windrow_duplicates_total",
        "windrow_changes_total",
        "windrow_event_lateness_seconds",
        "windrow_open_windows",
        "windrow_windows_fired_total",
        "windrow_windows_closed_total",
    }
)
"""Metrics that a host which knows only offsets leaves out."""

_FAMILIES: Final[dict[str, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_Labels: TypeAlias = tuple[str, ...]
_Value: TypeAlias = float | tuple[Histogram, float]
"""A number, or a histogram and its sum in seconds."""
_Values: TypeAlias = Mapping[_Labels, _Value | None]
"""Values by labels (without `pipeline`); a value that is not known is None."""


class RunMetrics(Collector):
    """Adds up the steps of a run for Prometheus; from any thread.

    Live steps begin every `every` microseconds; None for a run that has no such interval.
    """

    def __init__(self, pipeline: str, every: int | None = None) -> None:
        self._pipeline = pipeline
        self._every = every
        self._began = now_micros()
        self._version = version("windrow")
        self._lock = threading.Lock()
        self._totals = Totals()
        self._retries = dict.fromkeys(FAULT_REASONS, 0)
        self._is_retrying = False
        self._warnings = 0
        self._lag: Lag | None = None
        self._read: defaultdict[str, int] = defaultdict(int)
        self._durations: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def on_step(self, report: StepReport) -> None:
        """Count a step."""
        with self._lock:
            self._totals.add(report)
            self._is_retrying = False
            self._lag = report.last_lag.with_slots_of(self._lag) if report.last_lag else self._lag
            for partition, records in report.read.items():
                self._read[str(partition)] += records
            for part, seconds in report.parts.items():
                self._durations[part] += Histogram.of_one(round(seconds * _SECOND))

    def on_lag(self, lag: Lag) -> None:
        """Note how far the run is behind."""
        with self._lock:
            self._lag = lag

    def on_ready(self) -> None:
        """Note that the run takes steps."""
        with self._lock:
            self._is_retrying = False

    def on_trouble(self, fault: Fault) -> None:
        """Count a fault."""
        with self._lock:
            self._retries[fault.reason] += 1
            self._is_retrying = True

    def on_warning(self) -> None:
        """Count a warning."""
        with self._lock:
            self._warnings += 1

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return the body for a scraper that accepts these types, and its content type."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are known, in the order of `METRICS`."""
        with self._lock:
            last = self._totals.last
            values = {
                **self._sums(),
                **_lag_values(self._lag),
                **({} if last is None else _step_values(last, self._pipeline)),
            }
        for described in METRICS:
            if last is not None and last.only_offsets and described.name in _OF_COUNTS:
                continue
            known = {labels: value for labels, value in values.get(described.name, {}).items() if value is not None}
            if known:
                yield self._family(described, known)

    def _family(self, described: Described, values: Mapping[_Labels, _Value]) -> Metric:
        family = _FAMILIES[described.kind](described.name, described.meaning, labels=("pipeline", *described.labels))
        for labels, value in values.items():
            all_labels = (self._pipeline, *labels)
            if isinstance(value, tuple):
                family.add_metric(all_labels, _buckets(value[0], *described.bounds), value[1])
            else:
                family.add_metric(all_labels, value)
        return family  # type: ignore[no-any-return] # the three classes have no common one with `add_metric`

    def _sums(self) -> dict[str, _Values]:
        totals = self._totals
        windows = {node: counts.total for node, counts in (totals.windows or {}).items()}
        return {
            "windrow_build_info": {(self._version,): 1},
            "windrow_start_timestamp_seconds": {(): _seconds(self._began)},
            "windrow_trigger_interval_seconds": {(): _seconds(self._every)},
            "windrow_steps_total": {(): totals.steps},
            "windrow_retries_total": {(reason,): faults for reason, faults in self._retries.items()},
            "windrow_retrying": {(): int(self._is_retrying)},
            "windrow_warnings_total": {(): self._warnings},
            "windrow_records_total": {(partition,): records for partition, records in self._read.items()},
            "windrow_verdicts_total": {("late",): totals.late, ("expired",): totals.expired},
            "windrow_dead_letters_total": {("unreadable",): totals.dead, ("rejected",): totals.rejected},
            "windrow_duplicates_total": {(): totals.duplicates},
            "windrow_changes_total": {("insert",): totals.inserts, ("update",): totals.revisions},
            "windrow_windows_fired_total": {(node,): counts.fired for node, counts in windows.items()},
            "windrow_windows_closed_total": {(node,): counts.closed for node, counts in windows.items()},
            "windrow_event_lateness_seconds": {(): _sum_at_bounds(totals.lateness)},
            "windrow_end_to_end_latency_seconds": {
                (): _sum_at_bounds(totals.latency) if totals.latency.total else None
            },
            "windrow_step_duration_seconds": {
                (part,): (durations, totals.parts[part]) for part, durations in self._durations.items()
            },
            "windrow_task_seconds_total": {(part,): seconds for part, seconds in totals.tasks.items()},
        }


def _step_values(report: StepReport, pipeline: str) -> dict[str, _Values]:
    """Return where a run stands after a step."""
    low, now = report.low_watermark, now_micros()
    watermarks = report.watermarks.items()
    holding, idle = set(report.held_back_by), set(report.idle)
    return {
        "windrow_epoch": {(): report.epoch},
        "windrow_last_commit_timestamp_seconds": {(): _seconds(report.committed)},
        "windrow_partition_watermark_timestamp_seconds": {
            (str(name),): _seconds(micros) for name, micros in watermarks
        },
        "windrow_partition_idle": {(str(name),): int(name in idle) for name, _ in watermarks},
        "windrow_partition_holds_watermark": {(str(name),): int(name in holding) for name, _ in watermarks},
        "windrow_low_watermark_timestamp_seconds": {(): _seconds(low)},
        "windrow_watermark_lag_seconds": {(): None if low is None else _seconds(now - low)},
        "windrow_open_windows": {(): report.open_windows},
        "windrow_key_group_load_ratio": {(): report.key_group_load},
        "windrow_state_rows": {(): report.state_rows},
        "windrow_state_bytes": {(): report.state_bytes},
        "windrow_node_state_rows": {(node,): rows for node, (rows, _) in report.state_by_node.items()},
        "windrow_node_state_bytes": {(node,): size for node, (_, size) in report.state_by_node.items()},
        "windrow_hot_key_share_ratio": {
            (node or pipeline,): max(keys.hot.values(), default=0.0)
            for node, keys in report.hot_keys.items()
            if keys.counts
        },
    }


def _lag_values(lag: Lag | None) -> dict[str, _Values]:
    if lag is None:
        return {}
    return {
        "windrow_consumer_lag_records": {(str(name),): offsets for name, offsets in lag.records.items()},
        "windrow_consumer_lag_seconds": {(str(name),): seconds for name, seconds in (lag.seconds or {}).items()},
        "windrow_slot_lag_bytes": {(slot.slot,): slot.bytes for slot in lag.slots},
        "windrow_slot_lag_seconds": {(slot.slot,): slot.seconds for slot in lag.slots},
    }


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / _SECOND


def _sum_at_bounds(histogram: Histogram) -> tuple[Histogram, float]:
    """Return a histogram with its sum in seconds, each duration taken to be its bucket's bound."""
    upper = sum(bound * count for bound, count in zip((*BOUNDS, BOUNDS[-1]), histogram.counts, strict=False))
    return histogram, upper / _SECOND


def _buckets(histogram: Histogram, least: int, most: int) -> list[tuple[str, float]]:
    """Return cumulative counts by bound in seconds."""
    found, below = [], 0
    counts = [*histogram.counts, *[0] * (len(BOUNDS) + 1 - len(histogram.counts))]
    for bound, count in zip(BOUNDS, counts, strict=False):
        below += count
        if least <= bound <= most:
            found.append((f"{bound / _SECOND:g}", float(below)))
    return [*found, ("+Inf", float(histogram.total))]
