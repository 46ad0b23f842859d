"""Streams of a graph: the fields of each, and each node with state as a short form over the stream that it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, assert_never

from windrow.errors import PipelineError
from windrow.expressions.analyse import analyse
from windrow.expressions.inputs import arguments, nullable_fields, record_fields
from windrow.expressions.results import results
from windrow.model import (
    AnyPipeline,
    DataType,
    Decode,
    DeduplicateNode,
    Derive,
    EventTime,
    Field,
    Graph,
    JoinNode,
    KeyedNode,
    Pipeline,
    ProcessNode,
    ProcessPipeline,
    ResultNode,
    SelectNode,
    Sink,
    SinkNode,
    Source,
    SourceNode,
    SplitNode,
    Sum,
    TimestampType,
    WindowNode,
)


@dataclass(frozen=True)
class Stream:
    """What flows between two nodes: records with these fields, an optional one of which can be null.

    The records of a changelog are changes: rows that were added, and rows that were taken back. `sources` are those
    that they come from, `time` how the first tells event time. A change can come `hold` microseconds behind its event
    time, by the watermark, and be on time; none comes `lateness` or more behind it, counted from the end of the window
    whose row it changes. With `has_id` they have no place in a log of their own: their `ID` names what they are made of.
    `terms` are the types of what the sums among the fields are sums of: a sum of sums has no more digits than one of
    their terms.
    """

    fields: tuple[Field, ...]
    time: EventTime
    sources: tuple[SourceNode, ...]
    is_changelog: bool = False
    hold: int = 0
    lateness: int = 0
    has_id: bool = False
    terms: tuple[tuple[str, DataType], ...] = ()

    @property
    def bound(self) -> int | None:
        """How far behind the watermark its records or changes come at most (microseconds); None if that has no end."""
        if self.is_changelog:
            return self.lateness
        limits = [source.lateness for source in self.sources if source.lateness is not None]
        return max(limits) if len(limits) == len(self.sources) else None


@dataclass(frozen=True)
class RecordStream:
    """Records with a key as their operator sees them, where it makes records of records; the names are `Pipeline`'s.

    A deduplication is one, a join with the fields of both sides, and a stream on its way into a table.
    """

    name: str
    source: Source
    decode: Decode
    time: EventTime
    key: tuple[str, ...]
    sink: Sink
    key_groups: int
    derive: tuple[Derive, ...] = ()
    salt: Literal[1] = 1
    has_id: bool = False


View = AnyPipeline | RecordStream
"""A node with state as a short form over the stream that it takes."""


@lru_cache(maxsize=256)
def stream_of(graph: Graph, name: str) -> Stream:
    """Return the stream of that name; raise PipelineError for an expression that is wrong."""
    node = graph.producer(name)
    match node:
        case SourceNode():
            nullable = nullable_fields(node)
            fields = tuple(Field(one.name, one.type, one.name in nullable) for one in record_fields(node))
            return Stream(fields, node.time, (node,))
        case SelectNode():
            given = united(graph, node)
            return replace(given, fields=_selected(given, node))
        case SplitNode() | DeduplicateNode():
            return stream_of(graph, node.input)
        case JoinNode():
            return _joined(graph, node)
        case WindowNode() | ProcessNode():
            return _results(graph, node)
        case SinkNode():
            raise KeyError(name)
        case _:
            assert_never(node)


def united(graph: Graph, node: SelectNode) -> Stream:
    """Return the union of a node's inputs; raise PipelineError if they do not have the same fields."""
    first, *others = (stream_of(graph, name) for name in node.inputs)
    for name, other in zip(node.inputs[1:], others, strict=True):
        if _types(other) != _types(first):
            msg = (
                f"the streams of a union have the same fields, but {node.inputs[0]!r} has {_listed(first)}, and "
                f"{name!r} has {_listed(other)}; select the same ones in each"
            )
            raise PipelineError(msg)
        if other.has_id != first.has_id:
            msg = f"{node.inputs[0]!r} and {name!r} have no union: one has the rows of a join, the other does not"
            raise PipelineError(msg)
        if other.is_changelog != first.is_changelog:
            msg = f"{node.inputs[0]!r} and {name!r} have no union: one has records, the other rows that change"
            raise PipelineError(msg)
    optional = {one.name for stream in (first, *others) for one in stream.fields if one.optional}
    sources = tuple(dict.fromkeys(one for stream in (first, *others) for one in stream.sources))
    return replace(
        first,
        fields=tuple(replace(one, optional=one.name in optional) for one in first.fields),
        sources=sources,
        hold=max(stream.hold for stream in (first, *others)),
        lateness=max(stream.lateness for stream in (first, *others)),
    )


def _types(stream: Stream) -> dict[str, DataType]:
    return {one.name: _type(one.type) for one in stream.fields}


def is_same_type(one: DataType, other: DataType) -> bool:
    """Return whether values of two types are alike; how JSON has a timestamp does not matter."""
    return _type(one) == _type(other)


def _type(type_: DataType) -> DataType:
    return TimestampType("micros") if isinstance(type_, TimestampType) else type_


def _listed(stream: Stream) -> str:
    return ", ".join(f"{one.name} {one.type}" for one in stream.fields)


def _selected(given: Stream, node: SelectNode) -> tuple[Field, ...]:
    nullable = frozenset(one.name for one in given.fields if one.optional)
    made = [(one.name, analyse(one.sql, given.fields, nullable)) for one in node.derive]
    fields = (*given.fields, *(Field(name, one.type, one.nullable) for name, one in made))
    if node.select is None:
        return fields
    by_name = {one.name: one for one in fields}
    for name in node.select:
        if name not in by_name:
            msg = f"{name!r} is not a field of the stream; it has {', '.join(by_name)}"
            raise PipelineError(msg)
    return tuple(by_name[name] for name in node.select)


@dataclass(frozen=True)
class JoinSide:
    """One of the streams that a join takes, and by the name of each of its fields that which it has in the join.

    A partner of its record is at most `reach` microseconds later, and at most `back` earlier. The records stay alone
    without a partner if it `is_outer`: once the watermark is `wait` microseconds past their event time, as no partner
    is on time then. `kept` is how long one can still change the join (microseconds of watermark past its event time).
    """

    stream: Stream
    names: dict[str, str]
    reach: int
    back: int
    is_outer: bool
    wait: int
    kept: int


def join_sides(graph: Graph, node: JoinNode) -> tuple[JoinSide, JoinSide]:
    """Return the left and the right side of a join; a field of the right that the left has, too, ends in `_right`."""
    left, right = stream_of(graph, node.left), stream_of(graph, node.right)
    taken = {one.name.lower() for one in left.fields}
    keys = dict(zip(node.right_key, node.key, strict=True))
    names = {
        one.name: keys.get(one.name, f"{one.name}_right" if one.name.lower() in taken else one.name)
        for one in right.fields
    }
    return (
        JoinSide(
            left,
            {one.name: one.name for one in left.fields},
            node.after,
            node.before,
            node.how in {"left", "full"},
            node.after + right.hold,
            _kept(left, right, node.after),
        ),
        JoinSide(
            right,
            names,
            node.before,
            node.after,
            node.how in {"right", "full"},
            node.before + left.hold,
            _kept(right, left, node.before),
        ),
    )


def _kept(side: Stream, other: Stream, reach: int) -> int:
    own = (side.bound or 0) if side.is_changelog else 0
    return max(own, reach + max(other.bound or 0, other.hold))


def _joined(graph: Graph, node: JoinNode) -> Stream:
    """Return the rows of a join: a pair has the later event time of both, or that of the only outer side."""
    sides = left, right = join_sides(graph, node)
    fields = {
        name: replace(one, name=name, optional=one.optional or (other.is_outer and name not in node.key), alias=())
        for side, other in ((right, left), (left, right))
        for one in side.stream.fields
        for name in [side.names[one.name]]
    }
    ordered = dict.fromkeys((*left.names.values(), *right.names.values()))
    waits = [side.wait for side in sides if side.is_outer]
    ends = [side.reach + (other.stream.bound or 0) for side, other in ((left, right), (right, left)) if side.is_outer]
    of = {"left": left, "right": right}.get(node.how)
    time = left.stream.time if of is None else of.stream.time
    return Stream(
        tuple(fields[name] for name in ordered),
        time if of is not None else replace(time, field=_NO_FIELD, sent=None, future=None),
        tuple(dict.fromkeys(one for side in sides for one in side.stream.sources)),
        is_changelog=bool(waits) or any(side.stream.is_changelog for side in sides),
        hold=max(*(side.stream.hold for side in sides), *waits),
        lateness=max(*(side.stream.bound or 0 for side in sides), *ends),
        has_id=True,
    )


_NO_FIELD: Final = "__time"
"""In the place of the field with the event time where no field has it."""


def _results(graph: Graph, node: ResultNode) -> Stream:
    """Return the rows of a window as a stream; their event time is the last microsecond of the window."""
    pipeline = view_of(graph, node)
    types = {one.name: one.type for one in record_fields(pipeline)}
    given = stream_of(graph, node.input)
    terms: list[tuple[str, DataType]] = []
    fields = [Field("window_start", TimestampType("micros")), Field("window_end", TimestampType("micros"))]
    for name in pipeline.key:
        if name not in types:
            msg = f"the key {name!r} of {node.name!r} is not a field"
            raise PipelineError(msg)
        fields.append(Field(name, types[name]))
    if isinstance(pipeline, Pipeline):
        fields += [Field(one.name, one.type, one.nullable) for one in results(pipeline)]
        terms = [
            (one.name, dict(given.terms).get(argument.column, argument.type))
            for one, of in zip(pipeline.aggregates, arguments(pipeline), strict=True)
            if isinstance(one.function, Sum)
            for argument in of
        ]
    elif isinstance(pipeline, ProcessPipeline):
        fields += [Field(one.name, one.type, optional=True) for one in pipeline.process.returns]
    time = replace(given.time, field="window_end", sent=None, future=None)
    lateness = pipeline.emit.lateness if isinstance(pipeline, Pipeline) else 0
    return Stream(
        tuple(fields),
        time,
        given.sources,
        is_changelog=True,
        hold=given.hold,
        lateness=lateness,
        terms=tuple(terms),
    )


def view_of(graph: Graph, node: KeyedNode | SinkNode) -> View:
    """Return a node with state as a short form of its own, into its first sink (of a sink: of a stream as it is)."""
    sinks = [node] if isinstance(node, SinkNode) else [*graph.sinks_of(node.name), *graph.sinks_below(node)]
    return _view(graph, node, sinks[0].sink)


def _view(graph: Graph, node: KeyedNode | SinkNode, sink: Sink) -> View:
    if isinstance(node, JoinNode):
        joined = stream_of(graph, node.name)
        return RecordStream(
            graph.name,
            joined.sources[0].source,
            Decode(joined.fields),
            joined.time,
            node.key,
            sink,
            graph.key_groups,
            has_id=True,
        )
    given, stream = graph.producer(node.input), stream_of(graph, node.input)
    if isinstance(given, SourceNode):
        source, decode, time, before = given, given.decode, given.time, given.derive
    else:
        source, decode, time, before = stream.sources[0], Decode(stream.fields), stream.time, ()
    match node:
        case WindowNode():
            # nothing is too late inside a graph: a window over windows takes all that these give
            emit = replace(node.emit, lateness=stream.lateness) if stream.is_changelog else node.emit
            return Pipeline(
                graph.name,
                source.source,
                decode,
                time,
                node.key,
                node.window,
                node.aggregates,
                emit,
                sink,
                graph.key_groups,
                before + node.derive,
                node.salt,
            )
        case ProcessNode():
            return ProcessPipeline(
                graph.name,
                source.source,
                decode,
                time,
                node.key,
                node.process,
                sink,
                graph.key_groups,
                before + node.derive,
                node.at_end,
            )
        case DeduplicateNode(key=key):
            return RecordStream(
                graph.name, source.source, decode, time, key, sink, graph.key_groups, before, has_id=stream.has_id
            )
        case SinkNode():
            return RecordStream(
                graph.name, source.source, decode, time, (), sink, graph.key_groups, before, has_id=stream.has_id
            )
        case _:
            assert_never(node)


def result_pipelines(graph: Graph) -> dict[str, AnyPipeline]:
    """Return the nodes whose rows are results by name, each as a short form."""
    found = {node.name: view_of(graph, node) for node in graph.keyed if isinstance(node, ResultNode)}
    return {name: one for name, one in found.items() if isinstance(one, AnyPipeline)}


def sink_view(graph: Graph, sink: SinkNode) -> View:
    """Return the node whose rows a sink takes as a short form, or the stream that it takes."""
    node = graph.producer(sink.input)
    return _view(graph, node if isinstance(node, ResultNode) else sink, sink.sink)


def sink_views(graph: Graph) -> dict[str, View]:
    """Return what each sink takes, by its name."""
    return {sink.name: sink_view(graph, sink) for sink in graph.sinks}
