"""Prometheus metrics of a run: sums over its steps, and its current state. docs/reference/metrics.md lists them."""

from __future__ import annotations

import csv
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
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
    """A metric, with its labels other than `pipeline`. Hosts that know only offsets omit it if it `is_count`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    is_count: bool
    meaning: str

    @staticmethod
    def of(row: Mapping[str, Any]) -> Described:
        """Return the metric described by a row of `metrics.tsv`."""
        labels = tuple(filter(None, row["labels"].split(",")))
        return Described(**{**row, "labels": labels, "is_count": row["is_count"] == "yes"})


with files("windrow.telemetry").joinpath("metrics.tsv").open(encoding="utf-8") as table:
    METRICS: Final = tuple(map(Described.of, csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)))
_BOUNDS: Final = {
    "windrow_end_to_end_latency_seconds": (10_000, 86_400 * _SECOND),
    "windrow_step_duration_seconds": (10_000, 600 * _SECOND),
}
"""The lowest and highest bounds of the histograms that do not have all bounds, in microseconds."""

_FAMILIES: Final[dict[str, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_Labels: TypeAlias = tuple[str, ...]
_Value: TypeAlias = float | tuple[Histogram, float]
"""A number, or a histogram and its sum in seconds."""
_Values: TypeAlias = Mapping[_Labels, _Value | None]
"""A mapping from label values (without `pipeline`) to the value of the metric, or None if it is unknown."""


class RunMetrics(Collector):
    """Sums up the steps of a run for Prometheus. Thread-safe.

    Steps of a live run begin every `every` microseconds; `every` is None if the run has no such interval.
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
        """Add a step to the sums."""
        with self._lock:
            self._totals.add(report)
            self._is_retrying = False
            self._lag = report.last_lag.with_slots_of(self._lag) if report.last_lag else self._lag
            for partition, records in report.read.items():
                self._read[str(partition)] += records
            for part, seconds in report.parts.items():
                self._durations[part] += Histogram.of_one(round(seconds * _SECOND))

    def on_lag(self, lag: Lag) -> None:
        """Record how far the run is behind."""
        with self._lock:
            self._lag = lag

    def on_ready(self) -> None:
        """Record that the run is processing steps."""
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
        """Return the response body in a format that the scraper accepts, and its content type."""
        encode, kind = choose_encoder(accept)
        return encode(self._registry), kind

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics whose values are known, in the order of `METRICS`."""
        with self._lock:
            last = self._totals.last
            values = {
                **self._sums(),
                **_lag_values(self._lag),
                **({} if last is None else _step_values(last, self._pipeline)),
            }
        for described in METRICS:
            if last is not None and last.only_offsets and described.is_count:
                continue
            known = {labels: value for labels, value in values.get(described.name, {}).items() if value is not None}
            if known:
                yield self._family(described, known)

    def _family(self, described: Described, values: Mapping[_Labels, _Value]) -> Metric:
        family = _FAMILIES[described.kind](described.name, described.meaning, labels=("pipeline", *described.labels))
        for labels, value in values.items():
            all_labels = (self._pipeline, *labels)
            if isinstance(value, tuple):
                family.add_metric(
                    all_labels, _buckets(value[0], *_BOUNDS.get(described.name, (0, BOUNDS[-1]))), value[1]
                )
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
            "windrow_internal_dead_letters_total": {(): totals.internal},
            "windrow_duplicates_total": {(): totals.duplicates},
            "windrow_leaps_total": {(str(partition),): leaps for partition, leaps in totals.leaps.items()},
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
    """Return the metrics that describe the state of a run after a step."""
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
    """Return a histogram and its sum in seconds, taking each duration to be the upper bound of its bucket."""
    upper = sum(bound * count for bound, count in zip((*BOUNDS, BOUNDS[-1]), histogram.counts, strict=False))
    return histogram, upper / _SECOND


def _buckets(histogram: Histogram, least: int, most: int) -> list[tuple[str, float]]:
    """Return the cumulative count for each bound in seconds."""
    found, below = [], 0
    counts = [*histogram.counts, *[0] * (len(BOUNDS) + 1 - len(histogram.counts))]
    for bound, count in zip(BOUNDS, counts, strict=False):
        below += count
        if least <= bound <= most:
            found.append((f"{bound / _SECOND:g}", float(below)))
    return [*found, ("+Inf", float(histogram.total))]
