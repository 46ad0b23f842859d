"""A graph: named sources, streams and sinks, for pipelines with more than one stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
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
    PROCESS_KEY,
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

T = TypeVar("T")


def _window(key: KeyFields, derive: tuple[m.Derive, ...], **sections: Any) -> m.WindowNode:  # noqa: ANN401
    return m.WindowNode("", key=key.names, derive=derive + key.derive, **sections)


def _key_parts(node: m.WindowNode | m.ProcessNode) -> Mapping[str, Any]:
    return {"key": KeyFields(node.key)}


def _lookup(left: str, lookup: Mapping[str, Any]) -> m.LookupNode:
    by = lookup["by"]
    settings = {name: lookup[name] for name in ("how", "as_of", "revise", "broadcast")}
    return m.LookupNode("", left, lookup["table"], tuple(by), tuple(by.values()), **settings)


def _join(left: str, join: Mapping[str, Any]) -> m.JoinNode | m.TableJoinNode:
    by = join["by"]
    before, after = join["before"], join["after"]
    if before is None and after is None:
        return m.TableJoinNode("", left, join["right"], tuple(by), tuple(by.values()), join["how"])
    return m.JoinNode("", left, join["right"], tuple(by), tuple(by.values()), before or 0, after or 0, join["how"])


def _join_parts(node: m.AnyJoinNode) -> Mapping[str, Any]:
    settings = vars(node) | {"by": dict(zip(node.key, node.right_key, strict=True))}
    match node:
        case m.LookupNode():
            return {"lookup": settings}
        case m.TableJoinNode():
            return {"join": settings | {"before": None, "after": None}}
        case m.JoinNode(before=before, after=after):
            return {"join": settings | {"before": before or None, "after": after if after or not before else None}}


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
    """Sort streams topologically, keeping their order where possible; streams of a cycle come last."""
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
    """The nodes of a graph by name. No name is empty: empty names are those of short forms."""

    def read(self, node: YamlNode) -> tuple[T, ...]:
        if "" in node.keys:
            raise node.error(NODE_NAMES)
        return super().read(node)


_LATENESS = Key(
    "lateness",
    DURATION,
    "a record whose event time is this far behind the watermark, or farther, is dropped from all streams and written "
    "to the late output of the tables. Deduplications require it: it determines how long they keep keys.",
)
_CLOCKED = (DERIVED, EVENT_TIME, _LATENESS)


def _from(doc: str = "the source or stream that it reads.", field: str = "input") -> Key:
    return Key("from", TEXT, doc, required=True, field=field)


class _Pairs(Spec[dict[str, str]]):
    """Names of fields that are the same in two streams, or a mapping of left to right names."""

    called = "name, list of names, or mapping of names"

    def read(self, node: YamlNode) -> dict[str, str]:
        if node.is_mapping:
            return dict(read_texts(node, str))
        return {name: name for name in each_item(node, YamlNode.text)}

    def plain(self, value: dict[str, str]) -> Any:  # noqa: ANN401 - plain YAML
        return list(value) if all(left == right for left, right in value.items()) else value

    def python(self, value: dict[str, str]) -> str:
        return repr(value)

    def schema(self) -> Schema:
        return {"anyOf": [NAMES.schema(), mapping_schema(TEXT_SCHEMA)]}


def _settings(*keys: Key) -> Section[Mapping[str, Any]]:
    return Section("", dict, keys)


_DEDUPLICATE = _settings(
    Key("by", NAMES, "the fields that identify copies of a record, such as an id.", required=True, field="key"),
    Key(
        "within",
        DURATION,
        "the maximum distance in event time between copies: a record is a duplicate if an accepted record with the "
        "same fields is less than this earlier or later.",
        required=True,
    ),
    Key(
        "scope",
        choice("stream", "partition"),
        "with `partition`, all copies of a record are in the same partition of the log, so no record waits for other "
        "partitions.",
        default="stream",
    ),
)
_JOIN = _settings(
    Key("with", TEXT, "the right source or stream, or the right table.", required=True, field="right"),
    Key(
        "by",
        _Pairs(),
        "the fields that are equal in a pair; a mapping if they have other names on the right: `{order_id: id}`.",
        required=True,
    ),
    Key("before", DURATION, "how much earlier than the left record the right record of a pair may be."),
    Key("after", DURATION, "how much later than the left record the right record of a pair may be."),
    Key(
        "how",
        choice("inner", "left", "right", "full"),
        "with `left`, `right` or `full`, records of that side (or of both) without a partner are emitted too, with "
        "null in the fields of the other side.",
        default="inner",
    ),
)
_TABLE = _settings(
    Key(
        "key",
        NAMES,
        "the fields that identify a row: a record replaces the previous record with the same key in the order of "
        "watermarks, whatever their event times.",
        required=True,
    ),
    Key("deleted", TEXT, "a condition; a record for which it is true removes the row."),
)
_LOOKUP = _settings(
    Key("table", TEXT, "the table.", required=True),
    Key(
        "by",
        _Pairs(),
        "the fields that hold the key of the table; a mapping if they have other names there: `{currency: code}`.",
        required=True,
    ),
    Key(
        "as_of",
        choice("event_time", "order"),
        "with `event_time` a record gets the row that was valid at its event time; with `order` the row that is "
        "current when the record comes, in the order of watermarks.",
        default="event_time",
    ),
    Key(
        "revise",
        DURATION,
        "with `as_of: event_time`, how far the watermark may be past a record for a late row to replace the row that "
        "the record got; by default the `lateness` of the table's source, or else of the record's.",
    ),
    Key(
        "how",
        choice("inner", "left"),
        "with `left` a record without a row has null in the fields of the table; with `inner` it is dropped.",
        default="inner",
    ),
    Key(
        "broadcast",
        FLAG,
        "with `true` every key group has the whole table, and the records are spread over all key groups, whatever "
        "their key: for a small table in which many records look up the same row. The results are the same.",
        default=False,
    ),
)
_SPLIT = (
    _from(),
    Key(
        "split",
        DERIVE,
        "conditions by the names of outputs. A record goes to the first output whose condition is true, the stream "
        "`NAME.OUTPUT`.",
        required=True,
        field="outputs",
    ),
    Key("other", FIELD_NAME, "the name of an output for all other records."),
)
_FLAT_MAP = (
    _from(),
    Key(
        "flat_map",
        FIELD_NAME,
        "the name of an array. Each of its elements becomes a record, with the fields of the element and the other "
        "fields of its record.",
        required=True,
        field="field",
    ),
    Key("element", FIELD_NAME, "the name of the field for elements that are not structs; by default the array's name."),
    Key("position", FIELD_NAME, "the name of a field for the index of the element, from 0."),
    Key(
        "outer",
        FLAG,
        "with `true`, a record whose array is empty or null becomes one record with null in the fields of the element; "
        "otherwise it is dropped.",
        default=False,
    ),
)
_SELECTION = (
    Key(
        "from",
        NAMES,
        "for a selection, also a list of sources and streams: their union.",
        required=True,
        field="inputs",
    ),
    Key("where", TEXT, "a condition; records for which it is not true are dropped."),
    DERIVED,
    Key("select", NAMES, "the fields to keep; by default all."),
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
                    lambda deduplicate, **given: m.DeduplicateNode("", **given, **deduplicate),
                    (_from(), Key("deduplicate", _DEDUPLICATE, "removes copies of records.", required=True)),
                    parts=lambda node: {"deduplicate": vars(node)},
                ),
            ),
            (
                ("table",),
                m.TableNode,
                Section(
                    "",
                    lambda table, **given: m.TableNode("", **given, **table),
                    (_from(), Key("table", _TABLE, "keeps the newest row of each key.", required=True)),
                    parts=lambda node: {"table": vars(node)},
                ),
            ),
            (
                ("lookup",),
                m.LookupNode,
                Section(
                    "",
                    _lookup,
                    (
                        _from(field="left"),
                        Key("lookup", _LOOKUP, "adds the fields of a table's row to each record.", required=True),
                    ),
                    parts=_join_parts,
                ),
            ),
            (
                ("join",),
                m.JoinNode | m.TableJoinNode,
                Section(
                    "",
                    _join,
                    (
                        _from("the source or stream that it reads; for a join, the left one.", "left"),
                        Key("join", _JOIN, "joins records of two streams, or rows of two tables.", required=True),
                    ),
                    parts=_join_parts,
                ),
            ),
            (("split", "other"), m.SplitNode, Section("", partial(m.SplitNode, ""), _SPLIT)),
            (
                ("flat_map", "element", "position", "outer"),
                m.FlatMapNode,
                Section("", partial(m.FlatMapNode, ""), _FLAT_MAP),
            ),
            (
                ("key", "window", "aggregate", "emit", "salt"),
                m.WindowNode,
                Section("", _window, (_from(), DERIVED, *KEYED[1:], *RESULTS, SALT), parts=_key_parts),
            ),
            # printed, but no file reads it back
            (
                (),
                m.ProcessNode,
                Section(
                    "",
                    m.ProcessNode,
                    (_from(), DERIVED, *KEYED[1:], PROCESS_KEY, AT_END),
                    parts=_key_parts,
                ),
            ),
            ((), m.SelectNode, Section("", partial(m.SelectNode, ""), _SELECTION)),
        )
    ),
)
_SINK_FROM = "the stream to write: the results of a window, the rows of a table by key, or a row for each record."

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
            _Nodes("mapping of names", Section("", partial(m.SinkNode, ""), (_from(_SINK_FROM), SINK_KEY))),
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
    """The `pipeline` of a story with several streams; the story itself has the logs and fields of its sources."""

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
