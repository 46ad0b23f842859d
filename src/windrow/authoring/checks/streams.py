"""Checks of the streams of a graph: their inputs, expressions, fields and keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from windrow import model as m
from windrow.authoring.checks.base import name_problems
from windrow.authoring.checks.time import too_long
from windrow.declare.findings import Finding, error, warning
from windrow.errors import PipelineError, did_you_mean
from windrow.expressions import (
    ROWS_OF,
    Stream,
    aggregated_texts,
    analyse,
    exploded,
    is_same_type,
    join_sides,
    stream_of,
    united,
)


def section_of(node: m.Node) -> str:
    """Return the section of a node in a graph file."""
    match node:
        case m.SourceNode():
            return "sources"
        case m.SinkNode():
            return "sinks"
        case _:
            return "streams"


def at(node: m.Node, part: str = "") -> str:
    """Return the path of a node in a graph file, or of a part of it."""
    return f"{section_of(node)}.{node.name}" + (f".{part}" if part else "")


def place(graph: m.Graph, node: m.Node, part: str = "") -> str:
    """Return the path of a node, or of a part of it; in a short form, the parts are sections."""
    return part or "source" if graph.is_short else at(node, part)


def part_of(node: m.Node, stream: str) -> str:
    """Return the part of a node that names one of its inputs."""
    if not isinstance(node, m.AnyJoinNode) or stream == node.left:
        return "from"
    return "lookup.table" if isinstance(node, m.LookupNode) else "join.with"


def selected_from(graph: m.Graph, stream: str) -> str:
    """Return the stream above a chain of selections and splits; for another stream, itself."""
    by_name = {name: node for node in graph.nodes for name in m.outputs_of(node)}
    seen: set[str] = set()
    while stream not in seen:
        seen.add(stream)
        match by_name.get(stream):
            case m.SelectNode(inputs=(name,)) | m.SplitNode(input=name) if name in by_name:
                stream = name
            case _:
                break
    return stream


def named_streams(node: m.Node) -> tuple[str, ...]:
    """Return the inputs of a node by the names in its settings."""
    return (node.left, node.right) if isinstance(node, m.AnyJoinNode) else node.inputs


def stream_findings(graph: m.Graph, node: m.StreamNode) -> Iterator[Finding]:  # noqa: C901 - a case for each kind of stream
    """Check the expressions and fields of a stream, and its inputs."""
    try:
        given = united(graph, node) if isinstance(node, m.SelectNode) else stream_of(graph, node.inputs[0])
    except PipelineError as exc:
        if isinstance(node, m.SelectNode) and all(_is_typed(graph, name) for name in node.inputs):
            yield error(at(node, "from"), exc.message)
        return
    match node:
        case m.SelectNode():
            yield from _selection(node, given)
        case m.SplitNode():
            for output in node.outputs:
                yield from _condition(given, output.sql, at(node, f"split.{output.name}"))
        case m.FlatMapNode():
            yield from _flat_map(node, given)
        case m.DeduplicateNode():
            yield from _deduplication(node, given)
        case m.TableNode():
            yield from _table(graph, node, given)
        case m.JoinNode() | m.TableJoinNode() | m.LookupNode():
            yield from _join(graph, node)
        case m.WindowNode() | m.ProcessNode() | m.RulesNode():
            yield from _arrays(node, given)
            yield from _chained(graph, node, given)


def _is_typed(graph: m.Graph, name: str) -> bool:
    try:
        stream_of(graph, name)
    except PipelineError:
        return False
    return True


def _selection(node: m.SelectNode, given: Stream) -> Iterator[Finding]:
    if node.where is not None:
        yield from _condition(given, node.where, at(node, "where"))
    nullable = frozenset(field.name for field in given.fields if field.optional)
    names = {field.name.lower() for field in given.fields}
    for derived in node.derive:
        where = at(node, f"derive.{derived.name}")
        try:
            analyse(derived.sql, given.fields, nullable)
        except PipelineError as exc:
            yield error(where, exc.message)
        if derived.name.lower() in names:
            yield error(where, f"there is a field {derived.name!r} already (SQL ignores case)")
        yield from (error(where, problem) for problem in name_problems(derived.name))
        names.add(derived.name.lower())
    known = [*(field.name for field in given.fields), *(derived.name for derived in node.derive)]
    selected = node.select or ()
    for index, name in enumerate(selected):
        if name not in known:
            hint = did_you_mean(name, known) or f"; it has {', '.join(known)}"
            yield error(at(node, f"select.{index}"), f"there is no field {name!r}{hint}")
        if name in selected[:index]:
            yield error(at(node, f"select.{index}"), f"{name!r} is given twice")
    if len(set(node.inputs)) != len(node.inputs):
        yield error(at(node, "from"), "a stream is given twice")


def _condition(given: Stream, text: str, where: str) -> Iterator[Finding]:
    nullable = frozenset(field.name for field in given.fields if field.optional)
    try:
        made = analyse(text, given.fields, nullable)
    except PipelineError as exc:
        yield error(where, exc.message)
        return
    if made.type != m.BooleanType():
        yield error(where, f"{text!r} is not a condition; write one that is true or false, such as kind = 'buy'")


def _flat_map(node: m.FlatMapNode, given: Stream) -> Iterator[Finding]:
    if given.rows_of == "tables":
        yield error(at(node, "from"), f"{ROWS_OF[given.rows_of]} have a key; flat_map the records before the table")
        return
    try:
        made = exploded(given, replace(node, position=None))
    except PipelineError as exc:
        yield error(at(node, "flat_map" if node.element is None else "element"), exc.message)
        return
    array = next(field for field in given.fields if field.name == node.field)
    element = array.type.element if isinstance(array.type, m.ArrayType) else None
    if node.element is not None and isinstance(element, m.StructType):
        names = ", ".join(field.name for field in element.fields)
        yield error(at(node, "element"), f"an element is a struct with the fields {names}; remove it")
    for part, name in (("element", node.element), ("position", node.position)):
        yield from (error(at(node, part), problem) for problem in (name_problems(name) if name is not None else ()))
    if node.position is not None and node.position.lower() in {field.name.lower() for field in made}:
        yield error(at(node, "position"), f"there is a field {node.position!r} already (SQL ignores case)")


def _arrays(node: m.ResultNode, given: Stream) -> Iterator[Finding]:
    """Find arrays that a window or process uses."""
    arrays = {field.name for field in given.fields if isinstance(field.type, m.ArrayType)}
    used = [(f"key.{index}", name) for index, name in enumerate(node.key)]
    if isinstance(node, m.WindowNode):
        used += [
            (f"aggregate.{aggregate.name}", text)
            for aggregate in node.aggregates
            for text in aggregated_texts(aggregate.function)
        ]
    for part, name in used:
        if name in arrays:
            yield error(at(node, part), f"{name!r} is an array, which only flat_map takes")


def _deduplication(node: m.DeduplicateNode, given: Stream) -> Iterator[Finding]:
    fields = {field.name: field for field in given.fields}
    if not node.key:
        yield error(at(node, "deduplicate.by"), "is empty; name the fields that identify copies")
    for index, name in enumerate(node.key):
        for problem in _key_field(name, node.key[:index], fields):
            yield error(at(node, f"deduplicate.by.{index}"), problem)
    if node.within <= 0:
        yield error(at(node, "deduplicate.within"), "must be longer than 0, such as 1h")
    if given.is_changelog:
        yield error(
            at(node, "from"), f"{ROWS_OF[given.rows_of]} change, so they have no duplicates; deduplicate records"
        )


def _key_field(name: str, before: Sequence[str], fields: Mapping[str, m.Field]) -> Iterator[str]:
    """Yield why a field cannot be in a key, after the fields before it."""
    if name not in fields:
        yield f"there is no field {name!r}; it has {', '.join(fields)}"
    elif isinstance(fields[name].type, m.ArrayType):
        yield f"{name!r} is an array, which only flat_map takes"
    elif isinstance(fields[name].type, m.DoubleType):
        yield f"{name!r} is a double, but equal doubles can differ in text; use another field"
    elif fields[name].optional:
        yield f"{name!r} can be null, but a key must not be; derive a key: coalesce({name}, ...)"
    if name in before:
        yield f"{name!r} is given twice; keep one of them"


def _table(graph: m.Graph, node: m.TableNode, given: Stream) -> Iterator[Finding]:
    fields = {field.name: field for field in stream_of(graph, node.name).fields}
    are_changes = any(source.source.format == "debezium" for source in given.sources)
    if not node.key:
        yield error(at(node, "table.key"), "is empty; name the fields that identify a row")
    for index, name in enumerate(node.key):
        for problem in _key_field(name, node.key[:index], fields):
            yield error(at(node, f"table.key.{index}"), problem)
    if node.deleted is not None:
        yield from _condition(given, node.deleted, at(node, "table.deleted"))
    elif are_changes and given.lacking is None:
        yield warning(
            at(node, "table"),
            "has no `deleted`, and is made of a selection of changes, so deleted rows can remain: make a table of the "
            "source, and select from its rows",
        )
    elif are_changes:
        pass
    elif any(field.tombstones for source in given.sources for field in source.decode.fields):
        yield warning(
            at(node, "table"),
            "has no `deleted`, so a tombstone becomes a row with null in its fields: give a condition for tombstones, "
            "such as deleted: amount IS NULL",
        )
    elif any(isinstance(source.source, m.FileSource) for source in given.sources):
        yield warning(
            at(node, "table"), "has no `deleted`, so rows that are removed from the file remain: deleted: _deleted"
        )
    if given.is_changelog:
        yield error(at(node, "from"), f"a table is made of records, but {ROWS_OF[given.rows_of]} can be retracted")


def _lookup(graph: m.Graph, node: m.LookupNode) -> Iterator[Finding]:
    given, table = stream_of(graph, node.left), stream_of(graph, node.table)
    if given.is_changelog:
        yield error(at(node, "from"), f"{ROWS_OF[given.rows_of]} change; look up rows for records")
    if set(node.right_key) != set(table.key):
        yield error(
            at(node, "lookup.by"),
            f"the key of the table {node.table!r} is {', '.join(table.key)}: name the fields that hold it",
        )
    yield from _keys(graph, node, "lookup")
    if node.as_of == "order" and node.revise is not None:
        yield error(
            at(node, "lookup.revise"), "applies to `as_of: event_time`; as of order no row is replaced: remove it"
        )
    if node.revise is not None and node.revise < 0:
        yield error(at(node, "lookup.revise"), "must not be negative")
    yield from too_long(at(node, "lookup.revise"), node.revise or 0)
    if node.broadcast:
        yield from _broadcast(graph, node)


def _broadcast(graph: m.Graph, node: m.LookupNode) -> Iterator[Finding]:
    """Warn where a broadcast spreads nothing, or copies as much as it spreads."""
    if graph.key_groups == 1:
        yield warning(at(node, "lookup.broadcast"), "there is only one key group, so nothing is spread; remove it")
    elif not _selected_from_all(graph, node.left).isdisjoint(_contained_in(graph, node.table)):
        yield warning(
            at(node, "lookup.broadcast"),
            f"{node.table!r} is made of all records of {node.left!r}, so each record would be sent to all "
            f"{graph.key_groups} key groups; remove it",
        )


def _selected_from_all(graph: m.Graph, stream: str) -> set[str]:
    """Return a stream and the streams above it from which its records are selected."""
    node = graph.producer(stream)
    is_part = isinstance(node, m.SelectNode | m.SplitNode | m.DeduplicateNode) and len(node.inputs) == 1
    return {stream, *(_selected_from_all(graph, node.inputs[0]) if is_part else ())}


def _contained_in(graph: m.Graph, stream: str) -> set[str]:
    """Return a stream and the streams above it whose records it contains completely."""
    node = graph.producer(stream)
    has_all = isinstance(node, m.TableNode) or (isinstance(node, m.SelectNode) and node.where is None)
    return {stream}.union(*(_contained_in(graph, name) for name in node.inputs if has_all))


def _join(graph: m.Graph, node: m.AnyJoinNode) -> Iterator[Finding]:
    if not _is_typed(graph, node.right):
        return
    if isinstance(node, m.LookupNode):
        yield from _lookup(graph, node)
        return
    sides = [(stream_of(graph, name), part) for name, part in ((node.left, "from"), (node.right, "join.with"))]
    are_tables = [stream.rows_of == "tables" for stream, _ in sides]
    for stream, part in sides:
        if isinstance(node, m.JoinNode) and stream.rows_of == "tables":
            yield error(at(node, part), "a table has no event time: join it with a table, without before and after")
    if isinstance(node, m.TableJoinNode) and not all(are_tables):
        table = selected_from(graph, node.right)
        message = "every record would be kept forever: give the distance of partners in event time, such as after: 15m"
        if isinstance(graph.producer(table), m.TableNode) and not are_tables[0]:
            message += f"; or look rows up in {table!r}: lookup: {{table: {table}, by: ...}}"
        else:
            message += ", or join two tables"
        yield error(at(node, "join"), message)
    yield from _keys(graph, node, "join")
    if isinstance(node, m.JoinNode):
        yield from _interval(node)


def _keys(graph: m.Graph, node: m.AnyJoinNode, section: str) -> Iterator[Finding]:
    """Check the key fields of both sides of a join, and the names of all fields."""
    if not node.key:
        yield error(at(node, f"{section}.by"), "is empty; name the fields that are equal in a pair")
    left, right = ({field.name: field for field in stream_of(graph, name).fields} for name in named_streams(node))
    for stream, names, fields in ((node.left, node.key, left), (node.right, node.right_key, right)):
        for index, name in enumerate(names):
            for problem in _key_field(name, names[:index], fields):
                yield error(at(node, f"{section}.by"), f"in {stream!r}: {problem}")
    for name, other in zip(node.key, node.right_key, strict=True):
        if name in left and other in right and not is_same_type(left[name].type, right[other].type):
            yield error(
                at(node, f"{section}.by"),
                f"{name!r} in {node.left!r} is {left[name].type}, but {other!r} in {node.right!r} is "
                f"{right[other].type}: derive a field of the same type, such as CAST({other} AS ...)",
            )
    taken = {name.lower() for name in (*left, *right)}
    for name, renamed in join_sides(graph, node)[1].names.items():
        if name not in node.right_key and renamed != name and renamed.lower() in taken:
            message = f"both have {name!r}, and there is a field {renamed!r} already: select or derive others before"
            yield error(at(node, section), message)


def _interval(node: m.JoinNode) -> Iterator[Finding]:
    for part, span in (("before", node.before), ("after", node.after)):
        if span < 0:
            yield error(at(node, f"join.{part}"), "must not be negative")
        yield from too_long(at(node, f"join.{part}"), span)


def _chained(graph: m.Graph, node: m.ResultNode, given: Stream) -> Iterator[Finding]:
    """Check a window or process over a changelog, or below which there are streams."""
    is_running, rows = isinstance(node, m.WindowNode) and isinstance(node.window, m.Global), ROWS_OF[given.rows_of]
    if given.rows_of == "tables" and not is_running:
        message = "the rows of a table have no event time, so they are in no windows; use window: {global: {}}"
        yield error(at(node, "from"), message)
        return
    if given.is_changelog:
        if not isinstance(node, m.WindowNode) or isinstance(node.window, m.Session):
            kind = type(node.window).__name__.lower() if isinstance(node, m.WindowNode) else "process"
            part = "window" if isinstance(node, m.WindowNode) else "from"
            yield error(at(node, part), f"a {kind} cannot read {rows}, which can be retracted; use tumbling")
            return
        if node.emit.lateness:
            yield error(at(node, "emit.lateness"), f"a window accepts every revision of {rows}; remove it")
        if isinstance(node.emit.late, m.Records):
            yield error(at(node, "emit.late"), f"a window over {rows} has no counts of late records; use each")
        yield from _plain(node, f"over {rows}")
    if graph.is_read(node) and not isinstance(node, m.RulesNode):
        yield from _read_by_streams(node)


def _read_by_streams(node: m.WindowNode | m.ProcessNode) -> Iterator[Finding]:
    """Check a window or a process whose rows other streams read."""
    if isinstance(node, m.ProcessNode):
        if node.process.on_processing_timer is not None:
            message = "other streams read the rows, but timers of processing time differ in each run; use on_timer"
            yield error(at(node, "process.on_processing_timer"), message)
        return
    yield from _plain(node, "whose rows other streams read")
    if node.emit.late != "each":
        yield error(at(node, "emit.late"), "other streams read each revision; use each")
    if node.emit.mode != "retract":
        yield error(at(node, "emit.mode"), "other streams need the row that a revision replaces; use retract")


def _plain(node: m.WindowNode, which: str) -> Iterator[Finding]:
    if node.emit.early is not None:
        yield error(at(node, "emit.early"), f"a window {which} has no early panes; remove it")
    if node.salt != 1:
        yield error(at(node, "salt"), f"a window {which} cannot be salted; remove it")
    if node.emit.mode == "discard":
        yield error(at(node, "emit.mode"), f"a window {which} cannot discard; use retract")
