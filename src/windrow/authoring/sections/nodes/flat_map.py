"""Flat maps: a record for each element of an array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from windrow import model as m
from windrow.authoring.checks.places import at
from windrow.authoring.sections.nodes.kind import STREAM, NodeKind, from_key
from windrow.declare.findings import Finding, error, is_name
from windrow.declare.spec import FIELD_NAME, FLAG, Key, Section
from windrow.errors import PipelineError
from windrow.expressions import ROWS_OF, Stream, exploded


def _findings(graph: m.Graph, node: m.FlatMapNode, given: Stream) -> Iterator[Finding]:  # noqa: ARG001 - as others
    if given.rows_of == "tables":
        yield error(at(node, "from"), f"{ROWS_OF[given.rows_of]} have a key; flat_map the records before the table")
        return
    try:
        made = exploded(given, replace(node, position=None))
    except PipelineError as exc:
        yield error(at(node, "flat_map" if node.element is None else "element"), exc.message)
        return
    array = next(field for field in given.fields if field.name == node.field)
    if (
        node.element is not None
        and isinstance(array.type, m.ArrayType)
        and isinstance(array.type.element, m.StructType)
    ):
        names = ", ".join(field.name for field in array.type.element.fields)
        yield error(at(node, "element"), f"an element has fields with names of their own: {names}; leave it out")
    for part, name in (("element", node.element), ("position", node.position)):
        if name is not None and (not is_name(name) or name.startswith("__")):
            yield error(
                at(node, part),
                f"{name!r} is not a valid name; it is printable, and does not begin with two underscores",
            )
    if node.position is not None and node.position.lower() in {one.name.lower() for one in made}:
        yield error(at(node, "position"), f"there is a field {node.position!r} already (SQL ignores case)")


def _words(graph: m.Graph, node: m.FlatMapNode) -> Mapping[str, str]:  # noqa: ARG001 - as others
    lines = [f"a record for each element of {node.field}, with the other fields of its record"]
    lines += [] if node.position is None else [f"{node.position} is the number of the element, from 0"]
    lines += ["a record without elements gives one with null in their place"] if node.outer else []
    return {"flat_map": "\n".join(lines)}


def _python(node: m.FlatMapNode, streams: Sequence[str]) -> str:
    named = {"element": node.element, "position": node.position}
    arguments = [f"{name}={value!r}" for name, value in named.items() if value is not None]
    arguments += ["outer=True"] if node.outer else []
    return f"{streams[0]}.flat_map({', '.join([repr(node.field), *arguments])})"


def _node(**sections: Any) -> m.FlatMapNode:  # noqa: ANN401
    return m.FlatMapNode("", **sections)


def _parts(node: m.FlatMapNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.input, "flat_map": node.field}


FLAT_MAP: Final = NodeKind(
    m.FlatMapNode,
    ("flat_map", "element", "position", "outer"),
    Section(
        "",
        _node,
        (
            from_key(STREAM),
            Key(
                "flat_map",
                FIELD_NAME,
                "the name of an array. Each of its elements gives a record, with the other fields of its own and those "
                "of the element.",
                required=True,
                field="field",
            ),
            Key(
                "element",
                FIELD_NAME,
                "the name of the field with the element, where that is no struct; left out, that of the array.",
            ),
            Key("position", FIELD_NAME, "the name of a field for the number of the element, from 0."),
            Key(
                "outer",
                FLAG,
                "with `true`, a record whose array is empty or null gives one with null in the fields of the element; "
                "else it gives none.",
                default=False,
            ),
        ),
        parts=_parts,
    ),
    _findings,
    _words,
    lambda node: f"{'outer ' if node.outer else ''}flat_map {node.field}",
    _python,
)
