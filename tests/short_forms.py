"""Short forms that tests make and change by their fields, and the graphs that they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, assert_never, overload

from windrow.authoring.short_form import SOURCE, short_graph, short_nodes
from windrow.expressions import OperatorSpec, ProcessSpec, RulesSpec, WindowSpec, spec_of
from windrow.model import (
    DEFAULT_ALERTS,
    DEFAULT_KEY_GROUPS,
    Aggregate,
    Alerts,
    Decode,
    Derive,
    Emit,
    EventTime,
    Graph,
    Process,
    ProcessNode,
    ResultNode,
    RuleSet,
    RulesNode,
    RunMode,
    Sink,
    Source,
    Window,
    WindowNode,
)
from windrow.testing.oracle.answer import WindowedSource


@dataclass(frozen=True)
class Pipeline:
    """From a log to a table: what is read, what it means, and where it goes.

    `key_groups` is how many parts the keys (and the state) fall into; it is the upper bound of parallelism and stays
    as it is for a pipeline's life. `derive` adds fields to the decoded ones. `salt` spreads each key's records over so
    many key groups before they come together, which is for keys with a large part of all records.
    """

    name: str
    source: Source
    decode: Decode
    time: EventTime
    key: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]
    emit: Emit
    sink: Sink
    key_groups: int = DEFAULT_KEY_GROUPS
    derive: tuple[Derive, ...] = ()
    salt: int = 1
    mode: RunMode = "micro-batch"
    alerts: Alerts = DEFAULT_ALERTS

    @property
    def at_end(self) -> Literal["fire", "hold"]:
        """Whether a bounded run fires what is still open at the end of the input, or holds it."""
        return self.emit.at_end


@dataclass(frozen=True)
class ProcessPipeline:
    """From a log to a table of one row a key, by a Python function; only the fluent form has it.

    `at_end` says whether the end of a bounded input fires the timers (and gives the records that event time still
    holds) or leaves them for the next run. The other fields are those of `Pipeline`.
    """

    name: str
    source: Source
    decode: Decode
    time: EventTime
    key: tuple[str, ...]
    process: Process
    sink: Sink
    key_groups: int = DEFAULT_KEY_GROUPS
    derive: tuple[Derive, ...] = ()
    at_end: Literal["fire", "hold"] = "fire"
    mode: RunMode = "micro-batch"
    alerts: Alerts = DEFAULT_ALERTS


@dataclass(frozen=True)
class RulesPipeline:
    """From a log to a table of alerts, by rules over each record and the recent ones of its key.

    Nothing waits for the end of an input, so `at_end` only says whether the clock journal has it. The other fields are
    those of `Pipeline`.
    """

    name: str
    source: Source
    decode: Decode
    time: EventTime
    key: tuple[str, ...]
    rules: RuleSet
    sink: Sink
    key_groups: int = DEFAULT_KEY_GROUPS
    derive: tuple[Derive, ...] = ()
    at_end: Literal["fire", "hold"] = "fire"
    mode: RunMode = "micro-batch"
    alerts: Alerts = DEFAULT_ALERTS


AnyPipeline = Pipeline | ProcessPipeline | RulesPipeline


def node_of(pipeline: AnyPipeline) -> ResultNode:
    """Return the node with the results of a short form."""
    match pipeline:
        case Pipeline(key=key, window=window, aggregates=aggregates, emit=emit, salt=salt):
            return WindowNode("", SOURCE, key, window, aggregates, emit, salt)
        case ProcessPipeline(key=key, process=process, at_end=at_end):
            return ProcessNode("", SOURCE, key, process, at_end)
        case RulesPipeline(key=key, rules=rules, at_end=at_end):
            return RulesNode("", SOURCE, key, rules, at_end)
        case _:
            assert_never(pipeline)


def graph_of_short(pipeline: AnyPipeline) -> Graph:
    """Return the graph of a short form."""
    return short_graph(
        node_of(pipeline),
        name=pipeline.name,
        source=pipeline.source,
        decode=pipeline.decode,
        time=pipeline.time,
        sink=pipeline.sink,
        derive=pipeline.derive,
        key_groups=pipeline.key_groups,
        mode=pipeline.mode,
        alerts=pipeline.alerts,
    )


def short_form(graph: Graph) -> AnyPipeline | None:
    """Return the short form of a graph that was written as one; None for a graph whose nodes have names."""
    if not graph.is_short:
        return None
    source, node, sink_node = short_nodes(graph)
    sink = sink_node.sink
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


@overload
def operator_spec(pipeline: Pipeline) -> WindowSpec: ...
@overload
def operator_spec(pipeline: ProcessPipeline) -> ProcessSpec: ...
@overload
def operator_spec(pipeline: RulesPipeline) -> RulesSpec: ...
def operator_spec(pipeline: AnyPipeline) -> OperatorSpec[ResultNode]:
    """Return what the operator of a short form is built from."""
    graph = graph_of_short(pipeline)
    (node,) = (node for node in graph.keyed if isinstance(node, ResultNode))
    return replace(spec_of(graph, node), decode=pipeline.decode)


def windowed(pipeline: Pipeline) -> WindowedSource:
    """Return what the definition takes of a short form."""
    return WindowedSource.of(graph_of_short(pipeline))
