"""The forms of a pipeline: a graph with names, or a short form by the kind of its result."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from windrow.authoring.sections.alerts import ALERTS
from windrow.authoring.sections.connectors import SINK, SOURCE
from windrow.authoring.sections.graph import GRAPH
from windrow.authoring.sections.pipeline import PIPELINE, PROCESS_PIPELINE
from windrow.authoring.sections.rules import LISTS, RULES_PIPELINE
from windrow.authoring.short_form import short_nodes
from windrow.declare.spec import Section, Shapes
from windrow.model import Graph, Node, ProcessNode, RulesNode, SinkNode, SourceNode, WindowNode

DOCUMENT: Shapes[Graph] = Shapes(
    (
        (("sources", "streams", "sinks"), Graph, GRAPH),
        (("rules",), Graph, RULES_PIPELINE),
        ((), Graph, PIPELINE),
    )
)
"""A pipeline file."""


def section_of(graph: Graph) -> Section[Graph]:
    """Return the section that a pipeline is written by."""
    if not graph.is_short:
        return GRAPH
    node = short_nodes(graph)[1]
    match node:
        case RulesNode():
            return RULES_PIPELINE
        case ProcessNode():
            return PROCESS_PIPELINE
        case WindowNode():
            return PIPELINE
        case _:
            assert_never(node)


def mask_secrets(graph: Graph) -> Graph:
    """Return the graph with *** for the passwords in it."""
    return replace(graph.map_nodes(_masked), alerts=ALERTS.mask(graph.alerts))


def _masked(node: Node) -> Node:
    match node:
        case SourceNode():
            return replace(node, source=SOURCE.mask(node.source))
        case SinkNode():
            return replace(node, sink=SINK.mask(node.sink))
        case RulesNode():
            return replace(node, rules=replace(node.rules, lists=LISTS.mask(node.rules.lists)))
        case _:
            return node
