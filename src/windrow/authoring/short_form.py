"""The short form: a graph with one source, one result and one sink, whose nodes are not named in the file.

In the graph, the result and the sink have empty names. Printing recognizes a short form by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from windrow import model as m
from windrow.expressions import spec_of

NODE_NAMES = "a name has 1 to 100 letters, digits, '.', '_' or '-', and starts with a letter or digit"
"""The message for invalid names of nodes; the empty name is reserved for short forms."""

SOURCE: Final = "source"
"""The name of the source of a short form."""


def short_graph(
    node: m.ResultNode,
    *,
    name: str,
    source: m.Source,
    decode: m.Decode,
    time: m.EventTime,
    sink: m.Sink,
    derive: tuple[m.Derive, ...] = (),
    key_groups: int = m.DEFAULT_KEY_GROUPS,
    mode: m.RunMode = "micro-batch",
    alerts: m.Alerts = m.DEFAULT_ALERTS,
) -> m.Graph:
    """Build the graph of a short form; `node` has an empty name and the input `SOURCE`."""
    nodes = (m.SourceNode(SOURCE, source, decode, time, derive), node, m.SinkNode("", "", sink))
    return m.Graph(name, nodes, key_groups, mode, alerts)


def short_nodes(graph: m.Graph) -> tuple[m.SourceNode, m.ResultNode, m.SinkNode]:
    """Return the source, result and sink of a short form."""
    source, node, sink = graph.nodes
    if not isinstance(source, m.SourceNode) or not isinstance(node, m.ResultNode) or not isinstance(sink, m.SinkNode):
        raise TypeError(graph)
    return source, node, sink


def short_parts(graph: m.Graph) -> Mapping[str, Any]:
    """Map each key of a short form to the value of its section."""
    source, node, sink = short_nodes(graph)
    parts = {"name": graph.name, "mode": graph.mode, "key_groups": graph.key_groups, "alerts": graph.alerts}
    parts |= {"source": source.source, "decode": source.decode, "time": source.time, "derive": source.derive}
    return {**vars(node), **parts, "sink": sink.sink}


def as_short(graph: m.Graph, node: m.ResultNode) -> m.Graph:
    """Return a short form with one result of a graph, the records that it reads, and the first sink of its rows."""
    spec = spec_of(graph, node)
    result: m.ResultNode = replace(node, name="", input=SOURCE, derive=())
    if isinstance(result, m.WindowNode):
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
