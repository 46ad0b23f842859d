"""The picture of a comparison: events a second of each engine as bars, with the peak of its memory beside them."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.peers.report import measured, runs_of
from bench.peers.results import Results
from bench.svg import bar, card, text

WIDTH, LEFT, BAR, ROW, HEAD = 900.0, 230.0, 410.0, 26.0, 46.0
COLOURS = (
    ".windrow { fill: #1a7f37 } .peer { fill: #0757ba } .limit { fill: #8c959f }",
    ".windrow { fill: #4ac26b } .peer { fill: #58a6ff } .limit { fill: #768390 }",
)
LABEL = "Events a second of windrow and other engines, from Kafka to no sink and to PostgreSQL"
HEADS = {"none": "Kafka to no sink", "postgres": "Kafka to PostgreSQL"}


def picture(results: Results) -> str:
    """Return an SVG: a panel for each sink, a bar for each engine that came to its end."""
    parts: list[str] = []
    top = 8.0
    for sink, head in HEADS.items():
        drawn = list(_panel(results, sink, head, top))
        parts += drawn
        top += HEAD + ROW * (len(drawn) - 1) / 3 if drawn else 0
    return card(WIDTH, top + 16, LABEL, COLOURS, parts)


def _panel(results: Results, sink: str, head: str, top: float) -> Iterator[str]:
    found = [(one, runs_of(results, one.name, sink)) for one in measured(results, sink)]
    shown = [(one, runs) for one, runs in found if runs]
    if not shown:
        return
    yield text(20, top + 26, f"{head}: events a second", "head")
    most = max(median(run.rate for run in runs) for _, runs in shown)
    for number, (one, runs) in enumerate(shown):
        rate, memory = median(run.rate for run in runs), median(run.memory for run in runs)
        y, width = top + HEAD + number * ROW, BAR * rate / most
        yield text(LEFT - 10, y + 14, one.title, to_left=True)
        yield bar(LEFT, y, width, 18, one.kind, radius=2)
        yield text(LEFT + width + 8, y + 14, f"{rate:,.0f}, {memory / 1024:.1f} GiB at most", "soft")
