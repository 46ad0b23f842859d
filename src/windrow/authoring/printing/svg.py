"""A pipeline as a drawing of its flowchart in SVG, which needs nothing else to be shown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import pairwise

from windrow import model as m
from windrow.authoring.printing.flowchart import Box, Flowchart, Way, flowchart

_WIDTH = 230
_LINE = 15
_LETTERS = 36
"""Letters of a line, which fit into the width of a box."""
_LINES = 4
"""Lines of a text; more of it are left out, but for the title of the box, which has all."""
_ACROSS, _DOWN = 30, 34
"""Space between boxes."""
_MARGIN = 8
_ARROW = (
    '<defs><marker id="windrow-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0 8 4 0 8z" fill="#667"/></marker></defs>'
)
_FONT = "font-family: system-ui, sans-serif; font-size: 11px"


@dataclass(frozen=True)
class _Drawn:
    """A box with its lines, and where its upper left corner is."""

    box: Box
    lines: tuple[str, ...]
    x: float
    y: float

    @property
    def height(self) -> int:
        """The title, the lines, and space below them."""
        return _LINE * (len(self.lines) + 1) + 8

    @property
    def bottom(self) -> float:
        """The y coordinate of the lower edge."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """The x coordinate of the middle, at which edges begin and end."""
        return self.x + _WIDTH / 2


def to_svg(graph: m.Graph) -> str:
    """Return a drawing: the data's way from the sources down to the sinks; secrets are ***."""
    chart = flowchart(graph)
    places = _places(chart)
    width = max(place.x for place in places.values()) + _WIDTH + _MARGIN
    height = max(place.bottom for place in places.values()) + _MARGIN
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="max-width: 100%; background: #fff; {_FONT}">',
        f"<title>{escape(graph.name)}</title>",
        _ARROW,
        *(line for way in chart.ways for line in _way(way, places)),
        *(line for place in places.values() for line in _drawn(place)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _places(chart: Flowchart) -> dict[str, _Drawn]:
    """Place each box a row below the lowest of those that lead to it, and under these as far as there is room."""
    above: dict[str, list[str]] = {box.id: [] for box in chart.boxes}
    for way in chart.ways:
        for start, end in pairwise(way.boxes):
            above[end].append(start)

    @cache
    def row_of(box: str) -> int:
        return max((row_of(one) + 1 for one in above[box]), default=0)

    rows: list[list[Box]] = [[] for _ in range(max(row_of(box.id) for box in chart.boxes) + 1)]
    for box in chart.boxes:
        rows[row_of(box.id)].append(box)
    places: dict[str, _Drawn] = {}
    y = float(_MARGIN)
    for boxes in rows:
        wanted = {box.id: _mean([places[one].x for one in above[box.id]]) for box in boxes}
        free = float(_MARGIN)
        lowest = y
        for box in sorted(boxes, key=lambda box: wanted[box.id]):
            drawn = _Drawn(box, _lines(box.text), max(free, wanted[box.id]), y)
            places[box.id] = drawn
            free, lowest = drawn.x + _WIDTH + _ACROSS, max(lowest, drawn.bottom)
        y = lowest + _DOWN
    return places


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _lines(text: str) -> tuple[str, ...]:
    lines = textwrap.wrap(text, _LETTERS, max_lines=_LINES, placeholder=" …")
    return tuple(lines)


def _way(way: Way, places: Mapping[str, _Drawn]) -> Iterator[str]:
    """Draw the lines between the boxes of a way, with its label in the middle of the last one."""
    dashes = ' stroke-dasharray="4 3"' if way.is_aside else ""
    for start, end in pairwise(places[box] for box in way.boxes):
        x0, y0, x1, y1 = start.middle, start.bottom, end.middle, end.y
        bend = (y1 - y0) / 2
        yield (
            f'<path d="M{x0:g} {y0:g}C{x0:g} {y0 + bend:g} {x1:g} {y1 - bend:g} {x1:g} {y1:g}" fill="none" '
            f'stroke="#667"{dashes} marker-end="url(#windrow-arrow)"/>'
        )
        if way.label:
            yield (
                f'<text x="{(x0 + x1) / 2:g}" y="{(y0 + y1) / 2:g}" text-anchor="middle" fill="#445" stroke="#fff" '
                f'stroke-width="3" paint-order="stroke">{escape(way.label)}</text>'
            )


def _drawn(one: _Drawn) -> Iterator[str]:
    """Draw a box: its noun, and what it does; all of that is its title, which is shown under the pointer."""
    fill, radius = ("#e8f0fb", 14) if one.box.is_store else ("#f6f6f6", 4)
    yield f"<g><title>{escape(one.box.text)}</title>"
    yield (
        f'<rect x="{one.x:g}" y="{one.y:g}" width="{_WIDTH}" height="{one.height}" rx="{radius}" fill="{fill}" '
        'stroke="#889"/>'
    )
    for number, line in enumerate((one.box.noun, *one.lines)):
        weight = ' font-weight="600"' if not number else ""
        y = one.y + _LINE * (number + 1) + 2
        yield f'<text x="{one.middle:g}" y="{y:g}" text-anchor="middle" fill="#112"{weight}>{escape(line)}</text>'
    yield "</g>"
