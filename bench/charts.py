"""Horizontal bar charts as SVG, drawn with matplotlib.

The files are reproducible: the style ignores the user's settings, ids come from a fixed salt, and no date is written.
Text stays text. It is measured in DejaVu Sans, which comes with matplotlib and is wider than the sans-serif fonts that
browsers use instead, so labels that fit here also fit there. The card is white, for light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import StringIO
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch

GREEN, BLUE, GREY = "#1a7f37", "#0757ba", "#8c959f"
_TEXT, _EDGE = "#24292f", "#d0d7de"
_WIDTH, _BAR, _HEAD, _LEGEND = 8.5, 0.25, 0.4, 0.4
"""Inches: the figure's width, and the heights of a bar, of a panel's title and of the legend."""
_GAP = 0.6
"""Between rows, as a part of a bar's height."""
_FAINT = 0.15
"""The opacity of bands."""
_STYLE = {
    "axes.spines.bottom": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.edgecolor": _EDGE,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.edgecolor": _EDGE,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.15,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "windrow",
    "text.color": _TEXT,
    "text.parse_math": False,
    "ytick.labelcolor": _TEXT,
    "ytick.left": False,
}


@dataclass(frozen=True)
class Bar:
    """A bar with a label at its end."""

    value: float
    label: str
    colour: str


@dataclass(frozen=True)
class Band:
    """A range of values, shaded over the height of a panel."""

    low: float
    high: float
    colour: str


@dataclass(frozen=True)
class Panel:
    """A title, and rows from top to bottom: the name of a row and its bars. Values start at 0 and are positive."""

    title: str
    rows: Sequence[tuple[str, Sequence[Bar]]]
    bands: Sequence[Band] = ()


def _style() -> AbstractContextManager[None]:
    return style.context(_STYLE, after_reset=True)


def bar_chart(panels: Sequence[Panel], legend: Sequence[tuple[str, str]], bands: str = "") -> Figure:
    """Draw panels below each other, each with a scale of its own, and a legend of names and colours.

    If the panels have bands, `bands` is their name in the legend.
    """
    heights = [sum(_GAP + len(bars) for _, bars in panel.rows) * _BAR for panel in panels]
    with _style():
        size = (_WIDTH, sum(heights) + _HEAD * len(panels) + _LEGEND)
        figure = Figure(figsize=size, layout="constrained", linewidth=1)
        if panels:
            grid = figure.subplots(len(panels), squeeze=False, gridspec_kw={"height_ratios": heights})
            for axes, panel in zip(grid[:, 0], panels, strict=True):
                _draw(axes, panel)
        # a tuple of patches is one handle, which matplotlib's types do not know
        handles: list[Any] = [Patch(color=colour) for _, colour in legend]
        names = [name for name, _ in legend]
        if bands:
            handles.append(tuple(Patch(color=band.colour, alpha=_FAINT, linewidth=0) for band in panels[0].bands))
            names.append(bands)
        figure.legend(
            handles,
            names,
            loc="outside lower left",
            ncols=len(names),
            handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
        )
        return figure


def _draw(axes: Axes, panel: Panel) -> None:
    """Draw a panel; a bar takes one unit of height."""
    axes.set_title(panel.title)
    for band in panel.bands:
        axes.axvspan(band.low, band.high, color=band.colour, alpha=_FAINT, linewidth=0, zorder=0)
    top, middles = 0.0, []
    for _, bars in panel.rows:
        for number, bar in enumerate(bars):
            drawn = axes.barh(top + (_GAP + 1) / 2 + number, bar.value, height=0.85, color=bar.colour)
            axes.bar_label(drawn, [bar.label], padding=5)
        middles.append(top + (_GAP + len(bars)) / 2)
        top += _GAP + len(bars)
    values = [bar.value for _, bars in panel.rows for bar in bars] + [band.high for band in panel.bands]
    axes.set_xlim(0, max(values))
    axes.set_ylim(top, 0)
    axes.set_xticks([])
    axes.set_yticks(middles, [name for name, _ in panel.rows])


def svg(figure: Figure, title: str) -> str:
    """Return a figure as SVG; the title is its text for screen readers."""
    written = StringIO()
    with _style():
        figure.savefig(written, format="svg", edgecolor=_EDGE, metadata={"Title": title, "Creator": None, "Date": None})
    # matplotlib ends some lines with blanks
    return "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())
