"""Draw the flowchart of a pipeline as self-contained SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import pairwise
from statistics import fmean

from windrow import model as m
from windrow.authoring.printing.flowchart import Box, Flowchart, Way, flowchart

_WIDTH = 230
_LINE = 15
_LETTERS = 36
"""Letters a line that fit into the width of a box."""
_LINES = 4
"""Maximum lines of a text; the title of the box has the whole text."""
_ACROSS, _DOWN = 30, 34
"""Space between boxes."""
_MARGIN = 8
_ARROW = (
    '<defs><marker id="windrow-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0 8 4 0 8z" fill="#667"/></marker></defs>'
)
_FONT = "font-family: system-ui, sans-serif; font-size: 11px"


@dataclass(frozen=True)
class _PlacedBox:
    """A box with its lines of text and the position of its upper left corner."""

    box: Box
    lines: Sequence[str]
    x: float
    y: float

    @property
    def height(self) -> int:
        """The height of the title, the lines, and the space below them."""
        return _LINE * (len(self.lines) + 1) + 8

    @property
    def bottom(self) -> float:
        """The y coordinate of the lower edge."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """The x coordinate of the middle, where edges begin and end."""
        return self.x + _WIDTH / 2


def to_svg(graph: m.Graph) -> str:
    """Draw the pipeline as SVG, with sources at the top and sinks at the bottom; secrets are replaced by ***."""
    chart = flowchart(graph)
    places = _places(chart)
    width = max(place.x for place in places.values()) + _WIDTH + _MARGIN
    height = max(place.bottom for place in places.values()) + _MARGIN
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="max-width: 100%; background: #fff; {_FONT}">',
        f"<title>{escape(graph.name)}</title>",
        _ARROW,
        *(line for way in chart.ways for line in _draw_way(way, places)),
        *(line for place in places.values() for line in _draw_box(place)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _places(chart: Flowchart) -> dict[str, _PlacedBox]:
    """Place each box in the row below its lowest input, centred under its inputs where there is room."""
    above: dict[str, list[str]] = {box.id: [] for box in chart.boxes}
    for way in chart.ways:
        for start, end in pairwise(way.boxes):
            above[end].append(start)

    @cache
    def row_of(box: str) -> int:
        return max((row_of(start) + 1 for start in above[box]), default=0)

    rows: list[list[Box]] = [[] for _ in range(max(row_of(box.id) for box in chart.boxes) + 1)]
    for box in chart.boxes:
        rows[row_of(box.id)].append(box)
    places: dict[str, _PlacedBox] = {}
    y = float(_MARGIN)
    for boxes in rows:
        wanted = {box.id: fmean([places[start].x for start in above[box.id]] or [0]) for box in boxes}
        free = float(_MARGIN)
        lowest = y
        for box in sorted(boxes, key=lambda box: wanted[box.id]):
            lines = textwrap.wrap(box.text, _LETTERS, max_lines=_LINES, placeholder=" …")
            placed = places[box.id] = _PlacedBox(box, lines, max(free, wanted[box.id]), y)
            free, lowest = placed.x + _WIDTH + _ACROSS, max(lowest, placed.bottom)
        y = lowest + _DOWN
    return places


def _draw_way(way: Way, places: Mapping[str, _PlacedBox]) -> Iterator[str]:
    """Draw a line between each pair of boxes on a path, with the path's label in the middle of the line."""
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


def _draw_box(placed: _PlacedBox) -> Iterator[str]:
    """Draw a box with its title and text; the full text is the SVG title, which browsers show as a tooltip."""
    fill, radius = ("#e8f0fb", 14) if placed.box.is_store else ("#f6f6f6", 4)
    yield f"<g><title>{escape(placed.box.text)}</title>"
    yield (
        f'<rect x="{placed.x:g}" y="{placed.y:g}" width="{_WIDTH}" height="{placed.height}" rx="{radius}" '
        f'fill="{fill}" stroke="#889"/>'
    )
    for number, line in enumerate((placed.box.noun, *placed.lines)):
        weight = ' font-weight="600"' if not number else ""
        y = placed.y + _LINE * (number + 1) + 2
        yield f'<text x="{placed.middle:g}" y="{y:g}" text-anchor="middle" fill="#112"{weight}>{escape(line)}</text>'
    yield "</g>"
