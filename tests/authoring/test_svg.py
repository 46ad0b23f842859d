"""The drawing of a pipeline: its boxes and the ways between them, where they can be told apart."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from tests.docs.pages import ROOT

import windrow as wr
from windrow.authoring.printing import to_svg
from windrow.authoring.printing.flowchart import flowchart

SVG = "{http://www.w3.org/2000/svg}"
FILES = sorted((ROOT / "examples").rglob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT / "examples")))
def test_each_part_is_a_box_and_each_way_a_line(file: str) -> None:
    pipeline = wr.load(file).graph
    chart, drawn = flowchart(pipeline), ET.fromstring(to_svg(pipeline))  # noqa: S314 - our own text
    boxes = [[float(one.attrib[name]) for name in ("x", "y", "width", "height")] for one in drawn.iter(f"{SVG}rect")]
    assert len(boxes) == len(chart.boxes)
    width, height = map(float, drawn.attrib["viewBox"].split()[2:])
    assert all(x >= 0 and x + w <= width and y >= 0 and y + h <= height for x, y, w, h in boxes)
    # boxes of a row stand side by side
    for row in Counter(y for _, y, _, _ in boxes):
        own = sorted(box for box in boxes if box[1] == row)
        assert all(left[0] + left[2] < right[0] for left, right in pairwise(own))
    lines = [one for one in drawn.iter(f"{SVG}path") if "marker-end" in one.attrib]
    assert len(lines) == sum(len(way.boxes) - 1 for way in chart.ways)
    texts = {one.text for one in drawn.iter(f"{SVG}text")}
    assert {box.noun for box in chart.boxes} <= texts
    assert {way.label for way in chart.ways if way.label} <= texts
