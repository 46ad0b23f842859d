#!/usr/bin/env python3
"""Draws docs/images/architecture.svg: the packages of windrow, each above those that it imports.

Floors, arrows and the imports in each box are those of `ALLOWED` in tests/test_imports.py; only how far left and right
a box goes stands here. An arrow that others already imply is left out.
"""

from __future__ import annotations

import runpy
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "images" / "architecture.svg"
ALLOWED: dict[str, set[str]] = runpy.run_path(str(ROOT / "tests" / "test_imports.py"))["ALLOWED"]

LEFT_OUT = "__main__"
"""It starts `cli`, and does no more."""

PLACES = {
    "windrow": (0, 2.7),
    "cli": (2.7, 12),
    "client": (0, 12),
    "tools": (0, 12),
    "terminal": (0, 6),
    "testing": (6, 12),
    "runtime": (0, 12),
    "telemetry": (0, 8.4),
    "connectors": (0, 8.4),
    "engine": (0, 8.4),
    "authoring": (8.4, 12),
    "deadline": (0, 2.4),
    "expressions": (2.4, 9.4),
    "declare": (9.4, 12),
    "model": (0, 12),
    "errors": (0, 12),
    "hidden_values": (0, 12),
}
"""From where to where a box goes, of 12 columns."""

LEFT, TOP, COLUMN = 60.0, 24.0, 70.0
HEIGHT, GAP, SPACE = 66.0, 26.0, 12.0
"""Of a floor, between floors, and between boxes of a floor."""
CHARACTER = 6.6
"""The width of one, at the most."""

STYLE = """
    .card { fill: #ffffff; stroke: #d0d7de }
    .room { fill: #f3f6fa; stroke: #8c959f }
    .core { fill: #e3eefb; stroke: #0757ba }
    text { font: 12px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: #24292f }
    .name { font-weight: 600; font-size: 15px }
    .soft { fill: #57606a }
    .arrow { fill: none; stroke: #57606a; stroke-width: 1.5 }
    .head { fill: #57606a }
    @media (prefers-color-scheme: dark) {
      .card { fill: #161b22; stroke: #30363d }
      .room { fill: #1f2630; stroke: #57606a }
      .core { fill: #10284a; stroke: #58a6ff }
      text { fill: #e6edf3 }
      .soft { fill: #9da7b1 }
      .arrow { stroke: #9da7b1 } .head { fill: #9da7b1 }
    }
"""


def rooms() -> dict[str, set[str]]:
    """Return what each room imports, without what starts the command; ``windrow`` has the names that users import."""
    return {room or "windrow": imports for room, imports in ALLOWED.items() if room != LEFT_OUT}


def floors(imports: dict[str, set[str]]) -> dict[str, tuple[int, int]]:
    """Return the lowest and the highest floor of each room: above all that it imports, below all that import it."""
    lowest: dict[str, int] = {}
    while len(lowest) < len(imports):
        ready = {room for room in imports.keys() - lowest.keys() if imports[room] <= lowest.keys()}
        if not ready:
            msg = f"these import each other in a circle: {sorted(imports.keys() - lowest.keys())}"
            raise ValueError(msg)
        lowest |= {room: max((lowest[other] + 1 for other in imports[room]), default=0) for room in ready}
    highest: dict[str, int] = {}
    for room in sorted(imports, key=lambda room: -lowest[room]):
        above = [lowest[other] - 1 for other, below in imports.items() if room in below]
        # what stands on nothing belongs under what uses it; else a room is as high as the space that it has
        highest[room] = min(above, default=lowest[room])
        lowest[room] = lowest[room] if imports[room] or lowest[room] == highest[room] else highest[room]
    return {room: (lowest[room], highest[room]) for room in imports}


def arrows(imports: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Yield the imports that no chain of others implies."""

    def below(room: str) -> set[str]:
        return imports[room].union(*map(below, imports[room]))

    for room, others in imports.items():
        yield from ((room, other) for other in sorted(others) if not any(other in below(one) for one in others))


@dataclass(frozen=True)
class Box:
    """Where a room is, in pixels."""

    left: float
    top: float
    right: float
    bottom: float


def place(room: str, low: int, high: int, last: int) -> Box:
    """Return the box of a room from one floor to another, of which `last` is the top one."""
    left, right = (LEFT + COLUMN * column for column in PLACES[room])
    top = TOP + (HEIGHT + GAP) * (last - high)
    return Box(left, top, right - (SPACE if PLACES[room][1] < max(PLACES["model"]) else 0), _bottom(low, last))


def _bottom(floor: int, last: int) -> float:
    return TOP + (HEIGHT + GAP) * (last - floor) + HEIGHT


def text(left: float, base: float, words: str, kind: str) -> str:
    """Write words in the middle of `left`."""
    return f'<text x="{left:.1f}" y="{base:.1f}" class="{kind}" text-anchor="middle">{words}</text>'


def drawn(room: str, box: Box) -> Iterator[str]:
    """Draw a room: its name, and what it imports."""
    width, middle, center = box.right - box.left, (box.left + box.right) / 2, (box.top + box.bottom) / 2
    kind = "core" if room == "engine" else "room"
    size = f'width="{width:.1f}" height="{box.bottom - box.top}"'
    yield f'<rect class="{kind}" x="{box.left}" y="{box.top}" {size} rx="6"/>'
    listed = textwrap.wrap(imports_in_words(room), int(width / CHARACTER))
    base = center - 8 * len(listed) + 5
    yield text(middle, base, room, "name")
    for number, line in enumerate(listed, 1):
        yield text(middle, base + 1 + 16 * number, line, "soft")


def imports_in_words(room: str) -> str:
    """Return the list of what a room imports."""
    return ", ".join(sorted(rooms()[room])) or "imports no other"


def arrow(start: Box, end: Box) -> Iterator[str]:
    """Draw an arrow down from a box to another, where both are."""
    x = (max(start.left, end.left) + min(start.right, end.right)) / 2
    yield f'<path class="arrow" d="M{x:.1f},{start.bottom} V{end.top - 7:.1f}"/>'
    yield f'<path class="head" d="M{x:.1f},{end.top} l-5,-9 h10 z"/>'


def picture() -> str:
    """Return the whole picture."""
    imports = rooms()
    levels = floors(imports)
    last = max(high for _, high in levels.values())
    boxes = {room: place(room, low, high, last) for room, (low, high) in levels.items()}
    lines = [part for room, other in arrows(imports) for part in arrow(boxes[room], boxes[other])]
    width, height = LEFT + 12 * COLUMN + 24, _bottom(0, last) + 46
    body = "\n  ".join([*lines, *(part for room, box in boxes.items() for part in drawn(room, box))])
    legend = "A box stands above what it imports, which is listed under its name."
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"
  role="img" aria-label="The packages of windrow, each above those that it imports">
  <style>{STYLE}  </style>
  <rect class="card" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="10"/>
  {body}
  {text(width / 2, height - 18, legend, "soft")}
</svg>
"""


if __name__ == "__main__":
    TARGET.write_text(picture(), encoding="utf-8")
