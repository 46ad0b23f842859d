"""The short form: how a graph of one source, one result and one sink is written, without names for its nodes.

In the graph its result and its sink have empty names, by which it is known and printed as it was written.
"""

from __future__ import annotations

from typing import assert_never

from windrow.model import (
    AnyPipeline,
    Graph,
    Pipeline,
    ProcessNode,
    ProcessPipeline,
    ResultNode,
    RulesNode,
    RulesPipeline,
    SinkNode,
    SourceNode,
    WindowNode,
)

NODE_NAMES = "a name has 1 to 100 letters, digits, '.', '_' or '-', and starts with a letter or digit"
"""The error of a node with another name; the empty one is left to short forms."""

_SOURCE = "source"


def graph_of_short(pipeline: AnyPipeline) -> Graph:
    """Return the graph of a short form."""
    node: ResultNode
    match pipeline:
        case Pipeline(key=key, window=window, aggregates=aggregates, emit=emit, salt=salt):
            node = WindowNode("", _SOURCE, key, window, aggregates, emit, salt)
        case ProcessPipeline(key=key, process=process, at_end=at_end):
            node = ProcessNode("", _SOURCE, key, process, at_end)
        case RulesPipeline(key=key, rules=rules, at_end=at_end):
            node = RulesNode("", _SOURCE, key, rules, at_end)
        case _:
            assert_never(pipeline)
    source = SourceNode(_SOURCE, pipeline.source, pipeline.decode, pipeline.time, pipeline.derive)
    nodes = (source, node, SinkNode("", "", pipeline.sink))
    return Graph(pipeline.name, nodes, pipeline.key_groups, pipeline.mode, pipeline.alerts)


def short_form(graph: Graph) -> AnyPipeline | None:
    """Return the short form of a graph that was written as one; None for a graph whose nodes have names."""
    match graph.nodes:
        case (
            SourceNode(name="source", lateness=None) as source,
            WindowNode(name="", input="source", derive=())
            | ProcessNode(name="", input="source", derive=())
            | RulesNode(name="", input="source", derive=()) as node,
            SinkNode(name="", input="", sink=sink),
        ):
            pass
        case _:
            return None
    name, groups, mode, alerts = graph.name, graph.key_groups, graph.mode, graph.alerts
    records = (name, source.source, source.decode, source.time, node.key)
    match node:
        case WindowNode(window=window, aggregates=aggregates, emit=emit, salt=salt):
            return Pipeline(*records, window, aggregates, emit, sink, groups, source.derive, salt, mode, alerts)
        case ProcessNode(process=process, at_end=at_end):
            return ProcessPipeline(*records, process, sink, groups, source.derive, at_end, mode, alerts)
        case RulesNode(rules=rules, at_end=at_end):
            return RulesPipeline(*records, rules, sink, groups, source.derive, at_end, mode, alerts)
        case _:
            assert_never(node)
