#!/usr/bin/env python3
"""Draws docs/images/watermark.svg: the records of one partition, its watermark, and what becomes of one window.

The verdicts are computed from the records below, by the definition: move one, and the picture stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

TARGET = Path(__file__).parent.parent / "docs" / "images" / "watermark.svg"

# minutes after 10:00: when a record arrives, and the event time that it holds
RECORDS = [
    (0.7, 0.2),
    (1.5, 1.0),
    (2.4, 2.1),
    (3.3, 2.7),
    (4.2, 3.7),
    (4.9, 4.4),
    (5.3, 1.6),
    (5.9, 5.7),
    (6.4, 4.6),
    (7.0, 6.5),
    (7.7, 3.1),
    (8.3, 7.7),
    (9.0, 1.9),
    (9.8, 9.3),
    (10.7, 3.9),
    (11.4, 10.8),
    (12.3, 11.7),
]
WINDOW = (0.0, 5.0)
DELAY = 1.0
LATENESS = 3.0

LAST_X, LAST_Y = 13.0, 12.0
LEFT, TOP, WIDTH, HEIGHT = 84.0, 56.0, 790.0, 464.0
SIZE = (900, 640)

STYLE = """
    .card { fill: #ffffff; stroke: #d0d7de }
    .grid { stroke: #e4e8ec }
    .axis { stroke: #57606a }
    text { font: 14px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: #24292f }
    .soft { fill: #57606a }
    .ontime { fill: #1a7f37 } .late { fill: #b35900 } .expired { fill: #c9252d } .other { fill: #8c959f }
    .line { fill: none; stroke: #0757ba; stroke-width: 3 }
    .clock { fill: none; stroke: #8c959f; stroke-width: 1.5; stroke-dasharray: 4 4 }
    .edge { stroke: #57606a; stroke-dasharray: 2 4 }
    .mark { fill: #0757ba }
    @media (prefers-color-scheme: dark) {
      .card { fill: #161b22; stroke: #30363d }
      .grid { stroke: #272d35 }
      .axis, .edge { stroke: #8b949e }
      text { fill: #e6edf3 }
      .soft { fill: #9da7b1 }
      .ontime { fill: #4ac26b } .late { fill: #e2992f } .expired { fill: #ff7b72 } .other { fill: #768390 }
      .line { stroke: #58a6ff } .mark { fill: #58a6ff }
      .clock { stroke: #768390 }
    }
"""


@dataclass(frozen=True)
class Judged:
    """A record, with the clock of its partition before it."""

    arrival: float
    time: float
    clock: float

    @property
    def verdict(self) -> str:
        """What it is to the window."""
        if not WINDOW[0] <= self.time < WINDOW[1]:
            return "other"
        watermark = self.clock - DELAY
        if watermark < WINDOW[1]:
            return "ontime"
        return "late" if watermark < WINDOW[1] + LATENESS else "expired"


def judge() -> list[Judged]:
    """Go through the records in the order of arrival."""
    clock, judged = float("-inf"), []
    for arrival, time in RECORDS:
        judged.append(Judged(arrival, time, clock))
        clock = max(clock, time)
    return judged


def x(minutes: float) -> float:
    """Place an arrival."""
    return LEFT + minutes / LAST_X * WIDTH


def y(minutes: float) -> float:
    """Place an event time."""
    return TOP + HEIGHT - minutes / LAST_Y * HEIGHT


def reached(minutes: float) -> float:
    """Return when the watermark gets there."""
    return next(arrival for arrival, time in RECORDS if time - DELAY >= minutes)


def stairs(less: float) -> str:
    """Return the path of the greatest event time so far, so much lower."""
    clock = RECORDS[0][1]
    parts = [f"M{x(RECORDS[0][0]):.1f},{y(max(0, clock - less)):.1f}"]
    for arrival, time in RECORDS[1:]:
        if time > clock:
            parts.append(f"H{x(arrival):.1f} V{y(max(0, time - less)):.1f}")
            clock = time
    return " ".join([*parts, f"H{x(LAST_X):.1f}"])


def text(left: float, base: float, words: str, *, kind: str = "", anchor: str = "start", turn: str = "") -> str:
    """Write words; `left` and `base` in pixels."""
    classes = f' class="{kind}"' if kind else ""
    return f'<text x="{left:.1f}" y="{base:.1f}"{classes} text-anchor="{anchor}"{turn}>{words}</text>'


def circle(left: float, top: float) -> str:
    """Draw a record on time (or of another window)."""
    return f'<circle cx="{left:.1f}" cy="{top:.1f}" r="6"/>'


def diamond(left: float, top: float) -> str:
    """Draw a late record."""
    return f'<path d="M{left:.1f},{top - 8:.1f} l8,8 -8,8 -8,-8 z"/>'


def cross(left: float, top: float) -> str:
    """Draw an expired record."""
    return f'<path d="M{left - 8:.1f},{top - 5:.1f} l3,-3 5,5 5,-5 3,3 -5,5 5,5 -3,3 -5,-5 -5,5 -3,-3 5,-5 z"/>'


SHAPES: dict[str, Callable[[float, float], str]] = {
    "ontime": circle,
    "late": diamond,
    "expired": cross,
    "other": circle,
}


def axes() -> Iterator[str]:
    """Draw the grid, the axes and what they are."""
    for minute in range(0, int(LAST_Y) + 1, 5):
        yield f'<path class="grid" d="M{LEFT},{y(minute):.1f} H{LEFT + WIDTH}"/>'
        yield text(LEFT - 10, y(minute) + 5, f"10:{minute:02}", kind="soft", anchor="end")
    for minute in range(0, int(LAST_X) + 1, 5):
        yield text(x(minute), TOP + HEIGHT + 22, f"10:{minute:02}", kind="soft", anchor="middle")
    yield f'<path class="axis" fill="none" d="M{LEFT},{TOP - 14} V{TOP + HEIGHT} H{LEFT + WIDTH}"/>'
    turn = f' transform="rotate(-90 28 {TOP + HEIGHT / 2:.0f})"'
    yield text(28, TOP + HEIGHT / 2, "event time: when it happened", anchor="middle", turn=turn)
    yield text(LEFT + WIDTH / 2, TOP + HEIGHT + 46, "processing time: when the record arrives", anchor="middle")


def window() -> Iterator[str]:
    """Draw the window's three phases, and where they change."""
    fires, goes = reached(WINDOW[1]), reached(WINDOW[1] + LATENESS)
    top, height = y(WINDOW[1]), y(WINDOW[0]) - y(WINDOW[1])
    phases = {"ontime": "on time", "late": "late", "expired": "expired"}
    for (start, end), (kind, name) in zip(pairwise([0, fires, goes, LAST_X]), phases.items(), strict=True):
        yield (
            f'<rect class="{kind}" fill-opacity="0.13" x="{x(start):.1f}" y="{top:.1f}" '
            f'width="{x(end) - x(start):.1f}" height="{height:.1f}"/>'
        )
        yield text(x(end) - 10, y(WINDOW[0]) - 12, name, kind=kind, anchor="end")
    yield text(LEFT + 10, top + 20, "window [10:00, 10:05)")
    for at, level in ((fires, WINDOW[1]), (goes, WINDOW[1] + LATENESS)):
        yield f'<path class="edge" d="M{x(at):.1f},{y(WINDOW[0]):.1f} V{y(level):.1f}"/>'
        yield f'<circle class="mark" cx="{x(at):.1f}" cy="{y(level):.1f}" r="5"/>'
    yield text(x(fires) - 96, y(WINDOW[1]) - 103, "the watermark passes 10:05:", anchor="end")
    yield text(x(fires) - 96, y(WINDOW[1]) - 85, "the window fires", anchor="end")
    yield f'<path class="clock" d="M{x(fires) - 90:.1f},{y(WINDOW[1]) - 82:.1f} l84,76"/>'
    yield text(x(goes) + 14, y(WINDOW[1] + LATENESS) + 22, "10:05 + lateness:")
    yield text(x(goes) + 14, y(WINDOW[1] + LATENESS) + 40, "its state is removed")


def lines() -> Iterator[str]:
    """Draw the clock and the watermark."""
    yield f'<path class="clock" d="{stairs(0)}"/>'
    yield f'<path class="line" d="{stairs(DELAY)}"/>'
    yield text(x(8.0), y(10.6), "clock: the greatest event time so far", kind="soft", anchor="end")
    yield f'<path class="clock" d="M{x(8.1):.1f},{y(10.45):.1f} L{x(9.6):.1f},{y(9.5):.1f}"/>'
    yield text(x(2.6), y(0.5), "watermark = clock - delay", kind="mark")


def legend() -> Iterator[str]:
    """Say what the shapes are."""
    said = {
        "ontime": "on time: in the first result",
        "late": "late: revises the result",
        "expired": "expired: in the late output",
        "other": "other windows",
    }
    left = LEFT
    for kind, words in said.items():
        yield f'<g class="{kind}">{SHAPES[kind](left, SIZE[1] - 32)}</g>'
        yield text(left + 14, SIZE[1] - 27, words)
        left += 44 + 6.6 * len(words)


def picture() -> str:
    """Return the whole picture."""
    width, height = SIZE
    records = (f'<g class="{one.verdict}">{SHAPES[one.verdict](x(one.arrival), y(one.time))}</g>' for one in judge())
    body = "\n  ".join([*axes(), *window(), *lines(), *records, *legend()])
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"
  aria-label="Event time against processing time: the watermark, and one window's on-time, late and expired records">
  <style>{STYLE}  </style>
  <rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>
  {body}
</svg>
"""


if __name__ == "__main__":
    TARGET.write_text(picture(), encoding="utf-8")
