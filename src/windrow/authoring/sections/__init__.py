"""The sections of a pipeline: their keys and kinds, their syntax, and their descriptions.

This is the only declaration of the syntax. The YAML reader, all printed forms, the lists in docs/reference/pipeline.md
(`make docs`) and the schema for editors (`windrow schema`) are derived from it. The functions of the fluent form have
the same names and defaults.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from windrow import model as m
from windrow.authoring.sections.alerts import ALERTS as ALERTS
from windrow.authoring.sections.connectors import (
    SINK as SINK,
    SOURCE as SOURCE,
)
from windrow.authoring.sections.graph import (
    GRAPH as GRAPH,
    STORY_GRAPH as STORY_GRAPH,
    StoryGraph as StoryGraph,
)
from windrow.authoring.sections.pipeline import (
    PIPELINE as PIPELINE,
    PROCESS_PIPELINE as PROCESS_PIPELINE,
    STORY as STORY,
    StoryPipeline as StoryPipeline,
    state_words as state_words,
)
from windrow.authoring.sections.records import (
    DECODE as DECODE,
    DELAY as DELAY,
    DERIVE as DERIVE,
    KEY as KEY,
    TIME as TIME,
    KeyFields as KeyFields,
)
from windrow.authoring.sections.results import (
    AGGREGATE as AGGREGATE,
    EMIT as EMIT,
    LATE as LATE,
    TRIGGER as TRIGGER,
    WINDOW as WINDOW,
)
from windrow.authoring.sections.rules import (
    LISTS as LISTS,
    RULES_PIPELINE as RULES_PIPELINE,
    STORY_RULES as STORY_RULES,
    StoryRules as StoryRules,
    rules_python as rules_python,
)
from windrow.declare.formats import FORMAT as FORMAT
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
    """Return the section with which a pipeline is printed."""
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
    """Return the graph with its secrets replaced by ***."""
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
