"""Describe a pipeline in words, in the order of the data flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from windrow import model as m
from windrow.authoring.aggregate_text import aggregate_text
from windrow.authoring.sections import DELAY, LATE, SINK, SOURCE, TRIGGER, WINDOW, mask_secrets, state_words
from windrow.authoring.sections.alerts import alert_words
from windrow.authoring.sections.nodes import kind_of
from windrow.authoring.short_form import short_nodes
from windrow.declare.python_code import code_name
from windrow.errors import HIDDEN_VALUES
from windrow.expressions import (
    RulesSpec,
    Stream,
    needs_rows,
    record_fields,
    spec_of,
    stream_of,
)
from windrow.expressions.rules import uses_next


def to_text(graph: m.Graph) -> str:
    """Describe each section of a pipeline in words, in the order of the data flow; secrets are replaced by ***."""
    shown = mask_secrets(graph)
    if not graph.is_short:
        return HIDDEN_VALUES.hide(_graph(shown))
    source, node, sink = short_nodes(shown)
    nouns = _source(source, sink.sink.table) | _keyed(shown, node, _passed(source)) | {"sink": _sink(sink.sink)}
    nouns |= {"alerts": alert_words(shown.alerts)}
    return HIDDEN_VALUES.hide("\n".join([shown.name, *_lines(_mode(graph)), *_lines(nouns)])) + "\n"


def realtime_words(graph: m.Graph) -> str:
    """Describe the latency and the requirements of a real-time pipeline."""
    commit = min((sink.sink.commit for sink in graph.sinks if isinstance(sink.sink, m.KafkaSink)), default=0)
    # a change waits for half of `commit` on average, after its record is polled and processed
    millis = commit // 1000
    keys = graph.partition_key
    by = f"; {graph.sources[0].source.label} must be partitioned by {', '.join(keys)}" if keys else ""
    span = f"{millis // 2 + 10:,} to {millis + 40:,} ms"
    every = f"with a transaction every {m.format_duration(commit)}"
    lines = [
        f"each record as it arrives: a change is in its topic about {span} after its record, {every}",
        f"each partition occupies a slot of Spark while the pipeline runs{by}",
    ]
    return HIDDEN_VALUES.hide("\n".join([*lines, *(_history_size(spec_of(graph, node)) for node in graph.rules)]))


def file_words(graph: m.Graph) -> list[str]:
    """For each source that is a file, say from what time its rows are valid."""
    found = []
    for node in graph.sources:
        if isinstance(node.source, m.FileSource):
            since = (
                "have no time: the first row of a key is valid from the beginning, later rows from when they are read"
                if node.is_by_reading
                else f"are valid from their own time, {node.time.field}"
            )
            found.append(HIDDEN_VALUES.hide(f"the rows of {node.source.path} {since}"))
    return found


_WIDTHS: dict[type[m.DataType], int] = {
    m.BooleanType: 1,
    m.DecimalType: 16,
    **dict.fromkeys((m.StringType, m.JsonListType), 16),
}
"""Bytes of a value in the state, 8 for other types; a string is assumed to have some twelve letters."""
_PLACE_BYTES = 24
"""Bytes of a record's partition, offset and watermark."""
_MILLION = 1_000_000


def _history_size(spec: RulesSpec) -> str:
    """Estimate the state of rules, assuming that each key has as many records as a rule sees."""
    last = spec.node.rules.recent.last
    record = _PLACE_BYTES + sum(_WIDTHS.get(type(field.type), 8) for field in record_fields(spec))
    size = last * record * _MILLION / 1e9
    return (
        f"state in memory: {last} records of about {record} bytes for each key; for a million such keys about "
        f"{size:,.1f} GB, over all tasks"
    )


def _mode(graph: m.Graph) -> dict[str, str]:
    return {"mode": realtime_words(graph)} if graph.mode == "realtime" else {}


def _graph(graph: m.Graph) -> str:
    lines = [graph.name, *_lines(_mode(graph))]
    for origin in graph.sources:
        source = _source(origin, "TABLE")
        if origin.lateness is not None:
            source["lateness"] = (
                f"a record {m.format_duration(origin.lateness)} behind the watermark goes to TABLE_late"
            )
        lines += [f"source {origin.name}", *_lines(source), "  TABLE is the table of each sink"]
    for node in graph.streams:
        given = node.left if isinstance(node, m.LookupNode) else ", ".join(node.inputs)
        lines += [f"stream {node.name} (from {given})", *_lines(_stream(graph, node))]
    for sink in graph.sinks:
        is_result = isinstance(graph.producer(sink.input), m.ResultNode)
        rows = {} if is_result else {"rows": _rows(stream_of(graph, sink.input))}
        lines += [f"sink {sink.name} (from {sink.input})", *_lines(rows | {"sink": _sink(sink.sink)})]
    lines += _lines({"alerts": alert_words(graph.alerts)})
    return "\n".join(lines) + "\n"


def _stream(graph: m.Graph, node: m.StreamNode) -> dict[str, str]:
    """Describe a stream; for a node with state, include its level and how long the state is kept."""
    nouns = _result(graph, node) if isinstance(node, m.ResultNode) else dict(kind_of(node).words(graph, node))
    bound = _bound(stream_of(graph, next(m.outputs_of(node))))
    if not isinstance(node, m.KeyedNode):
        return nouns | {"bound": bound}
    levels, kept = len(graph.levels), _kept(graph, node)
    return nouns | {
        "level": f"{graph.level_of(node)} of {levels}" if levels > 1 and node in graph.keyed else "",
        "order": _order(graph, node) if node in graph.keyed else "",
        "bound": bound if kept else "",
        "keeps": kept,
    }


def _result(graph: m.Graph, node: m.ResultNode) -> dict[str, str]:
    given = stream_of(graph, node.input)
    passed = _passed(*given.sources)
    nouns = {"derive": _derived(node.derive)} | _keyed(graph, node, passed)
    is_running = isinstance(node, m.WindowNode) and isinstance(node.window, m.Global)
    if is_running and (given.is_changelog or graph.is_read(node)):
        nouns["emit"] = "each change of a row revises the results of its key"
    elif isinstance(node, m.WindowNode) and given.is_changelog:
        nouns["emit"] = _over_windows(given, passed)
    return nouns


def _rows(stream: Stream) -> str:
    """Describe what a row in a table of records stands for."""
    if stream.key:
        return f"one for each {', '.join(stream.key)}"
    if stream.has_id:
        if stream.rows_of == "processes":
            return "one for each row that is emitted, by its record or timer"
        if stream.rows_of == "records":
            return "one for each record and branch of a union, by the name of the branch and the place of the record"
        of = "join" if stream.rows_of == "joins" else "stream"
        return f"one for each row of the {of}, by the places of its records"
    return "one for each record, by source, partition and offset"


def _bound(stream: Stream) -> str:
    """Describe how long the rows of a stream can still arrive or change."""
    is_windowed = stream.rows_of == "windows"
    what = "the rows of a window change" if is_windowed else "a record comes"
    if stream.has_id:
        what = "a row comes, or is retracted," if stream.is_changelog else "a row comes"
    if stream.bound is None:
        return f"{what} however far the watermark is past it"
    if not stream.bound:
        return "the rows of a window do not change after its end" if is_windowed else ""
    past = "its end" if is_windowed else "it"
    return f"{what} until the watermark is {m.format_duration(stream.bound)} past {past}"


def _over_windows(given: Stream, passed: str) -> str:
    """Describe when a window over a changelog fires, and what revises its results."""
    and_hold = f" and {m.format_duration(given.hold)} more" if given.hold else ""
    lines = [f"a window fires when {passed}{and_hold}, with the rows as of that watermark"]
    if given.bound:
        lines.append(f"revisions of the rows revise it, for {m.format_duration(given.bound)}")
    return "\n".join(lines)


def _order(graph: m.Graph, node: m.KeyedNode) -> str:
    """Describe the order in which a node processes records; "" if it is the order of arrival."""
    settles = isinstance(node, m.ProcessNode) or not isinstance(node, m.ResultNode) or graph.is_raw(node.input)
    if not graph.is_ordered(node) or not settles:
        return ""
    of = stream_of(graph, node.name).sources
    which = f" of {_names(of)}" if len(of) < len(graph.sources) else ""
    return f"by watermark: a record waits until the watermark of every partition{which} has reached its own"


def _kept(graph: m.Graph, node: m.KeyedNode) -> str:
    """Describe how long the state of a node is kept."""
    if isinstance(node, m.ResultNode):
        return _kept_of_window(graph, node) if isinstance(node, m.WindowNode) else ""
    return kind_of(node).keeps(graph, node)


def _kept_of_window(graph: m.Graph, node: m.WindowNode) -> str:
    spec, is_changelog = spec_of(graph, node), stream_of(graph, node.input).is_changelog
    if isinstance(node.window, m.Global):
        if not (is_changelog or graph.is_read(node)):
            return ""
        return "all rows" if needs_rows(spec, is_changelog=is_changelog) else "a row of each key"
    past = f"is {m.format_duration(spec.lateness)} past" if spec.lateness else "has reached"
    return f"{'rows' if is_changelog else 'aggregates'} of a window until the watermark {past} its end"


def _source(node: m.SourceNode, table: str) -> dict[str, str]:
    fields = ", ".join(map(_field, node.decode.fields))
    fields = f"JSON with {fields}" if isinstance(node.source.format, str) else fields
    return {
        "source": SOURCE.words(node.source),
        "decode": f"{fields}\na record that does not fit goes to {table}_dead",
        "derive": _derived(node.derive),
        "time": _time(node.time, table),
    }


def _derived(fields: tuple[m.Derive, ...]) -> str:
    return "\n".join(f"{derived.name} = {derived.sql}" for derived in fields)


def _keyed(graph: m.Graph, node: m.ResultNode, passed: str) -> dict[str, str]:
    sink = graph.first_sink(node).sink
    key = {"key": _key(node, graph.key_groups)}
    match node:
        case m.ProcessNode():
            return key | {"process": _process(node, sink, is_ordered=graph.is_ordered(node))}
        case m.RulesNode():
            return key | _rules(node.rules, sink.table)
        case m.WindowNode():
            return key | {
                "window": WINDOW.words(node.window),
                "aggregate": ", ".join(f"{item.name} = {aggregate_text(item)}" for item in node.aggregates),
                "emit": _emit(node, sink, passed),
            }
        case _:
            assert_never(node)


def _lines(nouns: Mapping[str, str]) -> list[str]:
    """Return a line for each clause; the first clause of each description begins with its noun."""
    return [
        f"  {'' if number else noun:<10} {clause}"
        for noun, meaning in nouns.items()
        if meaning
        for number, clause in enumerate(meaning.split("\n"))
    ]


def _field(field: m.Field) -> str:
    also = f" (or {', '.join(field.alias)})" if field.alias else ""
    at = f" (at {'.'.join(field.path)})" if field.path else ""
    key = " (the key of a tombstone)" if field.tombstones else ""
    return f"{field.name} {field.type_text}{at}{also}{key}"


def _time(time: m.EventTime, table: str) -> str:
    match time.watermark:
        case m.Punctuated(field):
            mark = f"a record with {field} sets its partition's watermark to it"
        case delay:
            mark = DELAY.words(delay)
    lines = [time.field, mark]
    if time.sent is not None:
        lines.append(f"a device's clock is corrected by the log timestamp minus {time.sent}")
    if time.future is not None:
        ahead = m.format_duration(time.future)
        lines.append(f"a record over {ahead} ahead of its log timestamp goes to {table}_dead and advances no watermark")
    if time.jump is not None:
        ahead, whose = m.format_duration(time.jump), "" if time.future is None else " without a log timestamp"
        lines.append(
            f"a record{whose} over {ahead} ahead of its partition's clock advances it only if five in a row are"
        )
    if time.idle is not None:
        then = "watermarks stop" if time.all_idle == "hold" else "watermarks advance with processing time"
        lines.append(
            f"a partition without records for {m.format_duration(time.idle)} does not hold back others; "
            f"if all are idle, {then}"
        )
    return "\n".join(lines)


def _key(node: m.ResultNode, key_groups: int) -> str:
    spread = node.salt
    if not node.key:
        how = f"aggregated in {spread} key groups, then in one" if spread > 1 else "in one key group"
        return f"none: one row for all records of a window, {how}"
    salt = f", each spread over {spread} of them" if spread > 1 else ""
    parts = m.state_partitions(key_groups)
    groups = f"{key_groups} key groups (on a cluster in {parts} state partitions)"
    return f"{', '.join(node.key)}, in {groups}{salt}"


def _emit(node: m.WindowNode, sink: m.Sink, passed: str) -> str:
    emit, lines = node.emit, []
    if emit.early is not None:
        lines.append(f"an early pane is written {TRIGGER.words(emit.early)}")
    if not isinstance(node.window, m.Global):
        lines.append(f"a window fires when {passed}")
        if emit.lateness:
            lines.append(f"late records revise it for {m.format_duration(emit.lateness)} ({LATE.words(emit.late)})")
        lines.append(
            f"after that: {sink.table}_late" if emit.lateness else f"late records change nothing: {sink.table}_late"
        )
    lines += _accumulation(emit, sink)
    end = "fire at the end of a bounded input" if emit.at_end == "fire" else "stay open at the end of a bounded input"
    return "\n".join([*lines, f"open windows {end}"])


def _names(sources: Iterable[m.SourceNode]) -> str:
    return " and ".join(source.name for source in sources)


def _passed(*sources: m.SourceNode) -> str:
    """Describe when the watermarks of the sources have passed the end of a window."""
    if len(sources) > 1:
        return f"the watermark of every partition of {_names(sources)} has reached its end"
    watermark = sources[0].time.watermark
    if isinstance(watermark, m.Delay):
        return f"every partition has read {m.format_duration(watermark.micros)} past its end"
    return "every partition's watermark has reached its end"


def _accumulation(emit: m.Emit, sink: m.Sink) -> list[str]:
    match emit.mode:
        case "retract":
            return []
        case "accumulate":
            has_changes = sink.changelog and isinstance(sink, m.TableSink)
            kept = f", which {sink.table}_changes does not retract" if has_changes else ""
            return [f"a revision replaces the previous row{kept}"]
        case "discard":
            return ["a pane holds only the records since the previous pane, as a row of its own"]
        case _:
            assert_never(emit.mode)


def _sink(sink: m.Sink) -> str:
    companions = ["late", "dead", "clocks"] if not sink.changelog else ["changes", "late", "dead", "clocks"]
    if not isinstance(sink, m.TableSink):
        return f"{SINK.words(sink)}\nbeside it {sink.companion('late')} and {sink.companion('dead')}"
    if isinstance(sink, m.PostgresSink) and sink.outbox:
        companions.append("outbox")
    return f"{SINK.words(sink)}\nbeside it {sink.table}_{', _'.join(companions)}"


def _list_words(entries: m.RuleList) -> str:
    match entries:
        case m.FileList(path=path, column=column):
            return f"the entries of {path}" + (f", column {column}" if column else "")
        case m.TopicList(topic=topic, field=field):
            return f"the keys of topic {topic}" + (f", field {field}" if field else "") + " with a value"
        case _:
            assert_never(entries)


def _rules(rules: m.RuleSet, table: str) -> dict[str, str]:
    """Describe rules, which records they see, and when alerts change."""
    span = m.format_duration(rules.recent.within)
    seen = f"the last {rules.recent.last} records of the key in the {span} before it, by event time"
    if any(map(uses_next, rules.rules)):
        seen += f", and the next one, up to {span} after it, once it is read"
    copies = (
        f"a record with the same {rules.unique} as another changes nothing; "
        f"if its content differs, it goes to {table}_dead"
    )
    lists = (f"{entries.name}: {_list_words(entries)}" for entries in rules.lists)
    texts = [f"{rule.name} ({rule.severity}): {rule.when}" for rule in rules.rules]
    emit = ["an alert is written when its record is read"]
    if rules.revise:
        emit.append("rules are applied again to later records of the key: alerts are raised, updated, cleared")
    emit.append(
        f"no rule is applied to a record {m.format_duration(rules.lateness)} behind the watermark: {table}_late"
    )
    return {
        "unique": copies if rules.unique else "",
        "recent": f"a rule sees a record, and {seen}",
        "lists": "\n".join(lists),
        "rules": "\n".join(texts),
        "emit": "\n".join(emit),
    }


def _process(node: m.ProcessNode, sink: m.Sink, *, is_ordered: bool) -> str:
    """Describe a process, one clause per line; `is_ordered` if its records arrive in watermark order."""
    process = node.process
    lines = [f"the Python function {code_name(process.function)} for each record"]
    if process.order == "log":
        of = "watermarks" if is_ordered else "the log"
        lines.append(f"a key's records are processed in the order of {of}")
    else:
        lines.append("records are processed in order of event time, once the watermark has passed them")
        lines.append(f"a record that arrives later than that goes to {sink.companion('late')}")
    lines += [f"it keeps {state.name}, {state_words(state)}, for each key" for state in process.state]
    if process.ttl is None:
        lines.append("state and row of a key are kept forever")
    else:
        lines.append(
            f"an entry expires {m.format_duration(process.ttl)} after it is written, a key after its last call"
        )
    if process.on_timer is not None:
        lines.append(f"timers of event time call {code_name(process.on_timer)}")
    if process.on_processing_timer is not None:
        lines.append(f"timers of processing time call {code_name(process.on_processing_timer)}")
    returns = ", ".join(f"{field.name} {field.type}" for field in process.returns)
    end = "fire" if node.at_end == "fire" else "stay set"
    return "\n".join([*lines, f"it emits {returns}", f"timers {end} at the end of a bounded input"])
