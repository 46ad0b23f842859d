"""Paths of nodes in a graph file, and checks of fields and conditions that all kinds of streams share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from windrow import model as m
from windrow.declare.findings import Finding, error
from windrow.errors import PipelineError
from windrow.expressions import Stream, analyse, stream_of


def section_of(node: m.Node) -> str:
    """Return the section of a graph file that defines a node."""
    match node:
        case m.SourceNode():
            return "sources"
        case m.SinkNode():
            return "sinks"
        case _:
            return "streams"


def at(node: m.Node, part: str = "") -> str:
    """Return the path of a node in a graph file, such as ``streams.totals``, or of a part of the node."""
    return f"{section_of(node)}.{node.name}" + (f".{part}" if part else "")


def place(graph: m.Graph, node: m.Node, part: str = "") -> str:
    """Return the path of a node or of a part of it; in a short form, the parts are top-level sections."""
    return part or "source" if graph.is_short else at(node, part)


def part_of(node: m.Node, stream: str) -> str:
    """Return the key of a node's settings that refers to this input stream."""
    if not isinstance(node, m.AnyJoinNode) or stream == node.left:
        return "from"
    return "lookup.table" if isinstance(node, m.LookupNode) else "join.with"


def named_streams(node: m.Node) -> tuple[str, ...]:
    """Return the names of a node's inputs as its settings list them; a join has its left input first."""
    return (node.left, node.right) if isinstance(node, m.AnyJoinNode) else node.inputs


def selected_from(graph: m.Graph, stream: str) -> str:
    """Follow selections and splits upstream, and return the first stream that is neither."""
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


def is_typed(graph: m.Graph, name: str) -> bool:
    """Return True if the fields of a stream are known, that is, if all expressions above it are valid."""
    try:
        stream_of(graph, name)
    except PipelineError:
        return False
    return True


def condition_findings(given: Stream, text: str, where: str) -> Iterator[Finding]:
    """Check that the text is a boolean expression over the fields of a stream."""
    nullable = frozenset(field.name for field in given.fields if field.optional)
    try:
        made = analyse(text, given.fields, nullable)
    except PipelineError as exc:
        yield error(where, exc.message)
        return
    if made.type != m.BooleanType():
        yield error(where, f"{text!r} is not a condition; write one that is true or false, such as kind = 'buy'")


def key_findings(fields: Mapping[str, m.Field], key: Sequence[str], where: str, purpose: str) -> Iterator[Finding]:
    """Check the fields of a key.

    `where` is the path of the key in the file; `purpose` completes the message for an empty key.
    """
    if not key:
        yield error(where, f"is empty; list the fields {purpose}")
    for index, name in enumerate(key):
        for problem in key_problems(name, key[:index], fields):
            yield error(f"{where}.{index}", problem)


def key_problems(name: str, before: Sequence[str], fields: Mapping[str, m.Field]) -> Iterator[str]:
    """Yield an error message for each reason why a field cannot be in a key; `before` are the fields preceding it."""
    if name not in fields:
        yield f"there is no field {name!r}; the fields are {', '.join(fields)}"
    elif isinstance(fields[name].type, m.ArrayType):
        yield f"{name!r} is an array, and only flat_map accepts arrays"
    elif isinstance(fields[name].type, m.DoubleType):
        yield f"{name!r} is a double, but equal doubles can differ in text; use another field"
    elif fields[name].optional:
        yield f"{name!r} can be null, but a key must not be; derive a key: coalesce({name}, ...)"
    if name in before:
        yield f"{name!r} is given twice; keep one of them"
