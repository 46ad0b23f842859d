"""Graph files: named sources, streams and sinks, for pipelines with more than one stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from windrow import model as m
from windrow.authoring.sections.alerts import ALERTS_KEY
from windrow.authoring.sections.nodes import KINDS
from windrow.authoring.sections.nodes.kind import from_key
from windrow.authoring.sections.nodes.selection import SELECTION
from windrow.authoring.sections.pipeline import (
    AT_END,
    DERIVED,
    EVENT_TIME,
    KEY_GROUPS,
    KEYED,
    MODE,
    NAME,
    PROCESS_KEY,
    RECORDS,
    RESULTS,
    SALT,
    SINK_KEY,
)
from windrow.authoring.sections.records import KeyFields
from windrow.authoring.short_form import NODE_NAMES
from windrow.declare.formats import TEXT_FORMAT
from windrow.declare.spec import (
    DURATION,
    Key,
    Named,
    Section,
    Shapes,
)
from windrow.declare.yaml_node import YamlNode

T = TypeVar("T")


def _window(key: KeyFields, derive: tuple[m.Derive, ...], **sections: Any) -> m.WindowNode:  # noqa: ANN401
    return m.WindowNode("", key=key.names, derive=derive + key.derive, **sections)


def _key_parts(node: m.WindowNode | m.ProcessNode) -> Mapping[str, Any]:
    return {"key": KeyFields(node.key)}


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
    """Sort streams topologically, otherwise keeping their order; streams in or below a cycle come last."""
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


class _Nodes(Named[T]):
    """The named nodes of a graph. Empty names are refused, because they mark a short form."""

    def read(self, node: YamlNode) -> tuple[T, ...]:
        if "" in node.keys:
            raise node.error(NODE_NAMES)
        return super().read(node)


_LATENESS = Key(
    "lateness",
    DURATION,
    "a record whose event time is this far behind the watermark, or farther, reaches no stream and goes to the late "
    "output. Deduplications require it: it determines how long they keep keys.",
)
_CLOCKED = (DERIVED, EVENT_TIME, _LATENESS)


_STREAMS: Named[Any] = _Nodes(
    "mapping of names",
    Shapes(
        (
            *((kind.marks, kind.node, kind.section) for kind in KINDS[:-1]),
            (
                ("key", "window", "aggregate", "emit", "salt"),
                m.WindowNode,
                Section("", _window, (from_key(), DERIVED, *KEYED[1:], *RESULTS, SALT), parts=_key_parts),
            ),
            # printed, but no file reads it back
            (
                (),
                m.ProcessNode,
                Section("", m.ProcessNode, (from_key(), DERIVED, *KEYED[1:], PROCESS_KEY, AT_END), parts=_key_parts),
            ),
            (SELECTION.marks, SELECTION.node, SELECTION.section),
        )
    ),
)
_SINK_FROM = "the stream to write: results of a window, rows of a table by key, or a row for each record."

GRAPH: Section[m.Graph] = Section(
    "",
    _graph,
    (
        NAME,
        MODE,
        Key(
            "sources",
            _Nodes("mapping of names", Section("", partial(m.SourceNode, ""), (*RECORDS, *_CLOCKED))),
            "the logs to read, by name.",
            required=True,
        ),
        Key("streams", _STREAMS, "the streams computed from the records, by name.", required=True),
        Key(
            "sinks",
            _Nodes("mapping of names", Section("", partial(m.SinkNode, ""), (from_key(_SINK_FROM), SINK_KEY))),
            "the tables to write, by name.",
            required=True,
        ),
        KEY_GROUPS,
        ALERTS_KEY,
    ),
)
"""A graph file; its parts have the keys of a pipeline file."""


@dataclass(frozen=True)
class StoryGraph:
    """The `pipeline` of a story with several streams; the story itself provides the logs and fields of the sources."""

    sources: tuple[m.SourceNode, ...]
    streams: tuple[m.StreamNode, ...]

    def graph(self, sources: Iterable[m.SourceNode], sinks: Iterable[m.SinkNode], key_groups: int) -> m.Graph:
        """Build the graph of these streams with the given sources and sinks."""
        return _graph("story", tuple(sources), self.streams, tuple(sinks), key_groups)


def _story_source(*, format: m.TextFormat = "json", **sections: Any) -> m.SourceNode:  # noqa: A002, ANN401 - the key's name
    return m.SourceNode("", m.LogSource("story", format), m.Decode(()), **sections)


STORY_GRAPH: Section[StoryGraph] = Section(
    "",
    StoryGraph,
    (
        Key(
            "sources",
            Named(
                "mapping of names",
                Section("", _story_source, (*_CLOCKED, Key("format", TEXT_FORMAT, "", default="json"))),
            ),
            "",
            required=True,
        ),
        Key("streams", _STREAMS, "", required=True),
    ),
)
