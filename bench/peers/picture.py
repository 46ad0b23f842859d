"""The picture of a comparison: events a second of each engine as bars, with the peak of its memory beside them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from statistics import median

from bench.peers.report import measured, runs_of
from bench.peers.results import Results

WIDTH, LEFT, BAR, ROW, HEAD = 900.0, 230.0, 410.0, 26.0, 46.0
STYLE = """
    .card { fill: #ffffff; stroke: #d0d7de }
    text { font: 14px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: #24292f }
    .head { font-weight: 600 }
    .soft { fill: #57606a }
    .windrow { fill: #1a7f37 } .peer { fill: #0757ba } .limit { fill: #8c959f }
    @media (prefers-color-scheme: dark) {
      .card { fill: #161b22; stroke: #30363d }
      text { fill: #e6edf3 }
      .soft { fill: #9da7b1 }
      .windrow { fill: #4ac26b } .peer { fill: #58a6ff } .limit { fill: #768390 }
    }
"""
HEADS = {"none": "Kafka to no sink", "postgres": "Kafka to PostgreSQL"}


def picture(results: Results) -> str:
    """Return an SVG: a panel for each sink, a bar for each engine that came to its end."""
    parts: list[str] = []
    top = 8.0
    for sink, head in HEADS.items():
        drawn = list(_panel(results, sink, head, top))
        parts += drawn
        top += HEAD + ROW * (len(drawn) - 1) / 3 if drawn else 0
    height = top + 16
    body = "\n  ".join(parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="{WIDTH:.0f}" height="{height:.0f}"
  role="img" aria-label="Events a second of windrow and other engines, from Kafka to no sink and to PostgreSQL">
  <style>{STYLE}  </style>
  <rect class="card" x="0.5" y="0.5" width="{WIDTH - 1:.0f}" height="{height - 1:.0f}" rx="10"/>
  {body}
</svg>
"""


def _panel(results: Results, sink: str, head: str, top: float) -> Iterator[str]:
    found = [(one, runs_of(results, one.name, sink)) for one in measured(results, sink)]
    shown = [(one, runs) for one, runs in found if runs]
    if not shown:
        return
    yield f'<text class="head" x="20" y="{top + 26:.1f}">{head}: events a second</text>'
    most = max(median(run.rate for run in runs) for _, runs in shown)
    for number, (one, runs) in enumerate(shown):
        rate, memory = median(run.rate for run in runs), median(run.memory for run in runs)
        y, width = top + HEAD + number * ROW, BAR * rate / most
        yield f'<text x="{LEFT - 10:.1f}" y="{y + 14:.1f}" text-anchor="end">{escape(one.title)}</text>'
        yield f'<rect class="{one.kind}" x="{LEFT:.1f}" y="{y:.1f}" width="{width:.1f}" height="18" rx="2"/>'
        said = f"{rate:,.0f}, {memory / 1024:.1f} GiB at most"
        yield f'<text class="soft" x="{LEFT + width + 8:.1f}" y="{y + 14:.1f}">{said}</text>'
