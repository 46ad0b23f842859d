"""Nodes of a graph: sources, the streams between, and sinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from windrow.model.aggregates import Aggregate
from windrow.model.connectors import LOG_TIME, FileSource, Sink, Source
from windrow.model.process import Process
from windrow.model.rules import RuleSet
from windrow.model.time import Delay, DelayByPartition, EventTime
from windrow.model.triggers import Emit, has_every
from windrow.model.types import Decode, Derive
from windrow.model.windows import Window


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


def versions_of(table: str) -> str:
    """Return the name of the stream of the versions of a table's rows."""
    return f"{table}.versions"


def operator_outputs(node: Node) -> tuple[str, ...]:
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


def needs_ticks(node: Node) -> bool:
    """Return whether a node needs ticks of processing time."""
    if isinstance(node, ProcessNode):
        return node.process.on_processing_timer is not None
    return isinstance(node, WindowNode) and has_every(node.emit.early)
