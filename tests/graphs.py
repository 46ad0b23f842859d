"""Graphs of pipelines that are made in Python, and the short forms that tests change by their fields."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from tests.short_forms import AnyPipeline, Pipeline, graph_of_short, short_form

import windrow as wr
from windrow.authoring.pipeline_file import parse_pipeline
from windrow.authoring.printing import to_python_file
from windrow.expressions import SinkSpec, sink_specs
from windrow.model import Graph, ResultNode, SinkNode

Runnable = AnyPipeline | Graph
"""A graph, or the short form of one."""


def sink_spec_of(pipeline: Runnable | SinkSpec, stream: str = "") -> SinkSpec:
    """Return what the one sink of a pipeline writes, made of another stream if one is named."""
    if isinstance(pipeline, SinkSpec):
        spec = pipeline
    else:
        (spec,) = sink_specs(as_graph(pipeline)).values()
    return replace(spec, stream=stream or spec.stream)


G = TypeVar("G", bound=Runnable)


def as_graph(pipeline: Runnable) -> Graph:
    """Return the graph of a short form, and a graph as it is."""
    return pipeline if isinstance(pipeline, Graph) else graph_of_short(pipeline)


def graph_of(pipeline: wr.Pipeline | Graph, kind: type[G]) -> G:
    """Return the graph of a pipeline, or the short form that it was written as, which is of this kind."""
    graph = pipeline if isinstance(pipeline, Graph) else pipeline.graph
    found = short_form(graph) or graph
    assert isinstance(found, kind)
    return found


def parse_short(text: str, file: str = "<string>") -> Pipeline:
    """Read the text of a pipeline with windows, and return its short form."""
    return graph_of(parse_pipeline(text, file), Pipeline)


def with_names(graph: Graph) -> Graph:
    """Return the graph of a short form with names for its result and its sink."""
    source, result, sink = graph.nodes
    assert isinstance(result, ResultNode)
    assert isinstance(sink, SinkNode)
    return replace(graph, nodes=(source, replace(result, name="result"), replace(sink, name="sink", input="result")))


def python_of(pipeline: Runnable) -> str:
    """Return the Python expression that makes the pipeline of a short form."""
    return to_python_file(as_graph(pipeline)).partition("\npipeline = ")[2]
