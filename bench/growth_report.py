"""The table, the page and the pictures of ``bench/growth.py``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from textwrap import fill

from bench.charts import BLUE, GREEN, Band, Bar, Panel, bar_chart, svg
from bench.growth_results import THINGS, Growth, Measured
from bench.laws import WITHIN
from matplotlib.figure import Figure

PAGE = "docs/performance.md"
PICTURES = "docs/images/growth-{}.svg"
_WIDEST = 118
COLOURS = (GREEN, BLUE)
LEGEND = [("by the clock", GREEN), ("CPU time of all processes", BLUE)]
HEAD = (
    "what",
    "value",
    "µs an event",
    "results an event",
    "bytes a row",
)


def table(found: Growth) -> Iterator[str]:
    """Yield the lines of a table in Markdown; the base has the medians of all its measurements."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"| --- | --- | {' | '.join(['---:'] * (len(HEAD) - 2))} |"
    if found.bases:
        yield _row("the base", "", _middle(found))
    for name in found.things:
        titles = chain([THINGS[name].title], repeat(""))
        yield from (_row(title, one.point.value, one) for title, one in zip(titles, found.of(name), strict=False))


def _middle(found: Growth) -> Measured:
    """Return the base's measurement that is the median by the clock."""
    ordered = sorted(found.bases, key=lambda one: one.wall)
    return ordered[(len(ordered) - 1) // 2]


def _row(thing: str, value: str, one: Measured) -> str:
    cells = [
        thing,
        value,
        f"{one.wall:.2f}",
        f"{one.results:.2f}",
        f"{one.row_bytes:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def page(found: Growth) -> str:
    """Return the part of the page that is made of figures."""
    told = (
        f"Measured on {found.date}, on {found.machine}: {found.events:,} events in the base, at most {found.step:,} a "
        f"step, the median of {found.runs} runs."
    )
    lines = [
        fill(told, _WIDEST),
        "",
        *table(found),
        "",
        *(fill(f"- {line}", _WIDEST, subsequent_indent="  ") for line in found.verdicts()),
        "",
    ]
    for name in found.things:
        lines += [f"![{THINGS[name].title}](images/growth-{name}.svg)", ""]
    return "\n".join(lines)


def picture(found: Growth, name: str) -> str:
    """Return the chart of a thing as SVG."""
    return svg(chart(found, name), f"{THINGS[name].title}: microseconds per event, by the clock and of CPU time")


def chart(found: Growth, name: str) -> Figure:
    """Draw two bars for the base and for each value of a thing: by the clock, and of CPU time.

    A band in the colour of each shows where that cost counts as flat.
    """
    thing = THINGS[name]
    base = (found.base("wall"), found.base("cpu"))
    costs = [(f"{thing.base} (base)", base), *((one.point.value, (one.wall, one.cpu)) for one in found.of(name))]
    rows = [
        (value, [Bar(cost, f"{cost:.2f}", colour) for cost, colour in zip(pair, COLOURS, strict=True)])
        for value, pair in costs
    ]
    bands = [Band((1 - WITHIN) * cost, (1 + WITHIN) * cost, colour) for cost, colour in zip(base, COLOURS, strict=True)]
    title = f"{thing.title[0].upper()}{thing.title[1:]}: microseconds per event"
    return bar_chart([Panel(title, rows, bands)], LEGEND, f"within {WITHIN:.0%} of the base")
