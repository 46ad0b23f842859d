"""Checks of the streams of a graph: what each takes, and its own expressions, fields and keys."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from windrow import model as m
from windrow.authoring.checks.base import is_name
from windrow.authoring.checks.time import too_long
from windrow.declare.findings import Finding, error, warning
from windrow.errors import PipelineError
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
    """Return the section of a graph file that a node is in."""
    match node:
        case m.SourceNode():
            return "sources"
        case m.SinkNode():
            return "sinks"
        case _:
            return "streams"


def at(node: m.Node, part: str = "") -> str:
    """Return where a node is in a graph file, or a part of it."""
    return f"{section_of(node)}.{node.name}" + (f".{part}" if part else "")


def place(graph: m.Graph, node: m.Node, part: str = "") -> str:
    """Return where a node of a graph, or a part of it, is: in a short form, a section of its own."""
    return part or "source" if graph.is_short else at(node, part)


def part_of(node: m.Node, stream: str) -> str:
    """Return where a node names a stream that it takes."""
    if not isinstance(node, m.AnyJoinNode) or stream == node.left:
        return "from"
    return "lookup.table" if isinstance(node, m.LookupNode) else "join.with"


def selected_from(graph: m.Graph, stream: str) -> str:
    """Return the stream that a selection, or a part of a split, takes all its rows from; of another stream, itself."""
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
    """Return the streams that a node names."""
    return (node.left, node.right) if isinstance(node, m.AnyJoinNode) else node.inputs


def stream_findings(graph: m.Graph, node: m.StreamNode) -> Iterator[Finding]:  # noqa: C901 - a case for each kind of stream
    """Yield what is wrong with a stream's own expressions and fields, and with what it takes."""
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
    for one in node.derive:
        try:
            analyse(one.sql, given.fields, nullable)
        except PipelineError as exc:
            yield error(at(node, f"derive.{one.name}"), exc.message)
        if one.name.lower() in names:
            yield error(at(node, f"derive.{one.name}"), f"there is a field {one.name!r} already (SQL ignores case)")
        if one.name.startswith("__"):
            yield error(at(node, f"derive.{one.name}"), "names that begin with two underscores are windrow's own")
        names.add(one.name.lower())
    yield from _selected(node, [*(field.name for field in given.fields), *(one.name for one in node.derive)])
    if len(set(node.inputs)) != len(node.inputs):
        yield error(at(node, "from"), "a stream is given twice")


def _selected(node: m.SelectNode, known: Sequence[str]) -> Iterator[Finding]:
    for index, name in enumerate(node.select or ()):
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
            yield error(at(node, f"select.{index}"), f"there is no field {name!r}; {hint}")
        if name in (node.select or ())[:index]:
            yield error(at(node, f"select.{index}"), f"{name!r} is given twice")


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
    if (
        node.element is not None
        and isinstance(array.type, m.ArrayType)
        and isinstance(array.type.element, m.StructType)
    ):
        names = ", ".join(field.name for field in array.type.element.fields)
        yield error(at(node, "element"), f"an element has fields with names of their own: {names}; leave it out")
    for part, name in (("element", node.element), ("position", node.position)):
        if name is not None and (not is_name(name) or name.startswith("__")):
            yield error(
                at(node, part),
                f"{name!r} is not a valid name; it is printable, and does not begin with two underscores",
            )
    if node.position is not None and node.position.lower() in {one.name.lower() for one in made}:
        yield error(at(node, "position"), f"there is a field {node.position!r} already (SQL ignores case)")


def _arrays(node: m.ResultNode, given: Stream) -> Iterator[Finding]:
    """Yield where a window or process uses an array; it is given none."""
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
        yield error(at(node, "deduplicate.by"), "is empty; name the fields that copies have in common")
    for index, name in enumerate(node.key):
        for problem in _key_field(name, node.key[:index], fields):
            yield error(at(node, f"deduplicate.by.{index}"), problem)
    if node.within <= 0:
        yield error(at(node, "deduplicate.within"), "must be longer than 0, such as 1h")
    if given.is_changelog:
        yield error(
            at(node, "from"), f"{ROWS_OF[given.rows_of]} change, so there are no duplicates; deduplicate records"
        )


def _key_field(name: str, before: Sequence[str], fields: Mapping[str, m.Field]) -> Iterator[str]:
    """Yield why a field cannot be one of a key, after those before it."""
    if name not in fields:
        yield f"there is no field {name!r}; it has {', '.join(fields)}"
    elif isinstance(fields[name].type, m.ArrayType):
        yield f"{name!r} is an array, which only flat_map takes"
    elif isinstance(fields[name].type, m.DoubleType):
        yield f"{name!r} is a double, and equal doubles can differ in text; use another field"
    elif fields[name].optional:
        yield f"{name!r} can be null, and a key must not be; derive one: coalesce({name}, ...)"
    if name in before:
        yield f"{name!r} is given twice; keep one of them"


def _table(graph: m.Graph, node: m.TableNode, given: Stream) -> Iterator[Finding]:
    fields = {field.name: field for field in stream_of(graph, node.name).fields}
    are_changes = any(source.source.format == "debezium" for source in given.sources)
    if not node.key:
        yield error(at(node, "table.key"), "is empty; name the fields that a row is known by")
    for index, name in enumerate(node.key):
        for problem in _key_field(name, node.key[:index], fields):
            yield error(at(node, f"table.key.{index}"), problem)
    if node.deleted is not None:
        yield from _condition(given, node.deleted, at(node, "table.deleted"))
    elif are_changes and given.lacking is None:
        yield warning(
            at(node, "table"),
            "has no `deleted`, and is made of some of the changes of rows, so rows that were deleted can stay: make a "
            "table of the source, and choose among its rows",
        )
    elif are_changes:
        pass
    elif any(field.tombstones for source in given.sources for field in source.decode.fields):
        yield warning(
            at(node, "table"),
            "has no `deleted`, so a tombstone is a row like any other, with null in its fields: say what tells them "
            "apart, such as deleted: amount IS NULL",
        )
    elif any(isinstance(source.source, m.FileSource) for source in given.sources):
        yield warning(at(node, "table"), "has no `deleted`, so rows that leave the file stay: deleted: _deleted")
    if given.is_changelog:
        yield error(at(node, "from"), f"a table is made of records, and {ROWS_OF[given.rows_of]} are taken back")


def _lookup(graph: m.Graph, node: m.LookupNode) -> Iterator[Finding]:
    given, table = stream_of(graph, node.left), stream_of(graph, node.table)
    if given.is_changelog:
        yield error(at(node, "from"), f"{ROWS_OF[given.rows_of]} change; look rows up for records")
    if set(node.right_key) != set(table.key):
        yield error(
            at(node, "lookup.by"),
            f"{node.table!r} is a table by {', '.join(table.key)}: name the fields that hold these",
        )
    yield from _keys(graph, node, "lookup")
    if node.as_of == "order" and node.revise is not None:
        yield error(at(node, "lookup.revise"), "applies as of event time; as of order no row is replaced: leave it out")
    if node.revise is not None and node.revise < 0:
        yield error(at(node, "lookup.revise"), "must not be negative")
    yield from too_long(at(node, "lookup.revise"), node.revise or 0)
    if node.broadcast:
        yield from _broadcast(graph, node)


def _broadcast(graph: m.Graph, node: m.LookupNode) -> Iterator[Finding]:
    """Yield where a broadcast spreads nothing, or copies as much as it spreads."""
    if graph.key_groups == 1:
        yield warning(at(node, "lookup.broadcast"), "there is one key group, so nothing is spread; leave it out")
    elif not _held_in(graph, node.left).isdisjoint(_holding(graph, node.table)):
        yield warning(
            at(node, "lookup.broadcast"),
            f"{node.table!r} is made of all records of {node.left!r}, so each of them would go to all "
            f"{graph.key_groups} key groups; leave it out",
        )


def _held_in(graph: m.Graph, stream: str) -> set[str]:
    """Return the streams that have all records of a stream, before some were selected."""
    node = graph.producer(stream)
    is_part = isinstance(node, m.SelectNode | m.SplitNode | m.DeduplicateNode) and len(node.inputs) == 1
    return {stream, *(_held_in(graph, node.inputs[0]) if is_part else ())}


def _holding(graph: m.Graph, stream: str) -> set[str]:
    """Return the streams all of whose records a table or a selection has."""
    node = graph.producer(stream)
    has_all = isinstance(node, m.TableNode) or (isinstance(node, m.SelectNode) and node.where is None)
    return {stream}.union(*(_holding(graph, name) for name in node.inputs if has_all))


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
            yield error(
                at(node, part), "a table has no event time of its own: join it with a table, without before and after"
            )
    if isinstance(node, m.TableJoinNode) and not all(are_tables):
        table = selected_from(graph, node.right)
        look_up = f"; or look rows up in {table!r}: lookup: {{table: {table}, by: ...}}"
        yield error(
            at(node, "join"),
            "every pair would be kept for ever: say how far apart in event time partners can be, such as after: 15m"
            + (
                look_up
                if isinstance(graph.producer(table), m.TableNode) and not are_tables[0]
                else ", or join two tables"
            ),
        )
    yield from _keys(graph, node, "join")
    if isinstance(node, m.JoinNode):
        yield from _interval(node)


def _keys(graph: m.Graph, node: m.AnyJoinNode, section: str) -> Iterator[Finding]:
    """Yield what is wrong with the fields that both sides of a join have in common, and with the others."""
    if not node.key:
        yield error(at(node, f"{section}.by"), "is empty; name the fields that a pair has in common")
    left, right = ({field.name: field for field in stream_of(graph, name).fields} for name in named_streams(node))
    for called, names, fields in ((node.left, node.key, left), (node.right, node.right_key, right)):
        for index, name in enumerate(names):
            for problem in _key_field(name, names[:index], fields):
                yield error(at(node, f"{section}.by"), f"in {called!r}: {problem}")
    yield from _alike(graph, node, left, right)


def _interval(node: m.JoinNode) -> Iterator[Finding]:
    for part, span in (("before", node.before), ("after", node.after)):
        if span < 0:
            yield error(at(node, f"join.{part}"), "must not be negative")
        yield from too_long(at(node, f"join.{part}"), span)


def _alike(
    graph: m.Graph, node: m.AnyJoinNode, left: Mapping[str, m.Field], right: Mapping[str, m.Field]
) -> Iterator[Finding]:
    """Yield keys of unlike types, and fields whose names collide."""
    section = "lookup" if isinstance(node, m.LookupNode) else "join"
    for one, other in zip(node.key, node.right_key, strict=True):
        if one in left and other in right and not is_same_type(left[one].type, right[other].type):
            yield error(
                at(node, f"{section}.by"),
                f"{one!r} in {node.left!r} is {left[one].type}, but {other!r} in {node.right!r} is "
                f"{right[other].type}: derive a field of the same type, such as CAST({other} AS ...)",
            )
    taken = {name.lower() for name in (*left, *right)}
    for name, made in join_sides(graph, node)[1].names.items():
        if name not in node.right_key and made != name and made.lower() in taken:
            yield error(
                at(node, section),
                f"both have {name!r}, and there is a field {made!r} already: select or derive others before",
            )


def _chained(graph: m.Graph, node: m.ResultNode, given: Stream) -> Iterator[Finding]:
    """Yield what a window over windows cannot be, and what a window cannot be whose rows others take."""
    is_running = isinstance(node, m.WindowNode) and isinstance(node.window, m.Global)
    if given.rows_of == "tables" and not is_running:
        yield error(
            at(node, "from"),
            "the rows of a table have no event time, so they are in no windows; use window: {global: {}}",
        )
        return
    if given.is_changelog:
        if not isinstance(node, m.WindowNode) or isinstance(node.window, m.Session):
            kind = type(node.window).__name__.lower() if isinstance(node, m.WindowNode) else "process"
            part = "window" if isinstance(node, m.WindowNode) else "from"
            yield error(
                at(node, part), f"a {kind} cannot be over {ROWS_OF[given.rows_of]}, which are taken back; use tumbling"
            )
            return
        if node.emit.lateness:
            yield error(
                at(node, "emit.lateness"), f"a window takes every revision of {ROWS_OF[given.rows_of]}; leave it out"
            )
        if isinstance(node.emit.late, m.Records):
            yield error(
                at(node, "emit.late"),
                f"a window over {ROWS_OF[given.rows_of]} has no counts of late records; use each",
            )
        yield from _plain(node, f"over {ROWS_OF[given.rows_of]}")
    if any(isinstance(reader, m.StreamNode) for reader in graph.readers(node)) and not isinstance(node, m.RulesNode):
        yield from _taken(node)


def _taken(node: m.WindowNode | m.ProcessNode) -> Iterator[Finding]:
    """Yield what a window or a process cannot be whose rows other streams take."""
    if isinstance(node, m.ProcessNode):
        if node.process.on_processing_timer is not None:
            yield error(
                at(node, "process.on_processing_timer"),
                "other streams take the rows, and those of timers of processing time differ in each run; use timer",
            )
        return
    yield from _plain(node, "whose rows other streams take")
    if node.emit.late != "each":
        yield error(at(node, "emit.late"), "other streams take each revision; use each")
    if node.emit.mode != "retract":
        yield error(at(node, "emit.mode"), "other streams need to know what a revision replaces; use retract")


def _plain(node: m.WindowNode, which: str) -> Iterator[Finding]:
    if node.emit.early is not None:
        yield error(at(node, "emit.early"), f"a window {which} has no early panes; leave it out")
    if node.salt != 1:
        yield error(at(node, "salt"), f"a window {which} cannot be salted; leave it out")
    if node.emit.mode == "discard":
        yield error(at(node, "emit.mode"), f"a window {which} cannot discard; use retract")
