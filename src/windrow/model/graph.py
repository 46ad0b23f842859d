"""Graphs: named nodes from sources through streams to sinks. Every pipeline that runs is a graph.

A graph with one source, one result and one sink can be written without names for these, in the short form
(`windrow.authoring.short_form`): its result and its sink then have empty names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from windrow.errors import InputError
from windrow.model.alerts import DEFAULT_ALERTS, Alerts
from windrow.model.connectors import Sink
from windrow.model.nodes import (
    DeduplicateNode,
    JoinNode,
    KeyedNode,
    LookupNode,
    Node,
    ProcessNode,
    ResultNode,
    RulesNode,
    SampleNode,
    SelectNode,
    SinkNode,
    SourceNode,
    SplitNode,
    StreamNode,
    TableJoinNode,
    TableNode,
    WindowNode,
    operator_outputs,
    outputs_of,
    versions_of,
)
from windrow.model.pipeline import DEFAULT_KEY_GROUPS, RunMode
from windrow.model.rules import RuleSet
from windrow.model.time import Delay, DelayByPartition, PartitionWatermark, Readings
from windrow.model.triggers import counts_records
from windrow.model.windows import Session

MAX_PARTITIONS = 1 << 20
"""The maximum number of partitions of each source, if there are several. The number of a partition in the graph is the
index of its source, in the order of the file, times this maximum, plus the partition's number in the source."""


def source_number(partition: int, sources: int) -> int:
    """Return the index of a partition's source among `sources` sources."""
    return partition // MAX_PARTITIONS if sources > 1 else 0


@dataclass(frozen=True)
class LevelNode:
    """A node at a level; with `is_local`, only the part of it that aggregates salted keys locally."""

    node: KeyedNode | SinkNode
    is_local: bool = False


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order.

    `key_groups` is the number of parts into which the keys (and the state) of each keyed node are divided. With
    `copartitions`, deduplications are partitioned like the streams that read them where that is possible
    (`partition_key_of`); graphs of older checkpoints do not have it.
    """

    name: str
    nodes: tuple[Node, ...]
    key_groups: int = DEFAULT_KEY_GROUPS
    mode: RunMode = "micro-batch"
    alerts: Alerts = DEFAULT_ALERTS
    copartitions: bool = True

    @property
    def is_short(self) -> bool:
        """Whether this is a short form, in which only records that are valid for the keyed node advance the clock."""
        return any(not node.name for node in self.nodes)

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """The sources, in order."""
        return tuple(node for node in self.nodes if isinstance(node, SourceNode))

    def source_number(self, partition: int) -> int:
        """Return the index of the source of a partition of the graph."""
        return source_number(partition, len(self.sources))

    def watermark_of(self, partition: int) -> PartitionWatermark:
        """Return the watermark strategy of a partition."""
        source = self.source_of(partition)
        found = source.time.watermark
        if isinstance(found, DelayByPartition):
            found = found.of(partition % MAX_PARTITIONS)
        return Readings(found.micros) if isinstance(found, Delay) and source.is_by_reading else found

    def source_of(self, partition: int) -> SourceNode:
        """Return the source of a partition of the graph."""
        return self.sources[self.source_number(partition)]

    def partition_name(self, partition: int) -> int | str:
        """Return the name of a partition: its number, or with several sources ``SOURCE/NUMBER``."""
        if len(self.sources) == 1:
            return partition
        return f"{self.source_of(partition).name}/{partition % MAX_PARTITIONS}"

    def partition_number(self, name: int | str) -> int:
        """Return the number of the partition with this name; raise InputError if no source has it."""
        if isinstance(name, int) and len(self.sources) == 1:
            return name
        source, _, number = str(name).rpartition("/")
        names = [source.name for source in self.sources]
        if len(names) == 1 or source not in names or not number.isdecimal():
            written = "0" if len(names) == 1 else f"{names[0]}/0"
            msg = f"{name!r} is not a partition here; write the first one as {written}"
            raise InputError(msg)
        return names.index(source) * MAX_PARTITIONS + int(number)

    @property
    def keyed(self) -> tuple[KeyedNode, ...]:
        """The nodes with an operator, in order; a table that only lookups use has no operator."""
        return tuple(
            node
            for node in self.nodes
            if isinstance(node, KeyedNode)
            and not (isinstance(node, TableNode) and all(node.name not in reader.inputs for reader in self.nodes))
        )

    @property
    def partition_key(self) -> tuple[str, ...]:
        """The fields by which a realtime run's topic is partitioned.

        Deduplications add no fields, because all copies of a record are in the same partition.
        """
        keyed = (node for node in self.keyed if not isinstance(node, DeduplicateNode))
        return tuple(dict.fromkeys(name for node in keyed for name in node.key))

    @property
    def computed(self) -> tuple[KeyedNode | SinkNode, ...]:
        """The nodes with an operator, in order: the keyed nodes, and the sinks of streams that are not results."""
        keyed = self.keyed
        return tuple(
            node
            for node in self.nodes
            if node in keyed or (isinstance(node, SinkNode) and not isinstance(self.producer(node.input), ResultNode))
        )

    @property
    def streams(self) -> tuple[StreamNode, ...]:
        """The nodes between sources and sinks, in order."""
        return tuple(node for node in self.nodes if isinstance(node, StreamNode))

    @property
    def rules(self) -> tuple[RulesNode, ...]:
        """The nodes with rules, in order."""
        return tuple(node for node in self.nodes if isinstance(node, RulesNode))

    @property
    def sinks(self) -> tuple[SinkNode, ...]:
        """The sinks, in order."""
        return tuple(node for node in self.nodes if isinstance(node, SinkNode))

    @property
    def at_end(self) -> Literal["fire", "hold"]:
        """Whether open windows fire at the end of a bounded input, which is the same for all results."""
        return next((node.at_end for node in self.nodes if isinstance(node, ResultNode)), "fire")

    def ending(self, at_end: Literal["fire", "hold"]) -> Graph:
        """Return the graph with `at_end` changed in all results."""
        return self.map_nodes(lambda node: _ending(node, at_end))

    def map_nodes(self, change: Callable[[Node], Node]) -> Graph:
        """Return the graph with `change` applied to each node."""
        return replace(self, nodes=tuple(map(change, self.nodes)))

    def with_rules(self, rules: RuleSet) -> Graph:
        """Return the graph with its rules replaced."""
        return self.map_nodes(lambda node: replace(node, rules=rules) if isinstance(node, RulesNode) else node)

    def into(self, sink: Sink) -> Graph:
        """Return the graph with its only sink replaced."""
        return self.map_nodes(lambda node: replace(node, sink=sink) if isinstance(node, SinkNode) else node)

    @property
    def levels(self) -> tuple[tuple[LevelNode, ...], ...]:
        """The nodes with an operator, grouped into levels that follow the nodes' dependencies.

        An exchange precedes each level. A sink of records is at the level that produces them, except after a join of
        tables, whose rows have a different key than the join. The readers of a deduplication that is partitioned by
        their key are at its level, too.
        """
        after: dict[str, int] = {}  # by stream: the number of levels its records have passed
        copartitioned: set[str] = set()  # the streams whose readers need no exchange
        levels: dict[int, list[LevelNode]] = {}
        computed = self.computed
        for node in self.nodes:
            given = passed = max((after[name] for name in node.inputs), default=0)
            if isinstance(node, KeyedNode | SinkNode) and node in computed:
                if isinstance(node, WindowNode) and node.salt > 1:
                    passed += 1
                    levels.setdefault(passed, []).append(LevelNode(node, is_local=True))
                is_here = copartitioned.issuperset(node.inputs)
                is_here |= isinstance(node, SinkNode) and not self.is_exchanged(node)
                passed = max(passed, 1) if is_here else passed + 1
                levels.setdefault(passed, []).append(LevelNode(node))
            is_passed_on = isinstance(node, SelectNode | SplitNode) and copartitioned.issuperset(node.inputs)
            if is_passed_on or self.partition_key_of(node):
                copartitioned.update(outputs_of(node))
            after |= dict.fromkeys(outputs_of(node), passed)
            after |= {versions_of(node.name): given} if isinstance(node, TableNode) else {}
        return tuple(tuple(levels[number]) for number in sorted(levels))

    def partition_key_of(self, node: Node) -> tuple[str, ...]:
        """Return the key of the streams that read a deduplication, if its records are partitioned by it, else ().

        This key must be part of the deduplication's key. Copies of a record are then in one key group, and the streams
        need no exchange of their own. Which records are duplicates does not depend on how they are partitioned.
        """
        if not (self.copartitions and self.mode == "micro-batch" and isinstance(node, DeduplicateNode)):
            return ()
        streams, keys, derived = set(outputs_of(node)), set[tuple[str, ...]](), set[str]()
        for reader in self.nodes:
            if isinstance(reader, SinkNode) or streams.isdisjoint(reader.inputs):
                continue
            if isinstance(reader, SelectNode | SplitNode) and streams.issuperset(reader.inputs):
                streams.update(outputs_of(reader))
            else:
                keys.add(reader.key if isinstance(reader, ResultNode) and reader.salt == 1 else ())
            if isinstance(reader, SelectNode | ResultNode):
                derived.update(field.name for field in reader.derive)
        key = keys.pop() if len(keys) == 1 else ()
        return key if set(key) <= set(node.key) - derived else ()

    def is_exchanged(self, sink: SinkNode) -> bool:
        """Return True if the rows of a sink are repartitioned, because a join of tables makes them with another key."""
        node = self.producer(sink.input)
        while isinstance(node, SelectNode | SplitNode):
            node = self.producer(node.inputs[0])
        return isinstance(node, TableJoinNode)

    def level_of(self, node: Node) -> int:
        """Return the number of a node's level, from 1."""
        return next(
            number
            for number, level in enumerate(self.levels, start=1)
            if any(placed.node == node and not placed.is_local for placed in level)
        )

    def is_raw(self, stream: str) -> bool:
        """Return True if no node with state is above a stream."""
        node = self.producer(stream)
        has_state = isinstance(node, KeyedNode) and stream != versions_of(node.name)
        return isinstance(node, SourceNode) or (not has_state and all(self.is_raw(name) for name in node.inputs))

    def feeding(self, stream: str) -> frozenset[str]:
        """Return the names of the sources above a stream."""
        node = self.producer(stream)
        above = [self.feeding(name) for name in node.inputs]
        return frozenset([node.name]) if isinstance(node, SourceNode) else frozenset().union(*above)

    def sinks_of(self, stream: str) -> tuple[SinkNode, ...]:
        """Return the sinks of a stream."""
        return tuple(node for node in self.sinks if node.input == stream)

    def producer(self, stream: str) -> Node:
        """Return the node that produces a stream, which is named after the node or one of its outputs."""
        named = {output: node for node in self.nodes for output in outputs_of(node)}
        return named[stream]

    def readers(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes that read an output of a node, in order."""
        made = set(outputs_of(node))
        return tuple(node for node in self.nodes if made.intersection(node.inputs))

    def is_read(self, node: Node) -> bool:
        """Return True if a stream reads an output of a node."""
        return any(isinstance(reader, StreamNode) for reader in self.readers(node))

    def is_ordered(self, node: KeyedNode) -> bool:
        """Return True if a node processes its records in watermark order, because its output depends on it."""
        match node:
            case DeduplicateNode():
                return node.scope == "stream"
            case JoinNode():
                # the pairs do not depend on the order, but whether a record has no partner yet does
                return node.how != "inner" or any(map(self.is_taken_back, node.inputs))
            case SampleNode() | TableNode() | TableJoinNode() | LookupNode():
                return True
            case ProcessNode():
                return self.is_read(node) or not self.is_raw(node.input) or len(self.feeding(node.input)) > 1
            case WindowNode(window=Session()) if counts_records(node.emit.early):
                return True
            case _:
                return self.is_read(node)

    def is_taken_back(self, stream: str) -> bool:
        """Return True if rows of a stream can be retracted."""
        node = self.producer(stream)
        match node:
            case WindowNode() | RulesNode() | TableJoinNode():
                return True
            case TableNode():
                return stream == node.name
            case LookupNode():
                return node.as_of == "event_time"
            case JoinNode():
                return node.how != "inner" or any(map(self.is_taken_back, node.inputs))
            case _:
                return any(map(self.is_taken_back, node.inputs))

    def is_settled(self, stream: str) -> bool:
        """Return True if the rows of a stream arrive in the watermark order of all its sources."""
        node = self.producer(stream)
        if isinstance(node, KeyedNode) and stream in operator_outputs(node):
            return self.is_ordered(node)
        feeding = {self.feeding(name) for name in node.inputs}
        return len(feeding) == 1 and all(map(self.is_settled, node.inputs))

    def is_chained(self, node: KeyedNode) -> bool:
        """Return True if a node is below another node with state, or if a stream reads it."""
        keyed = (other for other in self.nodes if isinstance(other, KeyedNode))
        return self.is_read(node) or any(node in self.below(other) for other in keyed)

    def below(self, node: Node) -> tuple[Node, ...]:
        """Return all nodes that depend on a node, in order."""
        found: set[str] = set(outputs_of(node))
        nodes = []
        for other in self.nodes:
            if found.intersection(other.inputs):
                nodes.append(other)
                found.update(outputs_of(other))
        return tuple(nodes)

    def sinks_below(self, node: Node) -> tuple[SinkNode, ...]:
        """Return the sinks that depend on a node, in order."""
        return tuple(sink for sink in self.below(node) if isinstance(sink, SinkNode))

    def first_sink(self, node: Node) -> SinkNode:
        """Return the first sink of a node's rows, or otherwise the first sink below the node."""
        return (self.sinks_of(node.name) or self.sinks_below(node))[0]


def _ending(node: Node, at_end: Literal["fire", "hold"]) -> Node:
    match node:
        case ProcessNode() | RulesNode():
            return replace(node, at_end=at_end)
        case WindowNode():
            return replace(node, emit=replace(node.emit, at_end=at_end))
        case _:
            return node
