"""A pipeline as the fluent Python source that makes it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import assert_never

from windrow import model as m
from windrow.authoring.checks.places import named_streams
from windrow.authoring.sections import (
    AGGREGATE,
    DECODE,
    DERIVE,
    EMIT,
    KEY,
    SINK,
    SOURCE,
    TIME,
    WINDOW,
    KeyFields,
    mask_secrets,
    rules_python,
)
from windrow.authoring.sections.alerts import ALERTS_KEY
from windrow.authoring.sections.nodes import kind_of
from windrow.authoring.sections.pipeline import KEY_GROUPS, MODE, NAME, SALT
from windrow.authoring.short_form import short_nodes, short_parts
from windrow.declare.python_code import refuse_code
from windrow.declare.spec import DURATION, Section, arguments
from windrow.errors import HIDDEN_VALUES


def _short(graph: m.Graph) -> str:
    """Return the expression that makes a short form."""
    source, node, sink = short_nodes(graph)
    parts = short_parts(graph)
    ends = arguments((NAME, KEY_GROUPS, *([SALT] if isinstance(node, m.WindowNode) else []), MODE, ALERTS_KEY), parts)
    steps = [
        SOURCE.python(source.source),
        DECODE.python(source.decode),
        DERIVE.python(source.derive) if source.derive else "",
        TIME.python(source.time),
        KEY.python(KeyFields(node.key)) if node.key else "",
        *_result(node),
        f".to({SINK.python(sink.sink)}, {ends})",
    ]
    return "(\n" + "".join(f"    {step}\n" for step in steps if step) + ")\n"


def _result(node: m.ResultNode) -> list[str]:
    match node:
        case m.WindowNode():
            return [f".window({WINDOW.python(node.window)})", AGGREGATE.python(node.aggregates), EMIT.python(node.emit)]
        case m.RulesNode():
            return [rules_python(node.rules)]
        case m.ProcessNode():
            raise TypeError(node)  # `refuse_code` has refused it
        case _:
            assert_never(node)


def to_python_file(graph: m.Graph) -> str:
    """Return a Python file with the pipeline in it, as `pipeline`; secrets are ***.

    Raise PipelineError if there is Python code in it: of that, only the name is known. A comment says so if values of
    variables are hidden: Python puts no values in.
    """
    refuse_code(graph, "a print-out")
    masked = mask_secrets(graph)
    text = f"pipeline = {_short(masked)}" if graph.is_short else _graph(masked)
    shown = HIDDEN_VALUES.hide(text)
    is_hidden = shown != text
    note = "# ${NAME} stands for the value of a variable: write the value, or read os.environ\n" if is_hidden else ""
    return f"import windrow as wr\n{_imports(graph)}\n{note}{shown}"


def _imports(graph: m.Graph) -> str:
    """Return the imports of modules that have the calls of connectors of other distributions."""
    kinds = [SOURCE.kind_of(node.source)[1] for node in graph.sources]
    kinds += [SINK.kind_of(node.sink)[1] for node in graph.sinks]
    modules = {kind.spec.call.rpartition(".")[0] for kind in kinds if isinstance(kind.spec, Section)}
    return "".join(f"import {module}\n" for module in sorted(modules - {"wr"}))


def _graph(graph: m.Graph) -> str:
    """Return the statements that make a graph."""
    variables = _variables(graph)
    lines = [f"graph = wr.graph({arguments((NAME, KEY_GROUPS, MODE, ALERTS_KEY), vars(graph)).removeprefix('name=')})"]
    for node in graph.nodes:
        variable = variables.get(node.name, "")
        match node:
            case m.SourceNode():
                steps = [SOURCE.python(node.source), DECODE.python(node.decode)]
                steps += [DERIVE.python(node.derive)] if node.derive else []
                rest = "" if node.lateness is None else f", lateness={DURATION.python(node.lateness)}"
                made = "".join(f"\n    {step}" for step in [*steps, TIME.python(node.time)])
                lines.append(f"{variable} = graph.source({node.name!r}, ({made}\n){rest})")
            case m.SinkNode():
                lines.append(
                    f"graph.sink({node.name!r}, {_stream(graph, node.input, variables)}, {SINK.python(node.sink)})"
                )
            case _:
                lines.append(f"{variable} = graph.stream({node.name!r}, {_made(graph, node, variables)})")
    return "\n".join([*lines, "pipeline = graph.build()", ""])


def _variables(graph: m.Graph) -> dict[str, str]:
    """Return a variable for each source and stream, named after it."""
    found: dict[str, str] = {}
    taken = {"graph", "pipeline", "wr", *keyword.kwlist}
    for node in (*graph.sources, *graph.streams):
        plain = re.sub(r"\W", "_", node.name)
        name = f"_{plain}" if plain[0].isdigit() else plain
        while name in taken:
            name += "_"
        taken.add(name)
        found[node.name] = name
    return found


def _stream(graph: m.Graph, name: str, variables: Mapping[str, str]) -> str:
    maker = graph.producer(name)
    output = name.removeprefix(f"{maker.name}.") if name != maker.name else ""
    return variables[maker.name] + (f"[{output!r}]" if output else "")


def _made(graph: m.Graph, node: m.StreamNode, variables: Mapping[str, str]) -> str:
    """Return the expression that makes a stream of others."""
    streams = [_stream(graph, name, variables) for name in named_streams(node)]
    if not isinstance(node, m.ResultNode):
        return kind_of(node).python(node, streams)
    if not isinstance(node, m.WindowNode):
        raise TypeError(node)  # it has been refused, or is no part of a graph
    steps = [
        DERIVE.python(node.derive) if node.derive else "",
        KEY.python(KeyFields(node.key)) if node.key else "",
        f".window({WINDOW.python(node.window)})",
        AGGREGATE.python(node.aggregates),
        EMIT.python(node.emit),
    ]
    written = "".join(f"\n    {step}" for step in steps if step)
    return f"({streams[0]}{written}\n)" + (f", salt={node.salt}" if node.salt != 1 else "")
