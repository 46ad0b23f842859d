"""Nodes of a graph: sources, streams and sinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from windrow.model.aggregates import Aggregate
from windrow.model.connectors import HEADERS, LOG_TIME, FileSource, Sink, Source
from windrow.model.process import Process
from windrow.model.rules import RuleSet
from windrow.model.time import Delay, DelayByPartition, EventTime
from windrow.model.triggers import Emit, has_every
from windrow.model.types import Decode, Derive
from windrow.model.windows import Window


@dataclass(frozen=True)
class SourceNode:
    """The decoded records of a log, with derived fields and event times, but without a key.

    A record that is `lateness` microseconds or more behind the watermark is written only to the late output; None means
    no limit.
    """

    name: str
    source: Source
    decode: Decode
    time: EventTime
    derive: tuple[Derive, ...] = ()
    lateness: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """An empty key, because records get their key in later nodes."""
        return ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """No inputs, because a source reads no other node."""
        return ()

    @property
    def reads_headers(self) -> bool:
        """Whether fields are read from the headers of records."""
        names = {path[0] for field in self.decode.fields for path in field.paths}
        return HEADERS in names & self.source.outside

    @property
    def is_by_reading(self) -> bool:
        """Whether event times are the times at which a file was read, because its rows contain no event time."""
        time = self.time
        if not isinstance(self.source, FileSource) or not isinstance(time.watermark, Delay | DelayByPartition):
            return False
        paths = [field.paths for field in self.decode.fields if field.name == time.field]
        return paths == [((LOG_TIME,),)] and time.sent is None


@dataclass(frozen=True)
class SelectNode:
    """The records of the nodes `inputs` (their union) for which the condition `where` is true.

    `derive` adds fields, and `select` then keeps only these fields (None: all fields). `where` and `derive` use the
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
        """The input, as the only one."""
        return (self.input,)

    @property
    def share(self) -> float:
        """The share of the input's records that are in the node's stream, if the node determines it; otherwise 1."""
        return 1.0


@dataclass(frozen=True)
class SplitNode(_OfOne):
    """The records of the node `input`, each in the first output whose condition is true.

    Each output is a stream named ``node.output``. `other` is the name of the output for all other records; if it is
    None, these records are dropped.
    """

    outputs: tuple[Derive, ...]
    other: str | None = None


@dataclass(frozen=True)
class ChangesNode(_OfOne):
    """The row changes of a database table, among those of several tables in the source `input`.

    `table` is the name of the table as in SQL, perhaps with its schema. The records have the fields of the source and
    those in `decode`.
    """

    table: str
    decode: Decode

    def decoded(self, source: SourceNode) -> SourceNode:
        """Return the source as if it had only the records of the table, with all of their fields."""
        return replace(source, decode=Decode((*source.decode.fields, *self.decode.fields)))


@dataclass(frozen=True)
class FlatMapNode(_OfOne):
    """One record for each element of the array `field` in the records of the node `input`.

    It has the fields of the element and the other fields of the input record. An element that is not a struct becomes
    the field `element` (None: the name of the array). `position` is the name of a field for the index of the element,
    from 0. With `outer`, a record without elements yields one record with null in place of the element.
    """

    field: str
    element: str | None = None
    position: str | None = None
    outer: bool = False


@dataclass(frozen=True)
class DeduplicateNode(_OfOne):
    """The records of the node `input` without duplicates, which have the same `key` within a span of event time.

    A record is a duplicate if an earlier record with its key was accepted, and their event times are less than `within`
    microseconds apart. Whether a record is earlier is decided in watermark order over all partitions, or with the scope
    ``partition`` in the order of the key's only partition. The duplicates form the stream ``node.duplicates``.
    """

    key: tuple[str, ...]
    within: int
    scope: Literal["stream", "partition"] = "stream"
    derive: tuple[()] = ()
    salt: Literal[1] = 1


@dataclass(frozen=True)
class SampleNode(_OfOne):
    """Every `every`-th record of each `key` of the node `input`.

    The records of a key are counted in watermark order over all partitions. The other records are dropped.
    """

    key: tuple[str, ...]
    every: int
    derive: tuple[()] = ()
    salt: Literal[1] = 1

    @property
    def share(self) -> float:
        """One in `every` records."""
        return 1 / self.every


@dataclass(frozen=True)
class JoinNode:
    """The pairs of records of the nodes `left` and `right` with the same key, near each other in event time.

    By event time, the right record is at most `before` microseconds earlier than the left record, and at most `after`
    microseconds later. The fields `key` of the left record equal the fields `right_key` of the right record. `how` is
    the side, or both sides, whose records are also emitted without a partner, with null in the other side's fields.
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
    """The last record of each `key` of the node `input`, in watermark order over all partitions.

    A record for which the condition `deleted` is true removes the row of its key. The stream is the table's changelog;
    ``node.versions`` has all records, for lookups as of event time.
    """

    key: tuple[str, ...]
    deleted: str | None = None


@dataclass(frozen=True)
class LookupNode:
    """The records of the node `left`, each with the row of its key in the table `table`.

    If `as_of` is ``event_time``, that is the latest version of the row whose event time is not after the record's. It
    is looked up when the record arrives. Versions that arrive later replace it, as long as the watermark is less than
    `revise` microseconds past the record's event time. (None means the lateness of the table's source, or else of the
    record's.) If `as_of` is ``order``, it is the current row at the record's position in watermark order, whatever the
    row's event time, and it is never replaced. `how` decides whether records without a row are dropped.

    Records and versions are partitioned by key. With `broadcast`, every key group has all versions, and records are
    spread over the key groups regardless of their key.
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
        """The stream of records, and the stream of the table's versions."""
        return (self.left, versions_of(self.table))

    @property
    def right(self) -> str:
        """The table."""
        return self.table


@dataclass(frozen=True)
class TableJoinNode:
    """The join of two tables `left` and `right`, as in SQL: a row for each pair of rows with the same key.

    The result is also a table, and is updated when either table changes.
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

    `derive` adds fields to those of the input. `salt` is the number of key groups over which the records of a key are
    spread.
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
    """The alerts that rules raise for the records of the node `input`; only graphs in the short form have this node."""

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
"""A node that computes results for each key; its stream is a changelog."""

AnyJoinNode = JoinNode | TableJoinNode | LookupNode
"""A node that joins two streams by key."""

FilterNode = SplitNode | DeduplicateNode | SampleNode
"""A node that passes on records of its input unchanged, each to at most one of its streams."""

KeyedNode = ResultNode | DeduplicateNode | SampleNode | TableNode | AnyJoinNode
"""A node with an operator: its records are partitioned by key."""

StreamNode = SelectNode | FilterNode | FlatMapNode | ChangesNode | KeyedNode

Node = SourceNode | StreamNode | SinkNode


def versions_of(table: str) -> str:
    """Return the name of the stream with all versions of a table's rows."""
    return f"{table}.versions"


def operator_outputs(node: Node) -> tuple[str, ...]:
    """Return the streams that the operator of a node produces.

    The versions of a table are not included, because they are produced before its operator.
    """
    return (node.name,) if isinstance(node, TableNode) else tuple(outputs_of(node))


def outputs_of(node: Node) -> Iterator[str]:
    """Yield the names of the streams that a node produces."""
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
