"""Graphs: nodes with names, from a source through keyed streams to sinks; the general form of a pipeline.

A `Pipeline` or `ProcessPipeline` is the short form of a graph with one source, one keyed node and one sink. Hosts run
graphs: `as_graph` returns the graph of a short form, and `keyed_pipelines` shows each keyed node as a short form of its
own, which is what its operator computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from windrow.model.aggregates import Aggregate
from windrow.model.connectors import Sink, Source
from windrow.model.pipeline import DEFAULT_KEY_GROUPS, AnyPipeline, Pipeline, ProcessPipeline
from windrow.model.process import Process
from windrow.model.time import EventTime
from windrow.model.triggers import Emit
from windrow.model.types import Decode, Derive
from windrow.model.windows import Window


@dataclass(frozen=True)
class SourceNode:
    """Records of a log, decoded, with derived fields and event times; they have no key yet."""

    name: str
    source: Source
    decode: Decode
    time: EventTime
    derive: tuple[Derive, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """No fields."""
        return ()


@dataclass(frozen=True)
class WindowNode:
    """The aggregates of each window and key of the node `input`; the other fields are those of `Pipeline`.

    `derive` adds to the fields of the input.
    """

    name: str
    input: str
    key: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]
    emit: Emit
    salt: int = 1
    derive: tuple[Derive, ...] = ()

    @property
    def at_end(self) -> Literal["fire", "hold"]:
        """Whether the end of a bounded input fires what is still open."""
        return self.emit.at_end


@dataclass(frozen=True)
class ProcessNode:
    """The rows that a process function emits for each key of the node `input`."""

    name: str
    input: str
    key: tuple[str, ...]
    process: Process
    at_end: Literal["fire", "hold"] = "fire"
    derive: tuple[Derive, ...] = ()
    salt: Literal[1] = 1


@dataclass(frozen=True)
class SinkNode:
    """The tables that the rows of the node `input` are written to."""

    name: str
    input: str
    sink: Sink


KeyedNode = WindowNode | ProcessNode
"""A node with an operator: its records are partitioned by key."""

Node = SourceNode | KeyedNode | SinkNode


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which each comes after its input.

    `key_groups` is how many parts the keys (and the state) of each keyed node fall into.
    """

    name: str
    nodes: tuple[Node, ...]
    key_groups: int = DEFAULT_KEY_GROUPS

    @property
    def is_short(self) -> bool:
        """Whether this is a short form, in which a record must be valid for the keyed node to count for the clock."""
        return not any(node.name for node in self.nodes)

    @property
    def origin(self) -> SourceNode:
        """The source, with what its records are."""
        (found,) = (node for node in self.nodes if isinstance(node, SourceNode))
        return found

    @property
    def source(self) -> Source:
        """The log that is read."""
        return self.origin.source

    @property
    def keyed(self) -> tuple[KeyedNode, ...]:
        """The nodes with an operator, in order."""
        return tuple(node for node in self.nodes if isinstance(node, WindowNode | ProcessNode))

    @property
    def sinks(self) -> tuple[SinkNode, ...]:
        """The sinks, in order."""
        return tuple(node for node in self.nodes if isinstance(node, SinkNode))

    @property
    def at_end(self) -> Literal["fire", "hold"]:
        """Whether the end of a bounded input fires what is still open: the same for all keyed nodes."""
        return self.keyed[0].at_end

    def sinks_of(self, name: str) -> tuple[SinkNode, ...]:
        """Return the sinks that a node's rows are written to."""
        return tuple(node for node in self.sinks if node.input == name)


Runnable = AnyPipeline | Graph
"""What a host runs."""


def as_graph(pipeline: Runnable) -> Graph:
    """Return the graph of a short form; the names of its nodes are empty."""
    match pipeline:
        case Graph():
            return pipeline
        case Pipeline(key=key, window=window, aggregates=aggregates, emit=emit, salt=salt):
            node: KeyedNode = WindowNode("", "", key, window, aggregates, emit, salt)
        case ProcessPipeline(key=key, process=process, at_end=at_end):
            node = ProcessNode("", "", key, process, at_end)
        case _:
            assert_never(pipeline)
    source = SourceNode("", pipeline.source, pipeline.decode, pipeline.time, pipeline.derive)
    return Graph(pipeline.name, (source, node, SinkNode("", "", pipeline.sink)), pipeline.key_groups)


def keyed_pipelines(graph: Graph) -> dict[str, AnyPipeline]:
    """Return each keyed node by its name, as the short form of its own that it computes, into its first sink."""
    return {node.name: _short(graph, node, graph.sinks_of(node.name)[0].sink) for node in graph.keyed}


def sink_pipelines(graph: Graph) -> dict[str, AnyPipeline]:
    """Return each sink by its name, with the keyed node that it is of, as a short form."""
    keyed = {node.name: node for node in graph.keyed}
    return {sink.name: _short(graph, keyed[sink.input], sink.sink) for sink in graph.sinks}


def _short(graph: Graph, node: KeyedNode, sink: Sink) -> AnyPipeline:
    source = graph.origin
    match node:
        case WindowNode():
            return Pipeline(
                graph.name,
                source.source,
                source.decode,
                source.time,
                node.key,
                node.window,
                node.aggregates,
                node.emit,
                sink,
                graph.key_groups,
                source.derive + node.derive,
                node.salt,
            )
        case ProcessNode():
            return ProcessPipeline(
                graph.name,
                source.source,
                source.decode,
                source.time,
                node.key,
                node.process,
                sink,
                graph.key_groups,
                source.derive + node.derive,
                node.at_end,
            )
        case _:
            assert_never(node)
