"""Graphs: named nodes from sources through streams to sinks. Every pipeline that runs is a graph.

A graph with one source, one result and one sink can be written without names for these, in the short form
(`windrow.authoring.short_form`): its result and its sink then have empty names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from windrow.errors import InputError
from windrow.model.aggregates import Aggregate
from windrow.model.alerts import DEFAULT_ALERTS, Alerts
from windrow.model.connectors import LOG_TIME, FileSource, Sink, Source
from windrow.model.pipeline import DEFAULT_KEY_GROUPS, RunMode
from windrow.model.process import Process
from windrow.model.rules import RuleSet
from windrow.model.time import Delay, DelayByPartition, EventTime, PartitionWatermark, Readings
from windrow.model.triggers import Emit, counts_records, has_every
from windrow.model.types import Decode, Derive
from windrow.model.windows import Session, Window


@dataclass(frozen=True)
class SourceNode:
    """Records of a log, decoded, with derived fields and event times; they have no key yet.

    A record that is `lateness` microseconds or more behind the watermark is written to the late output only; None
    means no limit.
    """

    name: str
    source: Source
    decode: Decode
    time: EventTime
    derive: tuple[Derive, ...] = ()
    lateness: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """No fields."""
        return ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """No nodes."""
        return ()

    @property
    def is_by_reading(self) -> bool:
        """Whether event times are the times at which a file was read, because its rows have no time of their own."""
        time = self.time
        if not isinstance(self.source, FileSource) or not isinstance(time.watermark, Delay | DelayByPartition):
            return False
        paths = [field.paths for field in self.decode.fields if field.name == time.field]
        return paths == [((LOG_TIME,),)] and time.sent is None


@dataclass(frozen=True)
class SelectNode:
    """The records of the nodes `inputs` (their union) for which the condition `where` is true.

    `derive` adds fields, then `select` keeps only the fields it names (None: all). `where` and `derive` are over the
    fields of the inputs, which are the same for all inputs.
    """

    name: str
    inputs: tuple[str, ...]
    where: str | None = None
    derive: tuple[Derive, ...] = ()
    select: tuple[str, ...] | None = None


@dataclass(frozen=True)
class _OfOne:
    """A node with one input."""

    name: str
    input: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input."""
        return (self.input,)

    @property
    def share(self) -> float:
        """The share of its input's records that its stream has, if the node alone says so; else 1."""
        return 1.0


@dataclass(frozen=True)
class SplitNode(_OfOne):
    """The records of the node `input`, each in the first of the outputs whose condition is true.

    Each output is a stream named ``node.output``. `other` names the output for all other records; None drops them.
    """

    outputs: tuple[Derive, ...]
    other: str | None = None


@dataclass(frozen=True)
class FlatMapNode(_OfOne):
    """One record for each element of the array `field` of the records of the node `input`.

    It has the other fields of its input record and the fields of the element; an element that is not a struct becomes
    the field `element` (None: the array's name). `position` names a field for the index of the element, from 0. With
    `outer`, a record without elements yields one record with null in place of the element.
    """

    field: str
    element: str | None = None
    position: str | None = None
    outer: bool = False


@dataclass(frozen=True)
class DeduplicateNode(_OfOne):
    """The records of the node `input` without duplicates: copies of a `key` within a span of event time.

    A record is a duplicate if an earlier record with its key was accepted, and their event times are less than `within`
    microseconds apart. Earlier means in the order of watermarks over all partitions, or with the scope ``partition`` in
    the order of the key's only partition. The duplicates are the stream ``node.duplicates``.
    """

    key: tuple[str, ...]
    within: int
    scope: Literal["stream", "partition"] = "stream"
    derive: tuple[()] = ()
    salt: Literal[1] = 1


@dataclass(frozen=True)
class SampleNode(_OfOne):
    """Each `every`-th record of a `key` of the node `input`, counted from the first.

    Records of a key are counted in the order of watermarks over all partitions; the others are in no stream.
    """

    key: tuple[str, ...]
    every: int
    derive: tuple[()] = ()
    salt: Literal[1] = 1

    @property
    def share(self) -> float:
        """One of `every`."""
        return 1 / self.every


@dataclass(frozen=True)
class JoinNode:
    """The pairs of records of the nodes `left` and `right` with the same key, near each other in event time.

    The right record is at most `before` microseconds earlier than the left record, and at most `after` microseconds
    later, by event time. The fields `key` of the left record equal the fields `right_key` of the right record. `how`
    names the sides whose records are also emitted without a partner, with null in the other side's fields.
    """

    name: str
    left: str
    right: str
    key: tuple[str, ...]
    right_key: tuple[str, ...]
    before: int = 0
    after: int = 0
    how: Literal["inner", "left", "right", "full"] = "inner"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The left and the right input."""
        return (self.left, self.right)


@dataclass(frozen=True)
class TableNode(_OfOne):
    """The last record of each `key` of the node `input`, in the order of watermarks over all partitions.

    A record for which the condition `deleted` is true removes the row of its key. The stream is the table's changelog;
    ``node.versions`` has all records, for lookups as of event time.
    """

    key: tuple[str, ...]
    deleted: str | None = None


@dataclass(frozen=True)
class LookupNode:
    """The records of the node `left`, each with the row of its key in the table `table`.

    As of event time, that is the latest version whose event time is not after the record's own. It is looked up when
    the record arrives; versions that arrive later, while the watermark is less than `revise` microseconds past the
    record's event time, replace it. (None: the lateness of the table's source, or else of the record's.) As of the
    order of watermarks, it is the row at the record's position, whatever its event time, and is never replaced. `how`
    decides whether records without a row are dropped.

    Records and versions are partitioned by key. With `broadcast`, every key group has all versions, and records are
    spread over the key groups whatever their key.
    """

    name: str
    left: str
    table: str
    key: tuple[str, ...]
    right_key: tuple[str, ...]
    how: Literal["inner", "left"] = "inner"
    as_of: Literal["event_time", "order"] = "event_time"
    revise: int | None = None
    broadcast: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The records, and the versions of the table."""
        return (self.left, versions_of(self.table))

    @property
    def right(self) -> str:
        """The table."""
        return self.table


@dataclass(frozen=True)
class TableJoinNode:
    """The join of two tables `left` and `right`, as in SQL: a row for each pair of rows with the same key.

    The result is a table too, and changes with both.
    """

    name: str
    left: str
    right: str
    key: tuple[str, ...]
    right_key: tuple[str, ...]
    how: Literal["inner", "left", "right", "full"] = "inner"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The left and the right input."""
        return (self.left, self.right)


@dataclass(frozen=True)
class WindowNode(_OfOne):
    """The aggregates of each window and key of the node `input`.

    `derive` adds to the fields of the input. `salt` is the number of key groups over which a key's records are spread.
    """

    key: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]
    emit: Emit
    salt: int = 1
    derive: tuple[Derive, ...] = ()

    @property
    def at_end(self) -> Literal["fire", "hold"]:
        """Whether open windows fire at the end of a bounded input."""
        return self.emit.at_end


@dataclass(frozen=True)
class ProcessNode(_OfOne):
    """The rows that a process function emits for each key of the node `input`."""

    key: tuple[str, ...]
    process: Process
    at_end: Literal["fire", "hold"] = "fire"
    derive: tuple[Derive, ...] = ()
    salt: Literal[1] = 1


@dataclass(frozen=True)
class RulesNode(_OfOne):
    """The alerts that rules raise for the records of the node `input`; only short forms have such a node."""

    key: tuple[str, ...]
    rules: RuleSet
    at_end: Literal["fire", "hold"] = "fire"
    derive: tuple[Derive, ...] = ()
    salt: Literal[1] = 1


@dataclass(frozen=True)
class SinkNode(_OfOne):
    """The tables to which the rows of the node `input` are written."""

    sink: Sink


ResultNode = WindowNode | ProcessNode | RulesNode
"""A node whose rows are results by key; its stream is a changelog."""

AnyJoinNode = JoinNode | TableJoinNode | LookupNode
"""A node that joins two streams by key."""

FilterNode = SplitNode | DeduplicateNode | SampleNode
"""A node whose streams have records of its input as they are, each in one of them or in none."""

KeyedNode = ResultNode | DeduplicateNode | SampleNode | TableNode | AnyJoinNode
"""A node with an operator: its records are partitioned by key."""

StreamNode = SelectNode | FilterNode | FlatMapNode | KeyedNode

Node = SourceNode | StreamNode | SinkNode


MAX_PARTITIONS = 1 << 20
"""The maximum number of partitions of each of several sources. A graph numbers its partitions: the index of the source,
in the order of the file, times this, plus the number in the source."""


def source_number(partition: int, sources: int) -> int:
    """Return the index of a partition's source among `sources` sources."""
    return partition // MAX_PARTITIONS if sources > 1 else 0


@dataclass(frozen=True)
class LevelNode:
    """A node at a level; with `is_local`, only the local aggregates of its salted keys."""

    node: KeyedNode | SinkNode
    is_local: bool = False


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order.

    `key_groups` is the number of parts into which the keys (and the state) of each keyed node are divided.
    """

    name: str
    nodes: tuple[Node, ...]
    key_groups: int = DEFAULT_KEY_GROUPS
    mode: RunMode = "micro-batch"
    alerts: Alerts = DEFAULT_ALERTS

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
        """Return the number of the partition with a name; raise InputError if no source has that name."""
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
        """The nodes with an operator, in order; a table that is only used by lookups has none."""
        return tuple(
            node
            for node in self.nodes
            if isinstance(node, KeyedNode)
            and not (isinstance(node, TableNode) and all(node.name not in reader.inputs for reader in self.nodes))
        )

    @property
    def partition_key(self) -> tuple[str, ...]:
        """The fields by which a realtime run's topic is partitioned. Deduplications add none: copies are together."""
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
        """Whether open windows fire at the end of a bounded input: the same for all results."""
        return next((node.at_end for node in self.nodes if isinstance(node, ResultNode)), "fire")

    def ending(self, at_end: Literal["fire", "hold"]) -> Graph:
        """Return the graph with another `at_end` for all results."""
        return self.map_nodes(lambda node: _ending(node, at_end))

    def map_nodes(self, change: Callable[[Node], Node]) -> Graph:
        """Return the graph with `change` applied to each node."""
        return replace(self, nodes=tuple(map(change, self.nodes)))

    def with_rules(self, rules: RuleSet) -> Graph:
        """Return the graph with other rules."""
        return self.map_nodes(lambda node: replace(node, rules=rules) if isinstance(node, RulesNode) else node)

    def into(self, sink: Sink) -> Graph:
        """Return the graph with another sink in place of its only one."""
        return self.map_nodes(lambda node: replace(node, sink=sink) if isinstance(node, SinkNode) else node)

    @property
    def levels(self) -> tuple[tuple[LevelNode, ...], ...]:
        """The nodes with an operator by level, each after the nodes it depends on; an exchange precedes each level.

        A sink of records is at the level that makes them, except after a join of tables, whose rows have another key
        than the join.
        """
        after: dict[str, int] = {}  # by stream: the number of levels its records have passed
        levels: dict[int, list[LevelNode]] = {}
        computed = self.computed
        for node in self.nodes:
            given = passed = max((after[name] for name in node.inputs), default=0)
            if isinstance(node, KeyedNode | SinkNode) and node in computed:
                if isinstance(node, WindowNode) and node.salt > 1:
                    passed += 1
                    levels.setdefault(passed, []).append(LevelNode(node, is_local=True))
                is_here = isinstance(node, SinkNode) and not self.is_exchanged(node)
                passed = max(passed, 1) if is_here else passed + 1
                levels.setdefault(passed, []).append(LevelNode(node))
            after |= dict.fromkeys(outputs_of(node), passed)
            after |= {versions_of(node.name): given} if isinstance(node, TableNode) else {}
        return tuple(tuple(levels[number]) for number in sorted(levels))

    def is_exchanged(self, sink: SinkNode) -> bool:
        """Return whether the rows of a sink are repartitioned: a join of tables makes them by another key."""
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
        """Return whether no node with state is above a stream."""
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
        """Return the node that makes a stream: a node's name, or the name of one of its outputs."""
        named = {output: node for node in self.nodes for output in outputs_of(node)}
        return named[stream]

    def readers(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes that read an output of a node, in order."""
        made = set(outputs_of(node))
        return tuple(node for node in self.nodes if made.intersection(node.inputs))

    def is_read(self, node: Node) -> bool:
        """Return whether a stream reads an output of a node."""
        return any(isinstance(reader, StreamNode) for reader in self.readers(node))

    def is_ordered(self, node: KeyedNode) -> bool:
        """Return whether a node processes its records in the order of watermarks, on which its output depends."""
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
        """Return whether rows of a stream can be retracted."""
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
        """Return whether the rows of a stream come in the order of watermarks of all its sources."""
        node = self.producer(stream)
        if isinstance(node, KeyedNode) and stream in made_by(node):
            return self.is_ordered(node)
        feeding = {self.feeding(name) for name in node.inputs}
        return len(feeding) == 1 and all(map(self.is_settled, node.inputs))

    def is_chained(self, node: KeyedNode) -> bool:
        """Return whether another node with state is above a node, or a stream reads it."""
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
        """Return the first sink of a node's rows, or else the first sink below the node."""
        return (self.sinks_of(node.name) or self.sinks_below(node))[0]


def versions_of(table: str) -> str:
    """Return the name of the stream of the versions of a table's rows."""
    return f"{table}.versions"


def made_by(node: Node) -> tuple[str, ...]:
    """Return the streams that the operator of a node makes; the versions of a table are made before it."""
    return (node.name,) if isinstance(node, TableNode) else tuple(outputs_of(node))


def outputs_of(node: Node) -> Iterator[str]:
    """Yield the names of the streams that a node makes."""
    match node:
        case SinkNode():
            return
        case SplitNode(name, _, outputs, other):
            yield from (f"{name}.{output.name}" for output in outputs)
            if other is not None:
                yield f"{name}.{other}"
        case DeduplicateNode(name):
            yield from (name, f"{name}.duplicates")
        case TableNode(name):
            yield from (name, versions_of(name))
        case _:
            yield node.name


def _ending(node: Node, at_end: Literal["fire", "hold"]) -> Node:
    match node:
        case ProcessNode() | RulesNode():
            return replace(node, at_end=at_end)
        case WindowNode():
            return replace(node, emit=replace(node.emit, at_end=at_end))
        case _:
            return node


def needs_ticks(node: Node) -> bool:
    """Return whether a node needs ticks of processing time."""
    if isinstance(node, ProcessNode):
        return node.process.on_processing_timer is not None
    return isinstance(node, WindowNode) and has_every(node.emit.early)
