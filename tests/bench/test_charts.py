"""The charts of the benchmarks: labels are inside the card and apart from each other, and files are reproducible."""

from __future__ import annotations

import string
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from bench.charts import BLUE, GREEN, GREY, Band, Bar, Panel, bar_chart, svg
from bench.growth_results import THINGS, Growth
from bench.peers import picture
from bench.peers.engines import ENGINES
from bench.peers.report import JOIN_ENGINES, JOINS
from bench.peers.results import AlertRun, JoinRun, Results, Run
from bench.realtime_engines import ENGINES as ALERT_ENGINES
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text
from tests.examples import examples

from bench import growth_report

RESULTS = Path(__file__).parents[2] / "bench" / "results"
GROWTH = Growth.load(max(RESULTS.glob("growth-*.json")))
EVERY_ENGINE = Results(
    "2026-01-01",
    {},
    {},
    {},
    runs=[
        Run(1, one.name, sink, 10_000_000, 3.0 + 200 * number, memory=9000)
        for number, one in enumerate(ENGINES)
        for sink in one.sinks
    ],
    joins=[
        JoinRun(1, case, name, 4_000_000, 3.0 + 200 * number)
        for case in JOINS
        for number, name in enumerate(JOIN_ENGINES)
    ],
    alerts=[
        AlertRun(name, partitions, rate, 9, {"p50": 4.0 * 20**number, "p99": 9.0 * 20**number}, {})
        for number, name in enumerate(ALERT_ENGINES)
        for rate in (100, 1_000, 3_000)
        for partitions in (1, 2)
    ],
)
COMPARISONS = {
    "every engine": EVERY_ENGINE,
    "one engine": replace(EVERY_ENGINE, runs=EVERY_ENGINE.runs[:1]),
    "no engine": Results("2026-01-01", {}, {}, {}),
}
NAMES = st.text(string.ascii_letters + string.digits + "$_{}<&, ", min_size=1, max_size=40)
BARS = st.builds(Bar, st.floats(0.01, 1e7), st.floats(0.01, 1e7).map("{:,.2f}".format), st.sampled_from([GREEN, BLUE]))
BANDS = st.builds(Band, st.floats(0, 1), st.floats(1, 10), st.just(GREY))
ROWS = st.lists(st.tuples(NAMES, st.lists(BARS, min_size=1, max_size=2)), min_size=1, max_size=6)
PANELS = st.lists(st.builds(Panel, NAMES, ROWS, st.lists(BANDS, max_size=2)), min_size=1, max_size=2)


def check_labels(figure: Figure) -> None:
    """Check that all labels are inside the figure, and that no two overlap."""
    figure.draw_without_rendering()
    labels = [one for one in figure.findobj(Text) if isinstance(one, Text) and one.get_visible() and one.get_text()]
    assert labels
    boxes = [(one.get_text(), one.get_window_extent()) for one in labels]
    card = figure.bbox
    for text, box in boxes:
        assert card.x0 <= box.x0 < box.x1 <= card.x1, f"{text} is cut off"
        assert card.y0 <= box.y0 < box.y1 <= card.y1, f"{text} is cut off"
    for (text, box), (other, beside) in combinations(boxes, 2):
        assert not box.overlaps(beside), f"{text} overlaps {other}"


@examples(20)
@given(PANELS)
def test_labels_are_inside_the_card_and_apart(panels: list[Panel]) -> None:
    check_labels(bar_chart(panels, [("one", GREEN), ("another", BLUE)]))


def test_a_label_outside_the_card_is_found() -> None:
    figure = bar_chart([Panel("title", [("row", [Bar(1, "1", GREEN)])])], [("one", GREEN)])
    figure.text(0.99, 0.5, "a long label")
    with pytest.raises(AssertionError, match="is cut off"):
        check_labels(figure)


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_has_a_legible_picture(name: str) -> None:
    found = COMPARISONS[name]
    check_labels(picture.chart(found))
    texts = "".join(ET.fromstring(picture.picture(found)).itertext())  # noqa: S314 - it is our own
    assert all((one.title in texts) is any(run.engine == one.name for run in found.runs) for one in ENGINES)
    check_labels(picture.more_chart(found))
    texts = "".join(ET.fromstring(picture.more_picture(found)).itertext())  # noqa: S314 - it is our own
    assert all((title in texts) is any(run.case == case for run in found.joins) for case, title in JOINS.items())
    for alerting, one in ALERT_ENGINES.items():
        assert (f"{one.title}, 3,000/s" in texts) is any(run.engine == alerting for run in found.alerts)


@pytest.mark.parametrize("name", THINGS)
def test_each_thing_that_grows_has_a_legible_picture(name: str) -> None:
    check_labels(growth_report.chart(GROWTH, name))
    texts = "".join(ET.fromstring(growth_report.picture(GROWTH, name)).itertext())  # noqa: S314 - it is our own
    assert all(one.point.value in texts and f"{one.cpu:.2f}" in texts for one in GROWTH.of(name))


def test_a_picture_is_reproducible_and_has_its_title() -> None:
    panel = Panel("title", [("$a < b$", [Bar(1, "1", GREEN)])], [Band(0, 1, BLUE)])
    first, again = (svg(bar_chart([panel], [("one", GREEN)], "a band"), "What it shows") for _ in range(2))
    assert first == again
    assert "<title>What it shows</title>" in first
    assert "$a &lt; b$</text>" in first
    assert "dc:date" not in first
