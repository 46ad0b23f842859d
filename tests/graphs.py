"""Graphs of pipelines that are made in Python."""

from __future__ import annotations

from typing import TypeVar

import windrow as wr
from windrow.model import Runnable

G = TypeVar("G", bound=Runnable)


def graph_of(pipeline: wr.Pipeline, kind: type[G]) -> G:
    """Return the graph of a pipeline, which is of this kind."""
    assert isinstance(pipeline.graph, kind)
    return pipeline.graph
