"""Flat maps: each element of an array becomes a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from windrow import model as m
from windrow.authoring.checks.base import name_problems
from windrow.authoring.checks.places import at
from windrow.authoring.sections.nodes.kind import NodeKind, from_key
from windrow.declare.findings import Finding, error
from windrow.declare.spec import FIELD_NAME, FLAG, Key, Section
from windrow.errors import PipelineError
from windrow.expressions import ROWS_OF, Stream, element_fields


def _findings(graph: m.Graph, node: m.FlatMapNode, given: Stream) -> Iterator[Finding]:  # noqa: ARG001 - as others
    if given.rows_of == "tables":
        yield error(at(node, "from"), f"{ROWS_OF[given.rows_of]} have a key; flat_map the records before the table")
        return
    try:
        made = element_fields(given, replace(node, position=None))
    except PipelineError as exc:
        yield error(at(node, "flat_map" if node.element is None else "element"), exc.message)
        return
    array = next(field for field in given.fields if field.name == node.field)
    element = array.type.element if isinstance(array.type, m.ArrayType) else None
    if node.element is not None and isinstance(element, m.StructType):
        names = ", ".join(field.name for field in element.fields)
        yield error(at(node, "element"), f"an element is a struct with the fields {names}; remove it")
    for part, name in (("element", node.element), ("position", node.position)):
        yield from (error(at(node, part), problem) for problem in (name_problems(name) if name is not None else ()))
    if node.position is not None and node.position.lower() in {field.name.lower() for field in made}:
        yield error(at(node, "position"), f"there is a field {node.position!r} already (SQL ignores case)")


def _words(graph: m.Graph, node: m.FlatMapNode) -> Mapping[str, str]:  # noqa: ARG001 - as others
    lines = [f"a record for each element of {node.field}, with the other fields of its record"]
    lines += [] if node.position is None else [f"{node.position} is the index of the element, from 0"]
    lines += ["a record without elements becomes one record with null in their place"] if node.outer else []
    return {"flat_map": "\n".join(lines)}


def _python(node: m.FlatMapNode, streams: Sequence[str]) -> str:
    named = {"element": node.element, "position": node.position}
    arguments = [f"{name}={value!r}" for name, value in named.items() if value is not None]
    arguments += ["outer=True"] if node.outer else []
    return f"{streams[0]}.flat_map({', '.join([repr(node.field), *arguments])})"


_KEYS = (
    from_key(),
    Key(
        "flat_map",
        FIELD_NAME,
        "an array, whose elements become records together with the other fields of their record.",
        required=True,
        field="field",
    ),
    Key("element", FIELD_NAME, "the field for elements that are not structs; by default the array's name."),
    Key("position", FIELD_NAME, "a field for the index of the element, from 0."),
    Key(
        "outer",
        FLAG,
        "whether a record with an empty or null array becomes one record with null in the fields of the element, or "
        "none.",
        default=False,
    ),
)

FLAT_MAP: Final = NodeKind(
    m.FlatMapNode,
    ("flat_map", "element", "position", "outer"),
    Section("", partial(m.FlatMapNode, ""), _KEYS),
    _findings,
    _words,
    lambda node: f"{'outer ' if node.outer else ''}flat_map {node.field}",
    _python,
)
