"""The table, the page and the pictures of ``bench/growth.py``."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from bench.growth_results import THINGS, Growth, Measured
from bench.laws import WITHIN
from bench.svg import bar, card, text

PAGE = "docs/how-cost-grows.md"
PICTURES = "docs/images/growth-{}.svg"
_WIDEST = 118
WIDTH, LEFT, BAR, ROW, TOP = 760.0, 170.0, 400.0, 44.0, 50.0
COLOURS = (
    ".wall { fill: #1a7f37 } .cpu { fill: #0757ba }\n    .band { fill: #8c959f; fill-opacity: 0.25 }",
    ".wall { fill: #4ac26b } .cpu { fill: #58a6ff }",
)
HEAD = (
    "what",
    "value",
    "µs an event",
    "of CPU",
    "results an event",
    "steps",
    "MiB at most",
    "rows held",
    "bytes a row",
    "as left",
)


def table(found: Growth) -> Iterator[str]:
    """Yield the lines of a table in Markdown; the base has the medians of all its measurements."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"| --- | --- | {' | '.join(['---:'] * (len(HEAD) - 2))} |"
    if found.bases:
        yield _row("the base", "", _middle(found))
    for name in found.things:
        for one in found.of(name):
            yield _row(THINGS[name].title, one.point.value, one)


def _middle(found: Growth) -> Measured:
    """Return the base's measurement that is the median by the clock."""
    ordered = sorted(found.bases, key=lambda one: one.wall)
    return ordered[(len(ordered) - 1) // 2]


def _row(thing: str, value: str, one: Measured) -> str:
    left = one.left / one.rows if one.rows else float("nan")
    cells = [
        thing,
        value,
        f"{one.wall:.2f}",
        f"{one.cpu:.2f}",
        f"{one.results:.2f}",
        str(one.steps),
        f"{one.memory:,.0f}",
        f"{one.rows:,}",
        f"{one.row_bytes:.1f}",
        f"{left:.1f}",
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
        lines += [f"![{THINGS[name].title}: microseconds an event](images/growth-{name}.svg)", ""]
    return "\n".join(lines)


def picture(found: Growth, name: str) -> str:
    """Return an SVG: for the base and each value of a thing a bar of the clock and one of the processors.

    The band is where a cost is flat: within a part of the base's.
    """
    thing = THINGS[name]
    shown = [(f"{thing.base} (base)", found.base("wall"), found.base("cpu"))]
    shown += [(one.point.value, one.wall, one.cpu) for one in found.of(name)]
    most = max(*(max(wall, cpu) for _, wall, cpu in shown), (1 + WITHIN) * max(shown[0][1:]))
    height = TOP + ROW * len(shown) + 34
    label = f"{thing.title}: microseconds an event, of the clock and of the processors"
    return card(WIDTH, height, label, COLOURS, _bars(shown, thing.title, most, height))


def _bars(shown: list[tuple[str, float, float]], title: str, most: float, height: float) -> Iterator[str]:
    yield text(20, 28, f"{title}: microseconds an event", "head")
    scale = BAR / most
    for number, (value, wall, cpu) in enumerate(shown):
        y = TOP + number * ROW
        yield text(LEFT - 10, y + 22, value, to_left=True)
        for kind, cost, base, down in (("wall", wall, shown[0][1], 0.0), ("cpu", cpu, shown[0][2], 17.0)):
            # where it ends should be in the band
            yield bar(LEFT + scale * (1 - WITHIN) * base, y + down, scale * 2 * WITHIN * base, 15, "band")
            yield bar(LEFT, y + down + 3, scale * cost, 9, kind, radius=2)
            yield text(LEFT + scale * max(cost, (1 + WITHIN) * base) + 8, y + down + 12, f"{cost:.2f}", "soft")
    yield text(20, height - 14, "green: of the clock; blue: of all processors; grey: within", "soft")
    yield text(300, height - 14, f"{WITHIN:.0%} of the base", "soft")
