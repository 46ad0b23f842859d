"""Checks of a graph: its names, what flows where, its sources, and each result and sink by the rules of a pipeline."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from windrow import model as m
from windrow.authoring.checks.connectors import file_fields, sink_settings, source_settings
from windrow.authoring.checks.fields import (
    EVERY_CHANGE,
    RESERVED,
    changes_of_rows,
    decode_fields,
    derived_fields,
    nested_fields,
    pipeline_name,
    short_fields,
    tombstones,
)
from windrow.authoring.checks.formats import record_format
from windrow.authoring.checks.key import key_groups
from windrow.authoring.checks.places import at, named_streams, part_of, place, selected_from
from windrow.authoring.checks.results import result_findings
from windrow.authoring.checks.streams import stream_findings
from windrow.authoring.checks.time import adaptive_delay, all_idle, durations, no_future_guard, sent_field, time_field
from windrow.authoring.checks.waiting import waiting
from windrow.authoring.short_form import NODE_NAMES
from windrow.declare.findings import Finding, error, too_long, warning
from windrow.errors import PipelineError
from windrow.expressions import (
    OperatorSpec,
    spec_of,
    stream_of,
)

SOURCE_RULES: tuple[Callable[[m.SourceNode], Iterable[Finding]], ...] = (
    source_settings,
    record_format,
    decode_fields,
    tombstones,
    changes_of_rows,
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


def graph_findings(graph: m.Graph) -> list[Finding]:
    """Return what is wrong with a graph."""
    for rules in () if graph.is_short else (_NAMES, _EDGES):
        # what comes later needs names, and then edges
        found = [finding for rule in rules for finding in rule(graph)]
        if found:
            return found
    parts: list[Iterable[Finding]] = [pipeline_name(graph), *(_source(graph, node) for node in graph.sources)]
    if not graph.is_short:
        parts += (stream_findings(graph, node) for node in graph.streams)
    found = [finding for part in parts for finding in part]
    found_there = {finding.where for finding in found}
    for node in graph.keyed:
        if isinstance(node, m.ResultNode):
            found += (finding for finding in result_findings(graph, node) if finding.where not in found_there)
    found += (finding for sink in graph.sinks for finding in _sink(graph, sink))
    found += key_groups(graph)
    if not graph.is_short:
        found += (finding for node in graph.streams for finding in _bounds(graph, node))
        found += (finding for node in graph.nodes for finding in _changes(graph, node))
        found += waiting(graph)
    return sorted(dict.fromkeys(found), key=lambda finding: finding.level)


def _source(graph: m.Graph, node: m.SourceNode) -> Iterator[Finding]:
    for rule in (*SOURCE_RULES, *([short_fields] if graph.is_short else [])):
        yield from (replace(finding, where=place(graph, node, finding.where)) for finding in rule(node))
    if node.lateness is not None and node.lateness < 0:
        yield error(at(node, "lateness"), "must not be negative")
    yield from too_long(at(node, "lateness"), node.lateness or 0)


def _sink(graph: m.Graph, node: m.SinkNode) -> Iterator[Finding]:
    findings = [*sink_settings(node.sink)]
    if not isinstance(graph.producer(node.input), m.ResultNode):
        # what is wrong with the stream is found where it is made
        with suppress(PipelineError):
            findings += _record_sink(spec_of(graph, node), node.sink)
    yield from (replace(finding, where=place(graph, node, finding.where)) for finding in findings)


def _names(graph: m.Graph) -> Iterator[Finding]:
    counts = Counter(name for node in graph.nodes for name in (node.name, *set(m.outputs_of(node)) - {node.name}))
    for node in graph.nodes:
        if not _NAME.fullmatch(node.name):
            yield error(at(node), NODE_NAMES)
        for name in dict.fromkeys([node.name, *m.outputs_of(node)]):
            if counts[name] > 1:
                yield error(at(node), f"the name {name!r} is given twice; choose another one")
        if isinstance(node, m.SplitNode):
            outputs = Counter([*(output.name for output in node.outputs), *filter(None, [node.other])])
            for name, count in outputs.items():
                if count > 1 or not _NAME.fullmatch(name):
                    yield error(at(node, "split"), f"{name!r} is not a name of its own; each output has another one")


def _inputs(graph: m.Graph) -> Iterator[Finding]:
    if not graph.sources:
        yield error("sources", "there is no source; add one")
    known = [name for node in graph.nodes for name in m.made_by(node)]
    unknown = False
    for node in graph.nodes:
        for name in dict.fromkeys(named_streams(node)):
            if name not in known:
                unknown = True
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"name one of {', '.join(known)}"
                yield error(at(node, part_of(node, name)), f"there is no source or stream {name!r}; {hint}")
            elif isinstance(node, m.LookupNode) and name == node.table and not _is_table(graph, name):
                unknown = True
                yield error(at(node, "lookup.table"), _no_table(graph, name))
    if not unknown:
        yield from _cycles(graph)


def _no_table(graph: m.Graph, name: str) -> str:
    """Return why a stream cannot be the table of a lookup, and what to do."""
    table = selected_from(graph, name)
    match graph.producer(table):
        case m.TableNode() as node if table != name:
            return _selected(name, graph.producer(name), node)
        case m.TableJoinNode():
            result = "a join of tables"
        case m.WindowNode():
            result = "an aggregate"
        case _:
            return f"{name!r} is not a table: name a stream with `table`, which says by which key its rows are known"
    return (
        f"{name!r} is the result of {result}, which cannot be looked up: a lookup needs the records that make a table. "
        f"Look rows up in a stream with `table`, before {result}; or, if {name!r} has no window of event time, make a "
        f"table of the records and join the two: join: {{with: {name}, by: ...}}"
    )


def _selected(name: str, selection: m.Node, table: m.TableNode) -> str:
    """Return why a selection of a table cannot be looked up, and what to do."""
    condition = selection.where if isinstance(selection, m.SelectNode) else None
    is_whole = isinstance(selection, m.SelectNode) and selection.where is None and selection.inputs == (table.name,)
    message = (
        f"{name!r} is a selection of the table {table.name!r}, and a lookup needs the table itself: look rows up in "
        f"{table.name!r}, and put what the selection does behind the lookup"
    )
    if is_whole:
        return message
    gone = f"({condition or 'CONDITION'}) IS NOT TRUE"
    gone = gone if table.deleted is None else f"({table.deleted}) OR {gone}"
    return (
        f"{message}; or make a table of the same records whose rows go where the condition is not true: "
        f"{{from: {table.input}, table: {{key: [{', '.join(table.key)}], deleted: {json.dumps(gone)}}}}}"
    )


def _is_table(graph: m.Graph, name: str) -> bool:
    return isinstance(graph.producer(name), m.TableNode)


def _cycles(graph: m.Graph) -> Iterator[Finding]:
    """Streams come after their inputs; those that do not are in a cycle, or behind one."""
    before: set[str] = set()
    for node in graph.nodes:
        late = [name for name in named_streams(node) if name not in before]
        if late:
            message = f"it depends on itself, by way of {late[0]!r}; a graph has no cycles"
            yield error(at(node, part_of(node, late[0])), message)
        before.update(m.outputs_of(node))


def _outputs(graph: m.Graph) -> Iterator[Finding]:
    if not graph.streams and not graph.sinks:
        yield error("streams", "there is no stream; add one")
    known = {name for node in graph.nodes for name in m.outputs_of(node)}
    if not all(known.issuperset(node.inputs) for node in graph.nodes):
        return
    for source in graph.sources:
        if graph.streams and not graph.readers(source):
            yield error(at(source), "no stream takes its records; remove it, or name it in a stream's `from`")
    for node in graph.streams:
        if not graph.sinks_below(node):
            yield error(at(node), f"its rows go nowhere; add a sink from {node.name!r}, or remove it")


def _tables(graph: m.Graph) -> Iterator[Finding]:
    """Two sinks may not write one table: each step would overwrite the other's rows."""
    taken: dict[tuple[object, str], str] = {}
    for node in graph.sinks:
        place = node.sink.database, node.sink.table.lower()
        other = taken.setdefault(place, node.name)
        if other != node.name:
            yield error(at(node, "sink"), f"the table {node.sink.table!r} is written by {other!r}; name another")


def _labels(graph: m.Graph) -> Iterator[Finding]:
    """Tables name a record by the name of its log, its partition and its offset."""
    taken: dict[str, str] = {}
    for node in graph.sources:
        other = taken.setdefault(node.source.label, node.name)
        if other != node.name:
            yield error(
                at(node, "source"),
                f"it is called {node.source.label!r} in tables, as is {other!r}: two sources are two logs, with names "
                "of their own",
            )


def _ends(graph: m.Graph) -> Iterator[Finding]:
    results = [node for node in graph.nodes if isinstance(node, m.ResultNode)]
    for node in results:
        if len({result.at_end for result in results}) > 1 and node.at_end != results[0].at_end:
            yield error(
                at(node, "emit"),
                f"at_end is {node.at_end}, but {results[0].at_end} for {results[0].name!r}; all streams end alike",
            )


_NAMES = (_names, _inputs, _outputs)
_EDGES = (_labels, _tables, _ends)


def _bounds(graph: m.Graph, node: m.StreamNode) -> Iterator[Finding]:
    """Yield where state would grow for ever."""
    match node:
        case m.DeduplicateNode():
            part, what, late, names = "deduplicate", "key", "a copy", node.inputs
        case m.JoinNode():
            part, what, late, names = "join", "record", "a partner", node.inputs
        case m.LookupNode(as_of="event_time"):
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
                at(node, part),
                f"every {what} would be kept for ever, as nothing says how late {late} can be: give sources."
                f"{source.name} a lateness, such as 1d",
            )


def _changes(graph: m.Graph, node: m.Node) -> Iterator[Finding]:
    """Yield where changes of rows are taken as records, none of whose fields tells a deletion."""
    if isinstance(node, m.SourceNode | m.TableNode | m.SelectNode | m.SplitNode):
        return
    try:
        streams = [stream_of(graph, name) for name in node.inputs]
    except PipelineError:
        return  # the shapes say what is wrong
    for stream in streams:
        fields = [field for source in stream.sources for field in source.decode.fields]
        if stream.lacking is not None and not any(field.path == ("op",) for field in fields):
            yield warning(at(node, "from"), EVERY_CHANGE)


def _record_sink(spec: OperatorSpec[m.SinkNode], sink: m.Sink) -> Iterator[Finding]:
    """A table of records has a row for each, known by its place in the log."""
    if sink.key:
        by = "by the places of its records" if spec.has_id else "by source, partition and offset"
        by = f"by {', '.join(spec.row_key)}" if spec.row_key else by
        yield error("sink.key", f"a table of records is {by}; leave the key out")
    places = {"row"} if spec.has_id else {"source", "partition", "offset"}
    places = set() if spec.row_key else places
    taken = places.union(RESERVED[2:])
    for name in (*(field.name for field in spec.decode.fields), *(one.name for one in spec.derive)):
        if name.lower() in taken:
            yield error("from", f"the field {name!r} is a column of every table of records; select others")
    for field in spec.decode.fields:
        if isinstance(field.type, m.ArrayType):
            yield error("from", f"{field.name!r} is an array, which no table holds: flat_map it, or select others")
