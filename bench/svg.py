"""The parts that the pictures of the measurements are made of: a card in the colours of the page, texts and bars."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_STYLE = """
    .card {{ fill: #ffffff; stroke: #d0d7de }}
    text {{ font: 14px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: #24292f }}
    .head {{ font-weight: 600 }}
    .soft {{ fill: #57606a }}
    {light}
    @media (prefers-color-scheme: dark) {{
      .card {{ fill: #161b22; stroke: #30363d }}
      text {{ fill: #e6edf3 }}
      .soft {{ fill: #9da7b1 }}
      {dark}
    }}
"""


def card(width: float, height: float, label: str, colours: tuple[str, str], parts: Iterable[str]) -> str:
    """Return an SVG of parts on a card, of so many pixels; `colours` are rules of CSS, for light pages and dark ones.

    The label is for those who do not see it.
    """
    light, dark = colours
    body = "\n  ".join(parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"
  role="img" aria-label="{escape(label)}">
  <style>{_STYLE.format(light=light, dark=dark)}  </style>
  <rect class="card" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="10"/>
  {body}
</svg>
"""


def text(x: float, y: float, words: str, kind: str = "", *, to_left: bool = False) -> str:
    """Return a text, which begins at x, or ends there; kinds are `head` and `soft`."""
    named = f'class="{kind}" ' if kind else ""
    anchor = ' text-anchor="end"' if to_left else ""
    return f'<text {named}x="{_place(x)}" y="{_place(y)}"{anchor}>{escape(words)}</text>'


def bar(x: float, y: float, width: float, height: int, kind: str, *, radius: int = 0) -> str:
    """Return a bar in the colour of its kind."""
    corners = f' rx="{radius}"' if radius else ""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"{corners}/>'


def _place(value: float) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
