"""A graph: named sources, streams and sinks, for pipelines with more than one stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.api.sections.pipeline import DERIVED, EVENT_TIME, KEY_GROUPS, KEYED, NAME, RECORDS, RESULTS, SALT, SINK_KEY
from windrow.api.sections.records import KeyFields
from windrow.api.spec import TEXT, Key, Named, Section
from windrow.model import Derive, Graph, SinkNode, SourceNode, WindowNode

_WINDOWED = (*KEYED[1:], *RESULTS, SALT)


def _source(**sections: Any) -> SourceNode:  # noqa: ANN401
    return SourceNode("", **sections)


def _stream(key: KeyFields, derive: tuple[Derive, ...], **sections: Any) -> WindowNode:  # noqa: ANN401
    return WindowNode("", key=key.names, derive=derive + key.derive, **sections)


def _stream_parts(node: WindowNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.input, "key": KeyFields(node.key), "aggregate": node.aggregates}


def _sink(**sections: Any) -> SinkNode:  # noqa: ANN401
    return SinkNode("", **sections)


def _sink_parts(node: SinkNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.input}


def _graph(
    name: str,
    sources: tuple[SourceNode, ...],
    streams: tuple[WindowNode, ...],
    sinks: tuple[SinkNode, ...],
    key_groups: int,
) -> Graph:
    return Graph(name, (*sources, *streams, *sinks), key_groups)


def _graph_parts(graph: Graph) -> Mapping[str, Any]:
    sources = tuple(node for node in graph.nodes if isinstance(node, SourceNode))
    return dict(vars(graph)) | {"sources": sources, "streams": graph.keyed, "sinks": graph.sinks}


_SOURCES = Named("mapping of names", Section("", _source, (*RECORDS, DERIVED, EVENT_TIME), parts=vars))
_STREAMS = Named(
    "mapping of names",
    Section(
        "",
        _stream,
        (
            Key(
                "from",
                TEXT,
                "the name of the source whose records the stream is made of.",
                required=True,
                field="input",
            ),
            DERIVED,
            *_WINDOWED,
        ),
        parts=_stream_parts,
    ),
)
_SINKS = Named(
    "mapping of names",
    Section(
        "",
        _sink,
        (
            Key("from", TEXT, "the name of the stream whose rows are written.", required=True, field="input"),
            SINK_KEY,
        ),
        parts=_sink_parts,
    ),
)

GRAPH: Section[Graph] = Section(
    "",
    _graph,
    (
        NAME,
        Key("sources", _SOURCES, "", required=True),
        Key("streams", _STREAMS, "", required=True),
        Key("sinks", _SINKS, "", required=True),
        KEY_GROUPS,
    ),
    parts=_graph_parts,
)
"""A graph file; each of its parts has the keys of a pipeline file."""


def mask_graph(graph: Graph) -> Graph:
    """Return the graph with *** for the passwords in it."""
    parts = _graph_parts(graph)
    return _graph(
        graph.name,
        _SOURCES.mask(parts["sources"]),
        _STREAMS.mask(parts["streams"]),
        _SINKS.mask(parts["sinks"]),
        graph.key_groups,
    )
