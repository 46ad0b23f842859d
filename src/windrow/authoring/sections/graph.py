"""A graph: named sources, streams and sinks, for pipelines with more than one stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from windrow import model as m
from windrow.authoring.sections.alerts import ALERTS_KEY
from windrow.authoring.sections.nodes import KINDS
from windrow.authoring.sections.nodes.kind import STREAM, from_key
from windrow.authoring.sections.nodes.selection import SELECTION
from windrow.authoring.sections.pipeline import (
    AT_END,
    DERIVED,
    EVENT_TIME,
    KEY_GROUPS,
    KEYED,
    MODE,
    NAME,
    PROCESS,
    RECORDS,
    RESULTS,
    SALT,
    SINK_KEY,
)
from windrow.authoring.sections.records import KeyFields
from windrow.authoring.short_form import NODE_NAMES
from windrow.declare.spec import (
    DURATION,
    Key,
    Named,
    Section,
    Shapes,
)
from windrow.declare.yaml_node import YamlNode

_WINDOWED = (*KEYED[1:], *RESULTS, SALT)

T = TypeVar("T")


def _source(**sections: Any) -> m.SourceNode:  # noqa: ANN401
    return m.SourceNode("", **sections)


def _window(key: KeyFields, derive: tuple[m.Derive, ...], **sections: Any) -> m.WindowNode:  # noqa: ANN401
    return m.WindowNode("", key=key.names, derive=derive + key.derive, **sections)


def _window_parts(node: m.WindowNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.input, "key": KeyFields(node.key), "aggregate": node.aggregates}


def _process_parts(node: m.ProcessNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.input, "key": KeyFields(node.key)}


def _sink(**sections: Any) -> m.SinkNode:  # noqa: ANN401
    return m.SinkNode("", **sections)


def _sink_parts(node: m.SinkNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.input}


def _graph(
    name: str,
    sources: tuple[m.SourceNode, ...],
    streams: tuple[m.StreamNode, ...],
    sinks: tuple[m.SinkNode, ...],
    key_groups: int,
    *,
    mode: m.RunMode = "micro-batch",
    alerts: m.Alerts = m.DEFAULT_ALERTS,
) -> m.Graph:
    return m.Graph(name, (*sources, *_in_order(sources, streams), *sinks), key_groups, mode, alerts)


def _in_order(sources: tuple[m.SourceNode, ...], streams: tuple[m.StreamNode, ...]) -> list[m.StreamNode]:
    """Return streams so that each comes after its inputs, else as they are; those of a cycle come last."""
    known = {name for node in sources for name in m.outputs_of(node)}
    unknown = {name for node in streams for name in node.inputs} - {
        name for node in (*sources, *streams) for name in m.outputs_of(node)
    }
    ordered: list[m.StreamNode] = []
    rest = list(streams)
    while rest:
        ready = next((node for node in rest if known.union(unknown).issuperset(node.inputs)), None)
        if ready is None:
            return [*ordered, *rest]
        rest.remove(ready)
        ordered.append(ready)
        known.update(m.outputs_of(ready))
    return ordered


def _graph_parts(graph: m.Graph) -> Mapping[str, Any]:
    sources = tuple(node for node in graph.nodes if isinstance(node, m.SourceNode))
    return dict(vars(graph)) | {"sources": sources, "streams": graph.streams, "sinks": graph.sinks}


class _Nodes(Named[T]):
    """The nodes of a graph by their names, none of which is empty: those of short forms are."""

    def read(self, node: YamlNode) -> tuple[T, ...]:
        if "" in node.keys:
            raise node.error(NODE_NAMES)
        return super().read(node)


_LATENESS = Key(
    "lateness",
    DURATION,
    "a record whose event time is this far behind the watermark, or farther, is in no stream: it goes to the late "
    "output of the tables. Deduplications need it, as it says for how long they keep keys.",
)
_CLOCKED = (DERIVED, EVENT_TIME, _LATENESS)
_SOURCES = _Nodes("mapping of names", Section("", _source, (*RECORDS, *_CLOCKED), parts=vars))


_STREAMS: Named[Any] = _Nodes(
    "mapping of names",
    Shapes(
        (
            *((kind.marks, kind.node, kind.section) for kind in KINDS[:-1]),
            (
                ("key", "window", "aggregate", "emit", "salt"),
                m.WindowNode,
                Section("", _window, (from_key(STREAM), DERIVED, *_WINDOWED), parts=_window_parts),
            ),
            # printed, but no file reads it back
            (
                (),
                m.ProcessNode,
                Section(
                    "",
                    m.ProcessNode,
                    (from_key(STREAM), DERIVED, *KEYED[1:], Key("process", PROCESS, "", required=True), AT_END),
                    parts=_process_parts,
                ),
            ),
            (SELECTION.marks, SELECTION.node, SELECTION.section),
        )
    ),
)
_SINKS = _Nodes(
    "mapping of names",
    Section(
        "",
        _sink,
        (
            from_key(
                "the stream whose rows are written: of a window, its results; of a table, its rows by their key; of "
                "records, a row for each."
            ),
            SINK_KEY,
        ),
        parts=_sink_parts,
    ),
)

GRAPH: Section[m.Graph] = Section(
    "",
    _graph,
    (
        NAME,
        MODE,
        Key("sources", _SOURCES, "the logs that records are read from, by name.", required=True),
        Key("streams", _STREAMS, "what is made of the records, by name.", required=True),
        Key("sinks", _SINKS, "the tables that results are written to, by name.", required=True),
        KEY_GROUPS,
        ALERTS_KEY,
    ),
    parts=_graph_parts,
)
"""A graph file; each of its parts has the keys of a pipeline file."""


@dataclass(frozen=True)
class StoryGraph:
    """What the `pipeline` of a story with several streams holds; the logs and fields of its sources are the story's."""

    sources: tuple[m.SourceNode, ...]
    streams: tuple[m.StreamNode, ...]

    def graph(self, sources: Iterable[m.SourceNode], sinks: Iterable[m.SinkNode], key_groups: int) -> m.Graph:
        """Return the graph over these sources, into these sinks."""
        return _graph("story", tuple(sources), self.streams, tuple(sinks), key_groups)


def _story_source(**sections: Any) -> m.SourceNode:  # noqa: ANN401
    return m.SourceNode("", m.LogSource("story"), m.Decode(()), **sections)


STORY_GRAPH: Section[StoryGraph] = Section(
    "",
    StoryGraph,
    (
        Key("sources", Named("mapping of names", Section("", _story_source, _CLOCKED)), "", required=True),
        Key("streams", _STREAMS, "", required=True),
    ),
)
