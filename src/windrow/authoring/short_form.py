"""The short form: how a graph of one source, one result and one sink is written, without names for its nodes.

In the graph its result and its sink have empty names, by which it is known and printed as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from windrow.expressions import spec_of
from windrow.model import (
    DEFAULT_ALERTS,
    DEFAULT_KEY_GROUPS,
    Alerts,
    Decode,
    Derive,
    EventTime,
    Graph,
    ResultNode,
    RunMode,
    Sink,
    SinkNode,
    Source,
    SourceNode,
    WindowNode,
)

NODE_NAMES = "a name has 1 to 100 letters, digits, '.', '_' or '-', and starts with a letter or digit"
"""The error of a node with another name; the empty one is left to short forms."""

SOURCE: Final = "source"
"""The name of the source of a short form, which its result takes."""


def short_graph(
    node: ResultNode,
    *,
    name: str,
    source: Source,
    decode: Decode,
    time: EventTime,
    sink: Sink,
    derive: tuple[Derive, ...] = (),
    key_groups: int = DEFAULT_KEY_GROUPS,
    mode: RunMode = "micro-batch",
    alerts: Alerts = DEFAULT_ALERTS,
) -> Graph:
    """Return the graph of a short form; `node` has no name, and takes the records of `SOURCE`."""
    nodes = (SourceNode(SOURCE, source, decode, time, derive), node, SinkNode("", "", sink))
    return Graph(name, nodes, key_groups, mode, alerts)


def short_nodes(graph: Graph) -> tuple[SourceNode, ResultNode, SinkNode]:
    """Return the nodes of a short form."""
    source, node, sink = graph.nodes
    if not isinstance(source, SourceNode) or not isinstance(node, ResultNode) or not isinstance(sink, SinkNode):
        raise TypeError(graph)
    return source, node, sink


def short_parts(graph: Graph) -> Mapping[str, Any]:
    """Return the parts of a short form by the names that they have in it."""
    source, node, sink = short_nodes(graph)
    parts = {"name": graph.name, "mode": graph.mode, "key_groups": graph.key_groups, "alerts": graph.alerts}
    parts |= {"source": source.source, "decode": source.decode, "time": source.time, "derive": source.derive}
    return {**vars(node), **parts, "sink": sink.sink}


def as_short(graph: Graph, node: ResultNode) -> Graph:
    """Return a node as a short form of its own, over the records that it takes, into the first sink of its rows."""
    spec = spec_of(graph, node)
    result: ResultNode = replace(node, name="", input=SOURCE, derive=())
    if isinstance(result, WindowNode):
        result = replace(result, emit=replace(result.emit, lateness=spec.lateness))
    return short_graph(
        result,
        name=graph.name,
        source=spec.source,
        decode=spec.decode,
        time=spec.time,
        sink=graph.first_sink(node).sink,
        derive=spec.derive,
        key_groups=graph.key_groups,
    )
