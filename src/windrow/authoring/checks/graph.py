"""Checks of a graph: names and edges, sources, results and sinks, and sources that hold each other back."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from windrow import model as m
from windrow.authoring.checks import connectors, fields, time
from windrow.authoring.checks.places import at, named_streams, part_of, place, selected_from
from windrow.authoring.checks.results import result_findings
from windrow.authoring.checks.streams import stream_findings
from windrow.authoring.short_form import NODE_NAMES
from windrow.declare.findings import Finding, error, too_long, warning
from windrow.errors import PipelineError, did_you_mean
from windrow.expressions import OperatorSpec, sink_spec, spec_of, stream_of

SOURCE_RULES: tuple[Callable[[m.SourceNode], Iterable[Finding]], ...] = (
    connectors.source_settings,
    connectors.record_format,
    fields.decode_fields,
    fields.tombstones,
    fields.outside_fields,
    fields.changes_of_rows,
    connectors.file_fields,
    fields.nested_fields,
    fields.derived_fields,
    time.time_field,
    time.sent_field,
    time.durations,
    time.adaptive_delay,
    time.all_idle,
    time.jump_guard,
    time.no_clock_guard,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def graph_findings(graph: m.Graph) -> list[Finding]:
    """Return the errors and warnings for a graph, errors first."""
    for rules in () if graph.is_short else (_NAMES, _EDGES):
        # edges need valid names, and the other rules valid edges
        found = [finding for rule in rules for finding in rule(graph)]
        if found:
            return found
    parts: list[Iterable[Finding]] = [fields.pipeline_name(graph), *(_source(graph, node) for node in graph.sources)]
    if not graph.is_short:
        parts += (stream_findings(graph, node) for node in graph.streams)
    found = [finding for part in parts for finding in part]
    places = {finding.where for finding in found}
    for node in graph.keyed:
        if isinstance(node, m.ResultNode):
            found += (finding for finding in result_findings(graph, node) if finding.where not in places)
    found += (finding for sink in graph.sinks for finding in _sink(graph, sink))
    found += fields.key_groups(graph)
    if not graph.is_short:
        found += (finding for node in graph.streams for finding in _bounds(graph, node))
        found += (finding for node in graph.nodes for finding in _changes(graph, node))
        found += _waiting(graph)
    return sorted(dict.fromkeys(found), key=lambda finding: finding.level)


def _source(graph: m.Graph, node: m.SourceNode) -> Iterator[Finding]:
    for rule in (*SOURCE_RULES, *([fields.short_fields] if graph.is_short else [])):
        yield from (replace(finding, where=place(graph, node, finding.where)) for finding in rule(node))
    if node.lateness is not None and node.lateness < 0:
        yield error(at(node, "lateness"), "must not be negative")
    yield from too_long(at(node, "lateness"), node.lateness or 0)


def _sink(graph: m.Graph, node: m.SinkNode) -> Iterator[Finding]:
    findings = [*connectors.sink_settings(node.sink)]
    if not isinstance(graph.producer(node.input), m.ResultNode):
        # errors of the stream are reported there
        with suppress(PipelineError):
            findings += _record_sink(spec_of(graph, node), node.sink)
    if node.sink.partition_by:
        with suppress(PipelineError):
            findings += connectors.partition_columns(sink_spec(graph, node))
    if isinstance(node.sink, m.KafkaSink) and node.sink.encoding is not None:
        with suppress(PipelineError):
            findings += connectors.registered_schema(sink_spec(graph, node), node.sink.encoding)
    yield from (replace(finding, where=place(graph, node, finding.where)) for finding in findings)


def _names(graph: m.Graph) -> Iterator[Finding]:
    counts = Counter(name for node in graph.nodes for name in (node.name, *set(m.outputs_of(node)) - {node.name}))
    for node in graph.nodes:
        if not _NAME.fullmatch(node.name):
            yield error(at(node), NODE_NAMES)
        for name in dict.fromkeys([node.name, *m.outputs_of(node)]):
            if counts[name] > 1:
                yield error(at(node), f"the name {name!r} is used twice; choose a different one")
        if isinstance(node, m.SplitNode):
            outputs = Counter([*(output.name for output in node.outputs), *filter(None, [node.other])])
            for name, count in outputs.items():
                if count > 1 or not _NAME.fullmatch(name):
                    yield error(at(node, "split"), f"{name!r} is not a valid and unique name of an output")


def _inputs(graph: m.Graph) -> Iterator[Finding]:
    if not graph.sources:
        yield error("sources", "there is no source; add one")
    known = [name for node in graph.nodes for name in m.operator_outputs(node)]
    unknown = False
    for node in graph.nodes:
        for name in dict.fromkeys(named_streams(node)):
            if name not in known:
                unknown = True
                hint = did_you_mean(name, known) or f"; use one of {', '.join(known)}"
                yield error(at(node, part_of(node, name)), f"there is no source or stream {name!r}{hint}")
            elif (
                isinstance(node, m.LookupNode)
                and name == node.table
                and not isinstance(graph.producer(name), m.TableNode)
            ):
                unknown = True
                yield error(at(node, "lookup.table"), _no_table(graph, name))
    if not unknown:
        yield from _cycles(graph)


def _no_table(graph: m.Graph, name: str) -> str:
    """Return the error message for a stream that cannot be the table of a lookup, with a way to fix it."""
    table = selected_from(graph, name)
    match graph.producer(table):
        case m.TableNode() as node if table != name:
            return _no_selection(name, graph.producer(name), node)
        case m.TableJoinNode():
            result = "a join of tables"
        case m.WindowNode():
            result = "an aggregate"
        case _:
            return f"{name!r} is not a table: use a stream with `table`, which has a key that identifies its rows"
    return (
        f"{name!r} is the result of {result}, which cannot be looked up: a lookup needs the records of a table. "
        f"Look rows up in a stream with `table`, before {result}; or, if {name!r} has no window of event time, make a "
        f"table of the records and join the two: join: {{with: {name}, by: ...}}"
    )


def _no_selection(name: str, selection: m.Node, table: m.TableNode) -> str:
    """Return the error message for a lookup in a selection of a table, with a way to fix it."""
    condition = selection.where if isinstance(selection, m.SelectNode) else None
    is_whole = isinstance(selection, m.SelectNode) and selection.where is None and selection.inputs == (table.name,)
    message = (
        f"{name!r} is a selection of the table {table.name!r}, but a lookup needs the table itself: look rows up in "
        f"{table.name!r}, and apply the selection after the lookup"
    )
    if is_whole:
        return message
    gone = f"({condition or 'CONDITION'}) IS NOT TRUE"
    gone = gone if table.deleted is None else f"({table.deleted}) OR {gone}"
    return (
        f"{message}; or make a table of the same records in which rows are deleted if the condition is not true: "
        f"{{from: {table.input}, table: {{key: [{', '.join(table.key)}], deleted: {json.dumps(gone)}}}}}"
    )


def _cycles(graph: m.Graph) -> Iterator[Finding]:
    """Find cycles.

    Streams are sorted topologically, so a stream precedes one of its inputs only if it is in a cycle or below one.
    """
    before: set[str] = set()
    for node in graph.nodes:
        late = [name for name in named_streams(node) if name not in before]
        if late:
            message = f"it depends on itself through {late[0]!r}; a graph must not have cycles"
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
            yield error(at(source), "no stream reads it; remove it, or use it in a stream's `from`")
    for node in graph.streams:
        if not graph.sinks_below(node):
            yield error(at(node), f"no sink writes its rows; add a sink from {node.name!r}, or remove it")


def _tables(graph: m.Graph) -> Iterator[Finding]:
    """Check that no two sinks write the same table, because each would overwrite the other's rows."""
    taken: dict[tuple[object, str], str] = {}
    for node in graph.sinks:
        place = node.sink.database, node.sink.table.lower()
        other = taken.setdefault(place, node.name)
        if other != node.name:
            yield error(at(node, "sink"), f"{other!r} also writes the table {node.sink.table!r}; use a different table")


def _labels(graph: m.Graph) -> Iterator[Finding]:
    """Check that source labels are unique, because tables identify a record by label, partition and offset."""
    taken: dict[str, m.SourceNode] = {}
    for node in graph.sources:
        other, label = taken.setdefault(node.source.label, node), node.source.label
        if other is node:
            continue
        message = f"tables would call both this source and {other.name!r} {label!r}: "
        if node.source.records.place == other.source.records.place:
            message += (
                "read it as one source, whose fields are optional unless all of its records have them, and select the "
                "records of each stream with `where`"
            )
        elif isinstance(node.source.records, m.KafkaSource) and isinstance(other.source.records, m.KafkaSource):
            message += "read each topic in a pipeline of its own"
        else:
            message += "give one of the folders another name, or read it by a link with another name"
        yield error(at(node, "source"), message)


def _ends(graph: m.Graph) -> Iterator[Finding]:
    results = [node for node in graph.nodes if isinstance(node, m.ResultNode)]
    for node in results:
        if len({result.at_end for result in results}) > 1 and node.at_end != results[0].at_end:
            yield error(
                at(node, "emit"),
                f"at_end is {node.at_end}, but {results[0].at_end} for {results[0].name!r}; all must be the same",
            )


_NAMES = (_names, _inputs, _outputs)
_EDGES = (_labels, _tables, _ends)


def _bounds(graph: m.Graph, node: m.StreamNode) -> Iterator[Finding]:
    """Find state that would grow without bound."""
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
        return  # reported at the stream
    for source in dict.fromkeys(source for stream in streams if stream.bound is None for source in stream.sources):
        if source.lateness is None:
            yield error(
                at(node, part),
                f"every {what} would be kept forever, because {late} can be late without limit: give sources."
                f"{source.name} a lateness, such as 1d",
            )


def _changes(graph: m.Graph, node: m.Node) -> Iterator[Finding]:
    """Warn if row changes are read as records, and no field distinguishes deletions."""
    if isinstance(node, m.SourceNode | m.ChangesNode | m.TableNode | m.SelectNode | m.SplitNode):
        return
    try:
        streams = [stream_of(graph, name) for name in node.inputs]
    except PipelineError:
        return  # reported at the stream
    for stream in streams:
        decoded = [field for source in stream.sources for field in source.decode.fields]
        if stream.lacking is not None and not any(field.path == ("op",) for field in decoded):
            yield warning(at(node, "from"), fields.EVERY_CHANGE)


def _record_sink(spec: OperatorSpec[m.SinkNode], sink: m.Sink) -> Iterator[Finding]:
    """Check a table of records, which has a row for each record, identified by the record's place in the log."""
    if sink.key:
        by = "by the places of its records" if spec.has_id else "by source, partition and offset"
        by = f"by {', '.join(spec.row_key)}" if spec.row_key else by
        yield error("sink.key", f"the rows of a table of records are identified {by}; remove the key")
    places = set() if spec.row_key else {"row"} if spec.has_id else {"source", "partition", "offset"}
    taken = places.union(fields.RESERVED[2:])
    for name in [*(field.name for field in spec.decode.fields), *(derived.name for derived in spec.derive)]:
        if name.lower() in taken:
            yield error("from", f"the field {name!r} is a column of every table of records; select other fields")


def _waiting(graph: m.Graph) -> Iterator[Finding]:
    """Warn about sources that hold back other sources because they may become idle or have a longer delay."""
    if len(graph.sources) > 1:
        yield from _idle(graph)
        yield from _behind(graph)


def _idle(graph: m.Graph) -> Iterator[Finding]:
    for node in graph.sources:
        if node.time.idle is not None:
            continue
        below = graph.below(node)
        if isinstance(node.source, m.FollowedSource) or any(isinstance(reader, m.TableNode) for reader in below):
            why = "a table seldom changes, and streams of it and other sources wait until it does"
        elif any(isinstance(reader, m.JoinNode) and reader.how != "inner" for reader in below):
            why = "the watermark decides that a record has no partner, and an idle partition holds it back"
        else:
            continue
        yield warning(f"sources.{node.name}.time", f"has no `idle`: {why}; set it to about 1m")


def _behind(graph: m.Graph) -> Iterator[Finding]:
    """Warn about sources with different delays whose streams meet in a node that merges them in order.

    Sources are sorted by delay, and each pair of neighbours is reported once.
    """
    reported: set[tuple[str, str]] = set()
    for node in graph.keyed:
        if not (graph.is_ordered(node) or isinstance(node, m.ResultNode)):
            continue
        for (short, quick), (long, slow) in pairwise(sorted(_delays(graph, node))):
            # versions that wait for the records that look them up delay nothing
            is_version = isinstance(node, m.LookupNode) and quick not in graph.feeding(node.left)
            if short != long and not is_version and (quick, slow) not in reported:
                reported.add((quick, slow))
                yield warning(
                    f"sources.{slow}.time.delay",
                    f"is {m.format_duration(long)}, and {m.format_duration(short)} for {quick!r}, whose records wait "
                    f"{m.format_duration(long - short)} longer for it in {node.name!r}; give both similar delays",
                )


def _delays(graph: m.Graph, node: m.KeyedNode) -> Iterator[tuple[int, str]]:
    """Yield the longest delay and the name of each source above a node; sources without a fixed delay are left out."""
    feeding = graph.feeding(node.name)
    for source in graph.sources:
        mark = source.time.watermark
        if source.name in feeding and isinstance(mark, m.Delay | m.DelayByPartition):
            yield (mark.micros if isinstance(mark, m.Delay) else mark.longest), source.name
