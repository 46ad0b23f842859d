"""The pictures of comparisons: rates of the main job (with peak memory) and of joins, and latencies of alerts."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.charts import BLUE, GREEN, GREY, Bar, Panel, bar_chart, svg
from bench.peers.report import JOIN_ENGINES, JOINS, joins_of, measured, runs_of
from bench.peers.results import Results
from bench.realtime_engines import ENGINES as ALERT_ENGINES
from matplotlib.figure import Figure

COLOURS = {"windrow": GREEN, "peer": BLUE, "limit": GREY}
LEGEND = [("windrow", GREEN), ("other engines", BLUE), ("limits: no windows", GREY)]
TITLES = {"none": "Kafka to no sink", "postgres": "Kafka to PostgreSQL"}


def picture(results: Results) -> str:
    """Return the chart as SVG."""
    return svg(
        chart(results), "Events per second of windrow and other engines, from Kafka to no sink and to PostgreSQL"
    )


def more_picture(results: Results) -> str:
    """Return the chart of joins and alerts as SVG."""
    return svg(
        more_chart(results), "Records per second of joins, and latency of fraud alerts, in windrow and other engines"
    )


def chart(results: Results) -> Figure:
    """Draw a panel for each sink, with a bar for each engine that finished a run."""
    panels = []
    for sink, title in TITLES.items():
        rows = list(_rows(results, sink))
        if rows:
            panels.append(Panel(f"{title}: events per second (peak memory)", rows))
    return bar_chart(panels, LEGEND)


def _rows(results: Results, sink: str) -> Iterator[tuple[str, list[Bar]]]:
    for one in measured(results, sink):
        runs = runs_of(results, one.name, sink)
        if runs:
            rate, memory = median(run.rate for run in runs), median(run.memory for run in runs)
            yield one.title, [Bar(rate, f"{rate:,.0f} ({memory / 1024:.1f} GiB)", COLOURS[one.kind])]


def more_chart(results: Results) -> Figure:
    """Draw a panel for joins, with an engine a bar, and one for alerts, with the median and p99 of each engine."""
    joins, alerts = list(_joins(results)), list(_alerts(results))
    panels = [
        *([Panel("Joins of two Kafka topics: records per second", joins)] if joins else []),
        *([Panel("From a purchase to its alert: milliseconds", alerts)] if alerts else []),
    ]
    return bar_chart(panels, LEGEND[:2])


def _joins(results: Results) -> Iterator[tuple[str, list[Bar]]]:
    for case, title in JOINS.items():
        rates = {name: median(run.rate for run in runs) for name, runs in joins_of(results, case).items()}
        bars = [
            Bar(rate, f"{rate:,.0f} {JOIN_ENGINES[name]}", COLOURS["windrow" if name == "windrow" else "peer"])
            for name, rate in rates.items()
        ]
        if bars:
            yield title, bars


def _alerts(results: Results) -> Iterator[tuple[str, list[Bar]]]:
    """Yield the engines at each rate, on as many partitions as each had at the most."""
    most: dict[str, int] = {}
    for one in results.alerts:
        most[one.engine] = max(one.partitions, most.get(one.engine, 0))
    for one in sorted(results.alerts, key=lambda one: one.rate):
        if one.alerts and one.partitions == most[one.engine]:
            colour = COLOURS["peer" if one.engine == "spark" else "windrow"]
            bars = [
                Bar(one.milliseconds[part], f"{part} {one.milliseconds[part]:,.0f}", colour) for part in ("p50", "p99")
            ]
            yield f"{ALERT_ENGINES[one.engine].title}, {one.rate:,}/s", bars
