"""The points of ``bench/capacity.py``: pipelines that are valid, and that the laws can plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.capacity import POINTS, text_of
from tests.graphs import as_graph

from windrow.authoring.checks import require_valid
from windrow.authoring.pipeline_file import read_document
from windrow.tools.capacity.load import Behind, Keys, Load
from windrow.tools.capacity.plan import Wishes, plan


@pytest.mark.parametrize("name", POINTS)
def test_each_point_is_a_pipeline_that_can_be_planned(name: str) -> None:
    text = text_of(POINTS[name], "localhost:9092", Path("0"), "postgresql://localhost/x")
    graph = as_graph(require_valid(read_document(text, "point.yaml").pipeline))
    names = [source.name for source in graph.sources]
    load = Load(dict.fromkeys(names, 1_000.0), dict.fromkeys(names, 80.0), {"": Keys.even(10_000)}, Behind.stated({}))
    found = plan(graph, load, Wishes())
    assert not found.unknown
    assert found.value("cores") >= 1
    assert found.value("state rows") > 0
