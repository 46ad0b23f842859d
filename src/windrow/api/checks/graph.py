"""Checks of a graph: its names, what flows where, and each stream and sink by the rules of a pipeline."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from windrow.api.checks.base import Finding, error, is_name, warning
from windrow.api.checks.connectors import file_fields, sink_address, sink_table, source_address
from windrow.api.checks.fields import RESERVED, decode_fields, derived_fields, nested_fields, tombstones
from windrow.api.checks.key import ALL_MEET
from windrow.api.checks.time import (
    adaptive_delay,
    all_idle,
    durations,
    no_future_guard,
    sent_field,
    time_field,
    too_long,
)
from windrow.api.checks.waiting import waiting
from windrow.errors import PipelineError
from windrow.expressions import (
    ROWS_OF,
    RecordStream,
    Stream,
    View,
    aggregated_texts,
    analyse,
    exploded,
    is_same_type,
    join_sides,
    sink_view,
    stream_of,
    united,
)
from windrow.model import (
    AnyJoinNode,
    AnyPipeline,
    ArrayType,
    BooleanType,
    Decode,
    DeduplicateNode,
    DoubleType,
    Field,
    FileSource,
    FlatMapNode,
    Global,
    Graph,
    JoinNode,
    LookupNode,
    Node,
    ProcessNode,
    Records,
    ResultNode,
    RulesNode,
    SelectNode,
    Session,
    SinkNode,
    SourceNode,
    SplitNode,
    StreamNode,
    StructType,
    TableJoinNode,
    TableNode,
    WindowNode,
    database_of,
    made_by,
    outputs_of,
)

SOURCE_RULES: tuple[Callable[[View], Iterable[Finding]], ...] = (
    source_address,
    decode_fields,
    tombstones,
    file_fields,
    nested_fields,
    derived_fields,
    time_field,
    sent_field,
    durations,
    adaptive_delay,
    all_idle,
    no_future_guard,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def section_of(node: Node) -> str:
    """Return the section of a graph file that a node is in."""
    match node:
        case SourceNode():
            return "sources"
        case SinkNode():
            return "sinks"
        case _:
            return "streams"


def _at(node: Node, part: str = "") -> str:
    return f"{section_of(node)}.{node.name}" + (f".{part}" if part else "")


def _part(node: Node, stream: str) -> str:
    """Return where a node names a stream that it takes."""
    if not isinstance(node, AnyJoinNode) or stream == node.left:
        return "from"
    return "lookup.table" if isinstance(node, LookupNode) else "join.with"


def _named(node: Node) -> tuple[str, ...]:
    """Return the streams that a node names."""
    return (node.left, node.right) if isinstance(node, AnyJoinNode) else node.inputs


def graph_findings(graph: Graph, validate: Callable[[AnyPipeline], Sequence[Finding]]) -> list[Finding]:
    """Return what is wrong with a graph; `validate` checks a stream and one of its sinks as a pipeline."""
    for rules in (_NAMES, _EDGES):
        # what comes later needs names, and then edges
        found = [finding for rule in rules for finding in rule(graph)]
        if found:
            return found
    sources = [finding for node in graph.sources for finding in _source(graph, node)]
    shapes = [finding for node in graph.streams for finding in _shape(graph, node)]
    found_there = {finding.where for finding in shapes}
    results = [finding for finding in _parts(graph, validate) if finding.where not in found_there]
    unbounded = [finding for node in graph.streams for finding in _bounds(graph, node)]
    return list(dict.fromkeys([*sources, *shapes, *results, *unbounded, *waiting(graph)]))


def _source(graph: Graph, node: SourceNode) -> Iterator[Finding]:
    """Yield what the rules of a pipeline find in a source."""
    view = RecordStream(
        graph.name, node.source, node.decode, node.time, (), graph.sinks[0].sink, graph.key_groups, node.derive
    )
    for rule in SOURCE_RULES:
        yield from (replace(finding, where=_at(node, finding.where)) for finding in rule(view))
    if node.lateness is not None and node.lateness < 0:
        yield error(_at(node, "lateness"), "must not be negative")
    yield from too_long(_at(node, "lateness"), node.lateness or 0)


def _parts(graph: Graph, validate: Callable[[AnyPipeline], Sequence[Finding]]) -> list[Finding]:
    """Return what the rules of a pipeline find in each window and sink."""
    found: list[Finding] = []
    for sink in graph.sinks:
        stream, view = graph.producer(sink.input), _sink_view(graph, sink)
        if isinstance(view, RecordStream):
            found += [
                replace(finding, where=_at(sink, finding.where))
                for rule in (sink_address, sink_table, _record_sink)
                for finding in rule(view)
            ]
        elif isinstance(stream, ResultNode) and view is not None:
            found += _of_view(graph, validate(_of_terms(graph, stream, view)), stream, sink)
    for node in graph.keyed:
        if isinstance(node, ResultNode) and not graph.sinks_of(node.name):
            sink = graph.sinks_below(node)[0]
            view = _sink_view(graph, replace(sink, input=node.name))
            if view is not None and not isinstance(view, RecordStream):
                findings = [one for one in validate(_of_terms(graph, node, view)) if not one.where.startswith("sink")]
                found += _of_view(graph, findings, node, sink)
    return found


def _sink_view(graph: Graph, sink: SinkNode) -> View | None:
    """Return what a sink takes as a short form, None if what it depends on is wrong, which is found there."""
    try:
        return sink_view(graph, sink)
    except PipelineError:
        return None


def _of_terms(graph: Graph, node: ResultNode, view: AnyPipeline) -> AnyPipeline:
    """Return a node over windows as if their sums were the terms: a sum of sums needs no more digits than theirs."""
    terms = dict(stream_of(graph, node.input).terms)
    fields = tuple(replace(one, type=terms.get(one.name, one.type)) for one in view.decode.fields)
    return replace(view, decode=Decode(fields))


def _of_view(graph: Graph, findings: Sequence[Finding], node: ResultNode, sink: SinkNode) -> Iterator[Finding]:
    """Yield findings with their places in the graph; a stream between has been checked where it is made."""
    is_direct = isinstance(graph.producer(node.input), SourceNode)
    is_changelog = stream_of(graph, node.input).is_changelog
    # without windows, each change of a row revises the results, which need no trigger then
    is_running = isinstance(node, WindowNode) and isinstance(node.window, Global)
    is_running &= is_changelog or any(isinstance(one, StreamNode) for one in graph.readers(node))
    untold = {"emit.lateness"} if is_changelog else set()
    untold |= {"window.global", "emit.late"} if is_running else set()
    for finding in findings:
        section, _, rest = finding.where.partition(".")
        own = any(one.name == rest for one in node.derive)
        if section in {"source", "decode", "time"} or (section == "derive" and not own):
            if is_direct:
                yield replace(finding, where=_at(graph.producer(node.input), finding.where))
        elif section in {"name", "key_groups"}:
            yield finding
        elif finding.where == "key" and finding.level == "warning":
            # a window over windows has few rows, and one whose rows others take cannot be salted
            if not is_changelog:
                yield warning(_at(node, "key"), ALL_MEET if graph.is_read(node) else finding.message)
        elif finding.where not in untold:
            yield replace(finding, where=_at(sink if section == "sink" else node, finding.where))


def _names(graph: Graph) -> Iterator[Finding]:
    counts = Counter(name for node in graph.nodes for name in (node.name, *set(outputs_of(node)) - {node.name}))
    for node in graph.nodes:
        if not _NAME.fullmatch(node.name):
            yield error(
                _at(node), "a name has 1 to 100 letters, digits, '.', '_' or '-', and starts with a letter or digit"
            )
        for name in dict.fromkeys([node.name, *outputs_of(node)]):
            if counts[name] > 1:
                yield error(_at(node), f"the name {name!r} is given twice; choose another one")
        if isinstance(node, SplitNode):
            outputs = Counter([*(one.name for one in node.outputs), *filter(None, [node.other])])
            for name, count in outputs.items():
                if count > 1 or not _NAME.fullmatch(name):
                    yield error(_at(node, "split"), f"{name!r} is not a name of its own; each output has another one")


def _inputs(graph: Graph) -> Iterator[Finding]:
    if not graph.sources:
        yield error("sources", "there is no source; add one")
    known = [name for node in graph.nodes for name in made_by(node)]
    unknown = False
    for node in graph.nodes:
        for name in _named(node):
            if name not in known:
                unknown = True
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"name one of {', '.join(known)}"
                yield error(_at(node, _part(node, name)), f"there is no source or stream {name!r}; {hint}")
            elif isinstance(node, LookupNode) and name == node.table and not _is_table(graph, name):
                unknown = True
                yield error(_at(node, "lookup.table"), _no_table(graph, name))
    if not unknown:
        yield from _cycles(graph)


def _no_table(graph: Graph, name: str) -> str:
    """Return why a stream cannot be the table of a lookup, and what to do."""
    match graph.producer(name):
        case TableJoinNode():
            result = "a join of tables"
        case WindowNode():
            result = "an aggregate"
        case _:
            return f"{name!r} is not a table: name a stream with `table`, which says by which key its rows are known"
    return (
        f"{name!r} is the result of {result}, which cannot be looked up: a lookup needs the records that make a table. "
        f"Look rows up in a stream with `table`, before {result}; or, if {name!r} has no window of event time, make a "
        f"table of the records and join the two: join: {{with: {name}, by: ...}}"
    )


def _is_table(graph: Graph, name: str) -> bool:
    return isinstance(graph.producer(name), TableNode)


def _cycles(graph: Graph) -> Iterator[Finding]:
    """Streams come after their inputs; those that do not are in a cycle, or behind one."""
    before: set[str] = set()
    for node in graph.nodes:
        late = [name for name in _named(node) if name not in before]
        if late:
            message = f"it depends on itself, by way of {late[0]!r}; a graph has no cycles"
            yield error(_at(node, _part(node, late[0])), message)
        before.update(outputs_of(node))


def _outputs(graph: Graph) -> Iterator[Finding]:
    if not graph.streams and not graph.sinks:
        yield error("streams", "there is no stream; add one")
    known = {name for node in graph.nodes for name in outputs_of(node)}
    if not all(known.issuperset(node.inputs) for node in graph.nodes):
        return
    for source in graph.sources:
        if graph.streams and not graph.readers(source):
            yield error(_at(source), "no stream takes its records; remove it, or name it in a stream's `from`")
    for node in graph.streams:
        if not graph.sinks_below(node):
            yield error(_at(node), f"its rows go nowhere; add a sink from {node.name!r}, or remove it")


def _tables(graph: Graph) -> Iterator[Finding]:
    """Two sinks may not write one table: each step would overwrite the other's rows."""
    taken: dict[tuple[object, str], str] = {}
    for node in graph.sinks:
        place = database_of(node.sink), node.sink.table.lower()
        other = taken.setdefault(place, node.name)
        if other != node.name:
            yield error(_at(node, "sink"), f"the table {node.sink.table!r} is written by {other!r}; name another")


def _labels(graph: Graph) -> Iterator[Finding]:
    """Tables name a record by the name of its log, its partition and its offset."""
    taken: dict[str, str] = {}
    for node in graph.sources:
        other = taken.setdefault(node.source.label, node.name)
        if other != node.name:
            yield error(
                _at(node, "source"),
                f"it is called {node.source.label!r} in tables, as is {other!r}: two sources are two logs, with names "
                "of their own",
            )


def _ends(graph: Graph) -> Iterator[Finding]:
    results = [node for node in graph.nodes if isinstance(node, ResultNode)]
    for node in results:
        if len({one.at_end for one in results}) > 1 and node.at_end != results[0].at_end:
            yield error(
                _at(node, "emit"),
                f"at_end is {node.at_end}, but {results[0].at_end} for {results[0].name!r}; all streams end alike",
            )


_NAMES = (_names, _inputs, _outputs)
_EDGES = (_labels, _tables, _ends)


def _shape(graph: Graph, node: StreamNode) -> Iterator[Finding]:  # noqa: C901 - a case for each kind of stream
    """Yield what is wrong with a stream's own expressions and fields, and with what it takes."""
    try:
        given = united(graph, node) if isinstance(node, SelectNode) else stream_of(graph, node.inputs[0])
    except PipelineError as exc:
        if isinstance(node, SelectNode) and all(_is_typed(graph, name) for name in node.inputs):
            yield error(_at(node, "from"), exc.message)
        return
    match node:
        case SelectNode():
            yield from _selection(node, given)
        case SplitNode():
            for output in node.outputs:
                yield from _condition(given, output.sql, _at(node, f"split.{output.name}"))
        case FlatMapNode():
            yield from _flat_map(node, given)
        case DeduplicateNode():
            yield from _deduplication(node, given)
        case TableNode():
            yield from _table(node, given)
        case JoinNode() | TableJoinNode() | LookupNode():
            yield from _join(graph, node)
        case WindowNode() | ProcessNode() | RulesNode():
            yield from _arrays(node, given)
            yield from _chained(graph, node, given)


def _is_typed(graph: Graph, name: str) -> bool:
    try:
        stream_of(graph, name)
    except PipelineError:
        return False
    return True


def _selection(node: SelectNode, given: Stream) -> Iterator[Finding]:
    if node.where is not None:
        yield from _condition(given, node.where, _at(node, "where"))
    nullable = frozenset(one.name for one in given.fields if one.optional)
    names = {one.name.lower() for one in given.fields}
    for one in node.derive:
        try:
            analyse(one.sql, given.fields, nullable)
        except PipelineError as exc:
            yield error(_at(node, f"derive.{one.name}"), exc.message)
        if one.name.lower() in names:
            yield error(_at(node, f"derive.{one.name}"), f"there is a field {one.name!r} already (SQL ignores case)")
        if one.name.startswith("__"):
            yield error(_at(node, f"derive.{one.name}"), "names that begin with two underscores are windrow's own")
        names.add(one.name.lower())
    yield from _selected(node, [*(one.name for one in given.fields), *(one.name for one in node.derive)])
    if len(set(node.inputs)) != len(node.inputs):
        yield error(_at(node, "from"), "a stream is given twice")


def _selected(node: SelectNode, known: Sequence[str]) -> Iterator[Finding]:
    for index, name in enumerate(node.select or ()):
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
            yield error(_at(node, f"select.{index}"), f"there is no field {name!r}; {hint}")
        if name in (node.select or ())[:index]:
            yield error(_at(node, f"select.{index}"), f"{name!r} is given twice")


def _condition(given: Stream, text: str, where: str) -> Iterator[Finding]:
    nullable = frozenset(one.name for one in given.fields if one.optional)
    try:
        made = analyse(text, given.fields, nullable)
    except PipelineError as exc:
        yield error(where, exc.message)
        return
    if made.type != BooleanType():
        yield error(where, f"{text!r} is not a condition; write one that is true or false, such as kind = 'buy'")


def _flat_map(node: FlatMapNode, given: Stream) -> Iterator[Finding]:
    if given.rows_of == "tables":
        yield error(_at(node, "from"), f"{ROWS_OF[given.rows_of]} have a key; flat_map the records before the table")
        return
    try:
        made = exploded(given, replace(node, position=None))
    except PipelineError as exc:
        yield error(_at(node, "flat_map" if node.element is None else "element"), exc.message)
        return
    array = next(one for one in given.fields if one.name == node.field)
    if node.element is not None and isinstance(array.type, ArrayType) and isinstance(array.type.element, StructType):
        names = ", ".join(one.name for one in array.type.element.fields)
        yield error(_at(node, "element"), f"an element has fields with names of their own: {names}; leave it out")
    for part, name in (("element", node.element), ("position", node.position)):
        if name is not None and (not is_name(name) or name.startswith("__")):
            yield error(
                _at(node, part),
                f"{name!r} is not a valid name; it is printable, and does not begin with two underscores",
            )
    if node.position is not None and node.position.lower() in {one.name.lower() for one in made}:
        yield error(_at(node, "position"), f"there is a field {node.position!r} already (SQL ignores case)")


def _arrays(node: ResultNode, given: Stream) -> Iterator[Finding]:
    """Yield where a window or process uses an array; it is given none."""
    arrays = {one.name for one in given.fields if isinstance(one.type, ArrayType)}
    used = [(f"key.{index}", name) for index, name in enumerate(node.key)]
    if isinstance(node, WindowNode):
        used += [(f"aggregate.{one.name}", text) for one in node.aggregates for text in aggregated_texts(one.function)]
    for part, name in used:
        if name in arrays:
            yield error(_at(node, part), f"{name!r} is an array, which only flat_map takes")


def _deduplication(node: DeduplicateNode, given: Stream) -> Iterator[Finding]:
    fields = {one.name: one for one in given.fields}
    if not node.key:
        yield error(_at(node, "deduplicate.by"), "is empty; name the fields that copies have in common")
    for index, name in enumerate(node.key):
        for problem in _key_field(name, node.key[:index], fields):
            yield error(_at(node, f"deduplicate.by.{index}"), problem)
    if node.within <= 0:
        yield error(_at(node, "deduplicate.within"), "must be longer than 0, such as 1h")
    if given.is_changelog:
        yield error(
            _at(node, "from"), f"{ROWS_OF[given.rows_of]} change, so there are no duplicates; deduplicate records"
        )


def _key_field(name: str, before: Sequence[str], fields: Mapping[str, Field]) -> Iterator[str]:
    """Yield why a field cannot be one of a key, after those before it."""
    if name not in fields:
        yield f"there is no field {name!r}; it has {', '.join(fields)}"
    elif isinstance(fields[name].type, ArrayType):
        yield f"{name!r} is an array, which only flat_map takes"
    elif isinstance(fields[name].type, DoubleType):
        yield f"{name!r} is a double, and equal doubles can differ in text; use another field"
    elif fields[name].optional:
        yield f"{name!r} can be null, and a key must not be; derive one: coalesce({name}, ...)"
    if name in before:
        yield f"{name!r} is given twice; keep one of them"


def _table(node: TableNode, given: Stream) -> Iterator[Finding]:
    fields = {one.name: one for one in given.fields}
    if not node.key:
        yield error(_at(node, "table.key"), "is empty; name the fields that a row is known by")
    for index, name in enumerate(node.key):
        for problem in _key_field(name, node.key[:index], fields):
            yield error(_at(node, f"table.key.{index}"), problem)
    if node.deleted is not None:
        yield from _condition(given, node.deleted, _at(node, "table.deleted"))
    elif any(field.tombstones for source in given.sources for field in source.decode.fields):
        yield warning(
            _at(node, "table"),
            "has no `deleted`, so a tombstone is a row like any other, with null in its fields: say what tells them "
            "apart, such as deleted: amount IS NULL",
        )
    elif any(isinstance(source.source, FileSource) for source in given.sources):
        yield warning(_at(node, "table"), "has no `deleted`, so rows that leave the file stay: deleted: _deleted")
    if given.is_changelog:
        yield error(_at(node, "from"), f"a table is made of records, and {ROWS_OF[given.rows_of]} are taken back")


def _lookup(graph: Graph, node: LookupNode) -> Iterator[Finding]:
    given, table = stream_of(graph, node.left), stream_of(graph, node.table)
    if given.is_changelog:
        yield error(_at(node, "from"), f"{ROWS_OF[given.rows_of]} change; look rows up for records")
    if set(node.right_key) != set(table.key):
        yield error(
            _at(node, "lookup.by"),
            f"{node.table!r} is a table by {', '.join(table.key)}: name the fields that hold these",
        )
    yield from _keys(graph, node, "lookup")
    if node.as_of == "order" and node.revise is not None:
        yield error(
            _at(node, "lookup.revise"), "applies as of event time; as of order no row is replaced: leave it out"
        )
    if node.revise is not None and node.revise < 0:
        yield error(_at(node, "lookup.revise"), "must not be negative")
    yield from too_long(_at(node, "lookup.revise"), node.revise or 0)
    if node.broadcast:
        yield from _broadcast(graph, node)


def _broadcast(graph: Graph, node: LookupNode) -> Iterator[Finding]:
    """Yield where a broadcast spreads nothing, or copies as much as it spreads."""
    if graph.key_groups == 1:
        yield warning(_at(node, "lookup.broadcast"), "there is one key group, so nothing is spread; leave it out")
    elif not _held_in(graph, node.left).isdisjoint(_holding(graph, node.table)):
        yield warning(
            _at(node, "lookup.broadcast"),
            f"{node.table!r} is made of all records of {node.left!r}, so each of them would go to all "
            f"{graph.key_groups} key groups; leave it out",
        )


def _held_in(graph: Graph, stream: str) -> set[str]:
    """Return the streams that have all records of a stream, before some were selected."""
    node = graph.producer(stream)
    is_part = isinstance(node, SelectNode | SplitNode | DeduplicateNode) and len(node.inputs) == 1
    return {stream, *(_held_in(graph, node.inputs[0]) if is_part else ())}


def _holding(graph: Graph, stream: str) -> set[str]:
    """Return the streams all of whose records a table or a selection has."""
    node = graph.producer(stream)
    has_all = isinstance(node, TableNode) or (isinstance(node, SelectNode) and node.where is None)
    return {stream}.union(*(_holding(graph, name) for name in node.inputs if has_all))


def _join(graph: Graph, node: AnyJoinNode) -> Iterator[Finding]:
    if not _is_typed(graph, node.right):
        return
    if isinstance(node, LookupNode):
        yield from _lookup(graph, node)
        return
    sides = [(stream_of(graph, name), part) for name, part in ((node.left, "from"), (node.right, "join.with"))]
    are_tables = [stream.rows_of == "tables" for stream, _ in sides]
    for stream, part in sides:
        if isinstance(node, JoinNode) and stream.rows_of == "tables":
            yield error(
                _at(node, part), "a table has no event time of its own: join it with a table, without before and after"
            )
    if isinstance(node, TableJoinNode) and not all(are_tables):
        look_up = f"; or look rows up in {node.right!r}: lookup: {{table: {node.right}, by: ...}}"
        yield error(
            _at(node, "join"),
            "every pair would be kept for ever: say how far apart in event time partners can be, such as after: 15m"
            + (look_up if are_tables[1] and not are_tables[0] else ", or join two tables"),
        )
    yield from _keys(graph, node, "join")
    if isinstance(node, JoinNode):
        yield from _interval(node)


def _keys(graph: Graph, node: AnyJoinNode, section: str) -> Iterator[Finding]:
    """Yield what is wrong with the fields that both sides of a join have in common, and with the others."""
    if not node.key:
        yield error(_at(node, f"{section}.by"), "is empty; name the fields that a pair has in common")
    left, right = ({one.name: one for one in stream_of(graph, name).fields} for name in _named(node))
    for called, names, fields in ((node.left, node.key, left), (node.right, node.right_key, right)):
        for index, name in enumerate(names):
            for problem in _key_field(name, names[:index], fields):
                yield error(_at(node, f"{section}.by"), f"in {called!r}: {problem}")
    yield from _alike(graph, node, left, right)


def _interval(node: JoinNode) -> Iterator[Finding]:
    for part, span in (("before", node.before), ("after", node.after)):
        if span < 0:
            yield error(_at(node, f"join.{part}"), "must not be negative")
        yield from too_long(_at(node, f"join.{part}"), span)


def _alike(graph: Graph, node: AnyJoinNode, left: Mapping[str, Field], right: Mapping[str, Field]) -> Iterator[Finding]:
    """Yield keys of unlike types, and fields whose names collide."""
    section = "lookup" if isinstance(node, LookupNode) else "join"
    for one, other in zip(node.key, node.right_key, strict=True):
        if one in left and other in right and not is_same_type(left[one].type, right[other].type):
            yield error(
                _at(node, f"{section}.by"),
                f"{one!r} in {node.left!r} is {left[one].type}, but {other!r} in {node.right!r} is "
                f"{right[other].type}: derive a field of the same type, such as CAST({other} AS ...)",
            )
    taken = {name.lower() for name in (*left, *right)}
    for name, made in join_sides(graph, node)[1].names.items():
        if name not in node.right_key and made != name and made.lower() in taken:
            yield error(
                _at(node, section),
                f"both have {name!r}, and there is a field {made!r} already: select or derive others before",
            )


def _chained(graph: Graph, node: ResultNode, given: Stream) -> Iterator[Finding]:
    """Yield what a window over windows cannot be, and what a window cannot be whose rows others take."""
    is_running = isinstance(node, WindowNode) and isinstance(node.window, Global)
    if given.rows_of == "tables" and not is_running:
        yield error(
            _at(node, "from"),
            "the rows of a table have no event time, so they are in no windows; use window: {global: {}}",
        )
        return
    if given.is_changelog:
        if not isinstance(node, WindowNode) or isinstance(node.window, Session):
            kind = type(node.window).__name__.lower() if isinstance(node, WindowNode) else "process"
            part = "window" if isinstance(node, WindowNode) else "from"
            yield error(
                _at(node, part), f"a {kind} cannot be over {ROWS_OF[given.rows_of]}, which are taken back; use tumbling"
            )
            return
        if node.emit.lateness:
            yield error(
                _at(node, "emit.lateness"), f"a window takes every revision of {ROWS_OF[given.rows_of]}; leave it out"
            )
        if isinstance(node.emit.late, Records):
            yield error(
                _at(node, "emit.late"),
                f"a window over {ROWS_OF[given.rows_of]} has no counts of late records; use each",
            )
        yield from _plain(node, f"over {ROWS_OF[given.rows_of]}")
    if any(isinstance(one, StreamNode) for one in graph.readers(node)) and not isinstance(node, RulesNode):
        yield from _taken(node)


def _taken(node: WindowNode | ProcessNode) -> Iterator[Finding]:
    """Yield what a window or a process cannot be whose rows other streams take."""
    if isinstance(node, ProcessNode):
        if node.process.on_processing_timer is not None:
            yield error(
                _at(node, "process.on_processing_timer"),
                "other streams take the rows, and those of timers of processing time differ in each run; use timer",
            )
        return
    yield from _plain(node, "whose rows other streams take")
    if node.emit.late != "each":
        yield error(_at(node, "emit.late"), "other streams take each revision; use each")
    if node.emit.mode != "retract":
        yield error(_at(node, "emit.mode"), "other streams need to know what a revision replaces; use retract")


def _plain(node: WindowNode, which: str) -> Iterator[Finding]:
    if node.emit.early is not None:
        yield error(_at(node, "emit.early"), f"a window {which} has no early panes; leave it out")
    if node.salt != 1:
        yield error(_at(node, "salt"), f"a window {which} cannot be salted; leave it out")
    if node.emit.mode == "discard":
        yield error(_at(node, "emit.mode"), f"a window {which} cannot discard; use retract")


def _bounds(graph: Graph, node: StreamNode) -> Iterator[Finding]:
    """Yield where state would grow for ever."""
    match node:
        case DeduplicateNode():
            part, what, late, names = "deduplicate", "key", "a copy", node.inputs
        case JoinNode():
            part, what, late, names = "join", "record", "a partner", node.inputs
        case LookupNode(as_of="event_time"):
            part, what, late, names = "lookup", "version of a row", "a record", (node.left,)
        case _:
            return
    try:
        streams = [stream_of(graph, name) for name in names]
    except PipelineError:
        return  # the shapes say what is wrong
    for source in dict.fromkeys(source for stream in streams if stream.bound is None for source in stream.sources):
        if source.lateness is None:
            yield error(
                _at(node, part),
                f"every {what} would be kept for ever, as nothing says how late {late} can be: give sources."
                f"{source.name} a lateness, such as 1d",
            )


def _record_sink(view: RecordStream) -> Iterator[Finding]:
    """A table of records has a row for each, known by its place in the log."""
    if view.sink.key:
        by = "by the places of its records" if view.has_id else "by source, partition and offset"
        by = f"by {', '.join(view.row_key)}" if view.row_key else by
        yield error("sink.key", f"a table of records is {by}; leave the key out")
    places = {"row"} if view.has_id else {"source", "partition", "offset"}
    places = set() if view.row_key else places
    taken = places.union(RESERVED[2:])
    for name in (*(one.name for one in view.decode.fields), *(one.name for one in view.derive)):
        if name.lower() in taken:
            yield error("from", f"the field {name!r} is a column of every table of records; select others")
    for one in view.decode.fields:
        if isinstance(one.type, ArrayType):
            yield error("from", f"{one.name!r} is an array, which no table holds: flat_map it, or select others")
