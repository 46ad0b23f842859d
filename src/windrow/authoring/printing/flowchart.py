"""Draw a pipeline as a flowchart of boxes and the paths of data between them; also as Mermaid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from windrow import model as m
from windrow.authoring.aggregate_text import aggregate_text
from windrow.authoring.sections import TRIGGER, WINDOW, mask_secrets, state_words
from windrow.authoring.sections.nodes import kind_of
from windrow.authoring.short_form import short_nodes
from windrow.declare.python_code import code_name
from windrow.errors import HIDDEN_VALUES


@dataclass(frozen=True)
class Box:
    """A box of a flowchart, with its title (`noun`) and description (`text`); `is_store` for logs and tables."""

    id: str
    noun: str
    text: str
    is_store: bool = False


@dataclass(frozen=True)
class Way:
    """A path of data through boxes, which are given by their ids; `is_aside` for dead letters and late output."""

    boxes: tuple[str, ...]
    label: str = ""
    is_aside: bool = False


@dataclass(frozen=True)
class Flowchart:
    """Boxes in topological order, and the paths between them."""

    boxes: tuple[Box, ...]
    ways: tuple[Way, ...]


def flowchart(graph: m.Graph) -> Flowchart:
    """Return the flowchart of a pipeline from its sources to its sinks, with secrets masked.

    The flowchart of a short form also includes dead letters and late output.
    """
    shown = mask_secrets(graph)
    if not graph.is_short:
        return _graph(shown)
    source, node, sink = short_nodes(shown)
    fields = [f"{field.name} {field.type_text}" for field in source.decode.fields]
    fields += [f"{derived.name} = {derived.sql}" for derived in source.derive]
    middle = _middle(node)
    boxes = (
        Box("source", "source", f"{source.source.section} {source.source.place}", is_store=True),
        Box("decode", "decode", ", ".join(fields)),
        Box("time", "time", f"{source.time.field}, {_watermark(source)}"),
        Box("key", "key", ", ".join(node.key) or "none"),
        *middle,
        Box("sink", "sink", f"{sink.sink.table} in {sink.sink.place}", is_store=True),
    )
    beside = (
        Box("dead", "dead letters", sink.sink.companion("dead"), is_store=True),
        Box("late", "late output", sink.sink.companion("late"), is_store=True),
    )
    ways = [
        Way(tuple(box.id for box in boxes)),
        Way(("decode", "dead"), "not good", is_aside=True),
        *([Way(("time", "dead"), "too far ahead", is_aside=True)] if source.time.future is not None else []),
        Way((middle[0].id, "late"), "expired", is_aside=True),
    ]
    shown_boxes = (replace(box, text=HIDDEN_VALUES.hide(box.text)) for box in (*boxes, *beside))
    return Flowchart(tuple(shown_boxes), tuple(ways))


def _middle(node: m.ResultNode) -> tuple[Box, ...]:
    """Return the boxes between the key and the sink."""
    match node:
        case m.ProcessNode():
            state = "".join(f", {state.name} {state_words(state)}" for state in node.process.state)
            returns = ", ".join(f"{field.name} {field.type}" for field in node.process.returns)
            return (Box("process", "process", f"{code_name(node.process.function)}{state}: {returns}"),)
        case m.RulesNode():
            names = ", ".join(rule.name for rule in node.rules.rules)
            return (Box("rules", "rules", f"{names}; lateness {m.format_duration(node.rules.lateness)}"),)
        case m.WindowNode():
            results = ", ".join(f"{aggregate.name} = {aggregate_text(aggregate)}" for aggregate in node.aggregates)
            return (
                Box("window", "window", WINDOW.words(node.window)),
                Box("aggregate", "aggregate", results),
                Box("emit", "emit", _emit(node.emit)),
            )
        case _:
            assert_never(node)


def _graph(graph: m.Graph) -> Flowchart:
    """Draw the nodes of a graph. Ids are numbers, because names may have characters with a meaning in Mermaid."""
    numbers = {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}
    boxes = [
        Box(numbers[node.name], node.name, node_text(graph, node), is_store=isinstance(node, m.SourceNode | m.SinkNode))
        for node in graph.nodes
    ]
    ways = []
    for node in graph.nodes:
        for name in node.inputs:
            maker = graph.producer(name)
            output = name.removeprefix(f"{maker.name}.") if name != maker.name else ""
            ways.append(Way((numbers[maker.name], numbers[node.name]), output))
    return Flowchart(tuple(boxes), tuple(ways))


def node_text(graph: m.Graph, node: m.Node) -> str:
    """Return a short description of a node.

    Apply `mask_secrets` to the graph first, because a source or sink may contain secrets.
    """
    match node:
        case m.SourceNode():
            text = f"{node.source.section} {node.source.place}; {node.time.field}, {_watermark(node)}"
        case m.SinkNode():
            text = f"{node.sink.table} in {node.sink.place}"
        case _:
            text = "; ".join(_stream(graph, node))
    return HIDDEN_VALUES.hide(text)


def _stream(graph: m.Graph, node: m.StreamNode) -> Iterator[str]:
    """Yield the parts of a stream's short description."""
    match node:
        case m.WindowNode():
            yield "; ".join([*([f"by {', '.join(node.key)}"] if node.key else []), WINDOW.words(node.window)])
        case m.ProcessNode():
            yield f"by {', '.join(node.key)}; process"
        case m.RulesNode():
            yield f"by {', '.join(node.key)}; rules"
        case _:
            yield kind_of(node).label(node)
    if node in graph.keyed and len(graph.levels) > 1:
        yield f"level {graph.level_of(node)}"


def _watermark(node: m.SourceNode) -> str:
    match node.time.watermark:
        case m.Delay(micros):
            return f"delay {m.format_duration(micros)}"
        case m.DelayByPartition(default, delays):
            own = (f", {m.format_duration(micros)} in partition {partition}" for partition, micros in delays)
            return f"delay {m.format_duration(default)}{''.join(own)}"
        case m.Adaptive(target, least, most):
            return (
                f"delay of {target * 100:g} % of the records, {m.format_duration(least)} to {m.format_duration(most)}"
            )
        case m.Punctuated(field):
            return f"watermark in {field}"
        case _:
            assert_never(node.time.watermark)


def _emit(emit: m.Emit) -> str:
    early = "" if emit.early is None else f", early {TRIGGER.words(emit.early)}"
    late = f"every {emit.late.number}" if isinstance(emit.late, m.Records) else emit.late
    return f"{emit.mode}, lateness {m.format_duration(emit.lateness)}, late {late}{early}"


def to_mermaid(graph: m.Graph) -> str:
    """Return the flowchart of a pipeline in Mermaid, with secrets masked."""
    chart = flowchart(graph)
    lines = ["flowchart LR"]
    for box in chart.boxes:
        left, right = ("[(", ")]") if box.is_store else ("[", "]")
        # the characters that have a meaning within quotes in Mermaid
        lines.append(f'  {box.id}{left}"<b>{_escape(box.noun)}</b><br/>{_escape(box.text)}"{right}')
    lines += [f"  {f' {_arrow(way)} '.join(way.boxes)}" for way in chart.ways]
    return "\n".join(lines) + "\n"


def _arrow(way: Way) -> str:
    if way.is_aside:
        return f"-. {_escape(way.label)} .->"
    return f'-- "{_escape(way.label)}" -->' if way.label else "-->"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
