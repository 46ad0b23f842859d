"""The streams of a graph with their fields, and the specifications of the operators."""

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
    """The records between two nodes, and their fields; an optional field can be null.

    In a changelog, the records are changes: rows that were added or retracted. The kind of the rows is `rows_of`. The
    records come from `sources`, and `time` is the event time of the first source. A change can arrive up to `hold`
    microseconds behind its event time, measured by the watermark, and still be on time. No change arrives `bound` or
    more behind it, counted from the end of the window whose row it changes; None is unbounded. If `has_id` is true,
    several records can have the same place in a log; their `ID` then has the records from which they were made, and the
    branch of a union. A table has one row for each `key`, and a version of a row (`is_versions`) says whether it
    removes the row. For fields that are sums, `terms` has the types of the terms, because a sum of sums has no more
    digits than one of their terms. Records that are row changes of a database say whether they remove the row. Only
    records that do so lack the fields in `lacking`, which is None if the records are not row changes.
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
    """Return the stream with the given name; raise PipelineError for an invalid expression."""
    node = graph.producer(name)
    if isinstance(node, m.FilterNode):
        return replace(stream_of(graph, node.input), lacking=None)
    match node:
        case m.SourceNode():
            found = _of_source(node, node)
        case m.ChangesNode():
            source = source_of(graph, node)
            found = _of_source(source, node.decoded(source))
        case m.SelectNode():
            given = united(graph, node)
            fields = _selected_fields(given, node)
            is_keyed = {field.name for field in fields}.issuperset(given.key)
            # a part of the row changes is no table
            lacking = None if given.lacking is None or node.where is not None else _lacking_of(given, node)
            found = replace(given, fields=fields, key=given.key if is_keyed else (), lacking=lacking)
        case m.FlatMapNode():
            given = stream_of(graph, node.input)
            found = replace(
                given, fields=element_fields(given, node), rows_of="elements", has_id=True, key=(), lacking=None
            )
        case m.TableNode():
            found = _table(graph, node, name)
        case m.JoinNode():
            found = _interval_join(graph, node)
        case m.LookupNode():
            found = _lookup(graph, node)
        case m.TableJoinNode():
            found = _table_join(graph, node)
        case m.WindowNode() | m.ProcessNode() | m.RulesNode():
            found = _results(graph, node)
        case m.SinkNode():
            raise KeyError(name)
        case _:
            assert_never(node)
    return found


def source_of(graph: m.Graph, node: m.ChangesNode) -> m.SourceNode:
    """Return the source of the changes of a table; raise PipelineError if the input is not a source."""
    source = graph.producer(node.input)
    if not isinstance(source, m.SourceNode):
        msg = f"{node.input!r} is not a source: `changes` are read from a source of row changes"
        raise PipelineError(msg)
    return source


def _of_source(source: m.SourceNode, decoded: m.SourceNode) -> Stream:
    """Return the records of a source, decoded as by `decoded`."""
    nullable = nullable_fields(decoded)
    fields = tuple(m.Field(field.name, field.type, field.name in nullable) for field in record_fields(decoded))
    return Stream(fields, source.time, (source,), source.lateness, lacking=_lacking(decoded))


def _lacking(node: m.SourceNode) -> tuple[str, ...] | None:
    """Return the fields that only the record of a deleted row lacks, or None if the records are not row changes."""
    if node.source.format != "debezium":
        return None
    lacking = nullable_fields(node) - nullable_fields(replace(node, source=node.source.decoded))
    return tuple(field.name for field in record_fields(node) if field.name in lacking)


def _lacking_of(given: Stream, node: m.SelectNode) -> tuple[str, ...]:
    """Return the fields of a selection that only the record of a deleted row lacks."""
    derived = _derived_expressions(replace(given, fields=_row_fields(given)), node)
    return (*(given.lacking or ()), *(name for name, expression in derived if not expression.nullable))


def _row_fields(stream: Stream) -> tuple[m.Field, ...]:
    """Return the fields of rows; fields that only the record of a deleted row lacks are not optional."""
    lacking = stream.lacking or ()
    return tuple(replace(field, optional=field.optional and field.name not in lacking) for field in stream.fields)


def united(graph: m.Graph, node: m.SelectNode) -> Stream:
    """Return the union of a node's inputs; raise PipelineError if their fields differ."""
    first, *others = (stream_of(graph, name) for name in node.inputs)
    for name, other in zip(node.inputs[1:], others, strict=True):
        if _types(other) != _types(first):
            msg = (
                f"the streams of a union must have the same fields, but {node.inputs[0]!r} has {_field_list(first)}, "
                f"and {name!r} has {_field_list(other)}; select the same fields in each"
            )
            raise PipelineError(msg)
        if other.rows_of != first.rows_of:
            msg = (
                f"{node.inputs[0]!r} and {name!r} cannot be united: one has {ROWS_OF[first.rows_of]}, and the other "
                f"has {ROWS_OF[other.rows_of]}"
            )
            raise PipelineError(msg)
        if other.is_changelog != first.is_changelog:
            msg = f"{node.inputs[0]!r} and {name!r} cannot be united: one has records, the other has rows that change"
            raise PipelineError(msg)
        if (other.lacking is None) != (first.lacking is None):
            msg = (
                f"{node.inputs[0]!r} and {name!r} cannot be united: one has changes of rows (`format: debezium`), the "
                "other does not; first select some of the changes with a `where`"
            )
            raise PipelineError(msg)
    streams = (first, *others)
    optional = {field.name for stream in streams for field in stream.fields if field.optional}
    lacking = tuple(dict.fromkeys(name for stream in streams for name in stream.lacking or ()))
    return replace(
        first,
        fields=tuple(
            replace(field, type=_common_list(field, streams), optional=field.name in optional) for field in first.fields
        ),
        sources=_sources(*streams),
        hold=max(stream.hold for stream in streams),
        bound=_greatest(*(stream.bound for stream in streams)),
        has_id=any(stream.has_id for stream in streams) or m.is_by_branch(graph, node),
        key=() if others else first.key,
        lacking=None if first.lacking is None else lacking,
    )


def _common_list(field: m.Field, streams: tuple[Stream, ...]) -> m.DataType:
    """Return the type of a field in a union, in which a list stays one only if it has the same elements everywhere."""
    types = {other.type for stream in streams for other in stream.fields if other.name == field.name}
    return m.StringType() if isinstance(field.type, m.JsonListType) and len(types) > 1 else field.type


def _sources(*streams: Stream) -> tuple[m.SourceNode, ...]:
    """Return the sources of several streams without duplicates."""
    return tuple(dict.fromkeys(source for stream in streams for source in stream.sources))


ROWS_OF: Final = {
    "records": "records",
    "windows": "the rows of windows",
    "joins": "the rows of a join",
    "elements": "the elements of arrays",
    "tables": "the rows of a table",
    "processes": "the rows of a process function",
}
"""The kinds of rows as text for messages."""


def _greatest(*bounds: int | None) -> int | None:
    """Return the greatest bound, or None if one of the bounds is None (unbounded)."""
    return None if None in bounds else max(bound for bound in bounds if bound is not None)


def _types(stream: Stream) -> dict[str, m.DataType]:
    return {field.name: _type(field.type) for field in stream.fields}


def is_same_type(left: m.DataType, right: m.DataType) -> bool:
    """Return True if two types have the same values, regardless of the form of timestamps and lists in JSON."""
    return _type(left) == _type(right)


def _type(type_: m.DataType) -> m.DataType:
    match type_:
        case m.TimestampType():
            return m.TimestampType("micros")
        case m.JsonListType():
            return m.StringType()
        case m.ArrayType(m.StructType(fields), optional):
            return m.ArrayType(
                m.StructType(tuple(replace(field, type=_type(field.type)) for field in fields)), optional
            )
        case m.ArrayType(m.TimestampType(), optional):
            return m.ArrayType(m.TimestampType("micros"), optional)
        case _:
            return type_


def _field_list(stream: Stream) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in stream.fields)


def _derived_expressions(given: Stream, node: m.SelectNode) -> list[tuple[str, Expression]]:
    nullable = frozenset(field.name for field in given.fields if field.optional)
    return [(derive.name, analyse(derive.sql, given.fields, nullable)) for derive in node.derive]


def selected_expressions(graph: m.Graph, node: m.SelectNode) -> list[tuple[str, Expression]]:
    """Return the name and expression of each field that a selection adds."""
    return _derived_expressions(united(graph, node), node)


def _selected_fields(given: Stream, node: m.SelectNode) -> tuple[m.Field, ...]:
    derived = _derived_expressions(given, node)
    fields = (*given.fields, *(m.Field(name, expression.type, expression.nullable) for name, expression in derived))
    if node.select is None:
        return fields
    by_name = {field.name: field for field in fields}
    for name in node.select:
        if name not in by_name:
            msg = f"{name!r} is not a field of the stream; its fields are {', '.join(by_name)}"
            raise PipelineError(msg)
    return tuple(by_name[name] for name in node.select)


def element_fields(given: Stream, node: m.FlatMapNode) -> tuple[m.Field, ...]:
    """Return the fields of the records that a flat_map creates from an array's elements.

    Raise PipelineError if the field is not an array, or if two fields would have the same name.
    """
    array = next((field for field in given.fields if field.name == node.field), None)
    if array is None or not isinstance(array.type, m.ArrayType):
        arrays = [field.name for field in given.fields if isinstance(field.type, m.ArrayType)]
        problem = "is not a field" if array is None else f"is a {array.type}, not an array"
        msg = f"{node.field!r} {problem} of the stream; its arrays are {', '.join(arrays) or 'none'}"
        raise PipelineError(msg)
    others = [field for field in given.fields if field is not array]
    element, may_lack = array.type.element, node.outer or array.type.optional
    if isinstance(element, m.StructType):
        new = [replace(field, optional=field.optional or may_lack) for field in element.fields]
    else:
        new = [m.Field(node.element or node.field, element, may_lack)]
    if node.position is not None:
        new.append(m.Field(node.position, m.LongType(), node.outer))
    names = [field.name.lower() for field in others]
    for field in new:
        if field.name.lower() in names:
            msg = (
                f"there are two fields {field.name!r} (SQL ignores case): first rename the record's field "
                "with derive and select, or leave it out"
            )
            raise PipelineError(msg)
        names.append(field.name.lower())
    return (*others, *new)


@dataclass(frozen=True)
class JoinSide:
    """An input of a join, and the name of each of its fields in the join.

    If `is_outer` is true, records without a partner are emitted alone.
    """

    stream: Stream
    names: dict[str, str]
    is_outer: bool


@dataclass(frozen=True)
class JoinSpan:
    """The interval of a record's partners in an interval join, and how long the record is kept (microseconds).

    A partner is at most `reach` later and at most `back` earlier than the record. When the watermark is `wait` past the
    record's event time, no partner can be on time any more. A late partner can change the join until the watermark is
    `kept` past the event time.
    """

    reach: int
    back: int
    wait: int
    kept: int


def join_sides(graph: m.Graph, node: m.AnyJoinNode) -> tuple[JoinSide, JoinSide]:
    """Return the left and right side of a join.

    If a right field has the same name as a left field, `_right` is appended to its name.
    """
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
    """Return the spans of the left and right side of an interval join."""
    left, right = stream_of(graph, node.left), stream_of(graph, node.right)
    return _span(left, right, node.after, node.before), _span(right, left, node.before, node.after)


def _span(side: Stream, other: Stream, reach: int, back: int) -> JoinSpan:
    own = (side.bound or 0) if side.is_changelog else 0
    return JoinSpan(reach, back, reach + other.hold, max(own, reach + max(other.bound or 0, other.hold)))


def _join_fields(node: m.AnyJoinNode, left: JoinSide, right: JoinSide) -> tuple[m.Field, ...]:
    """Return the fields of both sides; the fields of a side can be null if the other side is outer."""
    fields = {
        name: replace(field, name=name, optional=field.optional or (other.is_outer and name not in node.key), alias=())
        for side, other in ((right, left), (left, right))
        for field in side.stream.fields
        for name in [side.names[field.name]]
    }
    return tuple(fields[name] for name in dict.fromkeys((*left.names.values(), *right.names.values())))


def _interval_join(graph: m.Graph, node: m.JoinNode) -> Stream:
    """Return the rows of a join.

    A pair has the later of its records' event times or, if exactly one side is outer, the event time of that side.
    """
    left, right = sides = join_sides(graph, node)
    spans = zip(sides, (right, left), join_spans(graph, node), strict=True)
    outer = [(other, span) for side, other, span in spans if side.is_outer]
    of = {"left": left, "right": right}.get(node.how)
    ends = [span.reach + (other.stream.bound or 0) for other, span in outer]
    return Stream(
        _join_fields(node, left, right),
        _without_field(left.stream.time) if of is None else _time_of(of),
        _sources(left.stream, right.stream),
        _greatest(left.stream.bound, right.stream.bound, *ends),
        is_changelog=bool(outer) or left.stream.is_changelog or right.stream.is_changelog,
        rows_of="joins",
        hold=max(left.stream.hold, right.stream.hold, *(span.wait for _, span in outer)),
        has_id=True,
    )


def _table(graph: m.Graph, node: m.TableNode, name: str) -> Stream:
    """Return the changelog of a table, or the versions of its rows."""
    given = stream_of(graph, node.input)
    given = replace(given, fields=_row_fields(given), lacking=None)
    if name != node.name:
        return replace(given, is_versions=True)
    return replace(given, bound=None, is_changelog=True, rows_of="tables", has_id=True, key=node.key)


def revise_of(graph: m.Graph, node: m.LookupNode) -> int:
    """Return for how long a new version can still replace the row of a record (microseconds).

    This is measured by how far the watermark is past the record.
    """
    if node.as_of == "order":
        return 0
    if node.revise is not None:
        return node.revise
    left, right = (stream_of(graph, name) for name in node.inputs)
    return left.bound or 0 if right.bound is None else right.bound


def _lookup(graph: m.Graph, node: m.LookupNode) -> Stream:
    """Return the records of a lookup with the fields of the table's row.

    They are changes if a later version can replace the row.
    """
    left, right = join_sides(graph, node)
    given, fields, sources = left.stream, _join_fields(node, left, right), _sources(left.stream, right.stream)
    found = replace(given, fields=fields, time=_time_of(left), sources=sources, key=(), terms=(), lacking=None)
    if node.as_of == "order":
        return found
    bound = _greatest(given.bound, revise_of(graph, node))
    return replace(found, bound=bound, is_changelog=True, rows_of="joins", has_id=True)


def _table_join(graph: m.Graph, node: m.TableJoinNode) -> Stream:
    """Return the join of two tables.

    Its key is the key of a side whose rows have at most one partner, or else the keys of both sides. A row without a
    partner lacks the key of the other side, so an outer join may have no key.
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
        _join_fields(node, left, right),
        _without_field(left.stream.time),
        _sources(left.stream, right.stream),
        None,
        is_changelog=True,
        rows_of="tables",
        hold=max(left.stream.hold, right.stream.hold),
        has_id=True,
        key=key,
    )


_NO_FIELD: Final = "__time"
"""Name of the event time field if no field has the event time."""


def _without_field(time: m.EventTime) -> m.EventTime:
    """Return the event time settings for rows that have no field with their event time."""
    return replace(time, field=_NO_FIELD, sent=None, future=None)


def _time_of(side: JoinSide) -> m.EventTime:
    """Return the event time of a join whose rows have the event time of one side.

    If that side no longer has the field, a field of the same name can belong to the other side and be null.
    """
    time = side.stream.time
    return replace(time, field=side.names.get(time.field, _NO_FIELD), sent=side.names.get(time.sent or ""))


def _results(graph: m.Graph, node: m.ResultNode) -> Stream:
    """Return the rows of a node with results as a stream.

    The event time of a window's row is the last microsecond of the window. The rows of a process function are records
    with the event time of the call that emitted them.
    """
    spec, given = spec_of(graph, node), stream_of(graph, node.input)
    types = {field.name: field.type for field in record_fields(spec)}
    for name in node.key:
        if name not in types:
            msg = f"the key {name!r} of {node.name!r} is not a field"
            raise PipelineError(msg)
    key = tuple(m.Field(name, types[name]) for name in node.key)
    match node:
        case m.ProcessNode(process=process):
            # a timer for a past time fires at the watermark of the call that set it
            return Stream(
                (*key, *(replace(column, optional=True) for column in process.returns)),
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
            return _window_rows(given, spec_of(graph, node), key)
        case _:
            assert_never(node)


def _window_rows(given: Stream, spec: WindowSpec, key: tuple[m.Field, ...]) -> Stream:
    """Return the stream of rows of windows, or of an aggregate over all rows."""
    window = spec.node.window
    is_running = isinstance(window, m.Global)
    # a session that a record joins ends after it, which can be a gap before the end of its own window
    lateness = spec.lateness + (window.gap if isinstance(window, m.Session) else 0)
    bounds = tuple(m.Field(name, m.TimestampType("micros")) for name in m.WINDOW_BOUNDS)
    terms = tuple(
        (aggregate.name, dict(given.terms).get(argument.column, argument.type))
        for aggregate, of in zip(spec.node.aggregates, arguments(spec), strict=True)
        if isinstance(aggregate.function, m.Sum)
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
        key=spec.key if is_running else (*m.WINDOW_BOUNDS, *spec.key),
        terms=terms,
    )


N = TypeVar("N", bound=m.KeyedNode | m.SinkNode)


def spec_of(graph: m.Graph, node: N) -> OperatorSpec[N]:
    """Return the specification of a node's operator."""
    given = None if isinstance(node, m.AnyJoinNode) else graph.producer(node.input)
    if isinstance(given, m.SourceNode) and not isinstance(node, m.TableNode):
        stream, source, decode, time, derive = None, given.source, given.decode, given.time, given.derive
    else:
        stream = stream_of(graph, node.name if isinstance(node, m.AnyJoinNode) else node.input)
        source, decode, time, derive = stream.sources[0].source.decoded, m.Decode(stream.fields), stream.time, ()
    if isinstance(node, m.ResultNode):
        # no aggregate can read an array
        decode = m.Decode(tuple(field for field in decode.fields if not isinstance(field.type, m.ArrayType)))
        derive += node.derive
    row_key = stream.key if stream is not None and isinstance(node, m.SinkNode) else ()
    key = node.key if not isinstance(node, m.SinkNode) else row_key if graph.is_exchanged(node) else ()
    lateness = node.emit.lateness if isinstance(node, m.WindowNode) else 0
    if isinstance(node, m.WindowNode) and stream is not None and stream.is_changelog:
        # nothing expires inside a graph: a window over windows accepts all of their changes
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
        readers_key=graph.partition_key_of(node),
    )


def decoding_spec(graph: m.Graph) -> OperatorSpec[m.ResultNode]:
    """Return the specification of the only operator of a pipeline in short form, with all fields its source decodes."""
    (node,) = (node for node in graph.keyed if isinstance(node, m.ResultNode))
    return replace(spec_of(graph, node), decode=graph.sources[0].decode)
