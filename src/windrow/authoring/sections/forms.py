"""The forms of a pipeline: a graph with names, or a short form by the kind of its result."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from windrow import model as m
from windrow.authoring.sections.alerts import ALERTS
from windrow.authoring.sections.connectors import SINK, SOURCE
from windrow.authoring.sections.graph import GRAPH
from windrow.authoring.sections.pipeline import PIPELINE, PROCESS_PIPELINE
from windrow.authoring.sections.rules import LISTS, RULES_PIPELINE
from windrow.authoring.short_form import short_nodes
from windrow.declare.spec import Section, Shapes

DOCUMENT: Shapes[m.Graph] = Shapes(
    (
        (("sources", "streams", "sinks"), m.Graph, GRAPH),
        (("rules",), m.Graph, RULES_PIPELINE),
        ((), m.Graph, PIPELINE),
    )
)
"""A pipeline file."""


def section_of(graph: m.Graph) -> Section[m.Graph]:
    """Return the section by which a pipeline is printed."""
    if not graph.is_short:
        return GRAPH
    node = short_nodes(graph)[1]
    match node:
        case m.RulesNode():
            return RULES_PIPELINE
        case m.ProcessNode():
            return PROCESS_PIPELINE
        case m.WindowNode():
            return PIPELINE
        case _:
            assert_never(node)


def mask_secrets(graph: m.Graph) -> m.Graph:
    """Return the graph with *** for its passwords."""
    return replace(graph.map_nodes(_mask_node), alerts=ALERTS.mask(graph.alerts))


def _mask_node(node: m.Node) -> m.Node:
    match node:
        case m.SourceNode():
            return replace(node, source=SOURCE.mask(node.source))
        case m.SinkNode():
            return replace(node, sink=SINK.mask(node.sink))
        case m.RulesNode():
            return replace(node, rules=replace(node.rules, lists=LISTS.mask(node.rules.lists)))
        case _:
            return node
