"""A pipeline as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from windrow.api.aggregate_text import aggregate_text
from windrow.api.python_code import code_name
from windrow.api.sections import TRIGGER, WINDOW, mask_graph, mask_secrets, state_words
from windrow.model import (
    Adaptive,
    AnyJoinNode,
    AnyPipeline,
    DeduplicateNode,
    Delay,
    DelayByPartition,
    Emit,
    FlatMapNode,
    Graph,
    JoinNode,
    LookupNode,
    Node,
    Pipeline,
    ProcessNode,
    ProcessPipeline,
    Punctuated,
    Records,
    RulesNode,
    RulesPipeline,
    Runnable,
    SelectNode,
    SinkNode,
    SourceNode,
    SplitNode,
    StreamNode,
    TableJoinNode,
    TableNode,
    WindowNode,
    companion,
    format_duration,
)


def to_mermaid(pipeline: Runnable) -> str:
    """Return a flowchart: the data's way from source to sink, with dead letters and late output; secrets are ***."""
    if isinstance(pipeline, Graph):
        return _graph(mask_graph(pipeline))
    shown = mask_secrets(pipeline)
    fields = [f"{field.name} {field.type_text}" for field in shown.decode.fields]
    fields += [f"{derived.name} = {derived.sql}" for derived in shown.derive]
    way, drawn = _middle(shown)
    lines = [
        "flowchart LR",
        f"  source[({_label('source', f'{shown.source.section} {shown.source.place}')})]",
        f"  decode[{_label('decode', ', '.join(fields))}]",
        f"  time[{_label('time', f'{shown.time.field}, {_watermark(shown)}')}]",
        f"  key[{_label('key', ', '.join(shown.key) or 'none')}]",
        *drawn,
        f"  sink[({_label('sink', f'{shown.sink.table} in {shown.sink.place}')})]",
        f"  dead[({_label('dead letters', companion(shown.sink, 'dead'))})]",
        f"  late[({_label('late output', companion(shown.sink, 'late'))})]",
        f"  source --> decode --> time --> key --> {' --> '.join(way)} --> sink",
        "  decode -. not good .-> dead",
        "  time -. too far ahead .-> dead" if shown.time.future is not None else None,
        f"  {way[0]} -. expired .-> late",
    ]
    return "\n".join(line for line in lines if line is not None) + "\n"


def _middle(pipeline: AnyPipeline) -> tuple[tuple[str, ...], list[str]]:
    """Return the nouns between the key and the sink, and how they are drawn."""
    match pipeline:
        case ProcessPipeline():
            return ("process",), _process(pipeline)
        case RulesPipeline():
            return ("rules",), _rules(pipeline)
        case Pipeline():
            return ("window", "aggregate", "emit"), _windowed(pipeline)
        case _:
            assert_never(pipeline)


def _graph(graph: Graph) -> str:
    """Draw the nodes of a graph by number, as names may hold what Mermaid gives a meaning to."""
    numbers = {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        left, right = ("[(", ")]") if isinstance(node, SourceNode | SinkNode) else ("[", "]")
        lines.append(f"  {numbers[node.name]}{left}{_label(node.name, node_text(graph, node))}{right}")
    for node in graph.nodes:
        for name in node.inputs:
            maker = graph.producer(name)
            output = name.removeprefix(f"{maker.name}.") if name != maker.name else ""
            arrow = f"-- {_quoted(output)} -->" if output else "-->"
            lines.append(f"  {numbers[maker.name]} {arrow} {numbers[node.name]}")
    return "\n".join(lines) + "\n"


def node_text(graph: Graph, node: Node) -> str:
    """Say what a node of a graph is, in short; of `mask_graph(graph)`, as a source or sink may have secrets."""
    match node:
        case SourceNode():
            return f"{node.source.section} {node.source.place}; {node.time.field}, {_watermark(node)}"
        case SinkNode():
            return f"{node.sink.table} in {node.sink.place}"
        case _:
            return "; ".join(_stream(graph, node))


def _stream(graph: Graph, node: StreamNode) -> Iterator[str]:  # noqa: C901 - a case for each kind of stream
    """Yield what a stream is, in short."""
    match node:
        case SelectNode():
            yield from _selected(node)
        case SplitNode():
            yield "split"
        case FlatMapNode():
            yield f"{'outer ' if node.outer else ''}flat_map {node.field}"
        case DeduplicateNode():
            yield f"deduplicate by {', '.join(node.key)} within {format_duration(node.within)}"
        case TableNode():
            yield f"table by {', '.join(node.key)}"
        case JoinNode() | TableJoinNode() | LookupNode():
            yield _joined(node)
        case WindowNode():
            yield "; ".join([*([f"by {', '.join(node.key)}"] if node.key else []), WINDOW.words(node.window)])
        case ProcessNode():
            yield f"by {', '.join(node.key)}; process"
        case RulesNode():
            yield f"by {', '.join(node.key)}; rules"
        case _:
            assert_never(node)
    if node in graph.keyed and len(graph.levels) > 1:
        yield f"level {graph.level_of(node)}"


def _selected(node: SelectNode) -> Iterator[str]:
    if node.where is not None:
        yield f"where {node.where}"
    if node.derive or node.select is not None:
        yield "select " + ", ".join(node.select or ("*", *(one.name for one in node.derive)))


def _joined(node: AnyJoinNode) -> str:
    keys = ", ".join(node.key)
    match node:
        case JoinNode():
            spans = f"{format_duration(node.before)} before to {format_duration(node.after)} after"
            return f"{node.how} join by {keys}; {spans}"
        case TableJoinNode():
            return f"{node.how} join by {keys}"
        case LookupNode():
            broadcast = ", broadcast" if node.broadcast else ""
            return f"look up in {node.table} by {keys}, as of {node.as_of.replace('_', ' ')}{broadcast}"
        case _:
            assert_never(node)


def _windowed(pipeline: Pipeline) -> list[str]:
    results = ", ".join(f"{aggregate.name} = {aggregate_text(aggregate)}" for aggregate in pipeline.aggregates)
    return [
        f"  window[{_label('window', WINDOW.words(pipeline.window))}]",
        f"  aggregate[{_label('aggregate', results)}]",
        f"  emit[{_label('emit', _emit(pipeline.emit))}]",
    ]


def _process(pipeline: ProcessPipeline) -> list[str]:
    state = "".join(f", {state.name} {state_words(state)}" for state in pipeline.process.state)
    returns = ", ".join(f"{field.name} {field.type}" for field in pipeline.process.returns)
    return [f"  process[{_label('process', f'{code_name(pipeline.process.function)}{state}: {returns}')}]"]


def _rules(pipeline: RulesPipeline) -> list[str]:
    names = ", ".join(rule.name for rule in pipeline.rules.rules)
    return [f"  rules[{_label('rules', f'{names}; lateness {format_duration(pipeline.rules.lateness)}')}]"]


def _watermark(pipeline: AnyPipeline | SourceNode) -> str:
    match pipeline.time.watermark:
        case Delay(micros):
            return f"delay {format_duration(micros)}"
        case DelayByPartition(default, delays):
            own = (f", {format_duration(micros)} in partition {partition}" for partition, micros in delays)
            return f"delay {format_duration(default)}{''.join(own)}"
        case Adaptive(target, least, most):
            return f"delay of {target * 100:g} % of the records, {format_duration(least)} to {format_duration(most)}"
        case Punctuated(field):
            return f"watermark in {field}"
        case _:
            assert_never(pipeline.time.watermark)


def _emit(emit: Emit) -> str:
    early = "" if emit.early is None else f", early {TRIGGER.words(emit.early)}"
    late = f"every {emit.late.number}" if isinstance(emit.late, Records) else emit.late
    return f"{emit.mode}, lateness {format_duration(emit.lateness)}, late {late}{early}"


def _label(noun: str, text: str) -> str:
    """Quote a label: within quotes Mermaid gives a meaning to these characters alone."""
    return f'"<b>{noun}</b><br/>{_escaped(text)}"'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
