"""The picture of a comparison: events per second of each engine as bars, labelled with the peak of its memory."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.charts import BLUE, GREEN, GREY, Bar, Panel, bar_chart, svg
from bench.peers.report import measured, runs_of
from bench.peers.results import Results
from matplotlib.figure import Figure

COLOURS = {"windrow": GREEN, "peer": BLUE, "limit": GREY}
LEGEND = [("windrow", GREEN), ("other engines", BLUE), ("limits: no windows", GREY)]
TITLES = {"none": "Kafka to no sink", "postgres": "Kafka to PostgreSQL"}


def picture(results: Results) -> str:
    """Return the chart as SVG."""
    return svg(
        chart(results), "Events per second of windrow and other engines, from Kafka to no sink and to PostgreSQL"
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
