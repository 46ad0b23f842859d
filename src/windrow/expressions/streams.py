"""Streams of a graph: the fields of each, and what the operator of each node with state is built from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, TypeVar, assert_never

from windrow import model as m
from windrow.errors import PipelineError
from windrow.expressions.analyse import Expression, analyse
from windrow.expressions.inputs import OperatorSpec, WindowSpec, arguments, nullable_fields, record_fields
from windrow.expressions.results import results


@dataclass(frozen=True)
class Stream:
    """What flows between two nodes: records with these fields, an optional one of which can be null.

    The records of a changelog are changes: rows that were added, and rows that were taken back. `rows_of` says what
    makes them. `sources` are those that they come from, `time` how the first tells event time. A change can come `hold`
    microseconds behind its event time, by the watermark, and be on time; none comes `bound` or more behind it, counted
    from the end of the window whose row it changes; None is without an end. With `has_id` several can have one place
    in a log: their `ID` names what they are made of, and the branch of a union. A table has one row for each `key`; the
    versions of its rows (`is_versions`) say which of them remove it. `terms` are the types of what the sums among the
    fields are sums of: a sum of sums has no more digits than one of their terms. Records that are changes of the rows
    of a database say which of them removes its row; only those lack the fields `lacking` (None: they are no changes).
    """

    fields: tuple[m.Field, ...]
    time: m.EventTime
    sources: tuple[m.SourceNode, ...]
    bound: int | None
    is_changelog: bool = False
    rows_of: Literal["records", "windows", "joins", "elements", "tables", "processes"] = "records"
    hold: int = 0
    has_id: bool = False
    key: tuple[str, ...] = ()
    is_versions: bool = False
    terms: tuple[tuple[str, m.DataType], ...] = ()
    lacking: tuple[str, ...] | None = None


@lru_cache(maxsize=256)
def stream_of(graph: m.Graph, name: str) -> Stream:  # noqa: C901 - a case for each kind of node
    """Return the stream of that name; raise PipelineError for an expression that is wrong."""
    node = graph.producer(name)
    if isinstance(node, m.FilterNode):
        return replace(stream_of(graph, node.input), lacking=None)
    match node:
        case m.SourceNode():
            nullable = nullable_fields(node)
            fields = tuple(
                m.Field(record_field.name, record_field.type, record_field.name in nullable)
                for record_field in record_fields(node)
            )
            found = Stream(fields, node.time, (node,), node.lateness, lacking=_lacking(node))
        case m.SelectNode():
            given = united(graph, node)
            fields = _selected(given, node)
            is_keyed = {field.name for field in fields}.issuperset(given.key)
            # some changes of rows are no table
            lacking = None if given.lacking is None or node.where is not None else _lacking_of(given, node)
            found = replace(given, fields=fields, key=given.key if is_keyed else (), lacking=lacking)
        case m.FlatMapNode():
            given = stream_of(graph, node.input)
            found = replace(given, fields=exploded(given, node), rows_of="elements", has_id=True, key=(), lacking=None)
        case m.TableNode():
            found = _table(graph, node, name)
        case m.JoinNode():
            found = _joined(graph, node)
        case m.LookupNode():
            found = _looked_up(graph, node)
        case m.TableJoinNode():
            found = _tables_joined(graph, node)
        case m.WindowNode() | m.ProcessNode() | m.RulesNode():
            found = _results(graph, node)
        case m.SinkNode():
            raise KeyError(name)
        case _:
            assert_never(node)
    return found


def _lacking(node: m.SourceNode) -> tuple[str, ...] | None:
    """Return the fields that only the record of a deleted row lacks; None if records are no changes of rows."""
    if node.source.format != "debezium":
        return None
    always = nullable_fields(replace(node, source=node.source.decoded))
    return tuple(
        record_field.name for record_field in record_fields(node) if record_field.name in nullable_fields(node) - always
    )


def _lacking_of(given: Stream, node: m.SelectNode) -> tuple[str, ...]:
    """Return which fields of a selection only the record of a deleted row lacks."""
    lacking = given.lacking or ()
    fields = tuple(replace(field, optional=field.optional and field.name not in lacking) for field in given.fields)
    derived = (name for name, one in _derived(replace(given, fields=fields), node) if not one.nullable)
    return (*lacking, *derived)


def united(graph: m.Graph, node: m.SelectNode) -> Stream:
    """Return the union of a node's inputs; raise PipelineError if they do not have the same fields."""
    first, *others = (stream_of(graph, name) for name in node.inputs)
    for name, other in zip(node.inputs[1:], others, strict=True):
        if _types(other) != _types(first):
            msg = (
                f"the streams of a union have the same fields, but {node.inputs[0]!r} has {_listed(first)}, and "
                f"{name!r} has {_listed(other)}; select the same ones in each"
            )
            raise PipelineError(msg)
        if other.rows_of != first.rows_of:
            msg = (
                f"{node.inputs[0]!r} and {name!r} have no union: one has {ROWS_OF[first.rows_of]}, and the other "
                f"{ROWS_OF[other.rows_of]}"
            )
            raise PipelineError(msg)
        if other.is_changelog != first.is_changelog:
            msg = f"{node.inputs[0]!r} and {name!r} have no union: one has records, the other rows that change"
            raise PipelineError(msg)
        if (other.lacking is None) != (first.lacking is None):
            msg = (
                f"{node.inputs[0]!r} and {name!r} have no union: one has changes of rows (`format: debezium`), the "
                "other has not; choose records of the changes before, with a `where`"
            )
            raise PipelineError(msg)
    optional = {field.name for stream in (first, *others) for field in stream.fields if field.optional}
    sources = tuple(dict.fromkeys(source for stream in (first, *others) for source in stream.sources))
    return replace(
        first,
        fields=tuple(replace(field, optional=field.name in optional) for field in first.fields),
        sources=sources,
        hold=max(stream.hold for stream in (first, *others)),
        bound=_greatest(first.bound, *(stream.bound for stream in others)),
        has_id=any(stream.has_id for stream in (first, *others)) or m.is_by_branch(graph, node),
        key=() if others else first.key,
        lacking=None if first.lacking is None else _all_lacking(first, *others),
    )


def _all_lacking(*streams: Stream) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for stream in streams for name in stream.lacking or ()))


ROWS_OF: Final = {
    "records": "records",
    "windows": "the rows of windows",
    "joins": "the rows of a join",
    "elements": "the elements of arrays",
    "tables": "the rows of a table",
    "processes": "the rows of a process function",
}
"""What flows in a stream, in words."""


def _greatest(*bounds: int | None) -> int | None:
    """Return the greatest of some bounds, of which None is without an end."""
    return None if None in bounds else max(bound for bound in bounds if bound is not None)


def _types(stream: Stream) -> dict[str, m.DataType]:
    return {field.name: _type(field.type) for field in stream.fields}


def is_same_type(one: m.DataType, other: m.DataType) -> bool:
    """Return whether values of two types are alike; how JSON has a timestamp does not matter."""
    return _type(one) == _type(other)


def _type(type_: m.DataType) -> m.DataType:
    match type_:
        case m.TimestampType():
            return m.TimestampType("micros")
        case m.ArrayType(m.StructType(fields), optional):
            return m.ArrayType(
                m.StructType(tuple(replace(field, type=_type(field.type)) for field in fields)), optional
            )
        case m.ArrayType(m.TimestampType(), optional):
            return m.ArrayType(m.TimestampType("micros"), optional)
        case _:
            return type_


def _listed(stream: Stream) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in stream.fields)


def _derived(given: Stream, node: m.SelectNode) -> list[tuple[str, Expression]]:
    nullable = frozenset(field.name for field in given.fields if field.optional)
    return [(one.name, analyse(one.sql, given.fields, nullable)) for one in node.derive]


def selected_expressions(graph: m.Graph, node: m.SelectNode) -> list[tuple[str, Expression]]:
    """Return the fields that a selection adds, by name."""
    return _derived(united(graph, node), node)


def _selected(given: Stream, node: m.SelectNode) -> tuple[m.Field, ...]:
    fields = (*given.fields, *(m.Field(name, one.type, one.nullable) for name, one in _derived(given, node)))
    if node.select is None:
        return fields
    by_name = {field.name: field for field in fields}
    for name in node.select:
        if name not in by_name:
            msg = f"{name!r} is not a field of the stream; it has {', '.join(by_name)}"
            raise PipelineError(msg)
    return tuple(by_name[name] for name in node.select)


def exploded(given: Stream, node: m.FlatMapNode) -> tuple[m.Field, ...]:
    """Return the fields of the elements of an array; raise PipelineError if it is none, or if two have one name."""
    array = next((field for field in given.fields if field.name == node.field), None)
    if array is None or not isinstance(array.type, m.ArrayType):
        arrays = [field.name for field in given.fields if isinstance(field.type, m.ArrayType)]
        is_what = "is not a field" if array is None else f"is a {array.type}, not an array"
        msg = f"{node.field!r} {is_what} of the stream; its arrays are {', '.join(arrays) or 'none'}"
        raise PipelineError(msg)
    others = [field for field in given.fields if field is not array]
    element, may_lack = array.type.element, node.outer or array.type.optional
    if isinstance(element, m.StructType):
        made = [replace(field, optional=field.optional or may_lack) for field in element.fields]
    else:
        made = [m.Field(node.element or node.field, element, may_lack)]
    if node.position is not None:
        made.append(m.Field(node.position, m.LongType(), node.outer))
    names = [other.name.lower() for other in others]
    for one in made:
        if one.name.lower() in names:
            msg = (
                f"there are two fields {one.name!r} (SQL ignores case): give the one of the record another name before "
                "with derive and select, or leave it out"
            )
            raise PipelineError(msg)
        names.append(one.name.lower())
    return (*others, *made)


@dataclass(frozen=True)
class JoinSide:
    """One of the streams that a join takes, and by the name of each of its fields that which it has in the join.

    The records stay alone without a partner if it `is_outer`.
    """

    stream: Stream
    names: dict[str, str]
    is_outer: bool


@dataclass(frozen=True)
class JoinSpan:
    """Which partners a record of a side has in an interval join, and for how long it is kept (microseconds).

    A partner of its record is at most `reach` later, and at most `back` earlier. Once the watermark is `wait` past the
    record's event time, no partner is on time any more. `kept` is how long one can still change the join.
    """

    reach: int
    back: int
    wait: int
    kept: int


def join_sides(graph: m.Graph, node: m.AnyJoinNode) -> tuple[JoinSide, JoinSide]:
    """Return the left and the right side of a join; a field of the right that the left has, too, ends in `_right`."""
    left, right = (stream_of(graph, name) for name in node.inputs)
    taken = {field.name.lower() for field in left.fields}
    keys = dict(zip(node.right_key, node.key, strict=True))
    names = {
        field.name: keys.get(field.name, f"{field.name}_right" if field.name.lower() in taken else field.name)
        for field in right.fields
    }
    return (
        JoinSide(left, {field.name: field.name for field in left.fields}, node.how in {"left", "full"}),
        JoinSide(right, names, node.how in {"right", "full"}),
    )


def join_spans(graph: m.Graph, node: m.JoinNode) -> tuple[JoinSpan, JoinSpan]:
    """Return the spans of the left and the right side of an interval join."""
    left, right = stream_of(graph, node.left), stream_of(graph, node.right)
    return (
        JoinSpan(node.after, node.before, node.after + right.hold, _kept(left, right, node.after)),
        JoinSpan(node.before, node.after, node.before + left.hold, _kept(right, left, node.before)),
    )


def _kept(side: Stream, other: Stream, reach: int) -> int:
    own = (side.bound or 0) if side.is_changelog else 0
    return max(own, reach + max(other.bound or 0, other.hold))


def _joined_fields(node: m.AnyJoinNode, left: JoinSide, right: JoinSide) -> tuple[m.Field, ...]:
    """Return the fields of both sides; those of a side can be null where a record of the other is alone."""
    fields = {
        name: replace(field, name=name, optional=field.optional or (other.is_outer and name not in node.key), alias=())
        for side, other in ((right, left), (left, right))
        for field in side.stream.fields
        for name in [side.names[field.name]]
    }
    return tuple(fields[name] for name in dict.fromkeys((*left.names.values(), *right.names.values())))


def _joined(graph: m.Graph, node: m.JoinNode) -> Stream:
    """Return the rows of a join: a pair has the later event time of both, or that of the only outer side."""
    left, right = sides = join_sides(graph, node)
    outer = [(side, span) for side, span in zip(sides, join_spans(graph, node), strict=True) if side.is_outer]
    others = {id(left): right, id(right): left}
    of = {"left": left, "right": right}.get(node.how)
    ends = [span.reach + (others[id(side)].stream.bound or 0) for side, span in outer]
    return Stream(
        _joined_fields(node, left, right),
        _without_field(left.stream.time) if of is None else _time_of(of),
        tuple(dict.fromkeys(source for side in sides for source in side.stream.sources)),
        _greatest(*(side.stream.bound for side in sides), *ends),
        is_changelog=bool(outer) or any(side.stream.is_changelog for side in sides),
        rows_of="joins",
        hold=max(*(side.stream.hold for side in sides), *(span.wait for _, span in outer)),
        has_id=True,
    )


def _table(graph: m.Graph, node: m.TableNode, name: str) -> Stream:
    """Return the changelog of a table, or the versions of its rows."""
    given = stream_of(graph, node.input)
    # rows have what only the records that remove one lack
    lacking = given.lacking or ()
    fields = tuple(replace(field, optional=field.optional and field.name not in lacking) for field in given.fields)
    given = replace(given, fields=fields, lacking=None)
    if name != node.name:
        return replace(given, is_versions=True)
    return replace(given, bound=None, is_changelog=True, rows_of="tables", has_id=True, key=node.key)


def revise_of(graph: m.Graph, node: m.LookupNode) -> int:
    """Return how far the watermark can be past a record when a version replaces its row (microseconds)."""
    if node.as_of == "order":
        return 0
    if node.revise is not None:
        return node.revise
    left, right = (stream_of(graph, name) for name in node.inputs)
    return left.bound or 0 if right.bound is None else right.bound


def _looked_up(graph: m.Graph, node: m.LookupNode) -> Stream:
    """Return records with the fields of a table's row: changes, if another version can replace the row."""
    left, right = join_sides(graph, node)
    given = left.stream
    fields = _joined_fields(node, left, replace(right, is_outer=False))
    if node.how == "left":
        fields = _joined_fields(node, replace(left, is_outer=True), right)
    sources = tuple(dict.fromkeys((*given.sources, *right.stream.sources)))
    made = replace(given, fields=fields, time=_time_of(left), sources=sources, key=(), terms=(), lacking=None)
    if node.as_of == "order":
        return made
    return replace(
        made, bound=_greatest(given.bound, revise_of(graph, node)), is_changelog=True, rows_of="joins", has_id=True
    )


def _tables_joined(graph: m.Graph, node: m.TableJoinNode) -> Stream:
    """Return the join of two tables; its key is that of a side whose rows have one partner at most, else that of both.

    Where rows of a side can be alone, the other has no key in them.
    """
    left, right = join_sides(graph, node)
    keys = [tuple(side.names[name] for name in side.stream.key if name in side.names) for side in (left, right)]
    has_one = [bool(key) and set(node.key).issuperset(key) for key in keys]
    if has_one[1] and node.how in {"inner", "left"}:
        key = keys[0]
    elif has_one[0] and node.how in {"inner", "right"}:
        key = keys[1]
    else:
        key = tuple(dict.fromkeys([*keys[0], *keys[1]])) if node.how == "inner" and all(keys) else ()
    return Stream(
        _joined_fields(node, left, right),
        _without_field(left.stream.time),
        tuple(dict.fromkeys(source for side in (left, right) for source in side.stream.sources)),
        None,
        is_changelog=True,
        rows_of="tables",
        hold=max(left.stream.hold, right.stream.hold),
        has_id=True,
        key=key,
    )


_NO_FIELD: Final = "__time"
"""In the place of the field with the event time where no field has it."""


def _without_field(time: m.EventTime) -> m.EventTime:
    """Return the event time of rows of which no field has it."""
    return replace(time, field=_NO_FIELD, sent=None, future=None)


def _time_of(side: JoinSide) -> m.EventTime:
    """Return the event time of the rows of a join that have that of a side.

    A field of the other side can have the name, and be null, if the side has selected others or gives its own another.
    """
    time = side.stream.time
    return replace(time, field=side.names.get(time.field, _NO_FIELD), sent=side.names.get(time.sent or ""))


def _results(graph: m.Graph, node: m.ResultNode) -> Stream:
    """Return the rows of a window as a stream; their event time is the last microsecond of the window.

    Those of a process are records, at the event time of the call that emitted them.
    """
    spec, given = spec_of(graph, node), stream_of(graph, node.input)
    types = {record_field.name: record_field.type for record_field in record_fields(spec)}
    for name in node.key:
        if name not in types:
            msg = f"the key {name!r} of {node.name!r} is not a field"
            raise PipelineError(msg)
    key = tuple(m.Field(name, types[name]) for name in node.key)
    match node:
        case m.ProcessNode(process=process):
            # a timer for a time in the past is called at the watermark of the call that set it
            return Stream(
                (*key, *(m.Field(one.name, one.type, optional=True) for one in process.returns)),
                _without_field(given.time),
                given.sources,
                None if given.bound is None else max(given.bound, 1),
                rows_of="processes",
                hold=given.hold,
                has_id=True,
            )
        case m.RulesNode(rules=rules):
            texts = ("alert_id", "rule", "severity", "rule_hash", "subject", "text", "evidence")
            event_time = m.Field("event_time", m.TimestampType("micros"))
            return Stream(
                (*key, *(m.Field(name, m.StringType()) for name in texts), event_time),
                replace(given.time, field="event_time", sent=None, future=None),
                given.sources,
                rules.recent.within + rules.lateness,
                is_changelog=True,
                has_id=True,
                key=("alert_id",),
            )
        case m.WindowNode():
            return _windows(given, spec_of(graph, node), key)
        case _:
            assert_never(node)


def _windows(given: Stream, spec: WindowSpec, key: tuple[m.Field, ...]) -> Stream:
    """Return the rows of windows, or those of an aggregate over all rows."""
    window = spec.node.window
    is_running = isinstance(window, m.Global)
    # what a record joins ends after it, which can be a gap before the end of its proto-window
    lateness = spec.lateness + (window.gap if isinstance(window, m.Session) else 0)
    bounds = tuple(m.Field(name, m.TimestampType("micros")) for name in ("window_start", "window_end"))
    terms = tuple(
        (one.name, dict(given.terms).get(argument.column, argument.type))
        for one, of in zip(spec.node.aggregates, arguments(spec), strict=True)
        if isinstance(one.function, m.Sum)
        for argument in of
    )
    return Stream(
        (*bounds, *key, *(m.Field(result.name, result.type, result.nullable) for result in results(spec))),
        replace(given.time, field="window_end", sent=None, future=None),
        given.sources,
        None if is_running else lateness,
        is_changelog=True,
        rows_of="tables" if is_running else "windows",
        hold=given.hold,
        has_id=True,
        key=spec.key if is_running else ("window_start", "window_end", *spec.key),
        terms=terms,
    )


N = TypeVar("N", bound=m.KeyedNode | m.SinkNode)


def spec_of(graph: m.Graph, node: N) -> OperatorSpec[N]:
    """Return what the operator of a node is built from."""
    if isinstance(node, m.AnyJoinNode):
        joined = stream_of(graph, node.name)
        return OperatorSpec(
            graph.name,
            node,
            joined.sources[0].source.decoded,
            m.Decode(joined.fields),
            (),
            joined.time,
            node.key,
            graph.key_groups,
            has_id=joined.has_id,
        )
    given = graph.producer(node.input)
    if isinstance(given, m.SourceNode) and not isinstance(node, m.TableNode):
        stream, source, decode, time, derive = None, given.source, given.decode, given.time, given.derive
    else:
        stream = stream_of(graph, node.input)
        source, decode, time, derive = stream.sources[0].source.decoded, m.Decode(stream.fields), stream.time, ()
    if isinstance(node, m.ResultNode):
        # no aggregate can use an array, so none goes there
        decode = m.Decode(tuple(field for field in decode.fields if not isinstance(field.type, m.ArrayType)))
        derive += node.derive
    row_key = stream.key if stream is not None and isinstance(node, m.SinkNode) else ()
    key = node.key if not isinstance(node, m.SinkNode) else row_key if graph.is_exchanged(node) else ()
    lateness = node.emit.lateness if isinstance(node, m.WindowNode) else 0
    if isinstance(node, m.WindowNode) and stream is not None and stream.is_changelog:
        # nothing is too late inside a graph: a window over windows takes all that these give
        lateness = stream.bound or 0
    return OperatorSpec(
        graph.name,
        node,
        source,
        decode,
        derive,
        time,
        key,
        graph.key_groups,
        lateness,
        has_id=stream is not None and stream.has_id,
        row_key=row_key,
    )


def decoding_spec(graph: m.Graph) -> OperatorSpec[m.ResultNode]:
    """Return what the only operator of a short form is built from, with all fields that its source decodes."""
    (node,) = (node for node in graph.keyed if isinstance(node, m.ResultNode))
    return replace(spec_of(graph, node), decode=graph.sources[0].decode)
