"""Rows of results: what a sink writes, and what connectors know of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from windrow.expressions.streams import stream_of
from windrow.model import (
    Field,
    Global,
    Graph,
    KeyedNode,
    ProcessNode,
    RulesNode,
    Sink,
    SinkNode,
    StringType,
    TimestampType,
    WindowNode,
)

RowKind = Literal["windows", "global", "process", "alerts", "table", "records"]


@dataclass(frozen=True)
class Rows:
    """Rows of a node: the fields of their key, and the values in the order of columns (an optional one can be null).

    Window and key identify a row of windows, of the `global` window and of a process function, where the bounds of the
    window say nothing; the key a row of a table; an alert has an identity. Records have their place in the log or, with
    `has_id`, a text that names what they are made of.
    """

    kind: RowKind
    key: tuple[Field, ...]
    values: tuple[Field, ...]
    has_id: bool = False

    @property
    def has_panes(self) -> bool:
        """Whether pane and revision say how a row came about; records and rows of tables have none."""
        return self.kind not in {"table", "records"}


@dataclass(frozen=True)
class SinkSpec:
    """The rows of a sink, and its settings.

    `pipeline` is the name of the pipeline, `stream` that of the stream whose rows these are. If `discards`, each pane
    is a row of its own.
    """

    pipeline: str
    sink: Sink
    stream: str
    rows: Rows
    discards: bool = False

    def into(self, table: str) -> SinkSpec:
        """Return it with another table in the same database."""
        return replace(self, sink=self.sink.into(table))


def alerts_of(key: tuple[Field, ...]) -> Rows:
    """Return the rows of alerts by a key."""
    rule, severity, rule_hash, subject, text, evidence = (
        Field(name, StringType()) for name in ("rule", "severity", "rule_hash", "subject", "text", "evidence")
    )
    time = Field("event_time", TimestampType("micros"))
    return Rows("alerts", key, (rule, severity, rule_hash, *key, subject, time, text, evidence))


def rows_of(graph: Graph, node: KeyedNode | SinkNode) -> Rows:
    """Return the rows of a node, or those that a sink takes; raise PipelineError for an expression that is wrong."""
    match node:
        case SinkNode():
            producer, stream = graph.producer(node.input), stream_of(graph, node.input)
            if isinstance(producer, WindowNode | ProcessNode | RulesNode):
                return rows_of(graph, producer)
            by_name = {field.name: field for field in stream.fields}
            values = tuple(field for field in stream.fields if field.name not in stream.key)
            key = tuple(by_name[name] for name in stream.key)
            return Rows("table" if key else "records", key, values, stream.has_id)
        case WindowNode() | ProcessNode() | RulesNode():
            fields = stream_of(graph, node.name).fields
            by_name = {field.name: field for field in fields}
            key = tuple(by_name[name] for name in node.key)
            if isinstance(node, RulesNode):
                return alerts_of(key)
            if isinstance(node, ProcessNode):
                return Rows("process", key, fields[len(key) :])
            # the window stands before the key
            return Rows("global" if isinstance(node.window, Global) else "windows", key, fields[2 + len(key) :])
        case _:
            stream = stream_of(graph, node.name)
            by_name = {field.name: field for field in stream.fields}
            return Rows("records", tuple(by_name[name] for name in node.key), stream.fields, stream.has_id)


def sink_spec(graph: Graph, sink: SinkNode) -> SinkSpec:
    """Return what a sink writes; raise PipelineError for an expression that is wrong."""
    node = graph.producer(sink.input)
    discards = isinstance(node, WindowNode) and node.emit.mode == "discard"
    return SinkSpec(graph.name, sink.sink, sink.input or graph.name, rows_of(graph, sink), discards)


def sink_specs(graph: Graph) -> dict[str, SinkSpec]:
    """Return what each sink writes, by its name."""
    return {sink.name: sink_spec(graph, sink) for sink in graph.sinks}
