"""Print a pipeline as Python source in the fluent form."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import assert_never

from windrow import model as m
from windrow.authoring import sections as s
from windrow.authoring.checks.places import named_streams
from windrow.authoring.sections.alerts import ALERTS_KEY
from windrow.authoring.sections.nodes import kind_of
from windrow.authoring.sections.pipeline import KEY_GROUPS, MODE, NAME, SALT
from windrow.authoring.short_form import short_nodes, short_parts
from windrow.declare.python_code import refuse_code
from windrow.declare.spec import DURATION, Section, arguments
from windrow.errors import HIDDEN_VALUES


def _short(graph: m.Graph) -> str:
    """Return the Python expression that builds a short form."""
    source, node, sink = short_nodes(graph)
    parts = short_parts(graph)
    ends = arguments((NAME, KEY_GROUPS, *([SALT] if isinstance(node, m.WindowNode) else []), MODE, ALERTS_KEY), parts)
    steps = [
        s.SOURCE.python(source.source),
        s.DECODE.python(source.decode),
        s.DERIVE.python(source.derive) if source.derive else "",
        s.TIME.python(source.time),
        s.KEY.python(s.KeyFields(node.key)) if node.key else "",
        *_result(node),
        f".to({s.SINK.python(sink.sink)}, {ends})",
    ]
    return "(\n" + "".join(f"    {step}\n" for step in steps if step) + ")\n"


def _result(node: m.ResultNode) -> list[str]:
    match node:
        case m.WindowNode():
            return [
                f".window({s.WINDOW.python(node.window)})",
                s.AGGREGATE.python(node.aggregates),
                s.EMIT.python(node.emit),
            ]
        case m.RulesNode():
            return [s.rules_python(node.rules)]
        case m.ProcessNode():
            raise TypeError(node)  # refused by `refuse_code`
        case _:
            assert_never(node)


def to_python_file(graph: m.Graph) -> str:
    """Return Python source that assigns the pipeline to the variable `pipeline`; secrets are replaced by ***.

    Raise PipelineError if the pipeline has Python code, because only its name is known. If values of variables are
    hidden, a comment in the source says so, because a Python file has no ``${NAME}``.
    """
    refuse_code(graph, "a print-out")
    masked = s.mask_secrets(graph)
    text = f"pipeline = {_short(masked)}" if graph.is_short else _graph(masked)
    shown = HIDDEN_VALUES.hide(text)
    comment = "# ${NAME} stands for the value of a variable: write the value, or read os.environ\n"
    note = comment if shown != text else ""
    return f"import windrow as wr\n{_imports(graph)}\n{note}{shown}"


def _imports(graph: m.Graph) -> str:
    """Return imports for the connectors that are not part of windrow."""
    kinds = [s.SOURCE.kind_of(node.source)[1] for node in graph.sources]
    kinds += [s.SINK.kind_of(node.sink)[1] for node in graph.sinks]
    modules = {kind.spec.call.rpartition(".")[0] for kind in kinds if isinstance(kind.spec, Section)}
    return "".join(f"import {module}\n" for module in sorted(modules - {"wr"}))


def _graph(graph: m.Graph) -> str:
    """Return the Python statements that build a graph."""
    variables = _variables(graph)
    lines = [f"graph = wr.graph({arguments((NAME, KEY_GROUPS, MODE, ALERTS_KEY), vars(graph)).removeprefix('name=')})"]
    for node in graph.nodes:
        variable = variables.get(node.name, "")
        match node:
            case m.SourceNode():
                steps = [s.SOURCE.python(node.source), s.DECODE.python(node.decode)]
                steps += [s.DERIVE.python(node.derive)] if node.derive else []
                rest = "" if node.lateness is None else f", lateness={DURATION.python(node.lateness)}"
                calls = "".join(f"\n    {step}" for step in [*steps, s.TIME.python(node.time)])
                lines.append(f"{variable} = graph.source({node.name!r}, ({calls}\n){rest})")
            case m.SinkNode():
                lines.append(
                    f"graph.sink({node.name!r}, {_stream(graph, node.input, variables)}, {s.SINK.python(node.sink)})"
                )
            case _:
                lines.append(f"{variable} = graph.stream({node.name!r}, {_transform(graph, node, variables)})")
    return "\n".join([*lines, "pipeline = graph.build()", ""])


def _variables(graph: m.Graph) -> dict[str, str]:
    """Map the name of each source and stream to a Python variable."""
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


def _transform(graph: m.Graph, node: m.StreamNode, variables: Mapping[str, str]) -> str:
    """Return the Python expression that builds a stream from its inputs."""
    streams = [_stream(graph, name, variables) for name in named_streams(node)]
    if not isinstance(node, m.ResultNode):
        return kind_of(node).python(node, streams)
    if not isinstance(node, m.WindowNode):
        raise TypeError(node)  # refused by `refuse_code`, or only in short forms
    steps = [
        s.DERIVE.python(node.derive) if node.derive else "",
        s.KEY.python(s.KeyFields(node.key)) if node.key else "",
        f".window({s.WINDOW.python(node.window)})",
        s.AGGREGATE.python(node.aggregates),
        s.EMIT.python(node.emit),
    ]
    calls = "".join(f"\n    {step}" for step in steps if step)
    return f"({streams[0]}{calls}\n)" + (f", salt={node.salt}" if node.salt != 1 else "")
