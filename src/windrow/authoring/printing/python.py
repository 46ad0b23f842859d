"""A pipeline as Python source in the fluent form."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import assert_never

from windrow import model as m
from windrow.authoring import sections as s
from windrow.authoring.sections.alerts import ALERTS_KEY
from windrow.authoring.sections.pipeline import KEY_GROUPS, MODE, NAME, SALT
from windrow.authoring.short_form import short_nodes, short_parts
from windrow.declare.python_code import refuse_code
from windrow.declare.spec import DURATION, Section, arguments
from windrow.errors import HIDDEN_VALUES


def _short(graph: m.Graph) -> str:
    """Return the expression for a short form."""
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
    """Return a Python file that assigns the pipeline to `pipeline`; secrets are ***.

    Raise PipelineError if it has Python code, of which only the name is known. If values of variables are hidden, a
    comment says so: a Python file has no variables.
    """
    refuse_code(graph, "a print-out")
    masked = s.mask_secrets(graph)
    text = f"pipeline = {_short(masked)}" if graph.is_short else _graph(masked)
    shown = HIDDEN_VALUES.hide(text)
    comment = "# ${NAME} stands for the value of a variable: write the value, or read os.environ\n"
    note = comment if shown != text else ""
    return f"import windrow as wr\n{_imports(graph)}\n{note}{shown}"


def _imports(graph: m.Graph) -> str:
    """Return the imports of the modules of connectors from other distributions."""
    kinds = [s.SOURCE.kind_of(node.source)[1] for node in graph.sources]
    kinds += [s.SINK.kind_of(node.sink)[1] for node in graph.sinks]
    modules = {kind.spec.call.rpartition(".")[0] for kind in kinds if isinstance(kind.spec, Section)}
    return "".join(f"import {module}\n" for module in sorted(modules - {"wr"}))


def _graph(graph: m.Graph) -> str:
    """Return the statements for a graph."""
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


def _join(graph: m.Graph, node: m.AnyJoinNode, variables: Mapping[str, str]) -> str:
    """Return the method call that joins a stream with another one."""
    by = node.key if node.key == node.right_key else dict(zip(node.key, node.right_key, strict=True))
    given = [_stream(graph, node.right, variables), f"by={by!r}"]
    match node:
        case m.LookupNode():
            given += [] if node.as_of == "event_time" else [f"as_of={node.as_of!r}"]
            given += [] if node.revise is None else [f"revise={DURATION.python(node.revise)}"]
            given += ["broadcast=True"] if node.broadcast else []
        case m.JoinNode():
            spans = {"before": node.before, "after": node.after}
            spans = {name: span for name, span in spans.items() if span} or {"after": 0}
            given += [f"{name}={DURATION.python(span)}" for name, span in spans.items()]
        case m.TableJoinNode():
            pass
        case _:
            assert_never(node)
    given += [] if node.how == "inner" else [f"how={node.how!r}"]
    return f".{'lookup' if isinstance(node, m.LookupNode) else 'join'}({', '.join(given)})"


def _transform(graph: m.Graph, node: m.StreamNode, variables: Mapping[str, str]) -> str:  # noqa: PLR0911 - a case for each kind of stream
    """Return the expression for a stream over its inputs."""
    first, *others = (_stream(graph, name, variables) for name in node.inputs)
    match node:
        case m.SelectNode(where=where, derive=derive, select=select):
            steps = [f".where({where!r})"] if where is not None else []
            if others:
                condition = [] if where is None else [f"where={where!r}"]
                steps = [f".union({', '.join([*others, *condition])})"]
            steps += [s.DERIVE.python(derive)] if derive else []
            steps += [f".select({', '.join(map(repr, select))})"] if select is not None else []
            return first + "".join(steps or [".union()"])
        case m.SplitNode(outputs=outputs, other=other):
            conditions = {output.name: output.sql for output in outputs}
            return f"{first}.split({conditions!r}{'' if other is None else f', other={other!r}'})"
        case m.FlatMapNode():
            named = {"element": node.element, "position": node.position}
            given = [f"{name}={value!r}" for name, value in named.items() if value is not None]
            given += ["outer=True"] if node.outer else []
            return f"{first}.flat_map({', '.join([repr(node.field), *given])})"
        case m.DeduplicateNode(key=key, within=within, scope=scope):
            by = ", ".join(map(repr, key))
            rest = "" if scope == "stream" else f", scope={scope!r}"
            return f"{first}.deduplicate({by}, within={DURATION.python(within)}{rest})"
        case m.TableNode(key=key, deleted=deleted):
            condition = [] if deleted is None else [f"deleted={deleted!r}"]
            return f"{first}.table({', '.join([*map(repr, key), *condition])})"
        case m.JoinNode() | m.TableJoinNode() | m.LookupNode():
            return first + _join(graph, node, variables)
        case m.WindowNode():
            steps = [
                s.DERIVE.python(node.derive) if node.derive else "",
                s.KEY.python(s.KeyFields(node.key)) if node.key else "",
                f".window({s.WINDOW.python(node.window)})",
                s.AGGREGATE.python(node.aggregates),
                s.EMIT.python(node.emit),
            ]
            calls = "".join(f"\n    {step}" for step in steps if step)
            return f"({first}{calls}\n)" + (f", salt={node.salt}" if node.salt != 1 else "")
        case m.ProcessNode() | m.RulesNode():
            raise TypeError(node)  # refused by `refuse_code`, or only in short forms
        case _:
            assert_never(node)
