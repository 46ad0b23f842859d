"""A graph: named sources, streams and sinks, for pipelines with more than one stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from windrow import model as m
from windrow.authoring.sections.alerts import ALERTS_KEY
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
from windrow.authoring.sections.records import DERIVE, KeyFields
from windrow.authoring.short_form import NODE_NAMES
from windrow.declare.spec import (
    DURATION,
    FIELD_NAME,
    FLAG,
    NAMES,
    TEXT,
    TEXT_SCHEMA,
    Key,
    Named,
    Schema,
    Section,
    Shapes,
    Spec,
    choice,
    each_item,
    mapping_schema,
)
from windrow.declare.yaml_node import YamlNode, read_texts

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


def _selection(**sections: Any) -> m.SelectNode:  # noqa: ANN401
    return m.SelectNode("", **sections)


def _selection_parts(node: m.SelectNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.inputs}


def _split(**sections: Any) -> m.SplitNode:  # noqa: ANN401
    return m.SplitNode("", **sections)


def _split_parts(node: m.SplitNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.input, "split": node.outputs}


def _flat_map(**sections: Any) -> m.FlatMapNode:  # noqa: ANN401
    return m.FlatMapNode("", **sections)


def _flat_map_parts(node: m.FlatMapNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.input, "flat_map": node.field}


def _deduplication(input: str, deduplicate: Mapping[str, Any]) -> m.DeduplicateNode:  # noqa: A002 - the model's name
    return m.DeduplicateNode("", input, **deduplicate)


def _deduplication_parts(node: m.DeduplicateNode) -> Mapping[str, Any]:
    settings = {"key": node.key, "within": node.within, "scope": node.scope}
    return dict(vars(node)) | {"from": node.input, "deduplicate": settings}


def _table(input: str, table: Mapping[str, Any]) -> m.TableNode:  # noqa: A002 - the model's name
    return m.TableNode("", input, **table)


def _table_parts(node: m.TableNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.input, "table": {"key": node.key, "deleted": node.deleted}}


def _lookup(left: str, lookup: Mapping[str, Any]) -> m.LookupNode:
    by = lookup["by"]
    settings = {name: lookup[name] for name in ("how", "as_of", "revise", "broadcast")}
    return m.LookupNode("", left, lookup["table"], tuple(by), tuple(by.values()), **settings)


def _lookup_parts(node: m.LookupNode) -> Mapping[str, Any]:
    settings = dict(vars(node)) | {"by": dict(zip(node.key, node.right_key, strict=True))}
    return dict(vars(node)) | {"from": node.left, "lookup": settings}


def _join(left: str, join: Mapping[str, Any]) -> m.JoinNode | m.TableJoinNode:
    by = join["by"]
    before, after = join["before"], join["after"]
    if before is None and after is None:
        return m.TableJoinNode("", left, join["right"], tuple(by), tuple(by.values()), join["how"])
    return m.JoinNode("", left, join["right"], tuple(by), tuple(by.values()), before or 0, after or 0, join["how"])


def _join_parts(node: m.JoinNode | m.TableJoinNode) -> Mapping[str, Any]:
    spans: dict[str, int | None] = {"before": None, "after": None}
    if isinstance(node, m.JoinNode):
        spans |= {"before": node.before or None, "after": node.after if node.after or not node.before else None}
    settings = dict(vars(node)) | spans | {"by": dict(zip(node.key, node.right_key, strict=True))}
    return dict(vars(node)) | {"from": node.left, "join": settings}


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


def _from(of: str, field: str = "input") -> Key:
    return Key("from", TEXT, of, required=True, field=field)


_STREAM = "the source or stream whose records it takes. A window over the rows of a window is one over windows."
_DEDUPLICATE: Section[Mapping[str, Any]] = Section(
    "",
    dict,
    (
        Key("by", NAMES, "the fields that copies of a record have in common: an id.", required=True, field="key"),
        Key(
            "within",
            DURATION,
            "how far apart in event time copies can be: a record is a duplicate if the event time of an accepted one "
            "with the same fields is less than this before or after its own.",
            required=True,
        ),
        Key(
            "scope",
            choice("stream", "partition"),
            "with `partition` all copies of a record are in the same partition of the log; then no record waits for "
            "other partitions.",
            default="stream",
        ),
    ),
    parts=lambda settings: {"by": settings["key"], "within": settings["within"], "scope": settings["scope"]},
)


class _Pairs(Spec[dict[str, str]]):
    """Names of fields that are the same in two streams, or a mapping of those of the one to those of the other."""

    def form(self) -> str:
        return "name, list of names, or mapping of names"

    def read(self, node: YamlNode) -> dict[str, str]:
        if node.is_mapping:
            return dict(read_texts(node, str))
        return {name: name for name in each_item(node, YamlNode.text)}

    def plain(self, value: dict[str, str]) -> Any:  # noqa: ANN401 - plain YAML
        return list(value) if all(one == other for one, other in value.items()) else value

    def python(self, value: dict[str, str]) -> str:
        return repr(value)

    def schema(self) -> Schema:
        return {"anyOf": [NAMES.schema(), mapping_schema(TEXT_SCHEMA)]}


_JOIN: Section[Mapping[str, Any]] = Section(
    "",
    dict,
    (
        Key(
            "with",
            TEXT,
            "the source or stream with the right records, or the right table.",
            required=True,
            field="right",
        ),
        Key(
            "by",
            _Pairs(),
            "the fields that a pair has in common; where they have other names on the right, a mapping: "
            "`{order_id: id}`.",
            required=True,
        ),
        Key("before", DURATION, "how much earlier than the left record the right one of a pair can be."),
        Key("after", DURATION, "how much later than the left record the right one of a pair can be."),
        Key(
            "how",
            choice("inner", "left", "right", "full"),
            "with `left`, `right` or `full`, records of that side (or of both) that have no partner are there alone, "
            "with null in the fields of the other.",
            default="inner",
        ),
    ),
    parts=lambda settings: {"with": settings["right"], **settings},
)
_TABLE: Section[Mapping[str, Any]] = Section(
    "",
    dict,
    (
        Key(
            "key",
            NAMES,
            "the fields that a row is known by: a record replaces the one before it in the order of watermarks, "
            "whatever the event time of the two.",
            required=True,
        ),
        Key("deleted", TEXT, "a condition; a record for which it is true removes the row."),
    ),
    parts=dict,
)
_LOOKUP: Section[Mapping[str, Any]] = Section(
    "",
    dict,
    (
        Key("table", TEXT, "the table.", required=True),
        Key(
            "by",
            _Pairs(),
            "the fields that hold the key of the table; where they have other names there, a mapping: "
            "`{currency: code}`.",
            required=True,
        ),
        Key(
            "as_of",
            choice("event_time", "order"),
            "with `event_time` a record gets the row that held at its event time; with `order` the row that was there "
            "when it came, in the order of watermarks.",
            default="event_time",
        ),
        Key(
            "revise",
            DURATION,
            "as of event time, how far the watermark can be past a record when a row that comes late still replaces "
            "the one that the record got; the `lateness` of the table's source, or else of the record's, if left out.",
        ),
        Key(
            "how",
            choice("inner", "left"),
            "with `left` a record for which there is no row has null in the fields of the table; with `inner` it is "
            "left out.",
            default="inner",
        ),
        Key(
            "broadcast",
            FLAG,
            "with `true` every key group has the whole table, and the records are spread over all key groups, whatever "
            "their key: for a small table, where many records look up one row. No result changes.",
            default=False,
        ),
    ),
    parts=dict,
)
_STREAMS: Named[Any] = _Nodes(
    "mapping of names",
    Shapes(
        (
            (
                ("deduplicate",),
                m.DeduplicateNode,
                Section(
                    "",
                    _deduplication,
                    (_from(_STREAM), Key("deduplicate", _DEDUPLICATE, "leaves out copies of a record.", required=True)),
                    parts=_deduplication_parts,
                ),
            ),
            (
                ("table",),
                m.TableNode,
                Section(
                    "",
                    _table,
                    (_from(_STREAM), Key("table", _TABLE, "keeps the newest row of each key.", required=True)),
                    parts=_table_parts,
                ),
            ),
            (
                ("lookup",),
                m.LookupNode,
                Section(
                    "",
                    _lookup,
                    (
                        _from(_STREAM, "left"),
                        Key("lookup", _LOOKUP, "adds the fields of a row of a table to each record.", required=True),
                    ),
                    parts=_lookup_parts,
                ),
            ),
            (
                ("join",),
                m.JoinNode | m.TableJoinNode,
                Section(
                    "",
                    _join,
                    (
                        _from("the source or stream whose records it takes; of a join, with the left records.", "left"),
                        Key("join", _JOIN, "pairs records of two streams, or rows of two tables.", required=True),
                    ),
                    parts=_join_parts,
                ),
            ),
            (
                ("split", "other"),
                m.SplitNode,
                Section(
                    "",
                    _split,
                    (
                        _from(_STREAM),
                        Key(
                            "split",
                            DERIVE,
                            "conditions by the names of outputs. A record is in the first output whose condition is "
                            "true, the stream `NAME.OUTPUT`.",
                            required=True,
                            field="outputs",
                        ),
                        Key("other", FIELD_NAME, "the name of an output for all other records."),
                    ),
                    parts=_split_parts,
                ),
            ),
            (
                ("flat_map", "element", "position", "outer"),
                m.FlatMapNode,
                Section(
                    "",
                    _flat_map,
                    (
                        _from(_STREAM),
                        Key(
                            "flat_map",
                            FIELD_NAME,
                            "the name of an array. Each of its elements gives a record, with the other fields of its "
                            "own and those of the element.",
                            required=True,
                            field="field",
                        ),
                        Key(
                            "element",
                            FIELD_NAME,
                            "the name of the field with the element, where that is no struct; left out, that of the "
                            "array.",
                        ),
                        Key("position", FIELD_NAME, "the name of a field for the number of the element, from 0."),
                        Key(
                            "outer",
                            FLAG,
                            "with `true`, a record whose array is empty or null gives one with null in the fields of "
                            "the element; else it gives none.",
                            default=False,
                        ),
                    ),
                    parts=_flat_map_parts,
                ),
            ),
            (
                ("key", "window", "aggregate", "emit", "salt"),
                m.WindowNode,
                Section(
                    "",
                    _window,
                    (_from(_STREAM), DERIVED, *_WINDOWED),
                    parts=_window_parts,
                ),
            ),
            # printed, but no file reads it back
            (
                (),
                m.ProcessNode,
                Section(
                    "",
                    m.ProcessNode,
                    (_from(_STREAM), DERIVED, *KEYED[1:], Key("process", PROCESS, "", required=True), AT_END),
                    parts=_process_parts,
                ),
            ),
            (
                (),
                m.SelectNode,
                Section(
                    "",
                    _selection,
                    (
                        Key(
                            "from",
                            NAMES,
                            "of a selection, also a list of sources and streams: their union.",
                            required=True,
                            field="inputs",
                        ),
                        Key("where", TEXT, "a condition; records for which it is not true are left out."),
                        DERIVED,
                        Key("select", NAMES, "the fields that are kept; all if it is left out."),
                    ),
                    parts=_selection_parts,
                ),
            ),
        )
    ),
)
_SINKS = _Nodes(
    "mapping of names",
    Section(
        "",
        _sink,
        (
            _from(
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
